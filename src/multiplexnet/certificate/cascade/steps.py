r"""The steps of a cascade, proved: they imply the rules, none gets stuck, and nothing that obeys is lost.

Rules and clauses are formulas over whole numbers here (:mod:`~multiplexnet.certificate.cascade.grid`).

* **sound**: the clauses of the steps imply every rule, and every declared domain.
* **never stuck**: where the clauses of the steps before hold, step j has a value. The values that obey are a union of
  intervals, and the least of them is the lower end of the range, or an end ``⌈l / a⌉`` that some row ``a k ≥ l`` asks
  for. So it is enough to try these few.
  An output of late rows (:mod:`~multiplexnet.certificate.cascade.late_rows`) has its easy end: only that is tried,
  where the late rows hold with it and all later outputs at their easy ends.
* **complete**: the rules imply every clause. A clause of an early step is the projection of a later one, so the clauses
  of later steps, proved before, may be used.

Questions are asked of few premises first, which nearly always do, and of all of them if not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from multiplexnet.certificate.cascade.grid import GridVariables
from multiplexnet.certificate.cascade.late_rows import LateRow, torn
from multiplexnet.certificate.cascade.recorded import Bit, Cascade, Clause, Row, Step
from multiplexnet.certificate.formats import Format
from multiplexnet.certificate.questions import Answer
from multiplexnet.certificate.report import Claim, said
from multiplexnet.certificate.rules import Reading
from multiplexnet.language.formula import Bool

__all__ = ["Steps"]

SHORT = 2_000
LONG = 20_000
"""Milliseconds that a question of few premises, and one of all of them, may take."""


BUT_ROUNDING = (
    ", but for the last steps before the bound of a product, which rounding may take"
)


def _used(clauses: Iterable[Clause]) -> set[int]:
    return {v for clause in clauses for row in clause for v, _ in row.terms}


def _in_late(rows: Iterable[LateRow]) -> set[int]:
    return {term.variable for row in rows for term in row.terms}


@dataclass
class Steps:
    """One cascade under check.

    Args:
        cascade: what is claimed.
        rules: the rules.
        parts: those of their conjuncts that mention no output but those of the cascade.
        near: those that mention one of them at all.
    """

    cascade: Cascade
    rules: Reading
    parts: Sequence[Any]
    near: Sequence[Any]
    grid: GridVariables = field(init=False)

    def __post_init__(self) -> None:
        self.grid = GridVariables(self.cascade, self.rules)

    @property
    def _visible(self) -> range:
        return range(len(self.cascade.outputs))

    @property
    def _hidden(self) -> range:
        return range(len(self.cascade.outputs), self.cascade.first_known)

    def statements(self, form: Format, names: str) -> Iterator[Claim]:
        """Everything that is claimed of the cascade."""
        if self.cascade.late:
            text = (
                f"coefficients from inputs, over {names}, have the signs that are said"
            )
            yield _first(text, self._signs())
        yield _first(f"sound: the steps over {names} imply the rules", self._sound())
        text = f"never stuck: every step over {names} has a value"
        for i in torn(self.cascade.late):
            name = self.cascade.outputs[i].name
            text += f", where the layer, as it looks in every row, finds one for {name}"
        yield _first(text, self._never_stuck())
        if self.cascade.carried:
            text = f"what carries the rest of an input, over {names}, is a number of the format"
            yield _first(text, self._carries())
        yield self._complete(form, names)

    def whole(self) -> Any:
        """Everything that the steps say of x, for a rule that speaks of other outputs, too."""
        grid = self.grid
        every = range(len(self.cascade.ranges))
        facts = [
            *map(grid.clause, self.cascade.clauses),
            *map(grid.late, self.cascade.late),
            *grid.definitions(every, rounded=True),
        ]
        facts += [
            bound for i in range(self.cascade.first_known) for bound in grid.range(i)
        ]
        for i, output in enumerate(self.cascade.outputs):
            facts.append(
                grid.term(
                    "EQUAL", grid.writer.constant(output), grid.stand_in(i, output)
                )
            )
        return grid.writer.all_of(facts)

    # --- sound ------------------------------------------------------------------------------------------------------

    def _sound(self) -> Iterator[Answer]:
        for i in self._hidden:
            yield self._follows(
                self.grid.condition(i), self.grid.condition_variables(i) | {i}
            )
        domains = [
            bound for v in self.cascade.outputs for bound in self.grid.writer.domain(v)
        ]
        for rule in (*domains, *self.parts):
            yield self._follows(self.grid.in_k(rule), self.grid.variables(rule))

    def _follows(self, conclusion: Any, variables: set[int]) -> Answer:
        """Whether the clauses imply it; those that speak of its variables alone come first."""
        every = self.cascade.clauses
        late = self.cascade.late
        apart = set(self._visible) - variables
        near = [clause for clause in every if not _used([clause]) & apart]
        near_late = [row for row in late if not _in_late([row]) & apart]
        answer = self._from_clauses(near, near_late, conclusion, variables, SHORT)
        if answer.proved or (len(near), len(near_late)) == (len(every), len(late)):
            return answer
        return self._from_clauses(every, late, conclusion, variables, LONG)

    def _from_clauses(
        self,
        clauses: Sequence[Clause],
        late: Sequence[LateRow],
        conclusion: Any,
        variables: set[int],
        milliseconds: int,
    ) -> Answer:
        grid = self.grid
        named = _used(clauses) | _in_late(late) | variables
        computed = [i for i in named if i < self.cascade.first_known]
        premises = [*map(grid.clause, clauses), *map(grid.late, late)]
        premises += [bound for i in computed for bound in grid.range(i)]
        premises += grid.definitions(named, rounded=True)
        return grid.implied(premises, conclusion, milliseconds)

    def _signs(self) -> Iterator[Answer]:
        """Coefficients of late rows keep their signs for all inputs that ranges and assumptions allow."""
        grid = self.grid
        zero = grid.writer.number(Fraction(0))
        for term in (term for row in self.cascade.late for term in row.terms):
            if term.sign:
                kept = "GEQ" if term.sign > 0 else "LEQ"
                value = grid.polynomial(term.coefficient)
                yield grid.implied([], grid.term(kept, value, zero), LONG)

    def _carries(self) -> Iterator[Answer]:
        """A multiple of the spacing of the input between 0 and this input belongs to the format."""
        zero = self.grid.writer.number(Fraction(0))
        for i, form in self.cascade.carried.items():
            x = self.grid.x(i)
            u = self.grid.input(form.terms[0][0])
            between = self.grid.term(
                "AND", self.grid.term("LEQ", zero, x), self.grid.term("LEQ", x, u)
            )
            yield self._follows(between, {i})

    # --- never stuck ------------------------------------------------------------------------------------------------

    def _never_stuck(self) -> Iterator[Answer]:
        yield from self._known_in_range()
        before = list(self.cascade.guards)
        late = _in_late(self.cascade.late)
        for step in self.cascade.steps:
            if step.variable not in late:
                yield self._has_value(step, before)
            for end in self.cascade.easy_ends.get(step.variable, ()):
                yield self._has_easy_end(step, end, before)
            before += step.clauses

    def _has_easy_end(self, step: Step, end: int, before: Sequence[Clause]) -> Answer:
        """Whether the easy end of an output obeys, where late rows hold with all that is not computed at such ends."""
        grid = self.grid
        held = [self._with_later(row, step, end) for row in self.cascade.late]
        conclusion = grid.writer.all_of([self._obeys(step, grid.whole(end)), *held])
        named = _used(step.clauses) - {step.variable}
        answer = Answer(False)
        for clauses, milliseconds in self._premises(before, named):
            bounds = [bound for i in _used(clauses) | named for bound in grid.range(i)]
            premises = [*map(grid.clause, clauses), *bounds, *held]
            answer = grid.implied(premises, conclusion, milliseconds)
            if answer.proved:
                break
        return answer

    def _with_later(self, row: LateRow, step: Step, end: int) -> Any:
        """A late row with one output at an end, and later ones at theirs; of one that swings, wherever that is."""
        grid = self.grid
        order = [one.variable for one in self.cascade.steps]
        at = {}
        for term in row.terms:
            ends = self.cascade.easy_ends.get(term.variable, ())
            if term.variable == step.variable:
                at[term.variable] = grid.late_product(term, end)
            elif order.index(term.variable) > order.index(step.variable):
                at[term.variable] = (
                    grid.late_product(term, ends[0])
                    if len(ends) == 1
                    else grid.real(
                        f"late {self.cascade.late.index(row)} {term.variable}"
                    )
                )
        return grid.late(row, at)

    def _known_in_range(self) -> Iterator[Answer]:
        """The guards keep known values in their ranges; whole parts are cut to them."""
        grid = self.grid
        first = self.cascade.first_known
        for i, known in enumerate(self.cascade.known, start=first):
            if isinstance(known, Bit):
                guards = [c for c in self.cascade.guards if _used([c]) == {i}]
                premises = [
                    *map(grid.clause, guards),
                    *grid.definitions({i}, rounded=True),
                ]
                yield grid.implied(premises, grid.writer.all_of(grid.range(i)), LONG)

    def _has_value(self, step: Step, before: Sequence[Clause]) -> Answer:
        grid = self.grid
        named = _used(step.clauses) - {step.variable}
        tried, definitions = self._tried(step)
        conclusion = grid.writer.any_of([self._obeys(step, value) for value in tried])
        answer = Answer(False)
        for clauses, milliseconds in self._premises(before, named):
            bounds = [bound for i in _used(clauses) | named for bound in grid.range(i)]
            premises = [*map(grid.clause, clauses), *bounds, *definitions]
            answer = grid.implied(premises, conclusion, milliseconds)
            if answer.proved:
                break
        return answer

    @staticmethod
    def _premises(
        clauses: Sequence[Clause], variables: set[int]
    ) -> list[tuple[Sequence[Clause], int]]:
        near = [clause for clause in clauses if _used([clause]) <= variables]
        return (
            [(near, SHORT), (clauses, LONG)]
            if len(near) < len(clauses)
            else [(clauses, LONG)]
        )

    def _tried(self, step: Step) -> tuple[list[Any], list[Any]]:
        """The values of which one obeys if any does, and what defines them."""
        grid = self.grid
        if step.values is not None:
            return [grid.whole(value) for value in step.values], []
        values = [grid.whole(self.cascade.ranges[step.variable][0])]
        definitions: list[Any] = []
        rows = dict.fromkeys(row for clause in step.clauses for row in clause)
        for row in (row for row in rows if row.of(step.variable) < 0):
            a = -row.of(step.variable)
            need = self._need(row, step.variable)
            value = need
            if a > 1:  # a · value − need is between 0 and a − 1
                value = grid.manager.mkConst(grid.manager.getIntegerSort(), "end")
                beyond = grid.term("SUB", grid.times(a, value), need)
                definitions.append(grid.term("LEQ", grid.whole(0), beyond))
                definitions.append(grid.term("LEQ", beyond, grid.whole(a - 1)))
            values.append(value)
        return values, definitions

    def _need(self, row: Row, x: int) -> Any:
        """The l of a row ``a k ≥ l``."""
        grid = self.grid
        rest = [grid.times(c, grid.k[v]) for v, c in row.terms if v != x]
        number = grid.whole(-row.bound)
        return grid.term("ADD", *rest, number) if rest else number

    def _obeys(self, step: Step, value: Any) -> Any:
        """That a value lies in the range, obeys the clauses of a step, and belongs to one of its options."""
        grid = self.grid
        at = {step.variable: value}
        holds = [grid.clause(clause, at) for clause in step.clauses]
        return grid.writer.all_of(
            [*grid.range(step.variable, value), *holds, self._option(step, at)]
        )

    def _option(self, step: Step, at: Mapping[int, Any]) -> Any:
        """That a value is one of those listed, or lies on the listed sides of all gaps."""
        grid = self.grid
        if step.values is not None:
            value = at[step.variable]
            equal = [grid.term("EQUAL", value, grid.whole(v)) for v in step.values]
            return grid.writer.any_of(equal)
        if step.admits_all:
            return grid.manager.mkBoolean(True)
        above = []
        for gap in step.gaps:
            lower = tuple(row for row in gap if row.of(step.variable) < 0)
            above.append(grid.clause(lower, at))
        options = [
            [
                term if side else grid.writer.negated(term)
                for term, side in zip(above, sides, strict=True)
            ]
            for sides in step.sides
        ]
        return grid.writer.any_of(map(grid.writer.all_of, options))

    # --- complete ---------------------------------------------------------------------------------------------------

    def _complete(self, form: Format, names: str) -> Claim:
        missed = next((a for a in self._everything(form) if not a.proved), None)
        if self.cascade.complete:
            text = f"complete: the steps over {names} reach every point of the grid that obeys the rules"
            text += BUT_ROUNDING if self.cascade.late else ""
            return said(text, missed or Answer(True), "it misses a point")
        text = f"the steps over {names} are said to reach a part of what obeys, and no more is claimed"
        return Claim(text, True)

    def _everything(self, form: Format) -> Iterator[Answer]:
        """That the rules imply the ranges, every clause and every option, those of the last step first."""
        yield from self._ranges(form)
        later: list[Step] = []
        for step in reversed(self.cascade.steps):
            for clause in step.clauses:
                yield self._clause_follows(clause, later)
            if not step.admits_all:
                yield self._options_suffice(step)
            later.insert(0, step)
        for clause in self.cascade.guards:
            yield self._clause_follows(clause, later)
        for row in self.cascade.late:
            yield self._late_follows(row)

    def _late_follows(self, row: LateRow) -> Answer:
        """Whether a late row follows from rules over its outputs, or from all of them."""
        grid = self.grid
        named = _in_late([row])
        own = [rule for rule in self.near if grid.variables(rule) <= named]
        answer = Answer(False)
        for rules, milliseconds in ((own, SHORT), (self.near, LONG)):
            premises = self._with_ranges(rules, [], named)
            answer = grid.implied(premises, grid.late(row), milliseconds)
            if answer.proved:
                break
        return answer

    def _ranges(self, form: Format) -> Iterator[Answer]:
        """The rules keep every output in its range; outputs that are in theirs help the others."""
        proved: list[int] = [*self._hidden]
        waiting = list(self._visible)
        for rules in (self._alone, self._about, lambda i: self.near):
            for i in list(waiting):
                answer = self._range_follows(i, rules(i), proved, form)
                if answer.proved:
                    proved.append(i)
                    waiting.remove(i)
                elif rules(i) is self.near:
                    yield answer
        yield Answer(True)

    def _alone(self, i: int) -> Sequence[Any]:
        return [rule for rule in self.near if self.grid.variables(rule) == {i}]

    def _about(self, i: int) -> Sequence[Any]:
        return [rule for rule in self.near if i in self.grid.variables(rule)]

    def _range_follows(
        self, i: int, rules: Sequence[Any], proved: Sequence[int], form: Format
    ) -> Answer:
        grid = self.grid
        largest = grid.writer.number(form.largest)
        x = grid.x(i)
        held = [
            grid.term("LEQ", x, largest),
            grid.term("LEQ", grid.writer.number(-form.largest), x),
        ]
        named = {i}.union(*map(grid.variables, rules)) & {*self._visible}
        for own in sorted(named):  # what is declared of others is a rule, too
            held += map(grid.in_k, grid.writer.domain(self.cascade.outputs[own]))
        if isinstance(self.cascade.outputs[i].domain, Bool):
            ends = [grid.whole(end) for end in (0, 1)]
            held += [
                grid.term("LEQ", ends[0], grid.k[i]),
                grid.term("LEQ", grid.k[i], ends[1]),
            ]
        premises = [*held, *self._rules_in_k(rules, proved, {i})]
        return grid.implied(premises, grid.writer.all_of(grid.range(i)), LONG)

    def _rules_in_k(
        self, rules: Sequence[Any], ranged: Iterable[int], variables: set[int]
    ) -> list[Any]:
        """Rules over k, with the ranges and definitions of what occurs in them."""
        grid = self.grid
        named = set(variables).union(*(grid.variables(rule) for rule in rules))
        hidden = [
            i
            for i in self._hidden
            if grid.condition_variables(i) <= named or i in named
        ]
        premises = [grid.in_k(rule) for rule in rules]
        premises += [grid.condition(i) for i in hidden]
        premises += [
            bound for i in ranged if i in {*named, *hidden} for bound in grid.range(i)
        ]
        return premises + grid.definitions(named, rounded=False)

    def _clause_follows(self, clause: Clause, later: Sequence[Step]) -> Answer:
        """Whether a clause follows from rules over its variables, from one later step, or from everything."""
        grid = self.grid
        named = _used([clause])
        around = named.union(
            *(grid.condition_variables(i) for i in named if i in self._hidden)
        )
        conclusion = grid.clause(clause)
        own = [rule for rule in self.near if grid.variables(rule) <= around]
        answer = grid.implied(self._with_ranges(own, [], named), conclusion, SHORT)
        for step in later:
            if answer.proved:
                return answer
            if named <= _used(step.clauses):
                answer = grid.implied(
                    self._with_ranges([], [step], named), conclusion, SHORT
                )
        if answer.proved:
            return answer
        return grid.implied(
            self._with_ranges(self.near, later, named), conclusion, LONG
        )

    def _with_ranges(
        self, rules: Sequence[Any], steps: Sequence[Step], variables: set[int]
    ) -> list[Any]:
        """Rules and clauses over k, with the ranges of everything that occurs in them."""
        grid = self.grid
        clauses = [clause for step in steps for clause in step.clauses]
        named = variables | _used(clauses)
        computed = range(self.cascade.first_known)
        premises = [
            *map(grid.clause, clauses),
            *(b for i in named for b in grid.range(i) if i in computed),
        ]
        rest = named.union(*(grid.variables(rule) for rule in rules))
        premises += [b for i in rest - named for b in grid.range(i)]
        return premises + self._rules_in_k(rules, self._hidden, named)

    def _options_suffice(self, step: Step) -> Answer:
        """Whether every value that obeys belongs to a listed option."""
        lower, upper = self.cascade.ranges[step.variable]
        values = step.values or ()
        if len({v for v in values if lower <= v <= upper}) == upper - lower + 1:
            return Answer(True)
        grid = self.grid
        conclusion = self._option(step, {step.variable: grid.k[step.variable]})
        named = _used(step.clauses) | {step.variable}
        answer = grid.implied(self._with_ranges([], [step], named), conclusion, SHORT)
        if answer.proved:
            return answer
        return grid.implied(
            self._with_ranges(self.near, self.cascade.steps, named), conclusion, LONG
        )


def _first(text: str, answers: Iterable[Answer]) -> Claim:
    """That all answers are yes, or the first that is not."""
    return said(text, next((a for a in answers if not a.proved), Answer(True)))
