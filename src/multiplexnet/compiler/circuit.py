"""AND/OR decomposition: a block whose terms go on in independent inner blocks, for rules with too many plain terms.

The formula is split by cases: the values of a discrete output, or an atom and its negation. In each case it is
simplified by what is known then, and falls apart into components that share no output. Components of plain atoms are
the rows of the case; each other one becomes an inner block, found in the same way and remembered by its formula, so
that equal rests are compiled once and shared::

    at most 3 of 30 Booleans:  on[0] is 0 → at most 3 of the other 29
                               on[0] is 1 → at most 2 of the other 29      …  84 blocks of two instead of 4,526 terms

How far it carries (terms kept for terms written out; more in ``benchmarks/compile.py``): it is made for rules that are
sparse, or that only count. What cannot fall apart, such as six outputs that must all keep their distance from each
other, stays as large as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

from multiplexnet.compiler.components import RuleComponent, components
from multiplexnet.compiler.normal import canonical, opposite, substitute
from multiplexnet.compiler.terms import Block, Term, with_inner
from multiplexnet.compiler.tidy import row_order
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    And,
    Atom,
    Formula,
    Linear,
    Or,
    Real,
    Symbol,
    Variable,
    atoms,
    conjunction,
    conjuncts,
    disjunction,
    variables,
)
from multiplexnet.smt.search import Questions

__all__ = ["Circuit", "OverBudget", "kept_terms"]

DEPTH = 150
"""How many cases may lie inside each other."""
SPARE = 3
"""How many times the terms that are kept may be tried: some of them are merged into others."""
PLAIN = 8
"""Up to so many plain terms a component over real outputs stays in one piece."""

Fixed = tuple[Variable, Fraction]
Parts = tuple[Formula, ...]
Enumerate = Callable[[Formula, int], list[tuple[Atom, ...]] | None]


class OverBudget(Exception):
    """More terms than allowed.

    Args:
        count: how many there were when it was given up.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(f"more than {count} terms")


def kept_terms(blocks: Iterable[Block]) -> int:
    """The number of terms in the blocks and all inner ones, shared ones counted once."""
    return len({id(term) for block in with_inner(blocks) for term in block.terms})


class Circuit:
    """Compiles components into blocks with inner blocks.

    Args:
        questions: a solver that knows the ranges of the inputs and the domains of the discrete outputs.
        rows: brings the atoms of a conjunction into their final form.
        plain: the plain terms of a formula over real outputs, ``None`` if there are more than the given number.
        max_terms: the most terms to keep.
        deadline: when it gives up.
    """

    def __init__(
        self,
        questions: Questions,
        rows: Callable[[Sequence[Atom]], tuple[Atom, ...]],
        plain: Enumerate,
        max_terms: int,
        deadline: Deadline = NEVER,
    ) -> None:
        self._questions = questions
        self._rows = rows
        self._plain = plain
        self._max_terms = max_terms
        self._deadline = deadline
        self._done: dict[tuple[tuple[Variable, ...], frozenset[Formula]], Block] = {}
        self.claims: dict[
            int, tuple[Block, Formula]
        ] = {}  # what each block stands for: the certificate proves it
        self._count = 0

    def block(self, component: RuleComponent) -> Block:
        """The component, which has a point, as a block.

        Raises:
            OverBudget: it takes more terms than allowed, or more cases inside each other.
        """
        block = self._block(
            RuleComponent(
                component.outputs, tuple(simplified(component.conjuncts) or ())
            ),
            0,
        )
        if (count := kept_terms([block])) > self._max_terms:
            raise OverBudget(count)
        return block

    def _block(self, component: RuleComponent, depth: int) -> Block:
        key = component.outputs, frozenset(component.conjuncts)
        if key not in self._done:
            if depth > DEPTH:
                raise OverBudget(self._count)
            terms = self._plain_terms(component) or list(self._cases(component, depth))
            self._done[key] = block = Block(component.outputs, tuple(terms))
            self.claims[id(block)] = block, conjunction(component.conjuncts)
        return self._done[key]

    def _term(
        self,
        rows: Iterable[Atom],
        fixed: Iterable[Fixed] = (),
        blocks: Sequence[Block] = (),
    ) -> Term:
        self._count += 1
        self._deadline.step(self._count)
        if self._count > SPARE * self._max_terms:
            raise OverBudget(self._count)
        values = sorted(fixed, key=lambda item: item[0].index)
        return Term(tuple(sorted(rows, key=row_order)), tuple(values), tuple(blocks))

    def _plain_terms(self, component: RuleComponent) -> list[Term] | None:
        if any(output.is_discrete for output in component.outputs):
            return None
        # A condition on inputs alone has no output to split it by.
        most = PLAIN if component.outputs else self._max_terms
        found = self._plain(conjunction(component.conjuncts), most)
        if found is None and not component.outputs:
            raise OverBudget(self._max_terms)
        return None if found is None else [self._term(rows) for rows in found]

    def _cases(self, component: RuleComponent, depth: int) -> Iterator[Term]:
        for fixed, given in cases(component, self._deadline):
            self._deadline.check()
            parts = simplified(given)
            if parts is None or self._questions.answer(parts) is False:
                continue
            taken = {variable for variable, _ in fixed}
            rest = [output for output in component.outputs if output not in taken]
            yield from self._case(fixed, components(parts, rest), depth)

    def _case(
        self, fixed: Sequence[Fixed], parts: Sequence[RuleComponent], depth: int
    ) -> Iterator[Term]:
        inner = [
            self._block(part, depth + 1) for part in parts if not _is_polyhedron(part)
        ]
        if not fixed and len(parts) == len(inner) == 1:
            yield from inner[
                0
            ].terms  # nothing was decided but inside that block: its terms are terms of this one
            return
        rows = [
            atom
            for part in parts
            if _is_polyhedron(part)
            for atom in part.conjuncts
            if isinstance(atom, Atom)
        ]
        sole = [
            block.terms[0] for block in inner if len(block.terms) == 1
        ]  # no choice is left in these
        yield self._term(
            [*self._rows(rows), *(row for term in sole for row in term.rows)],
            [*fixed, *(value for term in sole for value in term.fixed)],
            [
                *(block for block in inner if len(block.terms) > 1),
                *(block for term in sole for block in term.blocks),
            ],
        )


