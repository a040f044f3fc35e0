"""The compiler: rules become independent blocks of terms, in disjunctive normal form, certified.

1. The formula is brought into normal form and split into components that share no output.
2. In each component single atoms are *background*: known to the solver, kept out of the enumeration, part of every
   term.
3. Discrete outputs are enumerated by their values; for each, what is left is a formula over real variables.
4. Its prime implicants (:mod:`~multiplexnet.compiler.implicants`) are thinned to an irredundant cover
   (:mod:`~multiplexnet.compiler.cover`), get their final rows (:mod:`~multiplexnet.compiler.tidy`) and a canonical
   order.
5. A fresh solver certifies the result (:mod:`~multiplexnet.compiler.proof`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice
from math import ceil, floor

import z3

from multiplexnet.compiler.cascade.clauses import TooManyClauses, clauses_of, ranges_of
from multiplexnet.compiler.circuit import Circuit, OverBudget
from multiplexnet.compiler.components import RuleComponent, components
from multiplexnet.compiler.cover import DataRows, covering, irredundant
from multiplexnet.compiler.implicants import Implicants, Literals
from multiplexnet.compiler.normal import normal_form, substitute
from multiplexnet.compiler.proof import proof_of
from multiplexnet.compiler.shapes import Row, Shape, shaped
from multiplexnet.compiler.tangents import has_norm, refutation
from multiplexnet.compiler.terms import Block, Compiled, Term
from multiplexnet.compiler.tidy import Tidy, interior, row_order
from multiplexnet.errors import (
    CoefficientError,
    ContradictionError,
    CurvedError,
    TermBudgetExceeded,
)
from multiplexnet.exact.deadline import (
    CONTRADICTION,
    DECOMPOSITION,
    NEVER,
    NORMAL_FORM,
    PROOF,
    SIZES,
    TERMS,
    Deadline,
    Phase,
)
from multiplexnet.language.budget import MAX_TERMS
from multiplexnet.language.curves import Tangent
from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    Apply,
    Atom,
    Formula,
    Linear,
    Max,
    Norm,
    Product,
    Rule,
    Specification,
    Symbol,
    Variable,
    atoms,
    conjunction,
    conjuncts,
    ends,
    norm_in,
    symbols,
    variables,
)
from multiplexnet.language.text import formula_text
from multiplexnet.smt.questions import satisfiable, unsat_core
from multiplexnet.smt.search import Sandbox, decided

__all__ = ["compile_rules", "contradiction", "input_facts", "input_ranges"]

MOST_CLAUSES = 1_000
"""Beyond these a refusal does not say which outputs lack ends."""
QUICK = 256
QUICK_OF_FEW = 1_024
"""Plain terms that are looked for before a block is decomposed, where that is allowed; more of few outputs, since a
decomposition is wasted where plain terms fit."""
FEW_OUTPUTS = 8
MANY_SIZES = 8
"""So many maxima in one sum are 2^8 walls."""

Values = tuple[tuple[Variable, Fraction], ...]


def compile_rules(
    specification: Specification,
    *,
    max_terms: int = MAX_TERMS,
    cover: DataRows | None = None,
    nested: bool = False,
    deadline: Deadline = NEVER,
) -> Compiled:
    """The rules as blocks of certified terms.

    Args:
        specification: what was written.
        max_terms: the most terms that one block may have.
        cover: rows of data, one column per variable; the fewest terms found that contain those of them that obey.
        nested: whether terms may go on in inner blocks (see :mod:`~multiplexnet.compiler.circuit`) where there are too
            many plain ones; whoever reads the terms has to follow them.
        deadline: when it gives up, and who is told how far it is.

    Raises:
        CompileTimeout: it took too long.
        CoefficientError: a rule multiplies inputs.
        ContradictionError: no output obeys the rules.
        TermBudgetExceeded: a block has too many terms.
    """
    start = time.perf_counter()
    refuse_products(specification)
    refuse_whole_norms(specification)
    deadline.begin(_advised(NORMAL_FORM, specification))
    parts = components(
        conjuncts(normal_form(specification.formula)), specification.outputs
    )
    deadline.begin(_advised(CONTRADICTION, specification))
    points = [_surely_inside(component, deadline) for component in parts]
    doubtful = [c for c, point in zip(parts, points, strict=True) if point is None]
    _refuse_contradiction(specification, doubtful, deadline)
    tangents: list[Tangent] = []
    ranges = input_facts(specification)
    blocks = []
    covered = None
    claims = dict[int, tuple[Block, Formula]]()
    shapes: dict[Shape, tuple[Row, ...]] | None = {}
    if len(parts) == 1 and all(isinstance(c, Atom) for c in parts[0].conjuncts):
        shapes = None  # one term: nothing else has its shape
    for component, point in zip(parts, points, strict=True):
        compiler = _BlockCompiler(
            component, ranges, max_terms, nested, deadline, point, shapes
        )
        if cover is not None:
            blocks.append(compiler.covering_block(cover))
        else:
            compiler.refuse_many_values()
            blocks.append(compiler.nested_block() if nested else compiler.block())
        claims |= compiler.claims
        tangents += compiler.tangents
        if not blocks[-1].terms:
            raise _contradiction_error(specification, tangents, deadline)
    found = Compiled(
        specification.outputs,
        specification.inputs,
        _without_trivial(blocks),
        proof=None,  # type: ignore[arg-type]
    )
    deadline.begin(_advised(PROOF, specification))
    proof = proof_of(
        specification,
        found.blocks,
        complete=cover is None,
        claims=claims,
        tangents=tangents,
        deadline=deadline,
    )
    if cover is not None:
        covered = cover.share(specification.formula, found.formula)
    seconds = time.perf_counter() - start
    return replace(
        found,
        proof=proof,
        complete=proof.complete,
        covered=covered,
        seconds=seconds,
        specification=specification,
        tangents=tuple(tangents),
    )


def _is_plain(formula: Formula) -> bool:
    """Whether it is one comparison of a sum of variables."""
    return isinstance(formula, Atom) and formula.linear.is_plain


def refuse_products(specification: Specification) -> None:
    """Raises ``CoefficientError`` if a rule multiplies inputs: such rules have no terms."""
    for rule in specification.rules:
        if _is_plain(rule.formula):
            continue
        if not any(isinstance(symbol, Product) for symbol in symbols(rule.formula)):
            continue
        text = rule.text or formula_text(rule.formula)
        if all(v.is_input for v in variables(rule.formula)):
            raise CoefficientError(
                f"`{text}` is a rule about inputs alone that multiplies them, which is not checked",
                "give the product as an input of its own, or check it before the layer is called",
            )
        raise CoefficientError(
            f"`{text}` has no terms: where its walls stand is known at run time",
            'a layer computes its outputs one after another: Multiplexer(rules), without structure="terms", '
            "cover= and per_term=",
        )


def refuse_whole_norms(specification: Specification) -> None:
    """Raises ``CurvedError`` if whole numbers, choices or truth values that are computed stand inside a norm."""
    for rule in specification.rules:
        if _is_plain(rule.formula):
            continue
        for symbol in symbols(rule.formula):
            if not isinstance(symbol, Norm):
                continue
            named = [s for a in symbol.arguments for s, _ in a.summands]
            whole = [
                s.name
                for s in named
                if isinstance(s, Variable) and s.is_discrete and not s.is_input
            ]
            if whole:
                text = rule.text or formula_text(rule.formula)
                raise CurvedError(
                    text,
                    f"`{whole[0]}` is a whole number or a choice, and stands inside a norm or a square",
                    "declare it as `real`, or write flat walls; `satisfied` and `check` judge such rules as they are",
                )


def input_ranges(inputs: Sequence[Variable]) -> tuple[Atom, ...]:
    """The declared ranges of the inputs as atoms."""
    atoms = []
    for variable in inputs:
        lower, upper = ends(variable.domain)
        if lower is not None:
            atoms.append(Atom(-Linear.of(variable) + lower, "<="))
        if upper is not None:
            atoms.append(Atom(Linear.of(variable) - upper, "<="))
    return tuple(atoms)


def input_facts(specification: Specification) -> tuple[Formula, ...]:
    """What holds of the inputs: their declared ranges, and what is assumed of them, in normal form."""
    assumed = conjuncts(normal_form(specification.assumed))
    return (*input_ranges(specification.inputs), *assumed)


def _refuse_contradiction(
    specification: Specification, parts: Sequence[RuleComponent], deadline: Deadline
) -> None:
    doubtful = [
        part for component in _of_all_shapes(parts) for part in component.conjuncts
    ]
    doubtful += [rule.formula for rule in specification.assumptions]
    if (
        doubtful
        and satisfiable(
            conjunction(doubtful), specification.variables, facts=(), deadline=deadline
        )
        is None
    ):
        raise _contradiction_error(specification, (), deadline)


def _of_all_shapes(parts: Sequence[RuleComponent]) -> Iterator[RuleComponent]:
    """One component of every shape, and those that have none."""
    seen = set()
    for component in parts:
        own = shaped(component.conjuncts)
        if own is None:
            yield component
        elif own.shape not in seen:
            seen.add(own.shape)
            yield component


def _contradiction_error(
    specification: Specification, tangents: Sequence[Tangent], deadline: Deadline
) -> ContradictionError:
    found = contradiction(specification, deadline, tangents)
    return ContradictionError([(rule.line, rule.text) for rule in found])


def contradiction(
    specification: Specification,
    deadline: Deadline,
    tangents: Sequence[Tangent] | None = None,
) -> tuple[Rule, ...]:
    """A smallest set of rules and assumptions that contradict each other; empty if none do. It asks z3.

    With ``tangents`` a norm is a number of which these alone are known; without them z3 is asked about the norm itself.
    """
    assumed = [replace(a, text=f"assume {a.text}") for a in specification.assumptions]
    every = [*assumed, *specification.rules]
    facts = None if tangents is None else [tangent.atom for tangent in tangents]
    core = unsat_core(
        [rule.formula for rule in every],
        specification.variables,
        facts=facts,
        deadline=deadline,
    )
    return tuple(every[i] for i in core)


def _surely_inside(
    component: RuleComponent, deadline: Deadline
) -> dict[Symbol, float] | None:
    """A point of one large conjunction over outputs, if floats found one: z3 would take its time."""
    rows = [part for part in component.conjuncts if isinstance(part, Atom)]
    over_inputs = any(
        isinstance(s, Variable) and s.is_input
        for row in rows
        for s, _ in row.linear.summands
    )
    if len(rows) < len(component.conjuncts) or over_inputs:
        return None
    return interior(rows, deadline)


def _advised(phase: Phase, specification: Specification) -> Phase:
    """The phase with other advice where rules add up many sizes, each of which doubles the walls."""
    for atom in atoms(specification.formula):
        if sum(isinstance(s, Max) for s in atom.linear.symbols) >= MANY_SIZES:
            return replace(phase, advice=SIZES)
    return phase


def _without_trivial(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks but for one without outputs that is always true."""
    always_true = (Term(()),)
    return tuple(
        block for block in blocks if block.outputs or block.terms != always_true
    )


