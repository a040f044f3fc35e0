"""Formulas in z3, and the questions that z3 answers about them.

:func:`to_z3` writes a formula as a z3 expression with the same exact numbers: a real output is a z3 real, an integer
and a category are z3 integers, a Boolean is a z3 Boolean, an opaque function is an uninterpreted one. The domains of
discrete variables are no part of the formula; :func:`domain_z3` and :func:`input_range_z3` state them.

:func:`satisfiable`, :func:`implies`, :func:`equivalent` and :func:`unsat_core` include the domains. Each of these
calls works in a z3 context of its own, so its answer does not depend on what z3 did before, and calls in different
threads do not disturb each other. :func:`to_z3` uses z3's main context unless told otherwise; z3 expressions of one
context must not be used by two threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import z3

from multiplexnet.errors import MultiplexError
from multiplexnet.logic.formula import (
    And,
    Apply,
    Atom,
    Bool,
    Formula,
    Iff,
    Ite,
    Linear,
    Max,
    Not,
    Or,
    Real,
    Relation,
    Symbol,
    Variable,
    _children,
    conjunction,
    negation,
)
from multiplexnet.logic.formula import variables as variables_of

__all__ = [
    "SolverGaveUp",
    "constant_z3",
    "domain_z3",
    "equivalent",
    "implies",
    "input_range_z3",
    "model_point",
    "number_z3",
    "satisfiable",
    "to_z3",
    "unsat_core",
]

CORE_CHECKS = 2_000
"""How many solver calls :func:`unsat_core` spends on proving that no smaller core exists."""


class SolverGaveUp(MultiplexError, RuntimeError):
    """z3 neither found a point nor proved that there is none; the text gives its reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"z3 could not decide the rules ({reason}). Try fewer or simpler rules.")


# --- formula → z3 ---------------------------------------------------------------------------------------------------


def to_z3(formula: Formula, *, context: z3.Context | None = None) -> z3.BoolRef:
    """The formula as a z3 expression. Any depth and any number of rules will do: nothing here recurses.

    Args:
        formula: over variables of any domain; the domains themselves are not asserted (see :func:`domain_z3`).
        context: where z3 keeps the expression; ``None`` is z3's main context.

    Example:
        >>> x, on = Variable("x", 0), Variable("on", 1, Bool())
        >>> to_z3(Or((Atom(Linear.of(x) * 2 - 1, "<="), Atom(Linear.of(on) - 1, "=="))))
        Or(2*x <= 1, on)
    """
    return Encoder(context).formula(formula)


def constant_z3(variable: Variable, *, context: z3.Context | None = None) -> z3.ExprRef:
    """The z3 constant that stands for the variable: a real, an integer (also for a category) or a Boolean."""
    match variable.domain:
        case Real():
            return z3.Real(variable.name, context)
        case Bool():
            return z3.Bool(variable.name, context)
    return z3.Int(variable.name, context)


def number_z3(number: Fraction | int, *, context: z3.Context | None = None) -> z3.ArithRef:
    """The exact number as a z3 real."""
    return z3.RealVal(str(number), context)


def _comparison(make: Callable[[Any, Any, Any], Any]) -> Callable[[z3.ArithRef, z3.ArithRef], z3.BoolRef]:
    """``left ? right`` by z3's own constructor: the operators of z3's Python classes turn numbers to the left."""
    return lambda left, right: z3.BoolRef(make(left.ctx_ref(), left.as_ast(), right.as_ast()), left.ctx)


_at_most, _at_least = _comparison(z3.Z3_mk_le), _comparison(z3.Z3_mk_ge)
_equal = _comparison(z3.Z3_mk_eq)
_COMPARE = {"<=": _at_most, "<": _comparison(z3.Z3_mk_lt), "==": _equal}
_COMPARE_TURNED = {"<=": _at_least, "<": _comparison(z3.Z3_mk_gt), "==": _equal}


def _of_many(make: Callable[[Any, int, Any], Any], parts: Sequence[z3.ArithRef]) -> z3.ArithRef:
    """A sum or product of parts of one sort; z3's Python operators would check and convert each part again."""
    asts = (z3.Ast * len(parts))(*(part.as_ast() for part in parts))
    return z3.ArithRef(make(parts[0].ctx_ref(), len(parts), asts), parts[0].ctx)


