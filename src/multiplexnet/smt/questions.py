"""The questions that z3 answers about formulas: a point, an implication, a smallest contradiction.

The domains of the variables always count. Each call works in a z3 context of its own, so that its answer does not
depend on what z3 did before, and calls in different threads do not disturb each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import z3

from multiplexnet.errors import SolverGaveUp
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.language.formula import (
    And,
    Formula,
    Iff,
    Not,
    Variable,
    conjunction,
    negation,
)
from multiplexnet.language.formula import variables as variables_of
from multiplexnet.smt.context import new_context
from multiplexnet.smt.encoder import (
    Z3Encoder,
    constant_z3,
    domain_z3,
    input_range_z3,
    number_z3,
    to_z3,
)
from multiplexnet.smt.search import decided

__all__ = [
    "SolverGaveUp",
    "Z3Encoder",
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

DIGITS = 40
"""To how many digits a root is given where a point of curved rules is no fraction."""
CORE_CHECKS = 2_000
"""After how many solver calls :func:`unsat_core` stops looking for a core smaller than the minimal one it has; beyond
1,000 rules, where every call takes longer, they become fewer in proportion."""


# --- questions ------------------------------------------------------------------------------------------------------


def satisfiable(
    formula: Formula,
    variables: Iterable[Variable] = (),
    *,
    facts: Sequence[Formula] | None = None,
    deadline: Deadline = NEVER,
) -> dict[Variable, Fraction] | None:
    """A point at which the formula holds, or ``None`` if there is none.

    Args:
        formula: what has to hold.
        variables: variables that the point must name besides those of the formula.
        facts: with these a norm is a number of which they alone are known, and the point is one for such numbers.
        deadline: when no answer is waited for any more.

    Returns:
        An exact value for every variable, each in its domain (Booleans are 0 and 1, categories positions, inputs in
        their declared interval).

    Raises:
        SolverGaveUp: z3 ran out of resources.

    Example:
        >>> from multiplexnet.language.formula import Atom, Int, Linear
        >>> n = Variable("n", 0, Int(0, 9))
        >>> satisfiable(Atom(Linear.number(17) - Linear.of(n) * 2, "<="))
        {Variable(name='n', index=0, domain=Int(lower=0, upper=9), role='output'): Fraction(9, 1)}
        >>> satisfiable(Atom(Linear.number(19) - Linear.of(n) * 2, "<=")) is None
        True
    """
    named = _together(variables, [formula])
    encoder, solver = _solver(named, facts)
    solver.add(encoder.formula(formula))
    if not decided(solver, deadline):
        return None
    return model_point(solver.model(), named)


def implies(
    premise: Formula, conclusion: Formula, variables: Iterable[Variable] = ()
) -> bool:
    """Whether the conclusion holds wherever the premise does, within the domains of the variables.

    Example:
        >>> from multiplexnet.language.formula import Atom, Linear
        >>> x = Linear.of(Variable("x", 0))
        >>> implies(Atom(x - 1, "<="), Atom(x - 2, "<")), implies(Atom(x - 2, "<"), Atom(x - 1, "<="))
        (True, False)
    """
    exception = conjunction([premise, negation(conclusion)])
    return satisfiable(exception, variables) is None


def equivalent(
    left: Formula, right: Formula, variables: Iterable[Variable] = ()
) -> bool:
    """Whether the two formulas hold at the same points, within the domains of the variables.

    Example:
        >>> from multiplexnet.language.formula import Atom, Bool, Linear
        >>> on = Linear.of(Variable("on", 0, Bool()))
        >>> equivalent(Atom(on * -1, "<"), Atom(on - 1, "=="))
        True
    """
    return satisfiable(Not(Iff(left, right)), variables) is None


def model_point(
    model: z3.ModelRef, variables: Iterable[Variable]
) -> dict[Variable, Fraction]:
    """The exact values that a z3 model gives to the variables; what the model leaves open gets z3's default."""
    point = {}
    for variable in variables:
        constant = constant_z3(variable, context=model.ctx)
        numeral = model.eval(constant, model_completion=True)
        point[variable] = _number(numeral)
    return point


def _number(numeral: z3.ExprRef) -> Fraction:
    if z3.is_bool(numeral):
        return Fraction(int(z3.is_true(numeral)))
    if z3.is_algebraic_value(numeral):  # a root, which only norms and squares ask for
        numeral = numeral.approx(DIGITS)
    return Fraction(numeral.as_string())


def _together(
    variables: Iterable[Variable], formulas: Iterable[Formula]
) -> list[Variable]:
    """The given variables, then those of the formulas that are not among them."""
    mentioned = variables_of(And(tuple(formulas)))
    return list(dict.fromkeys([*variables, *mentioned]))


def _solver(
    variables: Sequence[Variable], facts: Sequence[Formula] | None = None
) -> tuple[Z3Encoder, z3.Solver]:
    context = new_context()
    solver = z3.Solver(ctx=context)
    solver.add(*domain_z3(variables, context=context))
    solver.add(*input_range_z3(variables, context=context))
    encoder = Z3Encoder(context, plain_norms=facts is not None)
    solver.add(*map(encoder.formula, facts or ()))
    return encoder, solver


