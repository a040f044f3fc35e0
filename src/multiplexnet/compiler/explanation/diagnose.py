"""What is wrong with rules, or surprising about them, in the words of the person who wrote them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import z3

from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.compiler.cascade.hidden_outputs import revealed
from multiplexnet.compiler.cascade.structure import (
    Plan,
    RulePart,
    is_few,
    planned,
    reason,
    refused_equalities,
)
from multiplexnet.compiler.compile import (
    compile_rules,
    contradiction,
    input_facts,
    input_ranges,
)
from multiplexnet.compiler.components import RuleComponent, components
from multiplexnet.compiler.equalities import beyond_terms
from multiplexnet.compiler.explanation.covered import is_covered
from multiplexnet.compiler.explanation.words import explanation_text
from multiplexnet.compiler.normal import normal_form
from multiplexnet.compiler.tangents import reached, sides
from multiplexnet.compiler.terms import Block, Compiled, Term
from multiplexnet.errors import (
    CoefficientError,
    CompileTimeout,
    ContradictionError,
    DtypeError,
    SolverGaveUp,
    TermBudgetExceeded,
)
from multiplexnet.exact.deadline import (
    INPUTS,
    NEVER,
    RANGES,
    SHAPES,
    SUPERFLUOUS,
    Deadline,
)
from multiplexnet.exact.formats import FORMATS, Format
from multiplexnet.language.budget import MAX_TERMS
from multiplexnet.language.formula import (
    Atom,
    Category,
    Formula,
    Linear,
    Norm,
    Or,
    Product,
    Relation,
    Rule,
    Specification,
    Symbol,
    Variable,
    atoms,
    conjunction,
    conjuncts,
    disjunction,
    negation,
    norm_in,
    symbols,
)
from multiplexnet.language.missing import is_missing
from multiplexnet.smt.context import new_context
from multiplexnet.smt.questions import (
    Z3Encoder,
    domain_z3,
    input_range_z3,
    satisfiable,
)
from multiplexnet.smt.search import Sandbox, decided

__all__ = [
    "CascadeShape",
    "Explanation",
    "OutputRange",
    "TermShape",
    "explain",
    "uncovered_by",
    "uncovered_input",
    "uncovered_parts",
]

GRID = "float32"
"""The format whose grids are told: torch's own."""
WIDER = "float64"


@dataclass(frozen=True)
class OutputRange:
    """The exact range of one output over everything that obeys (``None``: without bound).

    Args:
        variable: the output.
        lower: its greatest lower bound.
        lower_attained: whether it takes that value.
        upper: its least upper bound.
        upper_attained: whether it takes that value.
        labels: of a category, those that it can take; its bounds are the positions of the first and the last.
        outer: whether curved walls may leave less than this, so that it is a range that the output keeps to.
    """

    variable: Variable
    lower: Fraction | None
    lower_attained: bool
    upper: Fraction | None
    upper_attained: bool
    labels: tuple[str, ...] | None = None
    outer: bool = False

    @property
    def is_point(self) -> bool:
        return self.lower is not None and self.lower == self.upper


@dataclass(frozen=True)
class TermShape:
    """The dimension of a term's polyhedron, and whether it is bounded (inputs and functions held fixed)."""

    dimension: int
    bounded: bool


@dataclass(frozen=True)
class CascadeShape:
    """A part of the rules that a layer computes one output after another.

    Args:
        order: its outputs in this order.
        options: how many each of them has.
        spacing: how far apart their values lie, in their own units.
        why: there are no terms instead.
        complete: whether every point of the grid that obeys is reached.
        form: the format whose grid it is.
    """

    order: tuple[Variable, ...]
    options: tuple[int, ...]
    spacing: tuple[Fraction, ...]
    why: str
    complete: bool
    form: str

    @staticmethod
    def of(
        part: RulePart, cascade: Cascade, inputs: Sequence[Variable], form: Format
    ) -> CascadeShape:
        """The shape of a cascade, and why it is one."""
        steps = [step for step in cascade.steps if step.variable < len(cascade.visible)]
        order = tuple(cascade.outputs[step.variable] for step in steps)
        spacing = [cascade.spacing[step.variable] for step in steps]
        return CascadeShape(
            order,
            tuple(step.size for step in steps),
            tuple(h * v.unit.size for h, v in zip(spacing, order, strict=True)),
            reason(part, inputs, form),
            cascade.reaches_all,
            form.name,
        )