class Encoder:
    """Writes formulas in one z3 context and remembers every part, so that shared parts are written once.

    Parts are remembered by identity: hashing a deep formula would recurse.
    """

    def __init__(self, context: z3.Context | None = None) -> None:
        self.context = context
        self._written: dict[int, tuple[Formula | Symbol, z3.ExprRef]] = {}  # holds the part, so that its id stays taken
        self._reals: set[int] = set()  # the ids of the symbols among them that are no integers
        self._constants: dict[Variable, z3.ExprRef] = {}
        self._numbers: dict[tuple[Fraction, bool], z3.ArithRef] = {}
        self._multiples: dict[tuple[int, Fraction, bool], z3.ArithRef] = {}

    def formula(self, formula: Formula) -> z3.BoolRef:
        return self._walk(formula)

    def linear(self, linear: Linear) -> z3.ArithRef:
        """The linear expression; an integer one if all its symbols and numbers are integers, else a real one."""
        for symbol, _ in linear.terms:
            self._walk(symbol)
        return self._linear(linear)

    def constant(self, variable: Variable) -> z3.ExprRef:
        if variable not in self._constants:
            self._constants[variable] = constant_z3(variable, context=self.context)
        return self._constants[variable]

    def number(self, number: Fraction, *, integer: bool = False) -> z3.ArithRef:
        key = number, integer
        if key not in self._numbers:
            make = z3.IntVal if integer else z3.RealVal
            self._numbers[key] = make(str(number), self.context)
        return self._numbers[key]

    def _walk(self, root: Formula | Symbol) -> Any:
        """Writes the parts of ``root`` before ``root`` itself, from a stack of its own."""
        stack: list[Formula | Symbol] = [root]
        while stack:
            node = stack[-1]
            if id(node) not in self._written:
                missing = [child for child in _children(node) if id(child) not in self._written]
                if missing:
                    stack.extend(missing)
                    continue
                written = self._WRITE[type(node)](self, node)
                self._written[id(node)] = node, written
                if z3.is_real(written):
                    self._reals.add(id(node))
            stack.pop()
        return self._done(root)

    def _done(self, node: Formula | Symbol) -> Any:
        return self._written[id(node)][1]

    # one writer for each kind of node; the parts of the node are written already

    def _atom(self, atom: Atom) -> z3.BoolRef:
        """``Σ c·s relation number``, turned so that the first coefficient is positive."""
        linear = atom.linear
        if not linear.terms:
            return z3.BoolVal(_compare(linear.constant, atom.relation), self.context)
        (first, coefficient), *others = linear.terms
        if isinstance(first, Variable) and isinstance(first.domain, Bool) and not others:
            truth = [_compare(linear.constant + coefficient * b, atom.relation) for b in (0, 1)]
            return self._truth(self.constant(first), *truth)
        turned = coefficient < 0
        scale = -1 if turned else 1
        integer = not any(id(symbol) in self._reals for symbol, _ in linear.terms)
        if integer:
            scale *= lcm(*(c.denominator for _, c in linear.terms), linear.constant.denominator)
        left = self._sum(linear.terms, Fraction(0), scale=scale, integer=integer)
        right = self.number(-linear.constant * scale, integer=integer)
        return (_COMPARE_TURNED if turned else _COMPARE)[atom.relation](left, right)

    def _truth(self, constant: z3.BoolRef, if_off: bool, if_on: bool) -> z3.BoolRef:
        """The Boolean condition that is ``if_off`` where the constant is false and ``if_on`` where it is true."""
        if if_off == if_on:
            return z3.BoolVal(if_on, self.context)
        return constant if if_on else z3.Not(constant)

    def _linear(self, linear: Linear) -> z3.ArithRef:
        integer = all(id(s) not in self._reals and c.denominator == 1 for s, c in linear.terms)
        return self._sum(linear.terms, linear.constant, integer=integer and linear.constant.denominator == 1)

    def _sum(
        self, terms: Iterable[tuple[Symbol, Fraction]], constant: Fraction, *, scale: int = 1, integer: bool
    ) -> z3.ArithRef:
        parts = [self._multiple(symbol, c * scale, integer=integer) for symbol, c in terms]
        if constant or not parts:
            parts.append(self.number(constant, integer=integer))
        return parts[0] if len(parts) == 1 else _of_many(z3.Z3_mk_add, parts)

    def _multiple(self, symbol: Symbol, factor: Fraction, *, integer: bool) -> z3.ArithRef:
        key = id(symbol), factor, integer
        if key not in self._multiples:
            part = self._done(symbol) if integer else _as_real(self._done(symbol))
            number = self.number(factor, integer=integer)
            self._multiples[key] = part if factor == 1 else _of_many(z3.Z3_mk_mul, [number, part])
        return self._multiples[key]

    def _variable(self, variable: Variable) -> z3.ArithRef:
        constant = self.constant(variable)
        if isinstance(variable.domain, Bool):
            one, zero = self.number(Fraction(1), integer=True), self.number(Fraction(0), integer=True)
            return z3.If(constant, one, zero)
        return constant

    def _apply(self, apply: Apply) -> z3.ArithRef:
        sorts = [z3.RealSort(self.context)] * (len(apply.arguments) + 1)
        arguments = [_as_real(self._linear(a)) for a in apply.arguments]
        return z3.Function(apply.function, *sorts)(*arguments)

    def _max(self, maximum: Max) -> z3.ArithRef:
        largest, *others = _same_sort([self._linear(a) for a in maximum.arguments])
        for other in others:
            largest = z3.If(other > largest, other, largest)
        return largest

    def _ite(self, ite: Ite) -> z3.ArithRef:
        then, otherwise = _same_sort([self._linear(ite.then), self._linear(ite.otherwise)])
        return z3.If(self._done(ite.condition), then, otherwise)

    def _not(self, node: Not) -> z3.BoolRef:
        return z3.Not(self._done(node.argument))

    def _and(self, node: And) -> z3.BoolRef:
        parts = [self._done(a) for a in node.arguments]
        return z3.And(parts) if parts else z3.BoolVal(True, self.context)

    def _or(self, node: Or) -> z3.BoolRef:
        parts = [self._done(a) for a in node.arguments]
        return z3.Or(parts) if parts else z3.BoolVal(False, self.context)

    def _iff(self, node: Iff) -> z3.BoolRef:
        return self._done(node.left) == self._done(node.right)

    _WRITE: Mapping[type, Callable[[Encoder, Any], z3.ExprRef]] = {
        Atom: _atom,
        Variable: _variable,
        Apply: _apply,
        Max: _max,
        Ite: _ite,
        Not: _not,
        And: _and,
        Or: _or,
        Iff: _iff,
    }


