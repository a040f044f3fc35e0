"""Missing values: what a rule says where some of its variables have no value.

A comparison that needs a missing value is *unknown*, and what is unknown does not fail: this is how ``CHECK`` works in
SQL. A *flag* stands beside every variable that may be missing: a truth value of its own, which is true where it is.
With flags an ordinary formula says the same. Negations are moved inwards, to the comparisons (Kleene's logic)::

    possible(atom)  =  unknown(atom) or atom             it is not known to be false
    certain(atom)   =  not unknown(atom) and atom        it is known to be true
    unknown(atom)   =  some variable that it needs is missing

``a if p else b`` needs what ``p`` says, and then ``a`` or ``b`` alone: ``(x if x is not missing else 0) <= y`` is never
unknown because of ``x``. The flags themselves, ``x is missing``, are never unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    And,
    Apply,
    Atom,
    Bool,
    Formula,
    Iff,
    Ite,
    Linear,
    Max,
    Node,
    Norm,
    Not,
    Or,
    Product,
    Symbol,
    Variable,
    conjunction,
    disjunction,
    negation,
    variables,
)

__all__ = ["flag_name", "flag_of", "flags_among", "is_missing", "possible"]

Flags = Mapping[Variable, Variable]

MARK = " is missing"
"""What a flag's name says of its output's."""


def flag_name(name: str) -> str:
    """What the flag of an output is called.

    Example:
        >>> flag_name("x[0]")
        'x[0] is missing'
    """
    return name + MARK


def flagged_name(flag: Variable) -> str:
    """The name of the output that a flag belongs to."""
    return flag.name.removesuffix(MARK)


def flag_of(variable: Variable, index: int) -> Variable:
    """The flag of a variable."""
    return Variable(flag_name(variable.name), index, Bool(), "missing", variable.whole)


def flags_among(variables: Iterable[Variable]) -> dict[Variable, Variable]:
    """The outputs among these variables whose flags are among them, too, each with its flag."""
    named = {v.name: v for v in variables if not v.is_flag}
    flags = {v.name: v for v in variables if v.is_flag}
    return {
        v: flags[flag_name(name)]
        for name, v in named.items()
        if flag_name(name) in flags
    }


def is_missing(flag: Variable) -> Atom:
    """The atom «the variable of this flag is missing»."""
    return Atom(Linear.of(flag) - 1, "==")


def possible(formula: Formula, flags: Flags) -> Formula:
    """The formula that holds where the given one is true or unknown.

    Args:
        formula: any formula.
        flags: for every variable that may be missing its flag.

    Example:
        >>> x = Variable("x", 0)
        >>> flag = flag_of(x, 1)
        >>> small = Atom(Linear.of(x) - 2, "<=")
        >>> possible(Not(small), {x: flag}) == Or((is_missing(flag), Atom(-Linear.of(x) + 2, "<")))
        True
    """
    if not flags or not any(v in flags for v in variables(formula)):
        return formula
    return _Guard(flags).possible(formula)


class _Guard:
    """The parts of one formula, each rewritten once."""

    def __init__(self, flags: Flags) -> None:
        self.flags = flags
        # the formula is kept beside what became of it, so that its id stays its own
        self._done: dict[tuple[int, bool, bool], tuple[Node, Formula]] = {}
        self._unknown: dict[int, tuple[Node, Formula]] = {}

    def possible(self, formula: Formula) -> Formula:
        return self._visit(formula, polarity=True, certain=False)

    def _visit(self, formula: Formula, *, polarity: bool, certain: bool) -> Formula:
        """What holds where the formula (its negation, without ``polarity``) is possible, or certain."""
        key = (id(formula), polarity, certain)
        if key not in self._done:
            self._done[key] = formula, self._rewritten(formula, polarity, certain)
        return self._done[key][1]

    def _rewritten(self, formula: Formula, polarity: bool, certain: bool) -> Formula:
        match formula:
            case Atom(linear, _):
                unknown = self._of_linear(linear)
                atom = formula if polarity else negation(formula)
                if unknown == FALSE:
                    return atom
                if certain:
                    return conjunction([opposite(unknown), atom])
                return disjunction([unknown, atom])
            case Not(argument):
                return self._visit(argument, polarity=not polarity, certain=certain)
            case And(arguments) | Or(arguments):
                join = (
                    conjunction if isinstance(formula, And) == polarity else disjunction
                )
                return join(
                    [
                        self._visit(a, polarity=polarity, certain=certain)
                        for a in arguments
                    ]
                )
            case Iff(left, right):
                return self._equivalence(left, right, polarity, certain)

    def _equivalence(
        self, left: Formula, right: Formula, polarity: bool, certain: bool
    ) -> Formula:
        cases = []
        for side in (True, False):
            other = side == polarity
            cases.append(
                conjunction(
                    [
                        self._visit(left, polarity=side, certain=certain),
                        self._visit(right, polarity=other, certain=certain),
                    ]
                )
            )
        return disjunction(cases)

    def _of_linear(self, linear: Linear) -> Formula:
        """Where the value of an expression is unknown."""
        return _any([self._of_symbol(symbol) for symbol, _ in linear.summands])

    def _of_symbol(self, symbol: Symbol) -> Formula:
        if isinstance(symbol, Variable):
            return is_missing(self.flags[symbol]) if symbol in self.flags else FALSE
        if isinstance(symbol, Product):
            return _any([self._of_symbol(symbol.known), self._of_symbol(symbol.other)])
        if id(symbol) not in self._unknown:
            self._unknown[id(symbol)] = symbol, self._of_compound(symbol)
        return self._unknown[id(symbol)][1]

    def _of_compound(self, symbol: Product | Apply | Max | Ite | Norm) -> Formula:
        if isinstance(symbol, Product):
            return _any([self._of_symbol(symbol.known), self._of_symbol(symbol.other)])
        if isinstance(symbol, Apply | Max | Norm):
            return _any([self._of_linear(argument) for argument in symbol.arguments])
        yes = self._visit(symbol.condition, polarity=True, certain=True)
        no = self._visit(symbol.condition, polarity=False, certain=True)
        undecided: Formula = FALSE
        if any(v in self.flags for v in variables(symbol.condition)):
            undecided = _all([opposite(yes), opposite(no)])
        then = _all([yes, self._of_linear(symbol.then)])
        otherwise = _all([no, self._of_linear(symbol.otherwise)])
        return _any([undecided, then, otherwise])


def opposite(formula: Formula) -> Formula:
    """The negation, moved inwards through ``and`` and ``or``."""
    match formula:
        case And(arguments):
            return disjunction([opposite(a) for a in arguments])
        case Or(arguments):
            return conjunction([opposite(a) for a in arguments])
    return negation(formula)


def _any(parts: list[Formula]) -> Formula:
    return disjunction(dict.fromkeys(part for part in parts if part != FALSE))


def _all(parts: list[Formula]) -> Formula:
    """Their conjunction; ``False`` if one is the negation of another."""
    joined = conjunction(dict.fromkeys(part for part in parts if part != TRUE))
    if isinstance(joined, And):
        own = set(joined.arguments)
        if any(negation(part) in own for part in own):
            return FALSE
    return joined
