"""What compiled terms promise, asked of z3 in the campaign's own words.

* The terms mean what the rules mean, in both directions, and the proof says so.
* The proof refuses terms that were tampered with, and only those whose meaning changed.
* No literal and no term is superfluous; terms stand in canonical order; another order of the rules changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import z3

from campaign.sentences import Sentence
from campaign.solver import Meaning
from multiplexnet.compiler.proof import proof_of
from multiplexnet.compiler.terms import Block, Compiled, Term
from multiplexnet.errors import MultiplexError
from multiplexnet.language.formula import Atom, Variable
from multiplexnet.rules import Rules

__all__ = ["CompileChecks"]

MOST_QUESTIONS = 4
"""How many rows, and how many terms, are looked at in one trial."""
AGAIN = 0.1
"""The share of trials in which rules are compiled again in another order."""
TAMPERED = 0.3
"""The share of trials in which the proof is put to the test."""

Finding = tuple[str, str]
"""The name of a check, and what is wrong (nothing: an empty text)."""


class CompileChecks:
    """The checks of one compilation.

    Args:
        sentence: the rules.
        rules: the same, as the library read them.
        compiled: what the library made of them.
        meaning: the sentence in z3.
        random: decides what is looked at.
        thorough: whether the checks that are made now and then are all made.
    """

    def __init__(
        self,
        sentence: Sentence,
        rules: Rules,
        compiled: Compiled,
        meaning: Meaning,
        random: Random,
        *,
        thorough: bool = False,
    ) -> None:
        self.sentence = sentence
        self.rules = rules
        self.compiled = compiled
        self.meaning = meaning
        self.random = random
        self.thorough = thorough
        self.plain = not any(term.blocks for _, term in compiled.terms)

    def run(self) -> Iterator[Finding]:
        """Every check that was made."""
        yield from self._equivalent()
        yield "canonical order", self._order(self.compiled.blocks)
        if self.plain:
            yield from self._primes()
            yield from self._irredundant()
            if self.random.random() < TAMPERED or self.thorough:
                yield from self._tampered()
        if self.sentence.twin is not None:
            yield from self._same_as_twin(self.sentence.twin)
        elif self.random.random() < AGAIN or self.thorough:
            yield from self._again()

    # --- meaning ------------------------------------------------------------------------------------------------------

    def _equivalent(self) -> Iterator[Finding]:
        said = self.meaning.blocks(self.compiled.blocks)
        proof = self.compiled.proof
        sound = self.meaning.implied_by(said)
        complete = self.meaning.implies(said)
        yield "sound", "the terms do not imply the rules" if sound is False else ""
        yield "complete", "the terms miss points that obey" if complete is False else ""
        honest = proof.sound and proof.complete == self.compiled.complete
        yield "proof", "" if honest and proof.complete else f"it says {proof}"

    def _tampered(self) -> Iterator[Finding]:
        """One row or term less, or one number changed: the proof has to see what z3 sees."""
        blocks = self._changed()
        if blocks is None:
            return
        said = self.meaning.blocks(blocks)
        kept = self.meaning.implied_by(said), self.meaning.implies(said)
        if None in kept:
            return
        try:
            proof_of(self.rules.specification, blocks, complete=True)
        except AssertionError:
            passed = False
        else:
            passed = True
        yield (
            "the proof sees tampering",
            "" if passed == all(kept) else f"passed: {passed}, z3: {kept}",
        )

    def _changed(self) -> list[Block] | None:
        places = [
            (b, k)
            for b, block in enumerate(self.compiled.blocks)
            for k in range(len(block.terms))
        ]
        b, k = self.random.choice(places)
        blocks = list(self.compiled.blocks)
        terms = list(blocks[b].terms)
        term = terms[k]
        match self.random.choice(["row", "term", "number"]):
            case "row" if term.rows:
                terms[k] = replace(
                    term,
                    rows=_without(term.rows, self.random.randrange(len(term.rows))),
                )
            case "number" if term.rows:
                i = self.random.randrange(len(term.rows))
                row = term.rows[i]
                moved = Atom(
                    row.linear + self.random.choice([-1, 1]) * Fraction(1, 97),
                    row.relation,
                )
                terms[k] = replace(
                    term, rows=(*term.rows[:i], moved, *term.rows[i + 1 :])
                )
            case _ if len(terms) > 1:
                del terms[k]
            case _:
                return None
        blocks[b] = Block(blocks[b].outputs, tuple(terms))
        return blocks

    # --- form ---------------------------------------------------------------------------------------------------------

    def _primes(self) -> Iterator[Finding]:
        """Without any one of its rows a term says more than its block. (Flat terms may have their equalities in
        other words.)

        The question is about one block. If every input leaves the other blocks an output, it is the same as whether
        the rules could do without the row, since the others share no output with it. If some input leaves them none,
        rows that only exclude such inputs are superfluous for the rules as a whole, and may stay: a block is compiled
        by itself, and a layer refuses rules with such inputs.
        """
        rows = [
            (block, term, i)
            for block, term in self.compiled.terms
            if not term.equalities and block.outputs
            for i in range(len(term.rows))
        ]
        for block, term, i in self.random.sample(rows, min(MOST_QUESTIONS, len(rows))):
            less = replace(term, rows=_without(term.rows, i))
            more = self.meaning.model(
                self.meaning.term(less), z3.Not(self.meaning.block(block)), rules=False
            )
            yield (
                "no superfluous row",
                f"{term.rows[i]} of {term}" if more is False else "",
            )

    def _irredundant(self) -> Iterator[Finding]:
        """Every term has a point that no other term of its block has."""
        terms = [
            (block, k)
            for block in self.compiled.blocks
            if len(block.terms) > 1
            for k in range(len(block.terms))
        ]
        for block, k in self.random.sample(terms, min(MOST_QUESTIONS, len(terms))):
            rest = [term for i, term in enumerate(block.terms) if i != k]
            own = self.meaning.model(
                self.meaning.term(block.terms[k]),
                *(z3.Not(self.meaning.term(term)) for term in rest),
                rules=False,
            )
            yield (
                "no superfluous term",
                f"{block.terms[k]} adds nothing" if own is False else "",
            )

    def _order(self, blocks: Sequence[Block]) -> str:
        """Blocks by their first output; terms by their fixed values, the number of their rows, then these."""
        firsts = [
            min(v.index for v in block.outputs) for block in blocks if block.outputs
        ]
        if firsts != sorted(firsts):
            return "the blocks are not ordered by their first output"
        for block in blocks:
            keys = [_key(term) for term in block.terms]
            if keys != sorted(keys):
                return f"the terms over {', '.join(v.name for v in block.outputs)} are out of order"
        return ""

    # --- the same rules in other words --------------------------------------------------------------------------------

    def _again(self) -> Iterator[Finding]:
        """The rules backwards: if the same terms are found, in the same order."""
        turned = replace(self.sentence, rules=self.sentence.rules[::-1])
        blocks = self._blocks_of(turned)
        if blocks is not None:
            yield "the order of the rules", self._compared(blocks)

    def _same_as_twin(self, twin: Sentence) -> Iterator[Finding]:
        blocks = self._blocks_of(twin)
        if blocks is None:
            return
        yield "twins", self._compared(blocks)
        same = (
            self.meaning.implied_by(self.meaning.blocks(blocks)),
            self.meaning.implies(self.meaning.blocks(blocks)),
        )
        yield "twins mean the same", "" if False not in same else f"they do not: {twin}"

    def _blocks_of(self, sentence: Sentence) -> tuple[Block, ...] | None:
        try:
            return Rules(str(sentence)).compile(max_terms=256, nested=True).blocks
        except MultiplexError:
            return None

    def _compared(self, blocks: Sequence[Block]) -> str:
        if [block.outputs for block in blocks] != [
            block.outputs for block in self.compiled.blocks
        ]:
            return "the blocks hold other outputs"
        for mine, other in zip(self.compiled.blocks, blocks, strict=True):
            if set(mine.terms) == set(other.terms) and mine.terms != other.terms:
                return "the same terms stand in another order"
        return ""


def _without(rows: tuple[Atom, ...], i: int) -> tuple[Atom, ...]:
    return rows[:i] + rows[i + 1 :]


def _key(term: Term) -> tuple[Any, ...]:
    rows = [
        (
            row.relation != "==",
            [
                (s.index, "", c) if isinstance(s, Variable) else (1 << 30, repr(s), c)
                for s, c in row.linear.summands
            ],
            row.linear.constant,
            row.relation,
        )
        for row in term.rows
    ]
    return ([value for _, value in term.fixed], len(rows), rows)
