"""Rules given as z3 expressions: which constants are outputs and inputs, and where the integers lie.

:mod:`multiplexnet.smt.z3_reader` reads the single expression. Here its constants are declared, and integers get
their finite ranges: from rules with one variable such as ``n >= 0`` if there are any, else from z3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any, Literal

import z3

from multiplexnet.arguments import listed
from multiplexnet.errors import RuleSyntaxError
from multiplexnet.language.formula import (
    Bool,
    Domain,
    Formula,
    Int,
    Real,
    Rule,
    Specification,
    Variable,
)
from multiplexnet.language.parser.values import Refusal, decimal
from multiplexnet.language.text import formula_text, short
from multiplexnet.smt.encoder import input_range_z3
from multiplexnet.smt.integer_ranges import integer_ranges
from multiplexnet.smt.z3_reader import NotARule, Z3Reader, domain_of, operands

__all__ = ["Constant", "WrittenRule", "from_z3", "specification"]

Number = int | float | Fraction | Decimal
Range = tuple[Number | None, Number | None]


def from_z3(
    rules: z3.BoolRef | Sequence[z3.BoolRef],
    *,
    outputs: Sequence[z3.ExprRef | str] | None = None,
    inputs: Sequence[z3.ExprRef | str] | Mapping[z3.ExprRef | str, Range | None] = (),
) -> Specification:
    """Rules over z3 constants: every item of the list, and every part of an outermost ``And``, is one rule.

    ``Real``, ``Int`` and ``Bool`` constants are variables, uninterpreted functions of reals are opaque functions.
    Integers must be finite: their bounds are taken from rules like ``n >= 0``, else from what all rules together
    allow; these stay rules. So does a bound on an input (for other values no output exists); what is known of an
    input beforehand is its range, and is given with it.

    Args:
        rules: one z3 expression or several.
        outputs: constants or names, in the order in which the network computes them. One that occurs in no rule is
            free (a name alone is then a real). ``None``: all constants that are no inputs, in order of appearance.
        inputs: constants or names of what is known at run time; ``{limit: (0, 100)}`` gives ranges as well, with
            ``None`` for no bound. Floats are read as the decimals they print as.

    Raises:
        RuleSyntaxError: a rule says what rules cannot say, or a constant is undeclared, unbounded or of another sort.

    Example:
        >>> x, y, limit = z3.Reals("x y limit")
        >>> spec = from_z3(z3.And(z3.Or(x == 0, x >= 200), y <= limit), inputs={limit: (0, 100)})
        >>> [v.name for v in spec.outputs], [rule.text for rule in spec.rules]
        (['x', 'y'], ['x == 0 or x >= 200', 'y <= limit'])
    """
    written = [
        WrittenRule(part)
        for rule in _expressions(rules)
        for part in operands(rule, z3.Z3_OP_AND)
    ]
    if not written and outputs is None:
        raise RuleSyntaxError(
            "there are no rules: give at least one z3 expression, or name the outputs"
        )
    known = (
        [_constant(name, range_) for name, range_ in inputs.items()]
        if isinstance(inputs, Mapping)
        else _constants("inputs", inputs)
    )
    named = None if outputs is None else _constants("outputs", outputs)
    return specification(written, named, known)


def _expressions(rules: object) -> list[z3.BoolRef]:
    items = list(rules) if isinstance(rules, list | tuple | z3.AstVector) else [rules]
    for item in items:
        if not isinstance(item, z3.ExprRef):
            raise RuleSyntaxError(
                f"`{short(item)}` is a Python {type(item).__name__}, not a z3 expression: "
                "build rules from z3 constants, as in z3.Real('x') >= 2"
            )
        if not z3.is_bool(item):
            raise RuleSyntaxError(
                f"`{short(item)}` is a value of sort {item.sort()}, not a rule: compare it"
            )
    return items


# --- what was declared ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WrittenRule:
    """One rule as a z3 expression, with its text and place if it came from a file."""

    expression: z3.BoolRef
    text: str | None = None
    line: int | None = None
    column: int | None = None
    source: str | None = None

    def error(self, reason: str) -> RuleSyntaxError:
        """The exception for what is wrong with this rule."""
        source = short(self.expression) if self.line is None else self.source
        return RuleSyntaxError(
            reason, line=self.line, column=self.column, source=source
        )


@dataclass(frozen=True)
class Constant:
    """A declared constant: its name, its domain if known (integers with a provisional range), bounds if given."""

    name: str
    domain: Domain | None = None
    lower: Fraction | None = None
    upper: Fraction | None = None


def _constants(argument: str, given: Any) -> list[Constant]:
    """Constants in order: a list of them, or one."""
    one_or_many = [given] if isinstance(given, z3.ExprRef) else given
    allowed = "a list of z3 constants or of their names"
    return [_constant(one) for one in listed(argument, one_or_many, allowed)]


def _constant(given: Any, range_: Range | None = None) -> Constant:
    if isinstance(given, str):
        name = given
        domain = None
    elif z3.is_const(given) and given.decl().kind() == z3.Z3_OP_UNINTERPRETED:
        name = given.decl().name()
        domain = _domain(given)
    else:
        raise RuleSyntaxError(
            f"`{short(given)}` is not a z3 constant: outputs and inputs are constants or their names"
        )
    if range_ is not None and not (
        isinstance(range_, list | tuple) and len(range_) == 2
    ):
        raise RuleSyntaxError(
            f"the range of {name} is `{short(range_)}`: two ends are needed, as in (0, 100), or None"
        )
    lower, upper = (_exact(bound) for bound in range_ or (None, None))
    if lower is not None and upper is not None and lower > upper:
        raise RuleSyntaxError(f"the range of {name} is empty: {lower} is above {upper}")
    return Constant(name, domain, lower, upper)


def _domain(constant: z3.ExprRef) -> Domain:
    try:
        return domain_of(constant)
    except NotARule as refused:
        raise RuleSyntaxError(str(refused)) from None


def _exact(bound: object) -> Fraction | None:
    """The bound as written: 0.1 is 1/10. Infinity is not a bound."""
    if bound is None or (isinstance(bound, float) and math.isinf(bound)):
        return None
    if (
        isinstance(bound, bool)
        or not isinstance(bound, Rational | Decimal | float)
        or bound != bound
    ):
        raise RuleSyntaxError(
            f"{bound!r} is not a bound of a range: give a number or None"
        )
    if isinstance(bound, Rational):
        return Fraction(bound)
    try:
        return decimal(str(bound))
    except Refusal as refusal:
        raise RuleSyntaxError(refusal.reason) from None


# --- from expressions to a specification ----------------------------------------------------------------------------


def specification(
    written: Sequence[WrittenRule],
    outputs: Sequence[Constant] | None,
    inputs: Sequence[Constant],
) -> Specification:
    """The specification of rules that were written down as z3 expressions.

    Args:
        written: the rules.
        outputs: in order; ``None``: all constants of the rules that are no inputs, in order of appearance.
        inputs: in order, with their ranges.
    """
    reader = Z3Reader()
    formulas = _formulas(written, reader)
    variables = _variables(reader.variables, outputs, inputs)
    variables = _with_ranges(variables, inputs, formulas, written)
    if variables != list(reader.variables.values()):
        reader = Z3Reader({v.name: v for v in variables})
        formulas = _formulas(written, reader)
    rules = [
        Rule(f, w.text or _text(f, w), w.line)
        for f, w in zip(formulas, written, strict=True)
    ]
    return Specification(tuple(variables), tuple(rules), tuple(reader.functions))


def _text(formula: Formula, rule: WrittenRule) -> str:
    """The rule in our own language; one nested too deeply to be written is shown in z3's notation, shortened."""
    try:
        return formula_text(formula)
    except RecursionError:
        return short(rule.expression)


