"""The rows of a term, exactly: no row follows from the others, and every equality is written as one.

Rows with the same left side are compared by their numbers. The rest falls into groups that share no variable; in each
of them a point proves most rows needed (:mod:`~multiplexnet.compiler.witness`), and z3 is asked about the
others.
Where z3 would take minutes, rows are left as they are: in a large dense group with room inside, and when a question is
not answered within a fixed amount of work. A row too many costs time and is never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from multiplexnet.compiler.normal import canonical, opposite
from multiplexnet.compiler.shapes import Row, Shape, shaped
from multiplexnet.compiler.witness import Inequalities, without_equalities
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.language.formula import And, Atom, Formula, Or, Symbol, Variable
from multiplexnet.smt.search import Questions, Sandbox

__all__ = ["Tidy", "interior", "row_order"]

WORK = 1_000_000
"""z3's ``rlimit`` for one question."""
DENSE = 5
"""Variables in a row, on average, from which z3's exact simplex is slow."""
LARGE = 100
HUGE = 400
"""Coefficients of a dense group from which an LP in floats is tried before z3, and from which z3 is not asked."""
LONG = 20
"""The bits of a coefficient that counts once; one of twice as many counts four times."""

MANY = 500
"""Rows of any group from which the LP comes first as well."""

Group = tuple[Atom, ...]
Left = tuple[tuple[Symbol, ...], tuple[int, ...]]


def row_order(row: Atom) -> tuple[object, ...]:
    """The canonical order of rows: equalities first, then by their variables as declared, then by their numbers."""
    summands = row.linear.summands
    key: tuple[tuple[int, str, Fraction], ...]
    if row.linear.is_plain:
        key = tuple([(symbol.index, "", c) for symbol, c in summands])  # type: ignore[union-attr]
    else:
        key = tuple([(*_symbol_order(symbol), c) for symbol, c in summands])
    return (row.relation != "==", key, row.linear.constant, row.relation)


def _symbol_order(symbol: Symbol) -> tuple[int, str]:
    """Variables as declared, then everything else by its text."""
    if isinstance(symbol, Variable):
        return (symbol.index, "")
    return (1 << 30, repr(symbol))


def tightest(rows: Iterable[Atom]) -> list[Atom]:
    """The rows without those that another one with the same left side makes superfluous."""
    kept: dict[Left, Atom] = {}
    equalities: dict[Left, Atom] = {}
    for row in rows:
        left = _left(row)
        if row.relation == "==":
            equalities[left] = row
            continue
        other = kept.get(left)
        if other is None or _strength(row) > _strength(other):
            kept[left] = row
    for left, row in list(kept.items()):
        reverse = _reversed(left)
        mirror = kept.get(reverse)
        if mirror is not None and mirror.linear.constant == -row.linear.constant:
            equality = canonical(row.linear, "==")
            if isinstance(equality, Atom):
                equalities[_left(equality)] = equality
        if left in equalities or reverse in equalities:
            del kept[left]
    return [*equalities.values(), *kept.values()]


def _left(row: Atom) -> Left:
    """The left side in a form whose hash is cheap: a canonical row has whole coefficients."""
    whole, _ = row.linear.whole
    return row.linear.symbols, whole


def _reversed(left: Left) -> Left:
    symbols, coefficients = left
    return symbols, tuple(-c for c in coefficients)


def _strength(row: Atom) -> tuple[Any, bool]:
    return (row.linear.constant, row.relation == "<")


def groups(rows: Iterable[Atom]) -> list[Group]:
    """The rows in the finest groups that share no symbol, in the order in which z3 is asked about them."""
    group_of: dict[Symbol, _Growing] = {}
    for number, row in enumerate(rows):
        mentioned = [symbol for symbol, _ in row.linear.summands]
        touched = {id(g): g for s in mentioned if (g := group_of.get(s)) is not None}
        latest_first = sorted(touched.values(), key=lambda g: g.last, reverse=True)
        own = _joined(latest_first, group_of)
        own.add(row, number)
        for symbol in mentioned:
            if symbol not in group_of:
                group_of[symbol] = own
                own.symbols.append(symbol)
    found = {id(group): group for group in group_of.values()}
    in_order = sorted(found.values(), key=lambda group: group.last)
    return [tuple(group.members) for group in in_order]


@dataclass
class _Growing:
    """Rows that share symbols, and the number of the last of them that was met."""

    symbols: list[Symbol] = field(default_factory=list)
    members: list[Atom] = field(default_factory=list)
    last: int = -1

    def add(self, row: Atom, number: int) -> None:
        self.members.append(row)
        self.last = number


def _joined(parts: Sequence[_Growing], group_of: dict[Symbol, _Growing]) -> _Growing:
    """One group with the rows of all, in this order; the symbols of the smaller ones move over to the largest."""
    if len(parts) == 1:
        return parts[0]
    own = max(parts, key=lambda part: len(part.symbols), default=_Growing())
    own.members = [row for part in parts for row in part.members]
    for part in parts:
        if part is not own:
            own.symbols += part.symbols
            group_of.update(dict.fromkeys(part.symbols, own))
    return own


def interior(
    rows: Sequence[Atom], deadline: Deadline = NEVER
) -> dict[Symbol, float] | None:
    """A common point of rows that are many, and dense, that certainly has room in all inequalities, if one was found.

    It says nothing of variables that equalities determine.
    """
    if not _dense(rows):
        return None
    eliminated, _ = without_equalities(rows)
    linears = Inequalities(tuple(eliminated))
    point = linears.interior_point(deadline)
    if point is None:
        return None
    return dict(zip(linears.symbols, point.tolist(), strict=True))