def _compare(number: Fraction, relation: Relation) -> bool:
    return number <= 0 if relation == "<=" else number < 0 if relation == "<" else number == 0


def _as_real(expression: z3.ArithRef) -> z3.ArithRef:
    return z3.ToReal(expression) if expression.is_int() else expression


def _same_sort(expressions: list[z3.ArithRef]) -> list[z3.ArithRef]:
    if all(e.is_int() for e in expressions):
        return expressions
    return [_as_real(e) for e in expressions]


# --- domains --------------------------------------------------------------------------------------------------------


def domain_z3(variables: Iterable[Variable], *, context: z3.Context | None = None) -> list[z3.BoolRef]:
    """That every integer and category among the variables lies in its domain. Reals and Booleans need nothing.

    Example:
        >>> from multiplexnet.logic.formula import Int
        >>> domain_z3([Variable("n", 0, Int(1, 6)), Variable("x", 1)])
        [n >= 1, n <= 6]
    """
    bounds = []
    for variable in variables:
        if not isinstance(variable.domain, Real | Bool):
            constant, values = constant_z3(variable, context=context), variable.domain.values
            bounds += [constant >= values.start, constant <= values.stop - 1]
    return bounds


def input_range_z3(variables: Iterable[Variable], *, context: z3.Context | None = None) -> list[z3.BoolRef]:
    """That every real variable with a declared interval (only inputs have one) lies in it.

    Example:
        >>> input_range_z3([Variable("limit", 0, Real(Fraction(0), Fraction(1, 2)), "input")])
        [limit >= 0, limit <= 1/2]
    """
    bounds = []
    for variable in variables:
        if isinstance(variable.domain, Real):
            constant = constant_z3(variable, context=context)
            if variable.domain.lower is not None:
                bounds.append(_at_least(constant, number_z3(variable.domain.lower, context=context)))
            if variable.domain.upper is not None:
                bounds.append(_at_most(constant, number_z3(variable.domain.upper, context=context)))
    return bounds


