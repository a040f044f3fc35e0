"""z3 as the search uses it: a private context, formulas in normal form, questions that switch atoms on and off.

z3's answers depend on everything that was built before in the same context, and the terms of the same rules have to be
the same tomorrow: each search therefore has a context of its own.

Where a call is made thousands of times it is z3's raw one; the Python wrappers cost ten times as much as the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ctypes import byref, c_longlong
from fractions import Fraction
from functools import cached_property
from typing import Any

import z3

from multiplexnet.errors import SolverGaveUp
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.language.formula import (
    And,
    Atom,
    Formula,
    Linear,
    Or,
    Real,
    Symbol,
    Variable,
    ends,
)
from multiplexnet.smt.context import new_context
from multiplexnet.smt.encoder import COMPARE, joined

__all__ = ["Model", "Questions", "Sandbox", "decided"]


def decided(solver: Any, deadline: Deadline, *assumptions: Any) -> bool:
    """Whether all that the solver (or optimiser) knows can hold, under the assumptions as well.

    Raises:
        CompileTimeout: the time was over before z3 had an answer.
        KeyboardInterrupt: Ctrl-C was pressed. While z3 works it takes that signal and gives the question up.
        SolverGaveUp: z3 has no answer for a reason of its own.
    """
    with deadline.asking(solver.ctx):
        answer = solver.check(*assumptions)
    if answer == z3.unknown:
        raise _unanswered(solver, deadline)
    return bool(answer == z3.sat)


def _unanswered(solver: Any, deadline: Deadline) -> BaseException:
    """Why a question without a limit of work has no answer; raises if it is the time."""
    deadline.check()
    reason = solver.reason_unknown()
    if "cancel" in reason or "interrupt" in reason:
        return KeyboardInterrupt()
    return SolverGaveUp(reason)


class Sandbox:
    """Formulas in normal form as z3 expressions of one private context; opaque applications are plain reals there.

    It does not write with :class:`~multiplexnet.smt.encoder.Z3Encoder`, which keeps names, turns comparisons round,
    leaves factors of one out and calculates in integers where it can. From such expressions z3 would find other terms,
    or the same ones in another order, and what the logits of a layer mean must not change.

    Args:
        deadline: when its solvers give up.
    """

    def __init__(self, deadline: Deadline = NEVER) -> None:
        self.deadline = deadline
        self._symbols: dict[Symbol, Any] = {}
        self._formulas: dict[Formula, Any] = {}
        self._negations: dict[Atom, Any] = {}
        self._numbers: dict[Fraction, Any] = {}

    @cached_property
    def context(self) -> Any:
        return new_context()  # which takes 5 ms: boxes need none

    def solver(self, *assertions: Any) -> Any:
        solver = z3.SimpleSolver(ctx=self.context)
        solver.add(*assertions)
        return solver

    def questions(
        self, known: Iterable[Formula] = (), *, work: int | None = None
    ) -> Questions:
        """A solver that knows the given formulas (see :class:`Questions`)."""
        solver = self.solver(*map(self.formula, known))
        return Questions(self.formula, solver, work=work, deadline=self.deadline)

    def decided(self, solver: Any) -> bool:
        """Whether all that the solver knows can hold (see :func:`decided`)."""
        return decided(solver, self.deadline)

    def symbol(self, symbol: Symbol) -> Any:
        if symbol not in self._symbols:
            is_whole = isinstance(symbol, Variable) and symbol.is_discrete
            make = z3.Int if is_whole else z3.Real
            name = f"v{len(self._symbols)}"
            self._symbols[symbol] = make(name, self.context)
        return self._symbols[symbol]

    def formula(self, formula: Formula) -> Any:
        if formula not in self._formulas:
            self._formulas[formula] = self._encoded(formula)
        return self._formulas[formula]

    def domain(self, variable: Variable) -> Any:
        """The bounds of a discrete variable."""
        if isinstance(variable.domain, Real):
            raise TypeError(f"not discrete: {variable!r}")
        lower, upper = ends(variable.domain)
        constant = self.symbol(variable)
        return z3.And(constant >= int(lower), constant <= int(upper))

    def absent(self, atoms: Iterable[Atom]) -> Any:
        """That not all of the atoms hold."""
        asts = [self._negated(atom).as_ast() for atom in atoms]
        array = (z3.Ast * len(asts))(*asts)
        disjunction = z3.Z3_mk_or(self.context.ref(), len(asts), array)
        return z3.BoolRef(disjunction, self.context)

    def _negated(self, atom: Atom) -> Any:
        if atom not in self._negations:
            self._negations[atom] = z3.Not(self.formula(atom))
        return self._negations[atom]

    def _encoded(self, formula: Formula) -> Any:
        match formula:
            case Atom(linear, relation):
                bound = self._number(-linear.constant)
                return COMPARE[relation](self._sum(linear), bound)
            case And(arguments):
                return z3.And(
                    [z3.BoolVal(True, self.context), *map(self.formula, arguments)]
                )
            case Or(arguments):
                return z3.Or(
                    [z3.BoolVal(False, self.context), *map(self.formula, arguments)]
                )
        raise TypeError(f"not in normal form: {formula!r}")

    def _number(self, number: Fraction) -> Any:
        if number not in self._numbers:
            self._numbers[number] = z3.RealVal(str(number), self.context)
        return self._numbers[number]

    def _sum(self, linear: Linear) -> Any:
        products = []
        for symbol, c in linear.summands:
            factors = [self._number(c), self._real(symbol)]
            products.append(joined(z3.Z3_mk_mul, factors))
        if len(products) == 1:
            return products[0]
        return joined(z3.Z3_mk_add, products)

    def _real(self, symbol: Symbol) -> Any:
        constant = self.symbol(symbol)
        return z3.ToReal(constant) if constant.is_int() else constant

    def model(self, solver: Any) -> Model:
        return Model(solver.model(), self)


class Model:
    """The point of the last answer."""

    def __init__(self, model: Any, sandbox: Sandbox) -> None:
        self._model = model
        self._sandbox = sandbox
        self._context = sandbox.context.ref()
        self._result = (z3.Ast * 1)()
        self._parts = c_longlong(), c_longlong()

    def number(self, symbol: Symbol) -> Fraction:
        """The exact value of a symbol."""
        value = self._value(self._sandbox.symbol(symbol))
        numerator, denominator = self._parts
        is_small = z3.Z3_get_numeral_small(
            self._context, value, byref(numerator), byref(denominator)
        )
        if is_small:
            return Fraction(numerator.value, denominator.value)
        return Fraction(z3.Z3_get_numeral_string(self._context, value))

    def point(self, symbols: Iterable[Symbol]) -> dict[Symbol, Fraction]:
        return {symbol: self.number(symbol) for symbol in symbols}

    def _value(self, expression: Any) -> Any:
        z3.Z3_model_eval(
            self._context, self._model.model, expression.as_ast(), True, self._result
        )
        return self._result[0]


class Questions:
    """A solver that is asked what holds when some formulas hold as well, one question after the other.

    Args:
        encode: writes a formula in the context of the solver.
        solver: with what is always known.
        work: z3's ``rlimit`` for one question; unlike a time limit it gives the same answer on every machine.
        deadline: when no answer is waited for any more.
    """

    def __init__(
        self,
        encode: Callable[[Formula], Any],
        solver: Any,
        *,
        work: int | None = None,
        deadline: Deadline = NEVER,
    ) -> None:
        self.solver = solver
        self._encode = encode
        self._context = solver.ctx
        self._deadline = deadline
        self._switches: dict[Formula, tuple[Any, Any]] = {}
        self._is_limited = work is not None
        if work is not None:
            solver.set("rlimit", work)
            # or z3 takes Ctrl-C for the end of the work; Python sees it a moment later
            solver.set("ctrl_c", False)

    def switch(self, formula: Formula) -> Any:
        """A Boolean constant (z3's own handle) that, when assumed, makes the formula hold."""
        if formula not in self._switches:
            name = z3.Bool(f"p{len(self._switches)}", self._context)
            self.solver.add(z3.Implies(name, self._encode(formula)))
            self._switches[formula] = name, name.as_ast()
        return self._switches[formula][1]

    def answer(
        self, formulas: Iterable[Formula], assumed: Iterable[Any] = ()
    ) -> bool | None:
        """Whether all of the formulas (and z3's own constants) can hold together; ``None`` if the work ran out."""
        asts = [*(self.switch(f) for f in formulas), *assumed]
        array = (z3.Ast * len(asts))(*asts)
        with self._deadline.asking(self._context):
            code = z3.Z3_solver_check_assumptions(
                self._context.ref(), self.solver.solver, len(asts), array
            )
        answer = _ANSWERS.get(code)
        if answer is None:
            if not self._is_limited:
                raise _unanswered(self.solver, self._deadline)
            self._deadline.check()
        return answer


_ANSWERS = {z3.Z3_L_TRUE: True, z3.Z3_L_FALSE: False}