@dataclass(frozen=True)
class Explanation:
    """Everything that can be said about rules; ``print`` shows it as a short report.

    Args:
        specification: what was written.
        compiled: the terms, of outputs that are in no cascade; ``None`` if there are none or too many.
        cascades: what a layer computes one output after another.
        problem: why there are no terms, or why what comes after them is missing.
        contradiction: a smallest set of rules that contradict each other.
        always_true: rules that say nothing.
        implied: rules that follow from the others (each on its own: dropping two at once may change the meaning).
        fixed: outputs that can take one value only.
        ranges: the exact range of every output.
        uncovered_input: an input that ranges and assumptions allow for which no output obeys.
        shapes: for every term of every block its shape.
        seconds: the time it took.
        cascades: what is computed one output after another.
        centred: outputs of dense sets that inputs move, which a layer computes from a centre that moves with them.
    """

    specification: Specification
    compiled: Compiled | None = None
    problem: str | None = None
    contradiction: tuple[Rule, ...] = ()
    always_true: tuple[Rule, ...] = ()
    implied: tuple[Rule, ...] = ()
    fixed: tuple[tuple[Variable, Fraction], ...] = ()
    ranges: tuple[OutputRange, ...] = ()
    uncovered_input: tuple[tuple[Variable, Fraction], ...] | None = None
    shapes: tuple[tuple[TermShape, ...], ...] = ()
    seconds: float = 0.0
    cascades: tuple[CascadeShape, ...] = ()
    centred: tuple[tuple[Variable, ...], ...] = ()

    def __str__(self) -> str:
        return explanation_text(self)


def explain(
    specification: Specification,
    *,
    max_terms: int = MAX_TERMS,
    deadline: Deadline = NEVER,
) -> Explanation:
    """The diagnosis of rules; it never raises because of what the rules say, or because of the time it takes.

    When the time is over, what was found until then is told, and ``problem`` says what is missing.
    """
    start = time.perf_counter()
    found = Explanation(specification)
    try:
        for step in (
            _compiled,
            _with_shapes,
            _with_uncovered_input,
            _with_superfluous,
            _with_ranges,
        ):
            found = step(found, max_terms, deadline)
            if found.contradiction or _multiplies(specification):
                break
    except CompileTimeout as error:
        found = replace(found, problem=str(error))
    return replace(found, seconds=time.perf_counter() - start)


def _multiplies(specification: Specification) -> bool:
    """Whether rules multiply inputs, which is beyond the questions that are asked here."""
    return any(isinstance(symbol, Product) for symbol in symbols(specification.formula))


def _compiled(
    found: Explanation,
    max_terms: int,
    deadline: Deadline,
    beyond: frozenset[Variable] = frozenset(),
) -> Explanation:
    specification = found.specification
    try:
        plan, form = _planned(specification, deadline, beyond)
        if any(cascade.guards for _, cascade in plan.cascades):
            if core := contradiction(specification, deadline):
                told = str(
                    ContradictionError([(rule.line, rule.text) for rule in core])
                )
                return replace(found, problem=told, contradiction=core)
            uncovered = uncovered_parts(specification, plan, form, deadline=deadline)
            found = replace(found, uncovered_input=uncovered)
        shapes = tuple(
            CascadeShape.of(*pair, specification.inputs, form) for pair in plan.cascades
        )
        found = replace(found, cascades=shapes)
        compiled = compile_rules(plan.terms, max_terms=max_terms, deadline=deadline)
        tied = beyond_terms(compiled.blocks)
        if tied and not beyond:  # as a layer does: a cascade may meet these
            return _compiled(found, max_terms, deadline, tied)
        if tied:
            refused = refused_equalities(specification, "auto", form, deadline=deadline)
            uncovered = uncovered_input(compiled, deadline=deadline)
            return replace(found, problem=str(refused), uncovered_input=uncovered)
        return replace(found, compiled=compiled)
    except ContradictionError as error:
        core = contradiction(specification, deadline)
        return replace(found, problem=str(error), contradiction=core)
    except (TermBudgetExceeded, CoefficientError) as error:
        return replace(found, problem=str(error))