# --- contradictions -------------------------------------------------------------------------------------------------


def unsat_core(
    formulas: Sequence[Formula],
    variables: Iterable[Variable] = (),
    *,
    facts: Sequence[Formula] | None = None,
    deadline: Deadline = NEVER,
) -> list[int]:
    """The positions of a smallest set of formulas that cannot hold together; empty if all of them can.

    z3's core is first shrunk until every member is needed. Then smaller ones are sought by implicit hitting sets
    (Ignatiev et al., «Smallest MUS extraction with minimal hitting set dualization», CP 2015): whatever is left out
    of a satisfiable set must be met by every contradiction, so a set that meets all such remainders seen so far and
    contradicts itself is a smallest one. Should ``CORE_CHECKS`` solver calls not settle that, the answer is minimal
    (no member can be left out) but perhaps not smallest.

    Args:
        formulas: for example the formulas of the rules, in order.
        variables: variables whose domains count besides those of the formulas.
        facts: as for :func:`satisfiable`.
        deadline: when no answer is waited for any more.

    Example:
        >>> from multiplexnet.language.formula import Atom, Linear
        >>> x = Linear.of(Variable("x", 0))
        >>> unsat_core([Atom(x - 5, "<="), Atom(x * -1, "<="), Atom(x * -1 + 7, "<")])
        [0, 2]
    """
    search = _CoreSearch(formulas, _together(variables, formulas), deadline, facts)
    core = search.first()
    if not core:
        return []
    minimal = search.shrunk(core)
    return sorted(search.smaller(minimal))


class _CoreSearch:
    """The solver calls behind :func:`unsat_core`: one solver, one switch for each formula."""

    def __init__(
        self,
        formulas: Sequence[Formula],
        variables: Sequence[Variable],
        deadline: Deadline,
        facts: Sequence[Formula] | None = None,
    ) -> None:
        self.deadline = deadline
        encoder, self.solver = _solver(variables, facts)
        self.formulas = [encoder.formula(f) for f in formulas]
        self.switches = [z3.FreshBool("rule", encoder.context) for _ in formulas]
        for switch, formula in zip(self.switches, self.formulas, strict=True):
            self.solver.add(z3.Implies(switch, formula))
        self.positions = {switch.get_id(): i for i, switch in enumerate(self.switches)}
        self.checks_left = CORE_CHECKS * 1_000 // max(1_000, len(formulas))

    def is_sat(self, chosen: Iterable[int]) -> bool:
        self.checks_left -= 1
        self.deadline.step()
        return decided(self.solver, self.deadline, *(self.switches[i] for i in chosen))

    def core(self) -> list[int]:
        """z3's core of the last check that failed."""
        return [self.positions[switch.get_id()] for switch in self.solver.unsat_core()]

    def first(self) -> list[int]:
        everything = range(len(self.switches))
        if self.is_sat(everything):
            return []
        return self.core()

    def shrunk(self, core: list[int]) -> list[int]:
        """A part of the core in which every member is needed."""
        undecided = list(core)
        needed = list[int]()
        while undecided:
            candidate = undecided.pop()
            if self.is_sat([*needed, *undecided]):
                needed.append(candidate)
            else:
                kept = set(self.core())
                undecided = [i for i in undecided if i in kept]
        return needed

    def smaller(self, core: list[int]) -> list[int]:
        """A smallest contradicting set; the given core if none is smaller or the checks run out."""
        hitting = _HittingSets(self.deadline)
        for size in range(1, len(core)):
            while (candidate := hitting.at_most(size)) is not None:
                if not self.is_sat(candidate):
                    return candidate
                if self.checks_left <= 0:
                    return core
                hitting.add(self.remainder())
        return core

    def remainder(self) -> list[int]:
        """What is left out of a satisfiable set: the last one checked, grown as far as the checks allow."""
        outside = self._false_now()
        undecided = list(outside)
        while undecided and self.checks_left > 0:
            candidate = undecided.pop()
            left_out = set(outside) - {candidate}
            if self.is_sat(i for i in range(len(self.switches)) if i not in left_out):
                outside = self._false_now()
                still_outside = set(outside)
                undecided = [i for i in undecided if i in still_outside]
        return outside

    def _false_now(self) -> list[int]:
        """The formulas that do not hold in the model of the last check."""
        model = self.solver.model()
        found = []
        for i, formula in enumerate(self.formulas):
            if not z3.is_true(model.eval(formula, model_completion=True)):
                found.append(i)
        return found


class _HittingSets:
    """Sets of positions that meet every added set."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self.context = new_context()
        self.solver = z3.Solver(ctx=self.context)
        self.switches: dict[int, z3.BoolRef] = {}

    def add(self, positions: Sequence[int]) -> None:
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
        if decided(self.solver, self.deadline):
            model = self.solver.model()
            found = [
                i
                for i, switch in self.switches.items()
                if z3.is_true(model.eval(switch))
            ]
        self.solver.pop()
        return found