# --- questions ------------------------------------------------------------------------------------------------------


def satisfiable(formula: Formula, variables: Iterable[Variable] = ()) -> dict[Variable, Fraction] | None:
    """A point at which the formula holds, or ``None`` if there is none.

    Args:
        formula: what has to hold.
        variables: variables that the point must name besides those of the formula.

    Returns:
        An exact value for every variable, each in its domain (Booleans are 0 and 1, categories positions, inputs in
        their declared interval).

    Raises:
        SolverGaveUp: z3 ran out of resources.

    Example:
        >>> from multiplexnet.logic.formula import Int
        >>> n = Variable("n", 0, Int(0, 9))
        >>> satisfiable(Atom(Linear.number(17) - Linear.of(n) * 2, "<="))
        {Variable(name='n', index=0, domain=Int(lower=0, upper=9), role='output'): Fraction(9, 1)}
        >>> satisfiable(Atom(Linear.number(19) - Linear.of(n) * 2, "<=")) is None
        True
    """
    named = _together(variables, [formula])
    encoder, solver = _solver(named)
    solver.add(encoder.formula(formula))
    return model_point(solver.model(), named) if _is_sat(solver) else None


def implies(premise: Formula, conclusion: Formula, variables: Iterable[Variable] = ()) -> bool:
    """Whether the conclusion holds wherever the premise does, within the domains of the variables.

    Example:
        >>> x = Linear.of(Variable("x", 0))
        >>> implies(Atom(x - 1, "<="), Atom(x - 2, "<")), implies(Atom(x - 2, "<"), Atom(x - 1, "<="))
        (True, False)
    """
    return satisfiable(conjunction([premise, negation(conclusion)]), variables) is None


def equivalent(left: Formula, right: Formula, variables: Iterable[Variable] = ()) -> bool:
    """Whether the two formulas hold at the same points, within the domains of the variables.

    Example:
        >>> on = Linear.of(Variable("on", 0, Bool()))
        >>> equivalent(Atom(on * -1, "<"), Atom(on - 1, "=="))
        True
    """
    return satisfiable(Not(Iff(left, right)), variables) is None


def model_point(model: z3.ModelRef, variables: Iterable[Variable]) -> dict[Variable, Fraction]:
    """The exact values that a z3 model gives to the variables; what the model leaves open gets z3's default."""
    return {v: _number(model.eval(constant_z3(v, context=model.ctx), model_completion=True)) for v in variables}


def _number(numeral: z3.ExprRef) -> Fraction:
    if z3.is_bool(numeral):
        return Fraction(int(z3.is_true(numeral)))
    return Fraction(numeral.as_string())


def _together(variables: Iterable[Variable], formulas: Iterable[Formula]) -> list[Variable]:
    """The given variables, then those of the formulas that are not among them."""
    return list(dict.fromkeys([*variables, *variables_of(And(tuple(formulas)))]))


def _solver(variables: Sequence[Variable]) -> tuple[Encoder, z3.Solver]:
    context = z3.Context()
    solver = z3.Solver(ctx=context)
    solver.add(*domain_z3(variables, context=context), *input_range_z3(variables, context=context))
    return Encoder(context), solver


def _is_sat(solver: z3.Solver, *assumptions: z3.BoolRef) -> bool:
    answer = solver.check(*assumptions)
    if answer == z3.unknown:
        raise SolverGaveUp(solver.reason_unknown())
    return bool(answer == z3.sat)


# --- contradictions -------------------------------------------------------------------------------------------------