def _is_polyhedron(component: RuleComponent) -> bool:
    return all(isinstance(part, Atom) for part in component.conjuncts) and not any(
        output.is_discrete for output in component.outputs
    )


# --- cases ----------------------------------------------------------------------------------------------------------


def cases(
    component: RuleComponent, deadline: Deadline = NEVER
) -> Iterator[tuple[tuple[Fixed, ...], Parts]]:
    """The cases of a component, with the discrete output that each fixes and the conjuncts that then hold."""
    variable = _pivot(component, deadline)
    if not isinstance(variable.domain, Real):
        for number in map(Fraction, variable.domain.values):
            given = {variable: number}
            yield (
                ((variable, number),),
                tuple(substitute(part, given) for part in component.conjuncts),
            )
        return
    atom = _frequent_atom(component, variable)
    other = opposite(atom)
    for case in (atom, *(other.arguments if isinstance(other, Or) else (other,))):
        yield (), (case, *component.conjuncts)


def _pivot(component: RuleComponent, deadline: Deadline) -> Variable:
    """The output without which the rest falls into the smallest parts; among equals the one in most conjuncts.

    A real output has to occur in a conjunct that is not an atom, or a case would decide nothing.
    """
    mentioned = [(part, variables(part)) for part in component.conjuncts]
    open_ = {
        v for part, found in mentioned if not isinstance(part, Atom) for v in found
    }
    candidates = [v for v in component.outputs if v.is_discrete or v in open_]

    def score(variable: Variable) -> tuple[int, int, int]:
        deadline.check()
        rest = [output for output in component.outputs if output is not variable]
        largest = max((len(found) for found in _connected(rest, mentioned)), default=0)
        return (
            largest,
            -sum(variable in found for _, found in mentioned),
            variable.index,
        )

    return min(candidates, key=score)


def _connected(
    outputs: Sequence[Variable], mentioned: Sequence[tuple[Formula, list[Variable]]]
) -> list[set[Variable]]:
    groups: list[set[Variable]] = [{output} for output in outputs]
    for _, found in mentioned:
        joined = set[Variable]()
        apart = []
        for group in groups:
            if group.isdisjoint(found):
                apart.append(group)
            else:
                joined |= group
        groups = [*apart, joined] if joined else apart
    return groups


def _frequent_atom(component: RuleComponent, variable: Variable) -> Atom:
    """The atom over the variable that most conjuncts contain; among equals one with few variables, then the first."""
    count: dict[Atom, int] = {}
    for part in component.conjuncts:
        if not isinstance(part, Atom):
            for atom in atoms(part):
                if any(
                    symbol is variable or symbol == variable
                    for symbol, _ in atom.linear.summands
                ):
                    count[atom] = count.get(atom, 0) + 1
    return max(count, key=lambda atom: (count[atom], -len(atom.linear.summands)))


# --- what is known in a case ----------------------------------------------------------------------------------------


