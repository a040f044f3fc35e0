"""The proof: a fresh solver proves that the terms say what the rules say.

It reads the rules as they were written, not their normal form, and shares nothing with the search. What is assumed of
inputs holds in every question. Comparisons that stand among the premises, or are weaker than one that does, are proved
by their numbers (:mod:`~multiplexnet.compiler.identity`). The solver is asked about the rest; its atoms are only
divided by the size of their first coefficient, rules and terms alike, so that z3 sees one atom where there is one.

* *Sound*: every term implies the rules. Conjuncts that lie in one block are checked term by term; one that several
  blocks share is checked against all of them at once.
* *Complete*: the rules imply the disjunction of the terms of every block.

A norm is a number to this solver, of which nothing is known but tangents (:mod:`~multiplexnet.compiler.tangents`): what
holds of any number holds of the norm.

Of a decomposed block the search also says what formula each inner block stands for. These are claims, and nothing is
taken on trust: that a block is equivalent to its formula is proved from the claims on the blocks inside its terms, from
the innermost outwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from multiplexnet.compiler.identity import Comparisons
from multiplexnet.compiler.terms import Block, Proof, Term, with_inner
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.language.curves import Tangent
from multiplexnet.language.formula import (
    TRUE,
    And,
    Atom,
    Formula,
    Iff,
    Node,
    Not,
    Or,
    Specification,
    Variable,
    conjunction,
    conjuncts,
    disjunction,
    inside_out,
    negation,
    operands,
    variables,
)
from multiplexnet.smt.context import new_context
from multiplexnet.smt.encoder import Z3Encoder, domain_z3, input_range_z3
from multiplexnet.smt.search import Questions, decided

__all__ = ["proof_of"]


Claims = Mapping[int, tuple[Block, Formula]]
"""Blocks by their identity, with the formula that each is said to be equivalent to."""


def proof_of(
    specification: Specification,
    blocks: Sequence[Block],
    *,
    complete: bool,
    claims: Claims | None = None,
    tangents: Sequence[Tangent] = (),
    deadline: Deadline = NEVER,
) -> Proof:
    """What a fresh solver proves of the blocks.

    Args:
        specification: the rules.
        blocks: what they were compiled to.
        complete: whether the terms must contain every point that obeys.
        claims: formulas that decomposed blocks are equivalent to.
        tangents: what is known of norms, which are plain numbers here; each is checked in fractions.
        deadline: when no proof is waited for any more.

    Raises:
        CompileTimeout: the time was over before everything was proved.
        AssertionError: a term does not imply the rules, or (``complete``) the terms miss a point that obeys. Both are
            errors of the compiler, never of the user.
    """
    if not all(tangent.is_valid for tangent in tangents):
        raise AssertionError("a tangent cuts into its norm")
    checker = _Checker(specification, claims or {}, deadline, tangents)
    parts = _parts(specification, blocks)
    if not all(
        checker.keeps_its_claim(block) for block in _claimed(blocks, claims or {})
    ):
        raise AssertionError("an inner block is not what it is said to be")
    near = _by_block(parts, len(blocks))
    for i, block in enumerate(blocks):
        own = [part.formula for part in near[i] if len(part.blocks) == 1]
        if not checker.all_imply(block, own):
            raise AssertionError("a term does not imply the rules")
    for part in (part for part in parts if len(part.blocks) != 1):
        if not checker.imply(
            [checker.formula(blocks[i]) for i in part.blocks], part.formula
        ):
            raise AssertionError(
                "the terms do not imply a rule that several blocks share"
            )
    covers = all(
        _covers(checker, parts, near[i], block) for i, block in enumerate(blocks)
    )
    if complete and not covers:
        raise AssertionError(
            "the terms do not contain every point that obeys the rules"
        )
    return Proof(
        sound=True,
        complete=covers,
        solver=f"z3 {z3.get_version_string()}",
        checks=checker.checks,
    )


def _claimed(blocks: Iterable[Block], claims: Claims) -> list[Block]:
    """The blocks, inner ones too, of which something is claimed, each once."""
    return [block for block in with_inner(blocks) if id(block) in claims]


@dataclass(frozen=True)
class _Conjunct:
    """One conjunct of the rules and the positions of the blocks it speaks of."""

    formula: Formula
    blocks: frozenset[int]


def _parts(specification: Specification, blocks: Sequence[Block]) -> list[_Conjunct]:
    home = {output: i for i, block in enumerate(blocks) for output in block.outputs}
    nowhere = frozenset(i for i, block in enumerate(blocks) if not block.outputs)
    found = []
    rules = (part for rule in specification.rules for part in conjuncts(rule.formula))
    for formula in (*rules, *specification.stand_ins):
        named = variables(formula)
        mentioned = frozenset(home[v] for v in named if not v.is_input)
        found.append(
            _Conjunct(
                formula,
                mentioned | nowhere if any(v.is_input for v in named) else mentioned,
            )
        )
    return found


def _by_block(parts: Sequence[_Conjunct], count: int) -> list[list[_Conjunct]]:
    """For every block the conjuncts that speak of it."""
    found: list[list[_Conjunct]] = [[] for _ in range(count)]
    for part in parts:
        for i in part.blocks:
            found[i].append(part)
    return found


def _covers(
    checker: _Checker,
    parts: Sequence[_Conjunct],
    near: Sequence[_Conjunct],
    block: Block,
) -> bool:
    """Whether the rules imply the block; those that speak of it nearly always do, without the others."""
    said = checker.formula(block)
    return checker.imply([part.formula for part in near], said) or (
        len(near) < len(parts) and checker.imply([part.formula for part in parts], said)
    )


class _Checker:
    """Asks a fresh solver what implies what, where every variable is in its domain."""

    def __init__(
        self,
        specification: Specification,
        claims: Claims,
        deadline: Deadline,
        tangents: Sequence[Tangent] = (),
    ) -> None:
        self._deadline = deadline
        self._context = new_context()
        self._encoder = Z3Encoder(self._context, plain_norms=True)
        self._claims = claims
        # the formula is kept beside its result, so that its id stays its own
        self._scaled: dict[int, tuple[Node, Formula]] = {}
        self._atoms: dict[Atom, Atom] = {}
        self._variables = specification.variables
        facts = [tangent.atom for tangent in tangents]
        self._assumed = conjunction([specification.assumed, *facts])
        self.checks = 0

    def formula(self, block: Block) -> Formula:
        """What the block stands for: its claim, or its terms written out."""
        if id(block) in self._claims:
            return self._claims[id(block)][1]
        return disjunction(map(self._term, block.terms))

    def _term(self, term: Term) -> Formula:
        plain = Term(term.rows, term.fixed)
        return conjunction([plain.formula, *map(self.formula, term.blocks)])

    def keeps_its_claim(self, block: Block) -> bool:
        """Whether the block is equivalent to what is claimed of it, if the blocks in its terms are."""
        claim = self.formula(block)
        outputs = [*block.outputs, *(v for v in self._variables if v.is_input)]
        terms = [self._term(term) for term in block.terms]
        return self._all_imply(terms, [claim], outputs) and self.imply(
            [claim], disjunction(terms), outputs
        )

    def all_imply(self, block: Block, conclusions: Sequence[Formula]) -> bool:
        """Whether every term of the block implies all of the conclusions."""
        said = (
            [self.formula(block)]
            if id(block) in self._claims
            else map(self._term, block.terms)
        )
        return self._all_imply(said, conclusions, self._variables)

    def imply(
        self,
        premises: Iterable[Formula],
        conclusion: Formula,
        variables: Sequence[Variable] | None = None,
    ) -> bool:
        """Whether the premises together imply the conclusion."""
        self._count()
        premises = list(premises)
        conclusion = _left_open(premises, conclusion)
        if conclusion == TRUE:
            return True
        solver = self._solver(self._variables if variables is None else variables)
        for premise in premises:
            solver.add(self._written(premise))
        solver.add(*map(self._written, conjuncts(_denied(conclusion))))
        return not decided(solver, self._deadline)

    def _all_imply(
        self,
        premises: Iterable[Formula],
        conclusions: Sequence[Formula],
        variables: Sequence[Variable],
    ) -> bool:
        if not conclusions:
            return True
        premises = list(premises)
        conclusion = conjunction(conclusions)
        if len(premises) == 1:
            conclusion = _left_open(premises, conclusion)
        questions: Questions | None = None
        for premise in premises:
            self._count()
            if _left_open([premise], conclusion) == TRUE:
                continue
            if questions is None:
                questions = self._questions(conclusion, variables)
            if questions.answer(conjuncts(premise)) is not False:
                return False
        return True

    def _questions(
        self, conclusion: Formula, variables: Sequence[Variable]
    ) -> Questions:
        """A solver that is asked which premises leave room for the conclusion to fail."""
        solver = self._solver(variables)
        solver.add(z3.Not(self._written(conclusion)))
        return Questions(self._written, solver, deadline=self._deadline)

    def _count(self) -> None:
        self.checks += 1
        self._deadline.step(self.checks)

    def _solver(self, variables: Sequence[Variable]) -> Any:
        solver = z3.SimpleSolver(ctx=self._context)
        solver.add(
            *domain_z3(variables, context=self._context),
            *input_range_z3(variables, context=self._context),
        )
        solver.add(*map(self._written, conjuncts(self._assumed)))
        return solver

    def _written(self, formula: Formula) -> Any:
        return self._encoder.formula(self._divided(formula))

    def _divided(self, formula: Formula) -> Formula:
        for node in inside_out(formula, self._scaled, operands):
            self._scaled[id(node)] = node, self._divide(node)
        return self._scaled[id(formula)][1]

    def _divide(self, node: Node) -> Formula:
        parts = [self._scaled[id(part)][1] for part in operands(node)]
        match node:
            case Atom(linear, relation) if linear.summands:
                first = linear.summands[0][1]
                atom = Atom(linear * (1 / abs(first)), relation)
                return self._atoms.setdefault(atom, atom)
            case Atom():
                return node
            case Not():
                return Not(*parts)
            case And():
                return And(tuple(parts))
            case Or():
                return Or(tuple(parts))
            case Iff():
                return Iff(*parts)
        raise TypeError(f"not a formula: {node!r}")


def _left_open(premises: Sequence[Formula], conclusion: Formula) -> Formula:
    """What is left of a conjunction of comparisons without those that follow from one premise by their numbers."""
    parts = conjuncts(conclusion)
    if not any(isinstance(part, Atom) for part in parts):
        return conclusion
    known = Comparisons(premises)
    return conjunction(
        part for part in parts if not (isinstance(part, Atom) and known.imply(part))
    )


def _denied(formula: Formula) -> Formula:
    """The negation of a disjunction as a conjunction of negations."""
    if isinstance(formula, Or):
        return conjunction(map(negation, formula.arguments))
    return negation(formula)