def _formulas(written: Iterable[WrittenRule], reader: Z3Reader) -> list[Formula]:
    formulas = []
    for rule in written:
        try:
            formulas.append(reader.formula(rule.expression))
        except NotARule as refused:
            raise rule.error(str(refused)) from None
        except RecursionError:
            raise rule.error(
                "numbers, conditions and functions are nested too deeply in each other"
            ) from None
    return formulas


def _variables(
    occurring: Mapping[str, Variable],
    outputs: Sequence[Constant] | None,
    inputs: Sequence[Constant],
) -> list[Variable]:
    """The outputs, then the inputs, in order; integers still with their provisional ranges."""
    if outputs is None:
        names = {constant.name for constant in inputs}
        outputs = [
            Constant(name, v.domain)
            for name, v in occurring.items()
            if name not in names
        ]
    declared: dict[str, Variable] = {}
    roles: tuple[tuple[Literal["output", "input"], Sequence[Constant]], ...] = (
        ("output", outputs),
        ("input", inputs),
    )
    for role, constants in roles:
        for constant in constants:
            if constant.name in declared:
                raise RuleSyntaxError(
                    f"the constant {constant.name} is declared twice among outputs and inputs"
                )
            domain = _agreed(constant, occurring.get(constant.name))
            declared[constant.name] = Variable(
                constant.name, len(declared), domain, role
            )
    if unknown := [name for name in occurring if name not in declared]:
        raise RuleSyntaxError(
            f"the rules speak of {', '.join(unknown)}, declared neither as an output nor as an input"
        )
    return list(declared.values())


def _agreed(constant: Constant, occurring: Variable | None) -> Domain:
    """The domain that declaration and rules agree on."""
    found = occurring.domain if occurring else constant.domain or Real()
    if constant.domain is not None and type(constant.domain) is not type(found):
        raise RuleSyntaxError(
            f"the constant {constant.name} is declared as {type(constant.domain).__name__} "
            f"but occurs in the rules as {type(found).__name__}"
        )
    return found


def _with_ranges(
    variables: Iterable[Variable],
    inputs: Iterable[Constant],
    formulas: Sequence[Formula],
    written: Sequence[WrittenRule],
) -> list[Variable]:
    """The variables with the given ranges of inputs and those found for integers."""
    given = {c.name: (c.lower, c.upper) for c in inputs}
    variables = [
        _with_given_range(v, *given.get(v.name, (None, None))) for v in variables
    ]
    integers = {
        v.name: given.get(v.name, (None, None))
        for v in variables
        if isinstance(v.domain, Int)
    }
    if not integers:
        return variables
    known = input_range_z3(
        variables, context=written[0].expression.ctx if written else None
    )
    ranges = integer_ranges(
        integers, formulas, [*(rule.expression for rule in written), *known]
    )
    return [replace(v, domain=ranges.get(v.name, v.domain)) for v in variables]


def _with_given_range(
    variable: Variable, lower: Fraction | None, upper: Fraction | None
) -> Variable:
    if isinstance(variable.domain, Bool) and (lower, upper) != (None, None):
        raise RuleSyntaxError(
            f"the constant {variable.name} is a Bool and has no range"
        )
    return (
        replace(variable, domain=Real(lower, upper))
        if isinstance(variable.domain, Real)
        else variable
    )