def _planned(
    specification: Specification, deadline: Deadline, beyond: frozenset[Variable]
) -> tuple[Plan, Format]:
    """What a layer would take, in ``GRID``, or in ``WIDER`` where that cannot tell values apart (times do that)."""
    try:
        form = FORMATS[GRID]
        plan = planned(specification, "auto", form, deadline=deadline, beyond=beyond)
        return plan, form
    except DtypeError:
        form = FORMATS[WIDER]
        plan = planned(specification, "auto", form, deadline=deadline, beyond=beyond)
        return plan, form


def _with_shapes(found: Explanation, _: int, deadline: Deadline) -> Explanation:
    if found.compiled is None:
        return found
    deadline.begin(SHAPES)
    shapes = _Shapes(deadline)
    return replace(
        found, shapes=tuple(shapes.block(block) for block in found.compiled.blocks)
    )


def _with_uncovered_input(
    found: Explanation, _: int, deadline: Deadline
) -> Explanation:
    if found.compiled is None or found.uncovered_input is not None:
        return found
    uncovered = uncovered_input(found.compiled, deadline=deadline)
    return replace(found, uncovered_input=uncovered)


def _with_superfluous(found: Explanation, _: int, deadline: Deadline) -> Explanation:
    always_true, implied = _superfluous(found.specification, deadline)
    return replace(found, always_true=always_true, implied=implied)


def _with_ranges(found: Explanation, _: int, deadline: Deadline) -> Explanation:
    ranges = _ranges(found.specification, deadline)
    fixed = tuple(
        (r.variable, r.lower) for r in ranges if r.is_point and r.lower is not None
    )
    return replace(found, ranges=ranges, fixed=fixed)


# --- superfluous rules ----------------------------------------------------------------------------------------------


def _superfluous(
    specification: Specification, deadline: Deadline
) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """Rules that are always true, and other rules that follow from the rest."""
    deadline.begin(SUPERFLUOUS)
    context = new_context()
    solver = z3.SimpleSolver(ctx=context)
    solver.add(*domain_z3(specification.variables, context=context))
    solver.add(*input_range_z3(specification.variables, context=context))
    encoder = Z3Encoder(context, plain_norms=True)
    every = [rule.formula for rule in specification.rules]
    solver.add(*map(encoder.formula, [specification.assumed, *sides(every)]))
    positions = range(len(specification.rules))
    said = [z3.Bool(f"said{i}", context) for i in positions]
    broken = [z3.Bool(f"broken{i}", context) for i in positions]
    for i, rule in enumerate(specification.rules):
        expression = encoder.formula(rule.formula)
        solver.add(z3.Implies(said[i], expression))
        solver.add(z3.Implies(broken[i], z3.Not(expression)))
    always_true = []
    implied = []
    for i, rule in enumerate(specification.rules):
        if not decided(solver, deadline, broken[i]):
            always_true.append(rule)
        elif not decided(solver, deadline, broken[i], *said[:i], *said[i + 1 :]):
            implied.append(rule)
        deadline.step()
    return tuple(always_true), tuple(implied)


# --- ranges ---------------------------------------------------------------------------------------------------------


