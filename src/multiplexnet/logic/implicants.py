"""All-SMT with theory prime implicants: the terms of one formula over real variables.

A formula F in normal form is covered by conjunctions of its own literals. Each round asks one solver for a point of F
that no term contains yet, reads off a conjunction of literals that holds there and makes F true, and shrinks it with a
second solver that holds ¬F: a literal is dropped when the rest still contradicts ¬F. What remains is a *prime
implicant*; it is blocked, and the search goes on until nothing is left.

The solvers live in a context of their own: z3's answers depend on everything that was built before in the same
context, and the terms of the same rules have to be the same tomorrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import z3

from multiplexnet.logic.formula import And, Atom, Formula, Linear, Or, Symbol, Variable

__all__ = ["Encoder", "Found", "Implicants", "Literals"]

Literals = tuple[Atom, ...]


@dataclass(frozen=True)
class Found:
    """A prime implicant and a point in it that no implicant found before contains."""

    literals: Literals
    witness: Mapping[Symbol, Fraction]


class Encoder:
    """Formulas in normal form as z3 expressions of one private context; opaque applications are plain reals there."""

    def __init__(self) -> None:
        self.context = z3.Context()
        self._symbols: dict[Symbol, Any] = {}
        self._formulas: dict[Formula, Any] = {}
        self._proxies: dict[Atom, Any] = {}

    def solver(self, *assertions: Any) -> Any:
        solver = z3.SimpleSolver(ctx=self.context)
        solver.add(*assertions)
        return solver

    def symbol(self, symbol: Symbol) -> Any:
        if symbol not in self._symbols:
            make = z3.Int if isinstance(symbol, Variable) and symbol.is_discrete else z3.Real
            self._symbols[symbol] = make(f"v{len(self._symbols)}", self.context)
        return self._symbols[symbol]

    def formula(self, formula: Formula) -> Any:
        if formula not in self._formulas:
            self._formulas[formula] = self._encoded(formula)
        return self._formulas[formula]

    def _encoded(self, formula: Formula) -> Any:
        match formula:
            case Atom(linear, relation):
                left, right = self._sum(linear), self._number(-linear.constant)
                return left <= right if relation == "<=" else left < right if relation == "<" else left == right
            case And(arguments):
                return z3.And([z3.BoolVal(True, self.context), *map(self.formula, arguments)])
            case Or(arguments):
                return z3.Or([z3.BoolVal(False, self.context), *map(self.formula, arguments)])
        raise TypeError(f"not in normal form: {formula!r}")

    def _number(self, number: Fraction) -> Any:
        return z3.RealVal(str(number), self.context)

    def _sum(self, linear: Linear) -> Any:
        parts = [self._number(c) * self._real(symbol) for symbol, c in linear.terms]
        return parts[0] if len(parts) == 1 else z3.Sum(parts)

    def _real(self, symbol: Symbol) -> Any:
        constant = self.symbol(symbol)
        return z3.ToReal(constant) if constant.is_int() else constant

    def domain(self, variable: Variable) -> Any:
        """The bounds of a discrete variable."""
        constant, values = self.symbol(variable), list(variable.domain.values)  # type: ignore[union-attr]
        return z3.And(constant >= values[0], constant <= values[-1])

    def point(self, model: Any) -> dict[Symbol, Fraction]:
        """The exact values of all symbols in the model."""
        return {symbol: number(model, constant) for symbol, constant in self._symbols.items()}

    def proxy(self, atom: Atom, *solvers: Any) -> Any:
        """A Boolean constant that, when assumed, makes the atom hold in every one of the solvers."""
        if atom not in self._proxies:
            name = z3.Bool(f"p{len(self._proxies)}", self.context)
            for solver in solvers:
                solver.add(z3.Implies(name, self.formula(atom)))
            self._proxies[atom] = name
        return self._proxies[atom]


def truth(model: Any, expression: Any) -> bool:
    """Whether a Boolean expression is true in the model (the raw call: z3's own wrapper is eight times slower)."""
    result = (z3.Ast * 1)()
    z3.Z3_model_eval(model.ctx.ref(), model.model, expression.as_ast(), True, result)
    return bool(z3.Z3_get_bool_value(model.ctx.ref(), result[0]) == z3.Z3_L_TRUE)


def number(model: Any, constant: Any) -> Fraction:
    """The exact value of a constant in the model."""
    value = model.eval(constant, model_completion=True)
    return Fraction(value.as_long()) if value.is_int() else value.as_fraction()


class Implicants:
    """The prime implicants of ``formula`` where ``background`` holds.

    Args:
        formula: in normal form, over real variables.
        background: what is known anyway; it is not repeated in the implicants.
    """

    def __init__(self, formula: Formula, background: Sequence[Formula] = ()) -> None:
        self._formula = formula
        self._encoder = Encoder()
        known = [self._encoder.formula(part) for part in background]
        goal = self._encoder.formula(formula)
        self._inside = self._encoder.solver(*known, goal)
        self._outside = self._encoder.solver(*known, z3.Not(goal))

    def all(self, *, budget: int, progress: Callable[[int], None] | None = None) -> list[Found] | None:
        """Implicants that together cover the formula, or ``None`` when more than ``budget`` turn up."""
        found: list[Found] = []
        while (implicant := self.next()) is not None:
            if len(found) >= budget:
                return None
            found.append(implicant)
            if progress is not None:
                progress(len(found))
        return found

    def next(self) -> Found | None:
        """A prime implicant that contains a point outside all those found before; ``None`` when they cover all."""
        if self._inside.check() != z3.sat:
            return None
        model = self._inside.model()
        literals = self.prime(self._reader(model))
        absent = [z3.Not(self._encoder.formula(atom)) for atom in literals]
        self._inside.add(z3.Or([z3.BoolVal(False, self._encoder.context), *absent]))
        return Found(literals, self._encoder.point(model))

    def prime(
        self, true: Callable[[Atom], bool], order: Callable[[Literals], Sequence[Atom]] | None = None
    ) -> Literals:
        """A prime implicant at the point where the ``true`` atoms hold; ``order`` says which literals to drop first."""
        start = tuple(self._implicant(true))
        return self._shrunk(start if order is None else tuple(order(start)))

    def _reader(self, model: Any) -> Callable[[Atom], bool]:
        return lambda atom: truth(model, self._encoder.formula(atom))

    def _implicant(self, true: Callable[[Atom], bool]) -> dict[Atom, None]:
        """Literals that hold and make the formula true; an *or* takes the alternative that adds the fewest."""
        values: dict[int, bool] = {}

        def holds(node: Formula) -> bool:
            if id(node) not in values:
                match node:
                    case Atom():
                        values[id(node)] = true(node)
                    case And(arguments):
                        values[id(node)] = all(map(holds, arguments))
                    case Or(arguments):
                        values[id(node)] = any(list(map(holds, arguments)))
                    case _:
                        raise TypeError(f"not in normal form: {node!r}")
            return values[id(node)]

        def chosen(node: Formula, literals: dict[Atom, None]) -> dict[Atom, None]:
            match node:
                case Atom():
                    return {**literals, node: None}
                case And(arguments):
                    for argument in arguments:
                        literals = chosen(argument, literals)
                    return literals
                case Or(arguments):
                    return min((chosen(argument, literals) for argument in arguments if holds(argument)), key=len)
            raise TypeError(f"not in normal form: {node!r}")

        if not holds(self._formula):
            raise ValueError("the formula does not hold at this point")
        return chosen(self._formula, {})

    def _shrunk(self, literals: Literals) -> Literals:
        """The literals that are left when every one that is not needed has been dropped, first ones first."""
        kept = self._core(literals)
        if kept is None:
            raise AssertionError("an implicant does not imply its formula")
        needed: list[Atom] = []
        while kept:
            dropped, *kept = kept
            smaller = self._core([*needed, *kept])
            if smaller is None:
                needed.append(dropped)
            else:
                kept = smaller[sum(atom in smaller for atom in needed) :]
        return tuple(needed)

    def _core(self, literals: Sequence[Atom]) -> list[Atom] | None:
        """Literals that already contradict ¬F, in the given order; ``None`` if all together do not.

        Written with z3's raw calls: the wrappers cost ten times as much as the answer.
        """
        context, solver = self._encoder.context.ref(), self._outside.solver
        asts = [self._encoder.proxy(atom, self._outside).as_ast() for atom in literals]
        array = (z3.Ast * len(asts))(*asts)
        if z3.Z3_solver_check_assumptions(context, solver, len(asts), array) != z3.Z3_L_FALSE:
            return None
        vector = z3.Z3_solver_get_unsat_core(context, solver)
        z3.Z3_ast_vector_inc_ref(context, vector)
        size = z3.Z3_ast_vector_size(context, vector)
        used = {z3.Z3_get_ast_id(context, z3.Z3_ast_vector_get(context, vector, i)) for i in range(size)}
        z3.Z3_ast_vector_dec_ref(context, vector)
        return [a for a, ast in zip(literals, asts, strict=True) if z3.Z3_get_ast_id(context, ast) in used]