def _dense(rows: Sequence[Atom], size: int = LARGE) -> bool:
    return sum(map(_work, rows)) > max(size, DENSE * len(rows))


def _work(row: Atom) -> float:
    """The number of coefficients, more where they have many digits: exact solvers multiply all of them."""
    whole, _ = row.linear.whole
    bits = max(abs(c).bit_length() for c in whole)
    return len(whole) * max(1, bits / LONG) ** 2


class Tidy:
    """Brings the rows of terms over one background into their final form.

    Args:
        sandbox: where z3 is asked.
        known: what holds anyway and is not a row of any term (the ranges of the inputs, what is assumed of them).
        inside: a point that is thought to have room in all rows, if one was found already.
        shapes: the final rows of groups by their shape, shared with whoever tidies others over the same background;
            without them no shapes are compared.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        known: Sequence[Formula] = (),
        inside: Mapping[Symbol, float] | None = None,
        shapes: dict[Shape, tuple[Row, ...]] | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._known = tuple(known)
        self._inside = inside
        self._shapes = shapes
        self._questions: Questions | None = None
        self._done: dict[Group, Group] = {}

    def rows(self, literals: Sequence[Atom], background: Sequence[Atom] = ()) -> Group:
        """The rows of the term ``literals ∧ background``: literals a prime implicant where the background holds."""
        found: list[Atom] = []
        self._sandbox.deadline.check()
        for group in groups(tightest([*literals, *background])):
            if _plain(group):
                found += group
            else:
                if group not in self._done:
                    self._done[group] = self._shaped(group, set(literals))
                found += self._done[group]
        return tuple(sorted(found, key=row_order))

    def _shaped(self, group: Group, literals: set[Atom]) -> Group:
        """The final rows of a group, from another one of the same shape if there was one."""
        if self._shapes is None:
            return self._final(group, literals)
        own = shaped(group, [row for row in group if row in literals])
        if own is None:
            return self._final(group, literals)
        known = self._shapes.get(own.shape)
        if known is not None:
            return own.atoms_of(known)
        final = self._final(group, literals)
        self._shapes[own.shape] = own.rows_of(final)
        return final

    def _final(self, group: Group, literals: set[Atom]) -> Group:
        needed = self._needed(group)
        if (
            needed is None
        ):  # no point has room in all rows: some of them hide equalities
            group = tuple(tightest([*group, *self._implicit_equalities(group)]))
            needed = set()
        else:
            needed |= literals
        for row in sorted(set(group) - needed, key=row_order, reverse=True):
            rest = tuple(other for other in group if other is not row)
            if self._refuted(opposite(row), rest):
                group = rest
        return group

    def _needed(self, group: Group) -> set[Atom] | None:
        """Rows of the group that a point proves needed; ``None`` if no point has room in all inequalities."""
        bounds = [part for part in self._known if isinstance(part, Atom)]
        eliminated, independent = without_equalities([*group, *bounds])
        linears = Inequalities(tuple(eliminated))
        inequalities = [row for row in group if row.relation != "=="]
        deadline = self._sandbox.deadline
        if (
            _dense(group, HUGE)
            and self._inside
            and linears.at(self._inside) is not None
        ):
            return set(group)
        proposed = _dense(group) or len(group) > MANY
        centre = linears.interior_point(deadline) if proposed else None
        if centre is not None and _dense(group, HUGE):
            return set(group)
        if centre is None:
            if (
                self._answer([*group, *(_strictly(row) for row in inequalities)])
                is not True
            ):
                return None
            centre = linears.point(
                self._sandbox.model(self._asked.solver).point(linears.symbols)
            )
        # where there is room, an equality is needed unless others imply it
        needed = set(independent)
        for row, is_needed in zip(
            inequalities, linears.needed(centre, deadline), strict=False
        ):
            if is_needed:
                needed.add(row)
        return needed

    def _implicit_equalities(self, rows: Group) -> list[Atom]:
        """Equalities that inequalities only imply together, like x ≤ y and y ≤ x."""
        found = []
        for row in rows:
            if (
                row.relation != "<="
                or self._answer([*rows, _strictly(row)]) is not False
            ):
                continue
            equality = canonical(row.linear, "==")
            if isinstance(equality, Atom):
                found.append(equality)
        return found

    def _refuted(self, formula: Formula, rows: Group) -> bool:
        match formula:
            case Atom():
                return self._answer([*rows, formula]) is False
            case Or(arguments):
                return all(self._refuted(argument, rows) for argument in arguments)
        return formula != And(())

    @property
    def _asked(self) -> Questions:
        if self._questions is None:
            self._questions = self._sandbox.questions(self._known, work=WORK)
        return self._questions

    def _answer(self, rows: Sequence[Atom]) -> bool | None:
        return self._asked.answer(rows)


def _plain(group: Group) -> bool:
    """Whether the rows speak of one output alone: their numbers have settled all that there is to settle."""
    mentioned = {symbol for row in group for symbol, _ in row.linear.summands}
    if len(mentioned) != 1:
        return False
    (symbol,) = mentioned
    return not (isinstance(symbol, Variable) and symbol.is_input)


def _strictly(row: Atom) -> Atom:
    return Atom(row.linear, "<")
