"""Hidden outputs: truth values that stand for conditions inside sums, so that counting needs no case for every subset.

``sum(1 if v > 0 else 0 for v in x) <= 3`` is a comparison of thirty conditional numbers, and written as cases it has
2^30 of them. With a hidden c_i that is 1 if v_i > 0 and 0 if not it is the row ``Σ c_i ≤ 3`` and thirty small rules.
A hidden output is a function of the others, so it is computed right after them and reads no raw value.

``x if x is not missing else 5`` needs none: where x is missing it has the value s that stands for it, and a flag says
so, hence this is ``x + (5 − s) · flag``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from multiplexnet.compiler.normal import normal_form
from multiplexnet.language.formula import (
    And,
    Apply,
    Atom,
    Bool,
    Formula,
    Iff,
    Ite,
    Linear,
    Max,
    Norm,
    Not,
    Or,
    Product,
    Symbol,
    Variable,
    conjunction,
    maximum,
    nearest_to_zero,
    variables,
)
from multiplexnet.language.missing import flags_among, is_missing

__all__ = ["Revealed", "revealed"]


@dataclass(frozen=True)
class Revealed:
    """Rules in normal form in which conditional numbers have become hidden truth values.

    Args:
        formula: the rules, with the definitions of the hidden outputs.
        hidden: each hidden output, and the outputs that it is a function of.
        conditions: each hidden output, and the condition where it is 1.
        varying: the outputs of conditional numbers that are left, since their values are not constants.
    """

    formula: Formula
    hidden: dict[Variable, frozenset[Variable]]
    conditions: dict[Variable, Formula]
    varying: frozenset[Variable]


def revealed(formula: Formula, first: int) -> Revealed:
    """The formula in normal form, with hidden outputs for its conditional numbers.

    Args:
        formula: the rules, and what stands for missing values.
        first: the index of the first hidden output.

    Example:
        >>> from multiplexnet.language.parser.parse import parse
        >>> rules = parse("x: real[30]; sum(1 if v > 0 else 0 for v in x) <= 3")
        >>> len(revealed(rules.formula, first=30).hidden)
        30
    """
    flags = flags_among(variables(formula))
    search = _Search(first, {flag: variable for variable, flag in flags.items()})
    rewritten = search.formula(formula)
    definitions = [
        Iff(Atom(Linear.of(v) - 1, "=="), condition)
        for condition, v in search.found.items()
    ]
    hidden = {v: frozenset(search.arguments(v)) for v in search.found.values()}
    conditions = {v: condition for condition, v in search.found.items()}
    formula = normal_form(conjunction([rewritten, *definitions]))
    return Revealed(formula, hidden, conditions, frozenset(search.varying))


@dataclass
class _Search:
    """Walks through a formula; ``found`` has the hidden output of every condition, ``varying`` what other ones name."""

    first: int
    flagged: Mapping[Variable, Variable]
    found: dict[Formula, Variable] = field(default_factory=dict)
    varying: set[Variable] = field(default_factory=set)

    def formula(self, formula: Formula) -> Formula:
        match formula:
            case Atom(linear, relation):
                return Atom(self._linear(linear), relation)
            case Not(argument):
                return Not(self.formula(argument))
            case And(arguments):
                return And(tuple(map(self.formula, arguments)))
            case Or(arguments):
                return Or(tuple(map(self.formula, arguments)))
            case Iff(left, right):
                return Iff(self.formula(left), self.formula(right))

    def _linear(self, linear: Linear) -> Linear:
        total = Linear.number(linear.constant)
        for symbol, c in linear.summands:
            total = total + self._symbol(symbol) * c
        return total

    def _symbol(self, symbol: Symbol) -> Linear:
        match symbol:
            case Variable() | Product() | Apply() | Norm():
                return Linear.of(symbol)
            case Max(arguments):
                return maximum(map(self._linear, arguments))
            case Ite(condition, then, otherwise):
                known = self._unless_missing(symbol)
                if known is not None:
                    return known
                if not (then.is_constant and otherwise.is_constant):
                    self.varying |= set(variables(Atom(Linear.of(symbol), "<=")))
                    return Linear.of(
                        Ite(
                            self.formula(condition),
                            self._linear(then),
                            self._linear(otherwise),
                        )
                    )
                chosen = Linear.of(self._hidden(self.formula(condition)))
                return otherwise + chosen * (then.constant - otherwise.constant)

    def _unless_missing(self, symbol: Ite) -> Linear | None:
        """``then + difference · flag``, if it is that: a missing value is known, and its flag is a truth value."""
        present, absent = symbol.then, symbol.otherwise
        condition = symbol.condition
        if not isinstance(condition, Not):
            present, absent = absent, present
            condition = Not(condition)
        for flag, variable in self.flagged.items():
            if condition.argument != is_missing(flag):
                continue
            stand_in = nearest_to_zero(variable.domain)
            c = present.coefficient(variable)
            at_missing = present + (Linear.number(stand_in) - Linear.of(variable)) * c
            difference = absent - at_missing
            if difference.is_constant:
                return self._linear(present) + Linear.of(flag) * difference.constant
        return None

    def _hidden(self, condition: Formula) -> Variable:
        if condition not in self.found:
            number = len(self.found)
            self.found[condition] = Variable(
                f"hidden {number}", self.first + number, Bool()
            )
        return self.found[condition]

    def arguments(self, hidden: Variable) -> Iterator[Variable]:
        condition = next(c for c, v in self.found.items() if v is hidden)
        yield from (v for v in variables(condition) if not v.is_input)