def simplified(parts: Iterable[Formula]) -> Parts | None:
    """The conjuncts, each simplified by the atoms among them, until nothing changes; ``None`` if one is false."""
    current = tuple(dict.fromkeys(parts))
    while True:
        known = _KnownAtoms(part for part in current if isinstance(part, Atom))
        found: dict[Formula, None] = {}
        for part in current:
            new = known.unit(part) if isinstance(part, Atom) else known.applied(part)
            for conjunct in conjuncts(new):
                found[conjunct] = None
        if FALSE in found:
            return None
        after = tuple(found)
        if after == current:
            return current
        current = after


class _KnownAtoms:
    """Atoms that hold, and what they decide of other formulas without a solver."""

    def __init__(self, units: Iterable[Atom]) -> None:
        self._upper: dict[
            tuple[tuple[Symbol, Fraction], ...], tuple[Fraction, bool]
        ] = {}
        self._values: dict[Variable, Fraction] = {}
        for unit in units:
            linear = unit.linear
            self._limit(linear, unit.relation == "<")
            if unit.relation == "==":
                self._limit(-linear, False)
                if len(linear.summands) == 1 and isinstance(
                    linear.summands[0][0], Variable
                ):
                    self._values[linear.summands[0][0]] = (
                        -linear.constant / linear.summands[0][1]
                    )

    def _limit(self, linear: Linear, strict: bool) -> None:
        """Remembers that ``linear ≤ 0`` (``< 0``)."""
        bound = linear.constant, strict
        self._upper[linear.summands] = max(
            bound, self._upper.get(linear.summands, bound)
        )

    def unit(self, atom: Atom) -> Formula:
        """A known atom, true when the domains alone or a stronger one say so, with known values put in."""
        if (decided := _by_domains(atom)) is not None:
            return decided
        if atom.relation != "==" and self._upper[atom.linear.summands] > (
            atom.linear.constant,
            atom.relation == "<",
        ):
            return TRUE
        others = {v: c for v, c in self._values.items() if not _defines(atom, v)}
        return (
            substitute(atom, others)
            if any(s in others for s, _ in atom.linear.summands)
            else atom
        )

    def applied(self, formula: Formula) -> Formula:
        """A formula in normal form, with decided atoms replaced by their truth."""
        if self._values:
            formula = substitute(formula, self._values)
        return self._visit(formula, {})

    def _visit(self, node: Formula, done: dict[int, Formula]) -> Formula:
        if id(node) not in done:
            match node:
                case Atom():
                    done[id(node)] = self._atom(node)
                case And(arguments):
                    done[id(node)] = conjunction(
                        dict.fromkeys(self._visit(a, done) for a in arguments)
                    )
                case Or(arguments):
                    done[id(node)] = disjunction(
                        dict.fromkeys(self._visit(a, done) for a in arguments)
                    )
                case _:
                    raise TypeError(f"not in normal form: {node!r}")
        return done[id(node)]

    def _atom(self, atom: Atom) -> Formula:
        if (decided := _by_domains(atom)) is not None:
            return decided
        holds = self._implied(atom.linear, atom.relation == "<")
        fails = self._refuted(atom.linear, atom.relation == "<")
        if atom.relation == "==":
            fails = fails or self._refuted(-atom.linear, False)
            holds = holds and self._implied(-atom.linear, False)
        if fails:
            return FALSE
        return TRUE if holds else atom

    def _implied(self, linear: Linear, strict: bool) -> bool:
        """Whether ``linear ≤ 0`` (``< 0``) is known."""
        known = self._upper.get(linear.summands)
        return known is not None and known >= (linear.constant, strict)

    def _refuted(self, linear: Linear, strict: bool) -> bool:
        """Whether ``linear > 0`` (``≥ 0`` against ``< 0``) is known."""
        known = self._upper.get((-linear).summands)
        return known is not None and known >= (-linear.constant, not strict)


def _defines(atom: Atom, variable: Variable) -> bool:
    return (
        atom.relation == "=="
        and len(atom.linear.summands) == 1
        and atom.linear.summands[0][0] == variable
    )


def _by_domains(atom: Atom) -> Formula | None:
    """``TRUE`` or ``FALSE`` if the domains of its variables, all discrete outputs or inputs, decide the atom."""
    lower = upper = atom.linear.constant
    for symbol, c in atom.linear.summands:
        if not isinstance(symbol, Variable) or isinstance(symbol.domain, Real):
            return None
        ends = sorted((c * symbol.domain.values[0], c * symbol.domain.values[-1]))
        lower = lower + ends[0]
        upper = upper + ends[1]
    if atom.relation == "==":
        holds = lower == upper == 0
        fails = lower > 0 or upper < 0
    else:
        holds = canonical(Linear.number(upper), atom.relation) == TRUE
        fails = canonical(Linear.number(lower), atom.relation) == FALSE
    if holds:
        return TRUE
    return FALSE if fails else None
