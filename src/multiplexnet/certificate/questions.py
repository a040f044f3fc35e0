"""Formulas written for cvc5, and the one question the check asks of it: do these premises imply that conclusion?

This encoder shares nothing with the one of the compiler. Discrete variables are integers within their domain, Booleans
are cvc5's own, opaque functions are uninterpreted functions of reals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from multiplexnet.errors import MultiplexError, install
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
    Real,
    Symbol,
    Variable,
)

__all__ = ["Answer", "Cvc5Writer", "MissingSolver", "configured", "cvc5"]

MILLISECONDS = 600_000
"""After this time one question counts as undecided."""


class MissingSolver(MultiplexError, ImportError):
    """cvc5 is not installed."""

    def __init__(self) -> None:
        super().__init__(f"checking a certificate needs cvc5: {install('certify')}")


def cvc5() -> Any:
    """The solver's module.

    Raises:
        MissingSolver: it is not installed; the message says which extra to install.
    """
    try:
        import cvc5 as module
    except ImportError:
        raise MissingSolver from None
    return module


@dataclass(frozen=True)
class Answer:
    """Whether an implication was proved; if not, a point where it fails, or nothing where cvc5 gave up."""

    proved: bool
    point: Mapping[str, Fraction] | None = None


def configured(solver: Any) -> Any:
    """The solver, ready for several questions with models and a limit of time."""
    for option, value in (
        ("incremental", "true"),
        ("produce-models", "true"),
        ("tlimit-per", str(MILLISECONDS)),
    ):
        solver.setOption(option, value)
    return solver


class Cvc5Writer:
    """Writes formulas as cvc5 terms over some variables, and asks.

    Args:
        variables: whose domains count in every question.
        known: constants and functions that exist already, by name.
        manager: where those live; by default a new term manager.
        solver: one that knows their definitions; by default a new one.
    """

    def __init__(
        self,
        variables: Sequence[Variable],
        known: Mapping[str, Any] | None = None,
        manager: Any = None,
        solver: Any = None,
    ) -> None:
        self.cvc5 = cvc5()
        self.manager = manager if manager is not None else self.cvc5.TermManager()
        self.kind = self.cvc5.Kind
        self.questions = 0
        self._variables: list[Variable] = []
        self._known = dict(known or {})
        self._written: dict[
            int, tuple[object, Any]
        ] = {}  # by identity; holds the object, so that its id stays its own
        self._norms: dict[tuple[Fraction, ...], Any] = {}
        self._solver = solver
        if solver is None:
            self._solver = configured(self.cvc5.Solver(self.manager))
            self._solver.setLogic("ALL")
        self.assume(variables)

    def assume(self, variables: Sequence[Variable]) -> None:
        """From now on the domains of these variables count, too."""
        self._variables += variables
        for bound in (
            bound for variable in variables for bound in self.domain(variable)
        ):
            self._solver.assertFormula(bound)

    def take(self, formula: Formula) -> None:
        """From now on this formula holds in every question."""
        self._solver.assertFormula(self.formula(formula))

    # --- writing ----------------------------------------------------------------------------------------------------

    def constant(self, variable: Variable) -> Any:
        """The constant that stands for a variable."""
        if variable.name not in self._known:
            self._known[variable.name] = self.manager.mkConst(
                self.sort(variable), variable.name
            )
        return self._known[variable.name]

    def sort(self, variable: Variable) -> Any:
        """The sort of the constant that stands for a variable."""
        match variable.domain:
            case Real():
                return self.manager.getRealSort()
            case Bool():
                return self.manager.getBooleanSort()
        return self.manager.getIntegerSort()

    def domain(self, variable: Variable) -> list[Any]:
        """What the declaration of a variable says."""
        constant = self.constant(variable)
        kind = self.kind
        match variable.domain:
            case Bool():
                return []
            case Real(lower, upper):
                ends = [
                    None if end is None else self.number(end) for end in (lower, upper)
                ]
            case domain:
                ends = [
                    self.manager.mkInteger(end)
                    for end in (domain.values.start, domain.values.stop - 1)
                ]
        pairs = zip((kind.GEQ, kind.LEQ), ends, strict=True)
        return [
            self.manager.mkTerm(relation, constant, end)
            for relation, end in pairs
            if end is not None
        ]

    def number(self, value: Fraction) -> Any:
        """An exact real number."""
        return self.manager.mkReal(f"{value.numerator}/{value.denominator}")

    def formula(self, formula: Formula) -> Any:
        """The formula as a term; a part that is shared is written once."""
        if id(formula) not in self._written:
            self._written[id(formula)] = formula, self._formula(formula)
        return self._written[id(formula)][1]

    def _formula(self, formula: Formula) -> Any:
        kind = self.kind
        term = self.manager.mkTerm
        match formula:
            case Atom(linear, relation):
                relations = {"<=": kind.LEQ, "<": kind.LT, "==": kind.EQUAL}
                return term(
                    relations[relation], self.linear(linear), self.number(Fraction(0))
                )
            case Not(argument):
                return term(kind.NOT, self.formula(argument))
            case And(arguments):
                return self.all_of(map(self.formula, arguments))
            case Or(arguments):
                return self.any_of(map(self.formula, arguments))
            case Iff(left, right):
                return term(kind.EQUAL, self.formula(left), self.formula(right))

    def all_of(self, terms: Iterable[Any]) -> Any:
        """The conjunction of terms."""
        parts = list(terms)
        if not parts:
            return self._true()
        if len(parts) == 1:
            return parts[0]
        return self.manager.mkTerm(self.kind.AND, *parts)

    def any_of(self, terms: Iterable[Any]) -> Any:
        """The disjunction of terms."""
        parts = list(terms)
        if not parts:
            return self.negated(self._true())
        return (
            parts[0] if len(parts) == 1 else self.manager.mkTerm(self.kind.OR, *parts)
        )

    def negated(self, term: Any) -> Any:
        """The negation of a term."""
        return self.manager.mkTerm(self.kind.NOT, term)

    def equal(self, left: Any, right: Any) -> Any:
        """That two terms are equal, or two truth values the same."""
        return self.manager.mkTerm(self.kind.EQUAL, left, right)

    def _true(self) -> Any:
        return self.manager.mkBoolean(True)

    def linear(self, linear: Linear) -> Any:
        """A linear expression as a real term."""
        kind = self.kind
        term = self.manager.mkTerm
        parts = [
            self._symbol(symbol)
            if c == 1
            else term(kind.MULT, self.number(c), self._symbol(symbol))
            for symbol, c in linear.summands
        ]
        if linear.constant or not parts:
            parts.append(self.number(linear.constant))
        return parts[0] if len(parts) == 1 else term(kind.ADD, *parts)

    def _symbol(self, symbol: Symbol) -> Any:
        kind = self.kind
        term = self.manager.mkTerm
        match symbol:
            case Variable(domain=Real()):
                return self.constant(symbol)
            case Variable(domain=Bool()):
                return term(
                    kind.ITE,
                    self.constant(symbol),
                    self.number(Fraction(1)),
                    self.number(Fraction(0)),
                )
            case Variable():
                return term(kind.TO_REAL, self.constant(symbol))
            case Product(known, other):
                return term(kind.MULT, self._symbol(known), self._symbol(other))
            case Apply(name, arguments):
                return term(
                    kind.APPLY_UF,
                    self._function(name, len(arguments)),
                    *map(self.linear, arguments),
                )
            case Norm(weights, arguments):
                return term(
                    kind.APPLY_UF,
                    self._norm(weights),
                    *map(self.linear, arguments),
                )
            case Max(arguments):
                return self._maximum([self.linear(argument) for argument in arguments])
            case Ite(condition, then, otherwise):
                return term(
                    kind.ITE,
                    self.formula(condition),
                    self.linear(then),
                    self.linear(otherwise),
                )

    def _maximum(self, arguments: Sequence[Any]) -> Any:
        largest, *others = arguments
        for other in others:
            larger = self.manager.mkTerm(self.kind.GT, other, largest)
            largest = self.manager.mkTerm(self.kind.ITE, larger, other, largest)
        return largest

    def _norm(self, weights: tuple[Fraction, ...]) -> Any:
        """A norm is a function of which nothing is known but what is said of it (:meth:`take`)."""
        if weights not in self._norms:
            real = self.manager.getRealSort()
            sort = self.manager.mkFunctionSort([real] * len(weights), real)
            self._norms[weights] = self.manager.mkConst(sort, "norm")
        return self._norms[weights]

    def is_norm(self, term: Any) -> bool:
        """Whether a term is the function that stands for a norm."""
        return term in self._norms.values()

    def _function(self, name: str, arity: int) -> Any:
        key = f"{name}/{arity}"
        if name in self._known and self._known[name].getSort().isFunction():
            return self._known[name]
        if key not in self._known:
            real = self.manager.getRealSort()
            self._known[key] = self.manager.mkConst(
                self.manager.mkFunctionSort([real] * arity, real), name
            )
        return self._known[key]

    # --- asking -----------------------------------------------------------------------------------------------------

    def implied(self, premises: Iterable[Any], conclusion: Any) -> Answer:
        """Whether the premises imply the conclusion wherever every variable lies in its domain."""
        self.questions += 1
        solver = self._solver
        solver.push()
        try:
            for premise in premises:
                solver.assertFormula(premise)
            solver.assertFormula(self.negated(conclusion))
            verdict = solver.checkSat()
            if verdict.isUnsat():
                return Answer(True)
            # with norms cvc5's point is one for some function in their place: it refutes nothing
            refutes = verdict.isSat() and not self._norms
            return Answer(False, self._point(solver) if refutes else None)
        finally:
            solver.pop()

    def _point(self, solver: Any) -> dict[str, Fraction]:
        point = {}
        for variable in self._variables:
            value = solver.getValue(self.constant(variable))
            if value.isBooleanValue():
                point[variable.name] = Fraction(int(value.getBooleanValue()))
            else:
                point[variable.name] = Fraction(str(value.toPythonObj()))
        return point
