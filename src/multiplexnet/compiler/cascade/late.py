r"""Rows whose coefficients are inputs: known late, when a batch runs.

A *late row* is ``Σ α_v x_v ≤ β`` with coefficients that are sums of inputs and numbers, and a bound that may hold
products of two inputs. Neither is a whole number, so a late row never meets another one in a projection. Instead its
outputs leave in another way: x_v has an *easy end* e_v, the lower end of its range if all its late coefficients are
at least 0, the upper end if they are at most 0, and ``∃ x_v φ`` is ``φ`` at ``x_v = e_v`` if no clause gets
harder on the way there (:func:`is_easy`).

**Theorem.** Let every output of a late row leave so, and let ``Σ α_v e_v ≤ β`` hold. If the outputs are computed one
after another, each such that ``Σ α_v x_v ≤ β`` holds with all later ones at their easy ends, then no row gets stuck,
and every late row holds in the end.

*Proof.* Before the first output the inequality holds by assumption. Let it hold before x_v is computed, with ``x_v =
e_v`` in it. Then e_v keeps every late row; it obeys the clauses of x_v, since those before it obeyed their projection,
which is these clauses at e_v. So there is a choice, and whatever is chosen, the inequality holds afterwards. After
the last output it is the row itself. ∎

With ``d_v = |x_v − e_v|`` and ``a_v = |α_v|`` a late row is ``Σ a_v d_v ≤ β − Σ α_v e_v``: a budget of which each
output takes a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from multiplexnet.compiler.cascade.clauses import AtomClause, Ends, least
from multiplexnet.compiler.cascade.projection import Bucket, Projection
from multiplexnet.compiler.cascade.rows import (
    Clause,
    Range,
    Ranges,
    Row,
    clause_of,
    implies,
    row_of,
)
from multiplexnet.errors import CoefficientError
from multiplexnet.language.formula import (
    Atom,
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
    "eased",
    "easy_ends",
    "is_easy",
    "is_late",
    "late_rows",
]

Polynomial = tuple[tuple[tuple[int, ...], int], ...]
"""Whole multiples of products of inputs (by position, in order); the empty product is 1."""

ADVICE = (
    "what is computed are rows whose inputs multiply outputs with coefficients of one sign, as in "
    "`a[0]*x[0] + a[1]*x[1] <= b` with `a: input[0, 9][2]` and `x >= 0`"
)


@dataclass(frozen=True)
class LateRow:
    """``Σ coefficient · output ≤ bound``, or ``<``, over outputs x in their own units.

    Args:
        terms: outputs by number, each with its coefficient and the sign that this never loses: 1 (at least 0) or -1.
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
        CoefficientError: a late row is only one of several alternatives, an equality, or has a coefficient of unknown
            sign.
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
                    self._sign(linear, atom, output),
                )
            )
        written = [(self._places(factors), int(c * scale)) for factors, c in bound.items() if c]
        return LateRow(tuple(sorted(terms)), tuple(sorted(written)), atom.relation == "<")

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

    def _sign(self, coefficient: Linear, atom: Atom, output: Variable) -> int:
        """The sign that a coefficient keeps for all inputs that ranges and assumptions allow."""
        for sign in (1, -1):
            lowest = least(coefficient * sign, self.ends)
            if lowest is not None and lowest >= 0:
                return sign
        for sign in (1, -1):
            if self._never_negative(coefficient * sign):
                return sign
        names = ", ".join(f"`{s.name}`" for s, _ in coefficient.summands if isinstance(s, Variable))
        raise CoefficientError(
            f"in `{formula_text(atom)}` the coefficient of {output.name} may have either sign",
            f"declare a range for {names} without a change of sign, as in `price: input[0, 100]`, or "
            "`assume price >= 0`",
        )

    def _never_negative(self, coefficient: Linear) -> bool:
        from multiplexnet.smt.questions import satisfiable

        below = conjunction([self.assumed, Atom(coefficient, "<")])
        return satisfiable(below, self.inputs) is None


def easy_ends(
    rows: Sequence[LateRow], outputs: Sequence[Variable], ranges: Mapping[int, Range]
) -> dict[int, int]:
    """For every output of late rows its easy end.

    Raises:
        CoefficientError: one row wants it small, another one large.
    """
    signs: dict[int, set[int]] = {}
    for row in rows:
        for variable, _, sign in row.terms:
            signs.setdefault(variable, set()).add(sign)
    for variable, found in signs.items():
        if len(found) > 1:
            raise CoefficientError(
                f"one rule bounds {outputs[variable].name} from above and another one from below, both by inputs that "
                "multiply; what the two leave is not computed",
                ADVICE,
            )
    return {v: ranges[v].lower if found == {1} else ranges[v].upper for v, found in signs.items()}


# --- leaving --------------------------------------------------------------------------------------------------------


def eased(bucket: Bucket, end: int, ranges: Ranges) -> Projection:
    """A bucket without its variable, which takes its easy end."""
    found = [at_end(clause, bucket.variable, end, ranges) for clause in bucket.clauses]
    return Projection(tuple(dict.fromkeys(c for c in found if c is not None)), exact=True)


def at_end(clause: Clause, variable: int, end: int, ranges: Ranges) -> Clause | None:
    """A clause with a number instead of a variable; ``None`` if it always holds then."""
    rows = []
    for row in clause:
        c = row.coefficient(variable)
        rows.append(row_of(dict(row.without(variable)), row.bound - c * end) if c else row)
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
        best = Row(row.without(variable), row.bound - min(c * bound for bound in ranges[variable]))
        if best.least(ranges) > best.bound:
            continue
        if not any(implies(best, other, ranges) for other in eased):
            return False
    return True