def _ranges(
    specification: Specification, deadline: Deadline
) -> tuple[OutputRange, ...]:
    """The exact range of every output; a part that shares no output with it cannot matter and is left out."""
    deadline.begin(RANGES)
    known = input_facts(specification)
    found: dict[Variable, OutputRange] = {}
    counted = revealed(specification.formula, len(specification.variables))
    everything = (*specification.outputs, *counted.hidden)
    for component in components(conjuncts(counted.formula), everything):
        if alone := _of_ellipsoid(component):
            found |= alone
            continue
        sandbox = Sandbox(deadline)
        curved = sides(component.conjuncts)
        component = replace(component, conjuncts=(*component.conjuncts, *curved))
        whole = component
        for output in (v for v in component.outputs if v not in counted.hidden):
            deadline.step(len(found))
            component = _where_present(whole, output, specification, known, deadline)
            if isinstance(output.domain, Category):
                found[output] = _category_range(
                    sandbox, output, output.domain, component, known
                )
                continue
            minus_lower, lower_attained = _supremum(
                sandbox, output, -1, component, known
            )
            upper, upper_attained = _supremum(sandbox, output, 1, component, known)
            lower = None if minus_lower is None else -minus_lower
            found[output] = OutputRange(
                output,
                lower,
                lower_attained,
                upper,
                upper_attained,
                outer=bool(curved),
            )
    return tuple(found[output] for output in specification.columns)


def _of_ellipsoid(component: RuleComponent) -> dict[Variable, OutputRange]:
    """The ranges of outputs that nothing bounds but one ball or ellipsoid; empty if it is not so."""
    row = component.conjuncts[0] if len(component.conjuncts) == 1 else None
    if not isinstance(row, Atom):
        return {}
    norm = norm_in(row.linear)
    if norm is None or norm[1] < 0 or len(row.linear.summands) > 1:
        return {}
    inside = {symbol for part in norm[0].arguments for symbol in part.symbols}
    if not inside <= set(component.outputs):
        return {}  # inputs have ranges, too
    ends = reached(norm[0])
    bound = -row.linear.constant / norm[1]
    attained = row.relation == "<="
    found = {}
    for output in component.outputs:
        reach = ends.get(output)
        if reach is None or output.is_discrete:
            return {}
        lower, upper = reach.around
        size = bound * reach.size
        found[output] = OutputRange(
            output, lower - size, attained, upper + size, attained, outer=True
        )
    return found


def _where_present(
    component: RuleComponent,
    output: Variable,
    specification: Specification,
    known: Sequence[Formula],
    deadline: Deadline,
) -> RuleComponent:
    """The component where the output is not missing, if it ever is not."""
    flag = specification.flags.get(output)
    if flag is None:
        return component
    is_there = normal_form(negation(is_missing(flag)))
    present = replace(component, conjuncts=(*component.conjuncts, is_there))
    asked = conjunction([*known, *present.conjuncts])
    found = satisfiable(asked, specification.variables, deadline=deadline)
    return component if found is None else present


def _category_range(
    sandbox: Sandbox,
    output: Variable,
    domain: Category,
    component: RuleComponent,
    known: Sequence[Formula],
) -> OutputRange:
    """The labels that a category can take."""
    solver = sandbox.solver(*map(sandbox.formula, (*known, *component.conjuncts)))
    solver.add(*(sandbox.domain(v) for v in component.outputs if v.is_discrete))
    constant = sandbox.symbol(output)
    possible = [
        k for k in domain.values if decided(solver, sandbox.deadline, constant == k)
    ]
    labels = tuple(domain.labels[k] for k in possible)
    first = Fraction(possible[0])
    last = Fraction(possible[-1])
    return OutputRange(output, first, True, last, True, labels)


