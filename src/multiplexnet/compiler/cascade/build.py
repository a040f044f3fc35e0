r"""The cascade: one output after another, each in exactly what is left.

Order the outputs x_1 … x_n, let φ_n be the rules, φ_{j−1} = ∃ x_j φ_j. Given the values before it, x_j may be
anything in ``{ x_j : φ_j(x_1, …, x_j) }``, an interval with gaps whose ends are maxima and minima of affine functions
of what is known. It is never empty if the values before it obeyed φ_{j−1}, which is what the projection says. So n
small choices reach everything that obeys and nothing else, where a disjunctive normal form would need a term for
every combination.

All of this happens on a grid (:mod:`~multiplexnet.compiler.cascade.grid`), on which sums do not round. The projection
is resolution (:mod:`~multiplexnet.compiler.cascade.projection.project`), which asks no solver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from math import ceil
from time import perf_counter

from multiplexnet.compiler.cascade.carriers import multiples_of, shared_steps
from multiplexnet.compiler.cascade.clauses import (
    AtomClause,
    Ends,
    TooManyClauses,
    clauses_of,
    ranges_of,
)
from multiplexnet.compiler.cascade.grid import GridRules, grid_of, power_at_least
from multiplexnet.compiler.cascade.input_parts import Bit, Form, Known
from multiplexnet.compiler.cascade.late_rows import (
    ADVICE,
    LateRow,
    by_cases,
    easy_ends,
    late_rows,
    torn_of,
)
from multiplexnet.compiler.cascade.projection.options import sides_of, splits_of
from multiplexnet.compiler.cascade.projection.order import (
    Elimination,
    HeldBackError,
    Project,
)
from multiplexnet.compiler.cascade.projection.outer import WORK, outer_projection
from multiplexnet.compiler.cascade.projection.project import Bucket, projection
from multiplexnet.compiler.cascade.projection.rows import Clause, Range, Row
from multiplexnet.errors import (
    CascadeBudgetExceeded,
    CoefficientError,
    GridError,
    OptionError,
)
from multiplexnet.exact.deadline import NEVER, PROJECTION, Deadline
from multiplexnet.exact.formats import Format
from multiplexnet.language.formula import TRUE, Bool, Category, Formula, Real, Variable
from multiplexnet.language.missing import flags_among

__all__ = ["EXACT", "WRITTEN", "Budget", "Cascade", "Step", "cascade_of"]

EXACT = 2**53
"""Whole numbers below this are exact in float64, sums of them included as long as these stay below it."""
OPTIONS = 64
"""The most options of an output of which nobody wrote more."""
OUTER_GAPS = 1_024
"""The most gaps of an output where projections are cut short: most of them are empty in any row."""
WRITTEN = 10_000
"""The most clauses that rules may have as they are written."""
ROUNDS = 12
"""How often the grid is made coarser before that is given up."""
FEW_OUTPUTS = 8
"""The most for which the declared order is tried as well, where another one loses points."""


@dataclass(frozen=True)
class Budget:
    """What a projection may cost.

    Args:
        clauses: the most clauses that the projection of one output may have.
        options: the most options that one output may have; ``None``: 64, or as many as the rules themselves write of
            the output alone, as ``n % 2 == 1`` does.

    Raises:
        OptionError: one of them is not a positive whole number.

    Example:
        >>> import multiplexnet as mx
        >>> rules = mx.Rules("x: real[3]; all(v == 0 or 1 <= v <= 5 for v in x); sum(x) <= 9")
        >>> mux = mx.Multiplexer(rules, structure="cascade", budget=mx.Budget(options=2))
        >>> mux.options
        (2, 2, 2)
    """

    clauses: int = 2_000
    options: int | None = None

    def __post_init__(self) -> None:
        for name, most in (("clauses", self.clauses), ("options", self.options)):
            if most is None and name == "options":
                continue
            if not isinstance(most, int) or most < 1:
                raise OptionError(f"Budget: {name}", most, "a positive whole number")

    def options_of(self, bucket: Bucket) -> int:
        """The most options of the output of a bucket."""
        if self.options is not None:
            return self.options
        own = [
            gap
            for gap in bucket.gaps
            if all(not row.without(bucket.variable) for row in gap)
        ]
        return max(OPTIONS, len(own) + 1)


@dataclass(frozen=True)
class Step:
    """One output of a cascade.

    Args:
        bucket: the clauses that bound it by what comes before.
        sides: its options: for every gap whether the value lies above it. Each option is an interval.
        values: for labels and truth values the options instead: one for every value. ``None`` for numbers.
        ranked: where there would be too many sides, the options instead: how many gaps lie below the value.
    """

    bucket: Bucket
    sides: tuple[tuple[bool, ...], ...]
    values: tuple[int, ...] | None
    ranked: bool = False

    @property
    def variable(self) -> int:
        return self.bucket.variable

    @property
    def size(self) -> int:
        """The number of options."""
        if self.ranked:
            return len(self.bucket.gaps) + 1
        return len(self.sides) if self.values is None else len(self.values)


@dataclass(frozen=True)
class Cascade:
    """Outputs in the order in which they are computed, each with what bounds it; plain data.

    Args:
        outputs: the outputs, hidden ones last; variable i is ``outputs[i]``.
        hidden: how many of them are hidden: functions of the others, no outputs of the layer.
        spacing: x_i is a whole multiple of ``spacing[i]``.
        known: what inputs contribute; variable ``len(outputs) + i`` is ``known[i]``.
        ranges: of all variables, in whole numbers.
        steps: in the order of computing.
        guards: what has to hold of the known values for a row to have any output.
        complete: whether every point of the grid that obeys is reached, but for the last steps before the bound of a
            late row, which rounding may take.
        carried: outputs that are ``spacing · k`` plus what an input has beyond the grid, with that input in steps.
        late: rows whose coefficients are inputs; each bounds each of its outputs.
    """

    outputs: tuple[Variable, ...]
    hidden: int
    spacing: tuple[Fraction, ...]
    known: tuple[Known, ...]
    ranges: tuple[Range, ...]
    steps: tuple[Step, ...]
    guards: tuple[Clause, ...]
    complete: bool
    carried: tuple[tuple[int, Form], ...] = ()
    late: tuple[LateRow, ...] = ()

    @property
    def reaches_all(self) -> bool:
        """Whether every point of the grid that obeys is reached, whatever is rounded."""
        return self.complete and not self.late

    @property
    def refuses_no_more(self) -> bool:
        """Whether a row is refused only if no point of the grid obeys; sums of several inputs are rounded."""
        return self.reaches_all and all(known.form.is_exact for known in self.known)

    @property
    def order(self) -> tuple[Variable, ...]:
        """The outputs in the order of computing, hidden ones too."""
        return tuple(self.outputs[step.variable] for step in self.steps)

    @property
    def visible(self) -> tuple[Variable, ...]:
        """The outputs of the layer."""
        return self.outputs[: len(self.outputs) - self.hidden]

    @property
    def rows(self) -> Iterator[Row]:
        """Every row that is evaluated at run time."""
        for clause in (
            *(c for step in self.steps for c in step.bucket.clauses),
            *self.guards,
        ):
            yield from clause

    @property
    def input_units(self) -> dict[int, Fraction]:
        """For every input that outputs add up to, perhaps behind `or`, the spacing that it needs, by position."""
        found: dict[int, Fraction] = {}
        for bit in self.asking_for_grid(self.rows):
            for place, _ in bit.form.terms:
                found[place] = max(
                    found.get(place, Fraction(0)), Fraction(2) ** bit.form.exponent
                )
        return found

    def asking_for_grid(self, rows: Iterable[Row]) -> Iterator[Bit]:
        """The rests that some of the rows allow no input to have: what an equality leaves, two rows added up."""
        first = len(self.outputs)
        for row in rows:
            variable = row.terms[0][0]
            known = self.known[variable - first] if variable >= first else None
            if len(row.terms) == 1 and isinstance(known, Bit):
                yield known

    @cached_property
    def easy_ends(self) -> dict[int, tuple[int, ...]]:
        """The ends that outputs of late rows may always take; two of one that swings, decided in every row."""
        return easy_ends(self.late, dict(enumerate(self.ranges)))

    @cached_property
    def torn(self) -> int | None:
        """The output whose late rows disagree; it is computed first, and what is left to it is looked at before."""
        return torn_of(self.late, self.outputs)

    @property
    def size(self) -> int:
        """A bound of every whole number that is met at run time; below 2^53 nothing rounds."""
        ranges = dict(enumerate(self.ranges))
        rows = max((row.size(ranges) for row in self.rows), default=0)
        widths = (r.upper - r.lower for r in self.ranges[: len(self.outputs)])
        return (
            max(rows, *(r.size for r in self.ranges[: len(self.outputs)]), *widths) + 1
        )

    @property
    def used(self) -> frozenset[int]:
        """The variables that occur in some row."""
        return frozenset(v for row in self.rows for v, _ in row.terms)


def cascade_of(
    formula: Formula,
    outputs: Sequence[Variable],
    inputs: Sequence[Variable],
    form: Format,
    *,
    hidden: Mapping[Variable, frozenset[Variable]] | None = None,
    order: Sequence[Variable] | None = None,
    budget: Budget | None = None,
    deadline: Deadline = NEVER,
    assumed: Formula = TRUE,
    multiples: bool = True,
    is_outer: bool = False,
) -> Cascade:
    """The cascade of rules for one float format.

    Args:
        formula: the rules, in normal form.
        outputs: those that occur in it, in declared order.
        inputs: all inputs, in declared order.
        form: the format of the outputs.
        hidden: outputs that are functions of others and belong to no layer, each with those that it depends on.
        order: the order in which the outputs are computed; found by itself if not given.
        budget: what it may cost.
        deadline: when it has to be done, and who is told how far it is.
        assumed: what is assumed of the inputs.
        multiples: whether the spacing of whole numbers may be more than 1.
        is_outer: whether projections are cut short (:mod:`~multiplexnet.compiler.cascade.projection.outer`), so that
            nothing may be left of an output although those before it were taken from what was left of them.

    Raises:
        CoefficientError: inputs multiply outputs in a shape that is not computed.
        CascadeBudgetExceeded: the projections grow too large; names the output where they do.
        CompileTimeout: the time is over.
        RangeError: an output without ends.
        GridError: no point of the grid obeys, or no grid is coarse enough to be exact.
        DtypeError: whole numbers that the format does not hold.

    Example:
        >>> from multiplexnet.exact.formats import FORMATS
        >>> from multiplexnet.compiler.normal import normal_form
        >>> from multiplexnet.language.parser.parse import parse
        >>> rules = parse("x: real[10]; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) <= 300")
        >>> cascade = cascade_of(normal_form(rules.formula), rules.outputs, (), FORMATS["float32"])
        >>> [step.size for step in cascade.steps], cascade.complete
        ([2, 2, 2, 2, 2, 2, 2, 2, 2, 2], True)
    """
    hidden = hidden or {}
    try:
        clauses = clauses_of(formula, WRITTEN)
    except TooManyClauses:
        raise CascadeBudgetExceeded(outputs[0].name, WRITTEN, "written") from None
    everything = (*(v for v in outputs if v not in hidden), *hidden)

    def search(clauses: Sequence[AtomClause]) -> _Search:
        return _Search(
            clauses,
            everything,
            tuple(inputs),
            form,
            hidden,
            order,
            budget or Budget(),
            deadline,
            late_rows(clauses, everything, inputs, ranges_of([], inputs), assumed),
            multiples,
            is_outer,
        )

    try:
        return search(clauses).cascade()
    except CoefficientError:
        cases = by_cases(clauses)
        if cases == list(clauses):
            raise
    return search(cases).cascade()


@dataclass
class _Search:
    clauses: Sequence[AtomClause]
    outputs: tuple[Variable, ...]
    inputs: tuple[Variable, ...]
    form: Format
    hidden: Mapping[Variable, frozenset[Variable]]
    order: Sequence[Variable] | None
    budget: Budget
    deadline: Deadline
    late: tuple[LateRow, ...]
    multiples: bool
    is_outer: bool
    start: float = field(default_factory=perf_counter)

    def cascade(self) -> Cascade:
        """The cascade on the finest grid; if that loses points, on another one or in another order that loses none."""
        try:
            finest = self._on_grid({})
            wrong = None
        except GridError as error:
            finest = None
            wrong = error
        if finest is not None and finest.complete:
            return finest
        part = finest
        for search, coarse in self._others(finest):
            try:
                found = search._on_grid(coarse)
            except (GridError, CascadeBudgetExceeded, CoefficientError):
                continue
            if found.complete:
                return found
            part = part or found
        if part is None:
            assert wrong is not None
            raise wrong
        return part

    def _others(
        self, finest: Cascade | None
    ) -> Iterator[tuple[_Search, dict[Variable, Fraction]]]:
        """What else may be tried: spacings that equalities ask for, and the declared order where none was named."""
        coarse = self._shared(finest)
        if self.multiples:
            coarse |= multiples_of(self.clauses)
        if coarse:
            yield self, coarse
        if self.order is None and not self.hidden and len(self.outputs) <= FEW_OUTPUTS:
            declared = replace(self, order=_declared_order(self.outputs))
            yield declared, {}
            if coarse:
                yield declared, coarse

    def _shared(self, finest: Cascade | None) -> dict[Variable, Fraction]:
        """Spacings that outputs in the same equalities share."""
        if finest is not None:
            spacing = finest.spacing
            ranges = dict(enumerate(finest.ranges))
        else:
            grid = grid_of(self.clauses, self.outputs, self.inputs, self.form, {})
            spacing = grid.steps
            ranges = dict(grid.ranges)
        steps = {
            output: spacing[i]
            for i, output in enumerate(self.outputs)
            if ranges[i].lower
            < ranges[i].upper  # what has one value only has no spacing
        }
        return shared_steps(self.clauses, steps)

    def _on_grid(self, coarse: Mapping[Variable, Fraction]) -> Cascade:
        """The cascade on the finest grid on which all sums are exact, and no finer than some spacings."""
        least = dict(coarse)
        for _ in range(ROUNDS):
            grid = grid_of(self.clauses, self.outputs, self.inputs, self.form, least)
            if coarser := self._coarser(
                grid, (row for clause in grid.clauses for row in clause)
            ):
                least |= coarser
                continue
            found = self._eliminated(grid)
            coarser = self._coarser(grid, found.rows)
            if not coarser:
                return found
            least |= coarser
        raise GridError(
            f"no grid is found on which the sums of these rules are exact below 2^53; their outputs "
            f"({', '.join(v.name for v in self.outputs[:6])}, …) differ too much in size: measure them in other units"
        )

    def _coarser(
        self, grid: GridRules, rows: Iterable[Row]
    ) -> dict[Variable, Fraction]:
        """Spacings that make the rows that are too large fit; empty if all are exact."""
        found: dict[Variable, Fraction] = {}
        for row in rows:
            size = max(row.size(grid.ranges) + 1, self._sum_of_inputs(grid, row))
            if size < EXACT:
                continue
            factor = power_at_least(Fraction(2 * size, EXACT))
            fine = [
                (v, abs(c) & -abs(c)) for v, c in row.terms if v < len(grid.outputs)
            ]
            raised = {
                v: factor / low
                for v, low in fine
                if low < factor and self._is_real(grid, v)
            }
            for v, times in (raised or self._finest(grid, factor)).items():
                output = grid.outputs[v]
                found[output] = max(
                    found.get(output, Fraction(0)), grid.steps[v] * times
                )
        return found

    def _sum_of_inputs(self, grid: GridRules, row: Row) -> int:
        """Four times the largest sum of whole parts that the inputs of a row can have, if several are summed."""
        sizes = [0]
        for v, _ in row.terms:
            form = (
                grid.known[v - len(grid.outputs)].form
                if v >= len(grid.outputs)
                else None
            )
            if form is None or form.is_exact:
                continue
            known = [
                _size(ranges_of([], self.inputs)[self.inputs[place]])
                for place, _ in form.terms
            ]
            total = Fraction(0)
            for (_, c), size in zip(form.terms, known, strict=True):
                total += abs(c) * (size or 0)
            if None not in known:
                sizes.append(ceil(4 * total / Fraction(2) ** form.exponent))
        return max(sizes)

    def _finest(self, grid: GridRules, factor: Fraction) -> dict[int, Fraction]:
        """By how much the finest spacings of all outputs have to grow."""
        real = [v for v in range(len(grid.outputs)) if self._is_real(grid, v)]
        if not real:
            names = ", ".join(v.name for v in grid.outputs[:6])
            raise GridError(
                f"the rules over {names} need whole numbers beyond 2^53, which no float holds exactly"
            )
        wanted = factor * min(grid.steps[v] for v in real)
        return {v: wanted / grid.steps[v] for v in real if grid.steps[v] < wanted}

    @staticmethod
    def _is_real(grid: GridRules, variable: int) -> bool:
        return isinstance(grid.outputs[variable].domain, Real)

    def _eliminated(self, grid: GridRules) -> Cascade:
        number = {v: i for i, v in enumerate(grid.outputs)}
        self._refuse_empty(grid)
        after = {
            number[v]: frozenset(number[w] for w in needed)
            for v, needed in self.hidden.items()
        }
        for v, flag in flags_among(
            number
        ).items():  # whether it is missing is decided before its value
            after[number[v]] = frozenset([number[flag]])
        order = None if self.order is None else [number[v] for v in self.order]
        search = Elimination(
            grid.clauses,
            grid.ranges,
            range(len(number)),
            after=after,
            order=order,
            tick=self._tick(grid),
            ends=easy_ends(self.late, grid.ranges),
            torn=torn_of(self.late, grid.outputs),
            project=self._project,
        )
        try:
            search.run()
        except HeldBackError as held:
            raise self._held_back(grid, held) from None
        exact = all(projection.exact for projection in search.projections)
        if search.clauses.is_false:
            raise GridError(self._nothing(grid, exact), is_empty=exact)
        decisive = frozenset(
            row
            for bucket in search.buckets
            for clause in bucket.clauses
            for row in clause
            if len(row.terms) == 1 and row.terms[0][0] != bucket.variable
        )
        steps = tuple(self._step(grid, bucket, decisive) for bucket in search.buckets)
        return Cascade(
            grid.outputs,
            len(self.hidden),
            grid.steps,
            grid.known,
            tuple(grid.ranges[i] for i in range(len(grid.ranges))),
            steps,
            (*grid.guards, *search.clauses),
            exact,
            tuple(sorted(grid.carried.items())),
            self.late,
        )

    @property
    def _project(self) -> Project:
        """What makes the clauses that are left without an output."""
        if not self.is_outer:
            return projection
        return partial(outer_projection, work=WORK // len(self.outputs))

    def _held_back(self, grid: GridRules, held: HeldBackError) -> CoefficientError:
        names = ", ".join(grid.outputs[v].name for v in held.variables[:6])
        return CoefficientError(
            f"other rules keep {names} from the end of the range where every product is smallest, so that these rules "
            "would have to be combined with the products",
            ADVICE + ", and other rules that such a small output obeys, too",
        )

    def _refuse_empty(self, grid: GridRules) -> None:
        for i, output in enumerate(grid.outputs):
            if grid.ranges[i].lower > grid.ranges[i].upper:
                raise GridError(
                    f"between the ends that the rules give to {output.name} lies no number of its grid, whose spacing "
                    f"in {self.form.name} is {float(grid.steps[i]):g}: give it more room, or use a wider dtype",
                    is_empty=True,
                )

    def _nothing(self, grid: GridRules, exact: bool) -> str:
        finest = ", ".join(
            f"{v.name} {float(h):g}"
            for v, h in list(zip(grid.outputs, grid.steps, strict=True))[:6]
        )
        if not exact:
            return (
                f"none of the points that a cascade reaches obeys the rules in {self.form.name} (spacing of the "
                f"outputs: {finest}), and in this order it reaches only a part of them, so that there may be others: "
                "name another order with order=[…], or give outputs narrower ranges. An equality such as "
                "`x + y == 0.3*u` has no grid, since 0.3 times a float is none: declare an input for the product, "
                "as in `share: input; x + y == share`, and pass it rounded by mux.on_grid(share=0.3*u)"
            )
        return (
            f"no point of the grid obeys the rules in {self.form.name} (spacing of the outputs: {finest}): give the "
            "rules more room, use a wider dtype, or measure outputs so that equalities hold on multiples of a power of "
            "two"
        )

    def _step(self, grid: GridRules, bucket: Bucket, decisive: frozenset[Row]) -> Step:
        output = grid.outputs[bucket.variable]
        if output in self.hidden:
            return Step(bucket, ((),), None)
        if isinstance(output.domain, Bool | Category):
            return Step(
                bucket, (), tuple(range(bucket.range.lower, bucket.range.upper + 1))
            )
        bucket = replace(bucket, gaps=(*bucket.gaps, *splits_of(bucket, decisive)))
        most = self.budget.options_of(bucket)
        sides = sides_of(bucket, grid.ranges, most)
        if sides is not None:
            return Step(bucket, sides, None)
        if len(bucket.gaps) >= (OUTER_GAPS if self.is_outer else most):
            raise CascadeBudgetExceeded(
                output.name, most, "options", perf_counter() - self.start
            )
        return Step(bucket, (), None, ranked=True)

    def _tick(self, grid: GridRules) -> Callable[[int, int], None]:
        left = None

        def tick(variable: int, count: int) -> None:
            nonlocal left
            name = grid.outputs[variable].name
            if variable != left:
                left = variable
                self.deadline.begin(PROJECTION, name)
            self.deadline.step(count)
            if count > self.budget.clauses:
                seconds = perf_counter() - self.start
                raise CascadeBudgetExceeded(name, self.budget.clauses, seconds=seconds)

        return tick


def _declared_order(outputs: Sequence[Variable]) -> list[Variable]:
    """The outputs as they were declared, each after the flag that says whether it is missing."""
    flags = flags_among(outputs)
    found: list[Variable] = []
    for output in outputs:
        if not output.is_flag:
            found += [flags[output], output] if output in flags else [output]
    return found


def _size(ends: Ends) -> Fraction | None:
    """The largest absolute value between two ends, if there is one."""
    lower, upper = ends
    return None if lower is None or upper is None else max(abs(lower), abs(upper))