def unsat_core(formulas: Sequence[Formula], variables: Iterable[Variable] = ()) -> list[int]:
    """The positions of a smallest set of formulas that cannot hold together; empty if all of them can.

    z3's core is first shrunk until every member is needed. Then smaller ones are sought by implicit hitting sets
    (Ignatiev et al., «Smallest MUS extraction with minimal hitting set dualization», CP 2015): whatever is left out
    of a satisfiable set must be met by every contradiction, so a set that meets all such remainders seen so far and
    contradicts itself is a smallest one. Should ``CORE_CHECKS`` solver calls not settle that, the answer is minimal
    (no member can be left out) but perhaps not smallest.

    Args:
        formulas: for example the formulas of the rules, in order.
        variables: variables whose domains count besides those of the formulas.

    Example:
        >>> x = Linear.of(Variable("x", 0))
        >>> unsat_core([Atom(x - 5, "<="), Atom(x * -1, "<="), Atom(x * -1 + 7, "<")])
        [0, 2]
    """
    search = _CoreSearch(formulas, _together(variables, formulas))
    core = search.first()
    return sorted(search.smaller(search.shrunk(core)) if core else core)


class _CoreSearch:
    """The solver calls behind :func:`unsat_core`: one solver, one switch for each formula."""

    def __init__(self, formulas: Sequence[Formula], variables: Sequence[Variable]) -> None:
        encoder, self.solver = _solver(variables)
        self.formulas = [encoder.formula(f) for f in formulas]
        self.switches = [z3.Bool(f"!{i}", encoder.context) for i in range(len(formulas))]
        for switch, formula in zip(self.switches, self.formulas, strict=True):
            self.solver.add(z3.Implies(switch, formula))
        self.checks = 0

    def is_sat(self, chosen: Iterable[int]) -> bool:
        self.checks += 1
        return _is_sat(self.solver, *(self.switches[i] for i in chosen))

    def core(self) -> list[int]:
        """z3's core of the last check that failed."""
        return [int(str(switch)[1:].strip("|!")) for switch in self.solver.unsat_core()]

    def first(self) -> list[int]:
        return [] if self.is_sat(range(len(self.switches))) else self.core()

    def shrunk(self, core: list[int]) -> list[int]:
        """A part of the core in which every member is needed."""
        needed: list[int] = []
        while core:
            candidate = core.pop()
            if self.is_sat([*needed, *core]):
                needed.append(candidate)
            else:
                kept = set(self.core())
                core = [i for i in core if i in kept]
        return needed

    def smaller(self, core: list[int]) -> list[int]:
        """A smallest contradicting set; the given core if none is smaller or the checks run out."""
        hitting = _HittingSets()
        for size in range(1, len(core)):
            while (candidate := hitting.at_most(size)) is not None:
                if not self.is_sat(candidate):
                    return candidate
                if self.checks > CORE_CHECKS:
                    return core
                hitting.add(self.remainder(candidate))
        return core

    def remainder(self, chosen: list[int]) -> list[int]:
        """What is left out of a satisfiable set that contains ``chosen`` and is as large as the checks allow."""
        inside, outside = set(chosen), self._false_now()
        undecided = list(outside)
        while undecided and self.checks <= CORE_CHECKS:
            candidate = undecided.pop()
            inside = set(range(len(self.switches))) - set(outside)
            if self.is_sat([*sorted(inside), candidate]):
                outside = self._false_now()
                still = set(outside)
                undecided = [i for i in undecided if i in still]
        return outside

    def _false_now(self) -> list[int]:
        """The formulas that do not hold in the model of the last check."""
        model = self.solver.model()
        return [i for i, f in enumerate(self.formulas) if not z3.is_true(model.eval(f, model_completion=True))]


class _HittingSets:
    """Sets of positions that meet every added set."""

    def __init__(self) -> None:
        self.context = z3.Context()
        self.solver = z3.Solver(ctx=self.context)
        self.switches: dict[int, z3.BoolRef] = {}

    def add(self, positions: Iterable[int]) -> None:
        for i in positions:
            self.switches.setdefault(i, z3.Bool(f"!{i}", self.context))
        self.solver.add(z3.Or([self.switches[i] for i in positions]))

    def at_most(self, size: int) -> list[int] | None:
        """A set of at most ``size`` positions that meets all added sets, if there is one."""
        if not self.switches:
            return []
        self.solver.push()
        self.solver.add(z3.AtMost(*self.switches.values(), size))
        found = None
        if _is_sat(self.solver):
            model = self.solver.model()
            found = [i for i, switch in self.switches.items() if z3.is_true(model.eval(switch))]
        self.solver.pop()
        return found
