"""Which blocks of rules become terms and which a cascade.

Terms are what rules become where they are few: each has a map of its own, and losses can be summed over all of them. A
cascade takes over where that explodes, where an equality holds inputs, where inputs move a single polyhedron, which
leaves nothing to choose: on a grid sums are exact; and where the table of a polyhedron, a number for every row and
output, would be vast: a cascade keeps what rows mention alone. How many terms there would be is counted on the grid, by
going through the alternatives and giving up a branch as soon as its ranges are empty; the count stops where it is too
large.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from multiplexnet.compiler.cascade.build import WRITTEN, Budget, Cascade, cascade_of
from multiplexnet.compiler.cascade.clauses import clauses_of
from multiplexnet.compiler.cascade.grid import grid_of
from multiplexnet.compiler.cascade.hidden_outputs import Revealed, revealed
from multiplexnet.compiler.cascade.projection.rows import Clause, Range, Row
from multiplexnet.compiler.components import RuleComponent, components, conjuncts
from multiplexnet.compiler.normal import normal_form
from multiplexnet.errors import (
    CascadeBudgetExceeded,
    CompileTimeout,
    CurvedError,
    DtypeError,
    MultiplexError,
    RunTimeEqualityError,
)
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.formats import FORMATS, Format
from multiplexnet.language.formula import (
    FALSE,
    And,
    Apply,
    Atom,
    Bool,
    Formula,
    Int,
    Ite,
    Norm,
    Not,
    Or,
    Product,
    Real,
    Rule,
    Specification,
    Variable,
    atoms,
    conjunction,
    count_of,
    negation,
    symbols,
    variables,
)
from multiplexnet.language.missing import flags_among
from multiplexnet.language.text import formula_text

__all__ = [
    "Plan",
    "RulePart",
    "Structure",
    "cascade_of_part",
    "is_false",
    "is_few",
    "is_moved",
    "is_vast",
    "planned",
    "reason",
    "refused_equalities",
    "rule_parts",
    "term_count",
]

Structure = Literal["auto", "terms", "cascade"]

FEW = 256
"""Terms up to which a block is left to them."""
NESTED = 40
"""Truth values up to which inner blocks are left to them: with fifty «at most 3 of them» takes some seconds."""
ROUNDS = 4
"""How often ranges are passed on from row to row while terms are counted."""
VAST = 1 << 21
"""Rows times outputs from which a polyhedron of few numbers a row is no table."""
SPARSE = 32
"""Outputs in a row, on average, up to which they are few."""
QUICK = Budget(clauses=300)
"""What a cascade may cost that nobody insists on."""
FINE = 3
"""Binary digits of resolution that outputs may lose to a cascade where terms would serve, too."""
DIGITS = 32
"""Binary digits that are enough where a format has more."""


@dataclass(frozen=True)
class RulePart:
    """Rules over outputs that share none with the rest.

    Args:
        outputs: in declared order.
        formula: in normal form, hidden outputs included.
        hidden: the hidden outputs, each with those that it is a function of.
        conditions: where each hidden output is 1.
        assumed: what is assumed of the inputs.
        varies: whether it has conditional numbers whose values are not constants.
    """

    outputs: tuple[Variable, ...]
    formula: Formula
    hidden: tuple[tuple[Variable, frozenset[Variable]], ...]
    conditions: tuple[Formula, ...]
    assumed: Formula
    varies: bool = False

    @property
    def multiplies(self) -> bool:
        """Whether inputs multiply something in it."""
        return any(isinstance(symbol, Product) for symbol in symbols(self.formula))


@dataclass(frozen=True)
class Plan:
    """What becomes of the rules.

    Args:
        terms: the rules that become terms, over the outputs that they mention.
        cascades: the others.
    """

    terms: Specification
    cascades: tuple[tuple[RulePart, Cascade], ...]


def rule_parts(specification: Specification) -> list[RulePart]:
    """The independent parts of the rules that have outputs, ordered by the first of them."""
    found = revealed(specification.formula, len(specification.variables))
    every = (*specification.outputs, *found.hidden)
    return [
        _part(component, found, specification.assumed)
        for component in components(conjuncts(found.formula), every)
        if component.outputs
    ]


def is_false(specification: Specification) -> bool:
    """Whether the rules are false whatever the outputs are: then none of their parts says so."""
    found = revealed(specification.formula, len(specification.variables))
    return found.formula == FALSE


def _part(component: RuleComponent, found: Revealed, assumed: Formula) -> RulePart:
    visible = tuple(v for v in component.outputs if v not in found.hidden)
    own = tuple(v for v in component.outputs if v in found.hidden)
    return RulePart(
        visible,
        conjunction(component.conjuncts),
        tuple((v, found.hidden[v]) for v in own),
        tuple(found.conditions[v] for v in own),
        assumed,
        not found.varying.isdisjoint(visible),
    )


def cascade_of_part(
    part: RulePart,
    inputs: Sequence[Variable],
    form: Format,
    *,
    order: Sequence[Variable] | None = None,
    budget: Budget | None = None,
    deadline: Deadline = NEVER,
    multiples: bool = True,
    is_outer: bool = False,
) -> Cascade:
    """The cascade of one part; see :func:`~multiplexnet.compiler.cascade.build.cascade_of`."""
    _refuse_curved(part.formula)
    own = None if order is None else _own_order(part, order)
    every = (*part.outputs, *(v for v, _ in part.hidden))
    try:
        return cascade_of(
            part.formula,
            every,
            inputs,
            form,
            hidden=dict(part.hidden),
            order=own,
            budget=budget,
            deadline=deadline,
            assumed=part.assumed,
            multiples=multiples,
            is_outer=is_outer,
        )
    except CascadeBudgetExceeded as error:
        if error.what == "written" and part.varies:
            raise CascadeBudgetExceeded(
                error.output, error.allowed, "conditional"
            ) from None
        raise


def _refuse_curved(formula: Formula) -> None:
    for atom in atoms(formula):
        if any(isinstance(symbol, Norm) for symbol in symbols(atom)):
            raise CurvedError(
                formula_text(atom),
                "outputs that are computed one after another keep to flat walls alone",
                'leave out structure="cascade"',
            )


def _own_order(part: RulePart, order: Sequence[Variable]) -> list[Variable]:
    """The named order of the outputs of a part, hidden ones as soon as they are known."""
    flags = flags_among(part.outputs)
    found = [v for v in order if v in part.outputs]
    found += [v for v in part.outputs if v not in found and not v.is_flag]
    for (
        variable,
        flag,
    ) in flags.items():  # whether it is missing is decided before its value
        if flag not in found:
            found.insert(found.index(variable), flag)
    for hidden, needed in part.hidden:
        last = max((found.index(v) for v in needed if v in found), default=-1)
        found.insert(last + 1, hidden)
    return found


def planned(
    specification: Specification,
    structure: Structure,
    form: Format,
    *,
    order: Sequence[Variable] | None = None,
    budget: Budget | None = None,
    deadline: Deadline = NEVER,
    beyond: Collection[Variable] = (),
) -> Plan:
    """Which parts become terms, and the cascades of the others.

    Args:
        specification: the rules.
        structure: ``"terms"`` and ``"cascade"`` insist (outputs that no rule ties to others stay terms); ``"auto"``
            decides.
        form: the format of the outputs.
        order: the order in which outputs are computed, if the user has named it.
        budget: what a cascade may cost.
        deadline: when it has to be done, and who is told how far it is.
        beyond: outputs that were found to be beyond terms.

    Raises:
        MultiplexError: ``structure`` is ``"cascade"`` and there is none.
    """
    if structure == "terms" or (structure == "auto" and not _doubtful(specification)):
        return Plan(specification, ())
    found = []
    for part in rule_parts(specification):
        if structure == "cascade":
            if _is_coupled(part):
                found.append(
                    (
                        part,
                        cascade_of_part(
                            part,
                            specification.inputs,
                            form,
                            order=order,
                            budget=budget,
                            deadline=deadline,
                        ),
                    )
                )
            continue
        cascade = _if_better(
            part, specification.inputs, form, order, budget or QUICK, deadline, beyond
        )
        if cascade is not None:
            found.append((part, cascade))
    taken = {v for part, _ in found for v in part.outputs}
    left = _without(specification, taken) if found else None
    return Plan(specification, ()) if left is None else Plan(left, tuple(found))


def _is_coupled(part: RulePart) -> bool:
    """Whether terms would not do, or other outputs depend on it; terms refuse equalities with inputs."""
    needed = part.multiplies or _has_equality_of_inputs(part.formula)
    return len(part.outputs) > 1 or bool(part.hidden) or needed


def _doubtful(specification: Specification) -> bool:
    """Whether anything but a single small term may come out; a glance that needs no normal form."""
    return (
        any(_has_choice(rule.formula) for rule in specification.rules)
        or any(v.is_discrete for v in specification.outputs)
        or len(specification.outputs) * _row_count(specification.formula) > VAST
    )


def _row_count(formula: Formula) -> int:
    return sum(1 for _ in atoms(formula))


def _has_choice(formula: Formula) -> bool:
    if isinstance(formula, Atom):
        named = formula.linear.symbols
        return not all(isinstance(s, Variable) for s in named) or _ties_to_inputs(
            formula
        )
    return not isinstance(formula, And) or any(map(_has_choice, formula.arguments))


def _if_better(
    part: RulePart,
    inputs: Sequence[Variable],
    form: Format,
    order: Sequence[Variable] | None,
    budget: Budget,
    deadline: Deadline,
    beyond: Collection[Variable],
) -> Cascade | None:
    """The cascade of a part that terms cannot have, or not within bounds."""
    if any(isinstance(s, Apply | Norm) for s in symbols(part.formula)):
        return None
    if part.multiplies:
        own = None if budget is QUICK else budget  # there is no other way
        return cascade_of_part(
            part, inputs, form, order=order, budget=own, deadline=deadline
        )
    needed = _has_equality_of_inputs(part.formula) or any(
        v in beyond for v in part.outputs
    )
    moved = is_moved(part) or is_vast(part)
    if not needed and not moved and (_alternatives(part) <= FEW or _is_logic(part)):
        return None
    try:
        found = cascade_of_part(
            part, inputs, form, order=order, budget=budget, deadline=deadline
        )
    except CompileTimeout:
        raise
    except MultiplexError as error:  # terms say what is wrong, or serve
        if isinstance(error, DtypeError) and not is_few(
            part, inputs, FORMATS["float64"]
        ):
            raise
        return None
    if needed or (moved and _is_fine(found, form)) or not is_few(part, inputs, form):
        return found
    return None


def refused_equalities(
    specification: Specification,
    structure: Structure,
    form: Format,
    rows: Sequence[str] = (),
    deadline: Deadline = NEVER,
) -> RunTimeEqualityError:
    """What is told of equalities with inputs that terms do not meet: the rules, and what to do.

    Args:
        specification: the rules.
        structure: what was asked for.
        form: the format of the outputs.
        rows: what is shown where no rule is such an equality by itself.
        deadline: when it has to be done.
    """
    texts = [
        rule.text if rule.line is None else f"line {rule.line}: {rule.text}"
        for rule in specification.rules
        if any(
            row.relation == "==" and _ties_to_inputs(row) for row in atoms(rule.formula)
        )
    ]
    advice = 'leave out structure="terms", and cover and per_term, which insist on terms, too'
    if structure != "terms":
        advice = _why_no_cascade(specification, form, deadline)
    return RunTimeEqualityError(texts or rows, advice)


def _why_no_cascade(
    specification: Specification, form: Format, deadline: Deadline
) -> str:
    try:
        planned(specification, "cascade", form, deadline=deadline)
    except MultiplexError as error:
        return f"here there is none. {error}"
    return 'structure="cascade" insists on one'


def reason(part: RulePart, inputs: Sequence[Variable], form: Format) -> str:
    """Why a part is computed one output after another, in words."""
    sizes = {
        v.name: count_of(v.domain) for v in part.outputs if isinstance(v.domain, Int)
    }
    wide = next((name for name, size in sizes.items() if size > FEW), None)
    if part.multiplies:
        return "inputs multiply outputs"
    if _has_equality_of_inputs(part.formula):
        return "an equality holds inputs"
    if wide is not None:
        return f"{wide} has {sizes[wide]:,} values"
    if is_moved(part):
        return "inputs bound outputs that depend on each other"
    if is_vast(part):
        rows = _row_count(part.formula)
        return f"{len(part.outputs):,} outputs and {rows:,} rows make a vast table"
    if not is_few(part, inputs, form):
        return f"it has more than {FEW} terms"
    if _has_choice_of_equalities(part):
        return "inputs bound outputs of an equality"
    return "it was asked for"


def _has_choice_of_equalities(part: RulePart) -> bool:
    """Whether an alternative is an equality of outputs, beside rows that hold inputs: terms may refuse it."""
    rows = list(atoms(part.formula))
    equal = any(row.relation == "==" and len(variables(row)) > 1 for row in rows)
    return equal and any(map(_ties_to_inputs, rows))


def is_moved(part: RulePart) -> bool:
    """Whether inputs bound outputs that depend on each other, and nothing is to be chosen: a band or a polytope."""
    if _alternatives(part) > 1:  # terms have losses over all choices
        return False
    coupled = any(len(_outputs_of(atom)) > 1 for atom in atoms(part.formula))
    return coupled and any(map(_ties_to_inputs, atoms(part.formula)))


def is_vast(part: RulePart) -> bool:
    """Whether nothing is to be chosen, and nearly all of a table of rows and outputs would be zeros."""
    if _alternatives(part) > 1:
        return False
    rows = list(atoms(part.formula))
    mentioned = sum(len(row.linear.summands) for row in rows)
    return len(part.outputs) * len(rows) > VAST and mentioned <= SPARSE * len(rows)


def _ties_to_inputs(atom: Atom) -> bool:
    named = variables(atom)
    return any(v.is_input for v in named) and not all(v.is_input for v in named)


def _outputs_of(atom: Atom) -> set[Variable]:
    return {v for v in variables(atom) if not v.is_input}


def _is_fine(cascade: Cascade, form: Format) -> bool:
    """Whether the grid is about as fine as the format; sums of many outputs need a coarser one."""
    wanted = 2 ** (min(form.precision, DIGITS) - FINE)
    pairs = zip(cascade.visible, cascade.ranges, strict=False)
    return all(
        ends.size >= wanted
        for v, ends in pairs
        if isinstance(v.domain, Real) and ends.size
    )


def is_few(part: RulePart, inputs: Sequence[Variable], form: Format) -> bool:
    """Whether the terms of a part would be few."""
    return _alternatives(part) <= FEW or _count(part, inputs, form) <= FEW


def _is_logic(part: RulePart) -> bool:
    """Whether outputs are truth values, not very many, and counted, not weighed: inner blocks of terms serve those."""
    return (
        len(part.outputs) <= NESTED
        and all(isinstance(v.domain, Bool) for v in part.outputs)
        and all(map(_counts, atoms(part.formula)))
    )


def _counts(row: Atom) -> bool:
    """Whether all its summands weigh the same."""
    return len({abs(c) for _, c in row.linear.summands}) <= 1


def _has_equality_of_inputs(formula: Formula) -> bool:
    """Whether an equality between outputs and inputs has to hold."""
    for part in conjuncts(formula):
        if isinstance(part, Atom) and part.relation == "==":
            kinds = {v.is_input for v in variables(part)}
            if kinds == {True, False} and not _is_copy(part):
                return True
    return False


def _is_copy(row: Atom) -> bool:
    """Whether a row is ``x = u``: one output between an input and itself, which terms hold."""
    coefficients = [c for _, c in row.linear.summands]
    return len(coefficients) == 2 and not sum(coefficients) and not row.linear.constant


def _alternatives(part: RulePart) -> int:
    """A bound of the number of terms: the product of the alternatives that each rule leaves."""
    count = prod(map(_cases, conjuncts(part.formula)))
    for variable in part.outputs:
        if not isinstance(variable.domain, Real):
            count *= count_of(variable.domain)
    return count


def _cases(formula: Formula) -> int:
    match formula:
        case And(arguments):
            return prod(map(_cases, arguments))
        case Or(arguments):
            return sum(map(_cases, arguments))
    return 1


def _count(part: RulePart, inputs: Sequence[Variable], form: Format) -> int:
    """The number of terms that a part would have, as far as the ranges tell; at most ``FEW + 1``."""
    clauses = clauses_of(part.formula, WRITTEN)
    every = (*part.outputs, *(v for v, _ in part.hidden))
    grid = grid_of(clauses, every, inputs, form, {})
    discrete = [i for i, v in enumerate(part.outputs) if v.is_discrete]
    return term_count(grid.clauses, dict(grid.ranges), discrete, FEW + 1)


def _without(
    specification: Specification, taken: Collection[Variable]
) -> Specification | None:
    """The rules without what they say of the outputs that are taken; ``None`` if that cannot be told apart."""
    rules = []
    for rule in specification.rules:
        kept = []
        for part in _pieces(rule.formula, True):
            own = {v for v in variables(part) if not v.is_input}
            if own and own <= set(taken):
                continue
            if own & set(taken):
                return None
            kept.append(part)
        if kept:
            rules.append(Rule(conjunction(kept), rule.text, rule.line))
    left = tuple(v for v in specification.variables if v not in taken)
    return replace(specification, variables=left, rules=tuple(rules), text="")


def _pieces(formula: Formula, polarity: bool) -> Iterator[Formula]:
    """Formulas whose conjunction is the formula, or its negation: the parts of what hides behind negations, too.

    Only conditional numbers are left as they are, since writing them out may take forever; one that counts ties all
    its outputs together.
    """
    match formula:
        case Not(argument):
            yield from _pieces(argument, not polarity)
        case And(arguments) if polarity:
            for argument in arguments:
                yield from _pieces(argument, True)
        case Or(arguments) if not polarity:
            for argument in arguments:
                yield from _pieces(argument, False)
        case _:
            whole = formula if polarity else negation(formula)
            if any(isinstance(s, Ite) for s in symbols(whole)):
                yield whole
            else:
                yield from conjuncts(normal_form(whole))


# --- counting -------------------------------------------------------------------------------------------------------


def term_count(
    clauses: Sequence[Clause],
    ranges: dict[int, Range],
    discrete: Sequence[int],
    most: int,
) -> int:
    """About how many terms clauses have: cells in which each clause is settled, and each discrete variable fixed.

    Args:
        clauses: what has to hold.
        ranges: of all variables.
        discrete: variables that every term fixes.
        most: where the count may stop.

    Example: x ≤ 0 or x ≥ 2, y ≤ 0 or y ≥ 2, and x + y ≤ 3.
        >>> gaps = [(Row(((v, 1),), 0), Row(((v, -1),), -2)) for v in (0, 1)]
        >>> term_count([*gaps, (Row(((0, 1), (1, 1)), 3),)], {0: Range(0, 9), 1: Range(0, 9)}, (), 99)
        3
    """
    stack: list[tuple[list[Clause] | None, dict[int, Range]]] = [
        (list(clauses), dict(ranges))
    ]
    count = 0
    while stack and count < most:
        left, ends = stack.pop()
        left = _unsettled(left or [], ends)
        if left is None:
            continue
        clause = min((c for c in left if len(c) > 1), key=len, default=None)
        if clause is not None:
            rest = [other for other in left if other is not clause]
            for place, row in enumerate(clause):
                denied = [(earlier.negation,) for earlier in clause[:place]]
                stack.append(([*rest, (row,), *denied], dict(ends)))
            continue
        loose = next((v for v in discrete if ends[v].lower < ends[v].upper), None)
        if loose is None:
            count += 1
            continue
        middle = (ends[loose].lower + ends[loose].upper) // 2
        for part in (
            Range(ends[loose].lower, middle),
            Range(middle + 1, ends[loose].upper),
        ):
            stack.append((list(left), ends | {loose: part}))
    return count


def _unsettled(
    clauses: Sequence[Clause], ends: dict[int, Range]
) -> list[Clause] | None:
    """The clauses that the ranges do not settle; single rows narrow these. ``None`` if nothing obeys."""
    left = list(clauses)
    for _ in range(ROUNDS):
        before = dict(ends)
        open_clauses = []
        for clause in left:
            spans = [(row, *row.span(ends)) for row in clause]
            possible = [span for span in spans if span[1] <= span[0].bound]
            if not possible:
                return None
            if any(most <= row.bound for row, _, most in possible):
                continue
            if len(possible) == 1:
                row, least, _ = possible[0]
                _narrow(row, row.bound - least, ends)
            open_clauses.append(tuple(row for row, _, _ in possible))
        left = open_clauses
        if any(r.lower > r.upper for r in ends.values()):
            return None
        if ends == before:
            break
    return left


def _narrow(row: Row, slack: int, ends: dict[int, Range]) -> None:
    """What a row leaves of each of its variables; ``slack`` is how far its bound lies above its least value."""
    for v, c in row.terms:
        lower, upper = ends[v]
        width = slack // abs(c)
        if upper - lower > width:
            ends[v] = (
                Range(lower, lower + width) if c > 0 else Range(upper - width, upper)
            )
