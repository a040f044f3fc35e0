r"""Rows whose coefficients are inputs: known late, when a batch runs.

A *late row* is ``Σ α_v x_v ≤ β`` with coefficients that are sums of inputs and numbers, and a bound that may hold
products of two inputs. Neither is a whole number, so a late row never meets another one in a projection. Instead its
outputs leave in another way: x_v has an *easy end* e_v, the lower end of its range if all its late coefficients are
at least 0, the upper end if they are at most 0, and ``∃ x_v φ`` is ``φ`` at ``x_v = e_v`` if no clause gets
harder on the way there (:func:`is_easy`). An output of one late row may *swing*: where its coefficient may have either
sign, no clause may get harder on the way to either end, and which of them is e_v is decided in every row of a batch.

**Theorem.** Let every output of a late row leave so, and let ``Σ α_v e_v ≤ β`` hold. If the outputs are computed one
after another, each such that ``Σ α_v x_v ≤ β`` holds with all later ones at their easy ends, then no row gets stuck,
and every late row holds in the end.

*Proof.* Before the first output the inequality holds by assumption. Let it hold before x_v is computed, with ``x_v =
e_v`` in it. Then e_v keeps every late row; it obeys the clauses of x_v, since those before it obeyed their projection,
which is these clauses at e_v. So there is a choice, and whatever is chosen, the inequality holds afterwards. After
the last output it is the row itself. ∎

An output whose late rows disagree, as ``price * x ≤ budget`` and ``weight * x ≥ need`` do, is *torn*. There may be one,
and it is computed first: its late rows, with all others at their easy ends, bound it by inputs alone. So whether they
leave anything is looked at in every row of a batch, before anything is chosen. Afterwards the inequality holds, and the
proof goes on as above.

With ``d_v = |x_v − e_v|`` and ``a_v = |α_v|`` a late row is ``Σ a_v d_v ≤ β − Σ α_v e_v``: a budget of which each
output takes a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import lcm

from multiplexnet.compiler.cascade.clauses import AtomClause, Ends, least
from multiplexnet.compiler.cascade.projection.project import Bucket, Projection
from multiplexnet.compiler.cascade.projection.rows import (
    Clause,
    Ranges,
    Row,
    clause_of,
    implies,
    row_of,
)
from multiplexnet.errors import CoefficientError
from multiplexnet.language.formula import (
    Atom,
    Bool,
    Formula,
    Linear,
    Product,
    Symbol,
    Variable,
    conjunction,
)
from multiplexnet.language.text import formula_text

__all__ = [
    "ADVICE",
    "LateRow",
    "Polynomial",
    "by_cases",
    "eased",
    "easy_ends",
    "is_easy",
    "is_late",
    "late_rows",
    "torn_of",
]

Polynomial = tuple[tuple[tuple[int, ...], int], ...]
"""Whole multiples of products of inputs (by position, in order); the empty product is 1."""

ADVICE = (
    "what is computed are rows whose inputs multiply outputs with coefficients of one sign, as in "
    "`a[0]*x[0] + a[1]*x[1] <= b` with `a: input[0, 9][2]` and `x >= 0`"
)


CASES = 3
"""The most truth values whose products with inputs are written as cases."""


@dataclass(frozen=True)
class LateRow:
    """``Σ coefficient · output ≤ bound``, or ``<``, over outputs x in their own units.

    Args:
        terms: outputs by number, each with its coefficient and the sign that this never loses: 1 (at least 0), -1, or
            0 if it may have either.
        bound: the right side.
        strict: whether ``<``.
    """

    terms: tuple[tuple[int, Polynomial, int], ...]
    bound: Polynomial
    strict: bool

    @property
    def outputs(self) -> tuple[int, ...]:
        return tuple(variable for variable, _, _ in self.terms)


def is_late(atom: Atom) -> bool:
    """Whether a comparison multiplies inputs."""
    return any(isinstance(symbol, Product) for symbol, _ in atom.linear.summands)


def by_cases(clauses: Iterable[AtomClause]) -> list[AtomClause]:
    """Clauses in which inputs multiply few truth values only, without these products: a case for all their values.

    ``x <= cap * on`` is «on, or x <= 0» and «not on, or x <= cap», which are no late rows.

    Example:
        >>> from multiplexnet.compiler.cascade.clauses import clauses_of
        >>> from multiplexnet.compiler.normal import normal_form
        >>> from multiplexnet.language.parser.parse import parse
        >>> rules = parse("cap: input; on: bool; x: real; x <= cap * on")
        >>> [" or ".join(map(formula_text, clause)) for clause in by_cases(clauses_of(normal_form(rules.formula), 9))]
        ['x <= 0 or on', 'cap >= x or not on']
    """
    found: list[AtomClause] = []
    for clause in clauses:
        waiting = [clause]
        while waiting:
            own = waiting.pop(0)
            atom = next((atom for atom in own if _few_truth_values(atom)), None)
            if atom is None:
                found.append(own)
            else:
                others = tuple(one for one in own if one is not atom)
                waiting += [(case, *rest, *others) for case, rest in _cases(atom)]
    return list(dict.fromkeys(found))


def _multiplied(atom: Atom) -> dict[Variable, None]:
    """The variables that inputs multiply, in order."""
    summands = atom.linear.summands
    return dict.fromkeys(s.other for s, _ in summands if isinstance(s, Product))


def _few_truth_values(atom: Atom) -> bool:
    found = _multiplied(atom)
    truth = all(isinstance(v.domain, Bool) and not v.is_input for v in found)
    return 0 < len(found) <= CASES and truth


def _cases(atom: Atom) -> Iterator[tuple[Atom, tuple[Atom, ...]]]:
    """The comparison for all values of the truth values that inputs multiply, and where these are different ones."""
    truth = tuple(_multiplied(atom))
    for values in product((0, 1), repeat=len(truth)):
        value = dict(zip(truth, values, strict=True))
        parts = []
        for symbol, c in atom.linear.summands:
            if isinstance(symbol, Product):
                parts.append(Linear.of(symbol.known) * (c * value[symbol.other]))
            elif symbol in value:
                parts.append(Linear.number(c * value[symbol]))
            else:
                parts.append(Linear.of(symbol) * c)
        case = sum(parts, Linear.number(atom.linear.constant))
        others = tuple(
            Atom(Linear.of(v) if on else Linear.number(1) - Linear.of(v), "<=")
            for v, on in value.items()
        )
        yield Atom(case, atom.relation), others


def late_rows(
    clauses: Sequence[AtomClause],
    outputs: Sequence[Variable],
    inputs: Sequence[Variable],
    ends: Mapping[Variable, Ends],
    assumed: Formula,
) -> tuple[LateRow, ...]:
    """The late rows among clauses.

    Args:
        clauses: the rules.
        outputs: by number.
        inputs: by position.
        ends: declared ranges of the inputs.
        assumed: what is assumed of them.

    Raises:
        CoefficientError: a late row is only one of several alternatives, or an equality.
    """
    late = [clause for clause in clauses if any(map(is_late, clause))]
    for clause in late:
        if len(clause) > 1:
            raise CoefficientError(
                f"`{formula_text(next(filter(is_late, clause)))}` is only one of several alternatives",
                "a rule that multiplies inputs has to stand alone, not behind `or` or `implies`",
            )
    known = {clause[0].linear for clause in late}
    for clause in late:
        if -clause[0].linear in known:
            raise CoefficientError(
                f"`{formula_text(Atom(clause[0].linear, '=='))}` is an equality, which floats meet by chance only",
                "write two inequalities with room between them, of which one has no product",
            )
    builder = _Builder(outputs, inputs, ends, assumed)
    return tuple(builder.row(clause[0]) for clause in late)


@dataclass(frozen=True)
class _Builder:
    outputs: Sequence[Variable]
    inputs: Sequence[Variable]
    ends: Mapping[Variable, Ends]
    assumed: Formula

    def row(self, atom: Atom) -> LateRow:
        coefficients: dict[Variable, dict[Symbol, Fraction]] = {}
        bound: dict[tuple[Variable, ...], Fraction] = {(): -atom.linear.constant}
        for symbol, c in atom.linear.summands:
            match symbol:
                case Product(known, other) if not other.is_input:
                    coefficients.setdefault(other, {})[known] = c
                case Product(known, other):
                    bound[known, other] = -c
                case Variable() if symbol.is_input:
                    bound[symbol,] = -c
                case Variable():
                    coefficients.setdefault(symbol, {}).setdefault(symbol, c)
        scale = lcm(*(c.denominator for c in bound.values()))
        terms = []
        for output, own in coefficients.items():
            constant = own.pop(output, Fraction(0))
            linear = Linear.total(own, constant)
            terms.append(
                (
                    self.outputs.index(output),
                    self._of(linear, scale),
                    self._sign(linear),
                )
            )
        written = [
            (self._places(factors), int(c * scale)) for factors, c in bound.items() if c
        ]
        return LateRow(
            tuple(sorted(terms)), tuple(sorted(written)), atom.relation == "<"
        )

    def _of(self, linear: Linear, scale: int) -> Polynomial:
        found: list[tuple[tuple[int, ...], int]] = []
        for symbol, c in linear.summands:
            assert isinstance(symbol, Variable)
            found.append(((self.inputs.index(symbol),), int(c * scale)))
        if linear.constant:
            found.append(((), int(linear.constant * scale)))
        return tuple(sorted(found))

    def _places(self, factors: Sequence[Variable]) -> tuple[int, ...]:
        return tuple(sorted(map(self.inputs.index, factors)))

    def _sign(self, coefficient: Linear) -> int:
        """The sign that a coefficient keeps for all inputs that ranges and assumptions allow; 0 if there is none."""
        for sign in (1, -1):
            lowest = least(coefficient * sign, self.ends)
            if lowest is not None and lowest >= 0:
                return sign
        for sign in (1, -1):
            if self._never_negative(coefficient * sign):
                return sign
        return 0

    def _never_negative(self, coefficient: Linear) -> bool:
        from multiplexnet.smt.questions import satisfiable

        below = conjunction([self.assumed, Atom(coefficient, "<")])
        return satisfiable(below, self.inputs) is None


def _signs(rows: Sequence[LateRow]) -> dict[int, list[int]]:
    """For every output of late rows the signs of its coefficients."""
    found: dict[int, list[int]] = {}
    for row in rows:
        for variable, _, sign in row.terms:
            found.setdefault(variable, []).append(sign)
    return found


def _agree(signs: Sequence[int]) -> bool:
    return len(signs) == 1 or (len(set(signs)) == 1 and 0 not in signs)


def easy_ends(rows: Sequence[LateRow], ranges: Ranges) -> dict[int, tuple[int, ...]]:
    """The easy end of every output whose late rows agree; of one that swings, both ends of its range."""
    found: dict[int, tuple[int, ...]] = {}
    for v, signs in _signs(rows).items():
        lower, upper = ranges[v]
        if _agree(signs):
            found[v] = {1: (lower,), -1: (upper,), 0: (lower, upper)}[signs[0]]
    return found


def torn_of(rows: Sequence[LateRow], outputs: Sequence[Variable]) -> int | None:
    """The output whose late rows disagree, or may do so; ``None`` if there is none.

    Raises:
        CoefficientError: there are several.
    """
    torn = [v for v, signs in sorted(_signs(rows).items()) if not _agree(signs)]
    if len(torn) > 1:
        names = ", ".join(outputs[v].name for v in torn[:6])
        raise CoefficientError(
            f"inputs that multiply bound each of {names} from both sides, or may do so; what several such rules leave "
            "to one output is computed, what they leave to several together is not",
            f"{ADVICE}, or make all but one of these outputs inputs, or declare ranges without a change of sign for "
            "the inputs that multiply them",
        )
    return torn[0] if torn else None


# --- leaving --------------------------------------------------------------------------------------------------------


def eased(bucket: Bucket, end: int, ranges: Ranges) -> Projection:
    """A bucket without its variable, which takes its easy end."""
    found = [at_end(clause, bucket.variable, end, ranges) for clause in bucket.clauses]
    return Projection(
        tuple(dict.fromkeys(c for c in found if c is not None)), exact=True
    )


def at_end(clause: Clause, variable: int, end: int, ranges: Ranges) -> Clause | None:
    """A clause with a number instead of a variable; ``None`` if it always holds then."""
    rows = []
    for row in clause:
        c = row.coefficient(variable)
        rows.append(
            row_of(dict(row.without(variable)), row.bound - c * end) if c else row
        )
    return clause_of(rows, ranges)


def is_easy(clause: Clause, variable: int, end: int, ranges: Ranges) -> bool:
    """Whether a clause that holds for some value of a variable holds for its easy end, whatever the others are.

    It does if it always holds there, and if each of its rows, wherever it can hold at all, implies a row of the clause
    at the easy end.
    """
    eased = at_end(clause, variable, end, ranges)
    if eased is None:
        return True
    for row in clause:
        c = row.coefficient(variable)
        best = Row(
            row.without(variable),
            row.bound - min(c * bound for bound in ranges[variable]),
        )
        if best.least(ranges) > best.bound:
            continue
        if not any(implies(best, other, ranges) for other in eased):
            return False
    return True