@dataclass
class _BlockCompiler:
    """The terms of one component."""

    component: RuleComponent
    ranges: tuple[Formula, ...]
    max_terms: int
    nested: bool
    deadline: Deadline
    inside: dict[Symbol, float] | None = None
    shapes: dict[Shape, tuple[Row, ...]] | None = None
    claims: dict[int, tuple[Block, Formula]] = field(default_factory=dict)
    tangents: list[Tangent] = field(default_factory=list)
    _cache: dict[Formula, list[Literals]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sandbox = Sandbox(self.deadline)
        self._tidy = Tidy(self._sandbox, self.ranges, self.inside, self.shapes)
        self._discrete = tuple(v for v in self.component.outputs if v.is_discrete)
        self._formula = conjunction(self.component.conjuncts)

    def block(self, budget: int | None = None) -> Block:
        budget = self.max_terms if budget is None else budget
        self._begin(TERMS)
        terms: list[Term] = []
        for fixed, rest in self._cases():
            terms += [
                Term(rows, fixed)
                for rows in self._real_terms(rest, budget - len(terms))
            ]
            if fixed:
                self.deadline.step(len(terms))
            if len(terms) > budget:
                raise self._exceeded(len(terms))
        return self._sorted(terms)

    def nested_block(self) -> Block:
        """The plain block, or a decomposed one if that has too many terms.

        A single output has nothing to decompose, and norms are not negated.
        """
        if len(self.component.outputs) == 1 or has_norm(self._formula):
            return self.block()
        few = len(self.component.outputs) <= FEW_OUTPUTS
        quick = QUICK_OF_FEW if few else QUICK
        try:
            return self.block(min(quick, self.max_terms))
        except TermBudgetExceeded:
            decomposed = self._decomposed()
        if decomposed is not None and decomposed.size > self.max_terms:
            return decomposed
        try:
            return self.block()
        except TermBudgetExceeded:
            if decomposed is None:
                raise
            return decomposed

    def _decomposed(self) -> Block | None:
        self._begin(DECOMPOSITION)
        questions = self._sandbox.questions((*self.ranges, *self.component.conjuncts))
        questions.solver.add(*map(self._sandbox.domain, self._discrete))
        circuit = Circuit(
            questions,
            lambda rows: self._tidy.rows((), rows),
            self._some,
            self.max_terms,
            self.deadline,
        )
        try:
            block = circuit.block(self.component)
        except OverBudget:
            return None
        self.claims.update(circuit.claims)
        return block

    def _some(self, formula: Formula, budget: int) -> list[Literals] | None:
        try:
            return self._enumerated(formula, budget, more=2 * budget)
        except TermBudgetExceeded:
            return None

    def covering_block(self, data: DataRows) -> Block:
        """Terms that contain the rows of the data that obey."""
        self._begin(TERMS)
        obeying = data.where(self._formula)
        terms: list[Term] = []
        for values, group in obeying.groups(self._discrete):
            rest = substitute(self._formula, dict(values))
            background, goal = _split(rest)
            engine = Implicants(self._sandbox, goal, [*self.ranges, *background])
            terms += [
                Term(self._tidy.rows(literals, background), values)
                for literals in covering(engine, goal, group)
            ]
        if not terms:  # no row obeys: any single term is sound
            terms = [self._first_term()]
        if len(terms) > self.max_terms:
            raise self._exceeded(len(terms))
        return self._sorted(terms)

    def _first_term(self) -> Term:
        fixed, rest = next(self._cases())
        background, goal = _split(rest)
        engine = Implicants(self._sandbox, goal, [*self.ranges, *background])
        found = engine.next()
        literals = found.literals if found else ()
        return Term(self._tidy.rows(literals, background), fixed)

    def _cases(self) -> Iterator[tuple[Values, Formula]]:
        """Every assignment of the discrete outputs for which something is left, with the formula that is left."""
        if not self._discrete:
            yield (), self._formula
            return
        sandbox = self._sandbox
        solver = sandbox.solver(*map(sandbox.formula, (*self.ranges, self._formula)))
        solver.add(*map(sandbox.domain, self._discrete))
        constants = [sandbox.symbol(variable) for variable in self._discrete]
        is_closed = all(symbol in self._discrete for symbol in symbols(self._formula))
        while sandbox.decided(solver):
            model = sandbox.model(solver)
            numbers = [model.number(variable) for variable in self._discrete]
            values = tuple(zip(self._discrete, numbers, strict=True))
            solver.add(
                z3.Or([c != int(n) for c, n in zip(constants, numbers, strict=True)])
            )
            rest = TRUE if is_closed else substitute(self._formula, dict(values))
            yield values, rest

    def _real_terms(self, formula: Formula, budget: int) -> list[Literals]:
        if formula not in self._cache:
            # overlapping implicants are thinned afterwards, so the search may find somewhat more than the budget
            self._cache[formula] = self._enumerated(
                formula, budget, more=2 * budget + 64
            )
        return self._cache[formula]

    def _enumerated(
        self, formula: Formula, budget: int, *, more: int
    ) -> list[Literals]:
        """The plain terms of a formula over real outputs; ``more`` implicants may be found before they are thinned."""
        background, goal = _split(formula)
        if goal == TRUE:
            return [self._tidy.rows((), background)]
        known = [*self.ranges, *background]
        engine = Implicants(self._sandbox, goal, known)
        found = engine.all(budget=more)
        if found is None:
            raise self._exceeded(more)
        kept = irredundant(self._sandbox, found, engine.table, known)
        if len(kept) > budget:
            raise self._exceeded(len(kept))
        return [self._tidy.rows(literals, background) for literals in kept]

    def _sorted(self, terms: Sequence[Term]) -> Block:
        distinct = [term for term in dict.fromkeys(terms) if not self._is_empty(term)]
        if len(distinct) > 1:
            distinct.sort(key=_term_order)
        return Block(self.component.outputs, tuple(distinct))

    def _is_empty(self, term: Term) -> bool:
        """Whether curved walls leave a term no point; the tangents that prove it are kept."""
        if all(norm_in(row.linear) is None for row in term.rows):
            return False
        found = refutation(term.rows, self.ranges, self._sandbox)
        self.tangents += found or ()
        return found is not None

    def _begin(self, phase: Phase) -> None:
        outputs = self.component.outputs
        names = [variable.name for variable in outputs[:3]]
        if len(outputs) > 3:
            names.append("…")
        self.deadline.begin(phase, ", ".join(names))

    def refuse_many_values(self) -> None:
        """Raises ``TermBudgetExceeded`` at once where a discrete output can take too many values.

        Every value needs a term of its own, in inner blocks too.
        """
        for variable in self._discrete:
            count = _values_at_least(
                self.component, variable, self.ranges, self.max_terms, self.deadline
            )
            if count > self.max_terms:
                raise self._exceeded(count, variable)

    def _exceeded(
        self, count: int, variable: Variable | None = None
    ) -> TermBudgetExceeded:
        names = [v.name for v in self.component.outputs]
        return TermBudgetExceeded(
            count,
            self.max_terms,
            names,
            nested=self.nested,
            variable=None if variable is None else variable.name,
            endless=self._endless,
        )

    @cached_property
    def _endless(self) -> tuple[str, ...]:
        """The outputs that the rules give no ends. Functions and norms have no cascade, with ends or without."""
        if any(isinstance(symbol, Apply | Norm) for symbol in symbols(self._formula)):
            return ()
        try:
            clauses = clauses_of(self._formula, MOST_CLAUSES)
        except TooManyClauses:
            return ()
        named = dict.fromkeys((*self.component.outputs, *variables(self._formula)))
        found = ranges_of(clauses, named)
        return tuple(v.name for v in self.component.outputs if None in found[v])


def _values_at_least(
    component: RuleComponent,
    variable: Variable,
    ranges: Sequence[Formula],
    most: int,
    deadline: Deadline,
) -> int:
    """How many values a discrete output can certainly take; if that is more than ``most`` it may stop counting.

    It asks for one value after the other, in a context of its own (what z3 is asked here must not change the terms that
    it finds later), and gives up after twice as many questions as would be needed.
    """
    values = _values_between_bounds(component, variable)
    count = values.stop - values.start  # len() fails beyond 2⁶³
    if count <= most:
        return 0
    if all(
        isinstance(part, Atom) and len(part.linear.summands) == 1
        for part in component.conjuncts
    ):
        return count
    sandbox = Sandbox(deadline)
    solver = sandbox.solver(*map(sandbox.formula, (*ranges, *component.conjuncts)))
    solver.add(*(sandbox.domain(v) for v in component.outputs if v.is_discrete))
    constant = sandbox.symbol(variable)
    found = 0
    for value in islice(values, 2 * most):
        found += decided(solver, deadline, constant == value)
        if found > most:
            break
    return found


def _values_between_bounds(component: RuleComponent, variable: Variable) -> range:
    """The values of a discrete output that obey the bounds among the conjuncts, as far as they speak of it alone."""
    values: range = variable.domain.values  # type: ignore[union-attr]
    low = values.start
    high = values.stop - 1
    for part in component.conjuncts:
        if not isinstance(part, Atom) or len(part.linear.summands) != 1:
            continue
        symbol, coefficient = part.linear.summands[0]
        if symbol != variable:
            continue
        bound = -part.linear.constant / coefficient
        if coefficient > 0 or part.relation == "==":
            high = min(high, floor(bound))
        if coefficient < 0 or part.relation == "==":
            low = max(low, ceil(bound))
    return range(low, high + 1)


def _split(formula: Formula) -> tuple[list[Atom], Formula]:
    """Background atoms and the rest of a formula in normal form."""
    if formula == FALSE:
        raise AssertionError("a case without points was enumerated")
    parts = conjuncts(formula)
    background = [part for part in parts if isinstance(part, Atom)]
    return background, conjunction(part for part in parts if not isinstance(part, Atom))


def _term_order(term: Term) -> tuple[object, ...]:
    return (
        tuple(value for _, value in term.fixed),
        len(term.rows),
        tuple(map(row_order, term.rows)),
    )
