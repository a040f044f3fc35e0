"""What z3 says of a sentence and of compiled terms, both written for it here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import z3

from campaign.sentences import COMPARISONS, Node, Sentence
from multiplexnet.compiler.terms import Block, Term
from multiplexnet.language.formula import Apply, Atom, Linear, Symbol, Variable

__all__ = ["Meaning"]

TIMEOUT_MILLISECONDS = 5_000


class Meaning:
    """A sentence in z3, and questions about it.

    Args:
        sentence: the rules.

    Attributes:
        unanswered: questions that z3 gave up on.
    """

    def __init__(self, sentence: Sentence) -> None:
        self.sentence = sentence
        self.unanswered = 0
        self.constants: dict[str, Any] = {}
        self.domain: list[Any] = []
        for d in sentence.declared:
            make = {"bool": z3.Bool, "int": z3.Int, "category": z3.Int}.get(
                d.kind, z3.Real
            )
            constant = self.constants[d.name] = make(d.name)
            if d.kind in ("int", "category"):
                assert d.values is not None
                self.domain += [
                    constant >= d.values.start,
                    constant <= d.values.stop - 1,
                ]
            elif d.kind == "input":
                self.domain += (
                    [constant >= _real(d.lower)] if d.lower is not None else []
                )
                self.domain += (
                    [constant <= _real(d.upper)] if d.upper is not None else []
                )
        self.labels = {d.name: d.labels for d in sentence.declared}
        self.rules = [self.truth(rule) for rule in sentence.rules]

    # --- questions ----------------------------------------------------------------------------------------------------

    def model(
        self, *more: Any, rules: bool = True, milliseconds: int = TIMEOUT_MILLISECONDS
    ) -> dict[str, Fraction] | bool | None:
        """A point where the rules, if asked for, and ``more`` hold; ``False``: there is none; ``None``: unknown."""
        solver = z3.Solver()
        solver.set("timeout", milliseconds)
        solver.add(*self.domain, *(self.rules if rules else ()), *more)
        answer = solver.check()
        if answer == z3.unsat:
            return False
        if answer == z3.unknown:
            self.unanswered += 1
            return None
        model = solver.model()
        wanted = {
            **self.constants,
            **{str(call): self.number(call) for call in self.sentence.calls},
        }
        return {
            name: _value(model.eval(c, model_completion=True))
            for name, c in wanted.items()
        }

    def implied_by(self, claim: Any) -> bool | None:
        """Whether the rules hold wherever the claim does."""
        found = self.model(claim, z3.Not(z3.And(self.rules)), rules=False)
        return None if found is None else found is False

    def implies(self, claim: Any) -> bool | None:
        """Whether the claim holds wherever the rules do."""
        found = self.model(z3.Not(claim))
        return None if found is None else found is False

    def at(self, values: Mapping[str, Fraction]) -> list[Any]:
        """That variables have these values."""
        return [
            self.constants[name]
            == (bool(value) if z3.is_bool(self.constants[name]) else _real(value))
            for name, value in values.items()
        ]

    def on_grid(
        self, places: Mapping[str, tuple[Fraction, Fraction]], most: Fraction
    ) -> list[Any]:
        """That each of these is a whole multiple of its step, plus a number of its own, and at most so large."""
        claims = []
        for name, (step, more) in places.items():
            constant = self.constants[name]
            steps = z3.ToReal(z3.Int(f"steps of {name}"))
            claims += [constant == steps * _real(step) + _real(more)]
            claims += [constant <= _real(most), constant >= _real(-most)]
        return claims

    # --- sentences ----------------------------------------------------------------------------------------------------

    def number(self, node: Node) -> Any:
        match node.op:
            case "number":
                return _real(node.value)
            case "variable":
                return self._amount(str(node.value))
            case "call":
                return self._called(str(node.value), map(self.number, node.parts))
            case "*":
                return _real(node.value) * self.number(node.parts[0])
            case "abs":
                inner = self.number(node.parts[0])
                return z3.If(inner >= 0, inner, -inner)
            case "case":
                return z3.If(
                    self.truth(node.parts[0]), *map(self.number, node.parts[1:])
                )
        values = [self.number(part) for part in node.parts]
        match node.op:
            case "+":
                return z3.Sum(values)
            case "max":
                return reduce(lambda a, b: z3.If(a >= b, a, b), values)
        assert node.op == "min"
        return reduce(lambda a, b: z3.If(a <= b, a, b), values)

    def _called(self, function: str, arguments: Iterable[Any]) -> Any:
        """Any function will do: z3 knows no more of it than the compiler."""
        known = list(arguments)
        return z3.Function(function, *[z3.RealSort()] * (len(known) + 1))(*known)

    def _amount(self, name: str) -> Any:
        constant = self.constants[name]
        if z3.is_bool(constant):
            return z3.If(constant, _real(Fraction(1)), _real(Fraction(0)))
        return z3.ToReal(constant) if constant.is_int() else constant

    def truth(self, node: Node) -> Any:
        if node.op in COMPARISONS:
            return _compared(node.op, *map(self.number, node.parts))
        match node.op:
            case "flag":
                return self.constants[str(node.value)]
            case "is":
                name = str(node.value)
                return self.constants[name] == self.labels[name].index(
                    str(node.parts[0].value)
                )
            case "in":
                first, *others = map(self.number, node.parts)
                return z3.Or([first == other for other in others])
        parts = [self.truth(part) for part in node.parts]
        match node.op:
            case "and":
                return z3.And(parts)
            case "or":
                return z3.Or(parts)
            case "not":
                return z3.Not(parts[0])
            case "implies":
                return z3.Implies(*parts)
            case "iff":
                return parts[0] == parts[1]
            case "xor":
                return z3.Xor(*parts)
        assert node.op == "case"
        return z3.If(*parts)

    # --- compiled terms -----------------------------------------------------------------------------------------------

    def blocks(self, blocks: Iterable[Block]) -> Any:
        """That every block holds."""
        return z3.And([self.block(block) for block in blocks])

    def block(self, block: Block) -> Any:
        """That one of its terms holds."""
        return z3.Or([self.term(term) for term in block.terms])

    def term(self, term: Term) -> Any:
        """That its rows, its fixed values and its inner blocks hold."""
        fixed = self.at({v.name: value for v, value in term.fixed})
        return z3.And(
            [*map(self.row, term.rows), *fixed, *map(self.block, term.blocks)]
        )

    def row(self, atom: Atom) -> Any:
        """One comparison with zero."""
        return _compared(atom.relation, self._linear(atom.linear), _real(Fraction(0)))

    def _linear(self, linear: Linear) -> Any:
        parts = [_real(c) * self._symbol(symbol) for symbol, c in linear.summands]
        return z3.Sum([*parts, _real(linear.constant)])

    def _symbol(self, symbol: Symbol) -> Any:
        if isinstance(symbol, Variable):
            return self._amount(symbol.name)
        assert isinstance(symbol, Apply)
        return self._called(symbol.function, map(self._linear, symbol.arguments))

    def room(
        self, rows: Sequence[Atom], half_width: Fraction, size: Fraction, grid: Fraction
    ) -> bool:
        """Whether a cube of this half width fits between the inequalities, its centre no further out than ``size``.

        With equalities among the rows the centre meets them exactly, on multiples of ``grid``.
        """
        solver = z3.Solver()
        solver.set("timeout", TIMEOUT_MILLISECONDS)
        for row in rows:
            width = (
                sum((abs(c) for _, c in row.linear.summands), Fraction(0)) * half_width
            )
            value = self._linear(row.linear)
            solver.add(
                value == 0 if row.relation == "==" else value + _real(width) <= 0
            )
        exact = any(row.relation == "==" for row in rows)
        for name in {
            s.name
            for row in rows
            for s, _ in row.linear.summands
            if isinstance(s, Variable)
        }:
            solver.add(
                self._amount(name) <= _real(size), self._amount(name) >= _real(-size)
            )
            if exact:
                solver.add(
                    self._amount(name)
                    == z3.ToReal(z3.Int(f"{name} on the grid")) * _real(grid)
                )
        return bool(solver.check() == z3.sat)


def _real(value: Fraction | str | None) -> Any:
    return z3.RealVal(str(value))


def _compared(op: str, left: Any, right: Any) -> Any:
    match op:
        case "<=":
            return left <= right
        case "<":
            return left < right
        case ">=":
            return left >= right
        case ">":
            return left > right
        case "==":
            return left == right
    return left != right


def _value(numeral: Any) -> Fraction:
    if z3.is_bool(numeral):
        return Fraction(int(z3.is_true(numeral)))
    return Fraction(numeral.as_string())