def _supremum(
    sandbox: Sandbox,
    output: Variable,
    sign: int,
    component: RuleComponent,
    known: Sequence[Formula],
) -> tuple[Fraction | None, bool]:
    """The least upper bound of ``sign · output`` and whether it is attained."""
    optimiser = z3.Optimize(ctx=sandbox.context)
    optimiser.add(*map(sandbox.formula, (*known, *component.conjuncts)))
    optimiser.add(*(sandbox.domain(v) for v in component.outputs if v.is_discrete))
    goal = optimiser.maximize(sign * sandbox.symbol(output))
    if not sandbox.decided(optimiser):
        raise AssertionError("the rules were satisfiable a moment ago")
    infinite, value, infinitesimal = goal.upper_values()
    if _fraction(infinite) != 0:
        return None, False
    return _fraction(value), _fraction(infinitesimal) == 0


def _fraction(value: Any) -> Fraction:
    if z3.is_int_value(value):
        return Fraction(value.as_long())
    return Fraction(value.as_fraction())


# --- inputs ---------------------------------------------------------------------------------------------------------

UNCOVERED = "_uncovered_input"
"""The attribute of compiled rules that keeps the answer."""


def uncovered_input(
    compiled: Compiled, *, deadline: Deadline = NEVER
) -> tuple[tuple[Variable, Fraction], ...] | None:
    """An input that ranges and assumptions allow for which no output obeys the rules, or ``None`` if there is none.

    It is a question about compiled rules: explanations tell the answer, and a layer refuses such rules because of it.

    For each block z3 decides ∃ u ∀ x ¬(φ_1 ∨ … ∨ φ_K), which is decidable in linear real arithmetic. A function value
    counts as free: what it will be is not known here. The answer stays with the compiled rules, as a cached property
    would: a layer in another dtype asks again.
    """
    kept = vars(compiled)
    if UNCOVERED not in kept:
        written = compiled.specification
        known = (
            input_ranges(compiled.inputs) if written is None else input_facts(written)
        )
        formulas = (_without_discrete(block, {}) for block in compiled.blocks)
        kept[UNCOVERED] = uncovered_by(
            formulas, compiled.inputs, known, deadline=deadline
        )
    found: tuple[tuple[Variable, Fraction], ...] | None = kept[UNCOVERED]
    return found


def uncovered_by(
    formulas: Iterable[Formula],
    inputs: Sequence[Variable],
    known: Sequence[Formula],
    *,
    deadline: Deadline = NEVER,
) -> tuple[tuple[Variable, Fraction], ...] | None:
    """An input for which no real outputs obey one of these formulas.

    Args:
        formulas: over inputs and real outputs; each can be obeyed for some input.
        inputs: all inputs.
        known: what holds of them.
        deadline: when the answer is needed.
    """
    deadline.begin(INPUTS)
    for formula in formulas:
        deadline.step()
        mentioned = _symbols_of_atoms(formula)
        if not any(_is_input(symbol) for symbol in mentioned):
            continue  # no block is empty
        if is_covered(formula, deadline):
            continue
        sandbox = Sandbox(deadline)
        solver = z3.SolverFor("LRA", ctx=sandbox.context)
        solver.add(*map(sandbox.formula, known))
        body = z3.Not(sandbox.formula(formula))
        free = [sandbox.symbol(symbol) for symbol in mentioned if not _is_input(symbol)]
        solver.add(z3.ForAll(free, body) if free else body)
        if _is_sure(sandbox, solver):
            model = sandbox.model(solver)
            return tuple((v, model.number(v)) for v in inputs)
    return None


def uncovered_parts(
    specification: Specification,
    plan: Plan,
    form: Format,
    *,
    deadline: Deadline = NEVER,
) -> tuple[tuple[Variable, Fraction], ...] | None:
    """The same for cascades that inputs can leave without an output, where that is decided soon: by few terms."""
    doubtful = [
        part.formula
        for part, cascade in plan.cascades
        if cascade.guards
        and not part.hidden
        and not part.multiplies
        and not any(v.is_discrete for v in part.outputs)
        and is_few(part, specification.inputs, form)
    ]
    known = input_facts(specification)
    return uncovered_by(doubtful, specification.inputs, known, deadline=deadline)


def _symbols_of_atoms(formula: Formula) -> list[Symbol]:
    """The symbols that atoms compare, in order of first appearance; not those inside functions."""
    found: dict[Symbol, None] = {}
    for atom in atoms(formula):
        for symbol, _ in atom.linear.summands:
            found[symbol] = None
    return list(found)


def _is_sure(sandbox: Sandbox, solver: Any) -> bool:
    """Whether z3 found a point; a question with quantifiers may be beyond it."""
    try:
        return sandbox.decided(solver)
    except SolverGaveUp:
        return False


def _is_input(symbol: Symbol) -> bool:
    return isinstance(symbol, Variable) and symbol.is_input


def _without_discrete(block: Block, done: dict[int, Formula]) -> Formula:
    """What the block asks of everything but its discrete outputs, which it fixes itself.

    Blocks share inner blocks: each alternative is written once, however many ways through the blocks lead to it
    («at least u of 30» has 30 alternatives and 2^30 ways).
    """
    if id(block) not in done:
        alternatives: dict[Formula, None] = {}
        for term in block.terms:
            inner = [_without_discrete(part, done) for part in term.blocks]
            asked = conjunction([*term.rows, *inner])
            parts = asked.arguments if isinstance(asked, Or) else (asked,)
            alternatives.update(dict.fromkeys(parts))
        done[id(block)] = disjunction(alternatives)
    return done[id(block)]


# --- shapes ---------------------------------------------------------------------------------------------------------


class _Shapes:
    """The shapes of terms; of one that goes on in inner blocks: the largest that its choices have together."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._questions = Sandbox(deadline).questions()
        self._done: dict[int, TermShape] = {}

    def block(self, block: Block) -> tuple[TermShape, ...]:
        return tuple(self._term(block, term) for term in block.terms)

    def _term(self, block: Block, term: Term) -> TermShape:
        inner = {output for part in term.blocks for output in part.outputs}
        reals = [v for v in block.outputs if not v.is_discrete and v not in inner]
        equations = [
            [row.linear.coefficient(v) for v in reals] for row in term.equalities
        ]
        rest = [self._largest(part) for part in term.blocks]
        dimension = len(reals) - _rank(equations)
        dimension += sum(shape.dimension for shape in rest)
        bounded = all(shape.bounded for shape in rest)
        return TermShape(dimension, bounded and self._only_zero(term, reals))

    def _largest(self, block: Block) -> TermShape:
        if id(block) not in self._done:
            shapes = self.block(block)
            dimension = max(shape.dimension for shape in shapes)
            bounded = all(shape.bounded for shape in shapes)
            self._done[id(block)] = TermShape(dimension, bounded)
        return self._done[id(block)]

    def _only_zero(self, term: Term, reals: Sequence[Variable]) -> bool:
        """Whether no direction but zero stays inside: the recession cone of the term is a point."""
        directions = [Atom(_direction(row.linear), _closed(row)) for row in term.rows]
        inside = [atom for atom in directions if atom.linear.summands]
        inside += sides(inside)
        moves: list[Formula] = []
        for variable in reals:
            moves.append(Atom(Linear.of(variable), "<"))
            moves.append(Atom(-Linear.of(variable), "<"))
        self._deadline.step()
        return self._questions.answer([*inside, Or(tuple(moves))]) is False


def _direction(linear: Linear) -> Linear:
    """The part of the expression that grows with the outputs."""
    grows = [
        (symbol, c)
        for symbol, c in linear.summands
        if isinstance(symbol, Variable) and not symbol.is_input
    ]
    found = norm_in(linear)
    if found is None:
        return Linear(tuple(grows))
    norm, c = found
    moved = Norm(norm.weights, tuple(map(_direction, norm.arguments)))
    return Linear(tuple(grows)) + Linear.of(moved) * c


def _closed(row: Atom) -> Relation:
    return "==" if row.relation == "==" else "<="


def _rank(rows: list[list[Fraction]]) -> int:
    rank = 0
    rows = [row[:] for row in rows]
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column] / rows[rank][column]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank
