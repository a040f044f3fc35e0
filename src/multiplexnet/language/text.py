"""Formulas and specifications written in the language that :mod:`multiplexnet.language.parser.parse` reads.

What is written means what it came from: ``parse(specification_text(s))`` holds at the same points as ``s``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from math import gcd, lcm
from typing import Literal

from multiplexnet.language.curves import form_of, radius
from multiplexnet.language.formula import (
    And,
    Apply,
    Atom,
    Bool,
    Category,
    Formula,
    Iff,
    Int,
    Ite,
    Linear,
    Max,
    Norm,
    Not,
    Or,
    Product,
    Real,
    Relation,
    Specification,
    Symbol,
    Unit,
    Variable,
    holds,
    negation,
    norm_in,
)
from multiplexnet.language.missing import MARK, flagged_name
from multiplexnet.language.parser.moments import moment_text
from multiplexnet.language.parser.operations import WORDS
from multiplexnet.language.parser.spelling import name_text

__all__ = [
    "declaration_text",
    "domain_text",
    "formula_text",
    "linear_text",
    "number_text",
    "short",
    "specification_text",
    "value_text",
    "variable_text",
]

_TURNED = {"<=": ">=", "<": ">", "==": "==", "!=": "!="}
LONGEST_CHAIN = 1_000
"""How many summands are written with signs between them: longer chains are too deep to be read again."""
_PLAIN_DIGITS = 16  # longer numbers are written with an exponent where that is shorter


def short(thing: object) -> str:
    """The thing on one line of a message.

    Example:
        >>> short("x >= 0 and\\n    y >= 0")
        'x >= 0 and y >= 0'
        >>> len(short("x >= 0 and " * 100))
        120
    """
    text = " ".join(str(thing).split())
    return text if len(text) <= 120 else text[:119] + "…"


# --- numbers --------------------------------------------------------------------------------------------------------


def number_text(number: Fraction) -> str:
    """The exact number: a decimal if it has a finite one, else ``p/q``.

    Example:
        >>> [number_text(Fraction(n)) for n in ("1/8", "-1/3", "12", "1e-30")]
        ['0.125', '-1/3', '12', '1e-30']
    """
    twos = _count(number.denominator, 2)
    fives = _count(number.denominator, 5)
    rest = number.denominator
    rest //= 2**twos * 5**fives
    if rest != 1:
        return f"{number.numerator}/{number.denominator}"
    places = max(twos, fives)
    digits = number.numerator * 10**places // number.denominator
    return _decimal_text(digits, places)


def _count(number: int, prime: int) -> int:
    """How often the prime divides the number."""
    count = 0
    while number % prime == 0:
        number = number // prime
        count = count + 1
    return count


def _decimal_text(digits: int, places: int) -> str:
    """``digits · 10^-places``, with an exponent if the plain form is long."""
    sign = "-" if digits < 0 else ""
    text = str(abs(digits))
    if max(len(text), places) > _PLAIN_DIGITS:
        short = text.rstrip("0")
        exponent = len(text) - len(short) - places
        if len(short) + 5 < max(len(text), places):
            return f"{sign}{short}e{exponent}"
    if not places:
        return sign + text
    text = text.rjust(places + 1, "0")
    return f"{sign}{text[:-places]}.{text[-places:]}"


def value_text(variable: Variable, number: Fraction) -> str:
    """A value of a variable as people write it: a label, a date, an amount in its unit.

    Example:
        >>> value_text(Variable("n", 0, Int(0, 999, Unit(Fraction(1, 100), "decimal"))), Fraction(250))
        '2.5'
        >>> value_text(Variable("d", 0, Int(0, 99999, Unit(Fraction(1), "date"))), Fraction(19938))
        '2024-08-03'
    """
    if isinstance(variable.domain, Category):
        return variable.domain.labels[int(number)]
    kind = variable.unit.kind
    if kind in ("date", "datetime") and number.denominator == 1:
        text = moment_text(int(number), "date" if kind == "date" else "datetime")
        return number_text(number) if text is None else text
    return number_text(number * variable.unit.size)


# --- linear expressions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Summand:
    """``coefficient · text``; ``alone`` is the text where nothing is added or multiplied."""

    coefficient: Fraction
    text: str
    alone: str

    @property
    def size(self) -> str:
        """The text with the size of the coefficient, without its sign."""
        factor = abs(self.coefficient)
        return self.text if factor == 1 else f"{number_text(factor)}*{self.text}"


def linear_text(linear: Linear) -> str:
    """The expression as it stands alone or as an argument.

    Example:
        >>> x, y = Variable("x", 0), Variable("y", 1)
        >>> linear_text(Linear.of(x) * 2 - Linear.of(y) + 3)
        '2*x - y + 3'
    """
    return _sum_text(_parts(linear), linear.constant)


def _sum_text(parts: Sequence[_Summand], constant: Fraction = Fraction(0)) -> str:
    if len(parts) == 1 and not constant and parts[0].coefficient == 1:
        return parts[0].alone
    signed = [(part.coefficient < 0, part.size) for part in parts]
    if constant or not parts:
        signed.append((constant < 0, number_text(abs(constant))))
    if len(signed) > LONGEST_CHAIN:
        elements = (f"-{text}" if n else text for n, text in signed)
        return f"sum([{', '.join(elements)}])"
    (negative, first), *rest = signed
    return (
        ("-" if negative else "")
        + first
        + "".join(f" {'-' if n else '+'} {text}" for n, text in rest)
    )


def _parts(linear: Linear) -> list[_Summand]:
    return [_part(symbol, coefficient) for symbol, coefficient in linear.summands]


def variable_text(variable: Variable) -> str:
    """The variable as it is written in a rule.

    Example:
        >>> variable_text(Variable("w[1, 2]", 0)), variable_text(Variable("Loan Amount[0]", 0))
        ('w[1, 2]', '`Loan Amount`[0]')
    """
    if variable.is_flag:
        return (
            variable_text(replace(variable, name=flagged_name(variable), role="output"))
            + MARK
        )
    name, place = variable.place
    index = f"[{', '.join(map(str, place))}]" if place else ""
    return name_text(name, WORDS) + index


def _part(symbol: Symbol, coefficient: Fraction) -> _Summand:
    if isinstance(symbol, Variable):
        return _variable_part(symbol, coefficient)
    match symbol:
        case Product(known, other):
            text = f"{_factor_text(known)}*{_factor_text(other)}"
            sizes = _unit_size(known) * _unit_size(other)
            return _Summand(coefficient / sizes, text, text)
        case Apply(function, arguments):
            text = f"{name_text(function)}({_arguments(arguments)})"
            return _Summand(coefficient, text, text)
        case Ite(condition, then, otherwise):
            return _bracketed(coefficient, _case_text(condition, then, otherwise))
        case Max(arguments):
            return _max_part(arguments, coefficient)
        case Norm(weights, arguments):
            text = f"norm([{_arguments(arguments)}]{_weights_text(weights)})"
            return _Summand(coefficient, text, text)


def _weights_text(weights: Sequence[Fraction]) -> str:
    if all(weight == 1 for weight in weights):
        return ""
    return f", 2, [{', '.join(map(number_text, weights))}]"


def _curved_text(linear: Linear, relation: Relation) -> str | None:
    """``norm([x, y]) <= t + 1``, or ``x**2 + 2*y**2 <= 4`` where a number bounds a norm with weights."""
    found = norm_in(linear)
    if found is None or found[1] < 0:
        return None
    norm, coefficient = found
    rest = Linear(linear.summands[:-1], linear.constant)
    bound = -linear.constant / coefficient
    is_plain = all(weight == 1 for weight in norm.weights)
    if not rest.summands and bound > 0 and is_plain:
        return f"{_part(norm, Fraction(1)).text} {relation} {number_text(bound)}"
    if rest.summands or bound <= 0:
        return (
            f"{_sum_text([_part(norm, coefficient)])} {relation} {linear_text(-rest)}"
        )
    if (form := form_of(norm)) is not None:
        centre, Q = form
        moved = [
            linear_text(Linear.of(symbol) - middle) for symbol, middle in centre.items()
        ]
        rows = [f"[{', '.join(map(number_text, row))}]" for row in Q]
        square = number_text(bound * bound)
        return f"quad([{', '.join(moved)}], [{', '.join(rows)}]) {relation} {square}"
    common = lcm(*(weight.denominator for weight in norm.weights))
    divisor = gcd(*(int(weight * common) for weight in norm.weights))
    scale = Fraction(common, divisor)
    parts = []
    for weight, argument in zip(norm.weights, norm.arguments, strict=True):
        text = f"({linear_text(argument)})**2"
        match argument:
            case Linear(
                ((Variable(domain=Real()) as variable, Fraction(numerator=1)),),
                Fraction(numerator=0),
            ) if argument.summands[0][1] == 1:
                text = f"{variable_text(variable)}**2"
        parts.append(_Summand(weight * scale, text, text))
    return f"{_sum_text(parts)} {relation} {number_text(bound * bound * scale)}"


def _square_text(linear: Linear, relation: Relation) -> str | None:
    """``(x + y)**2 <= 4`` or ``(x + y)**2 > 4``, where an absolute value is multiplied so that it is a distance."""
    match linear.summands:
        case ((Max(arguments), c),) if c != 1 and c != -1 and _is_abs(arguments):
            own = max(arguments, key=_leads)
        case _:
            return None
    bound = -linear.constant / c
    if bound <= 0 or any(_unit_size(symbol) != 1 for symbol in own.symbols):
        return None
    if abs(c) != radius(Norm((Fraction(1),), (own,)), Fraction(1)):
        return None
    written = relation if c > 0 else _TURNED[relation]
    return f"({linear_text(own)})**2 {written} {number_text(bound * bound)}"


def _factor_text(symbol: Symbol) -> str:
    return _part(symbol, Fraction(1)).text


def _unit_size(symbol: Symbol) -> Fraction:
    return symbol.unit.size if isinstance(symbol, Variable) else Fraction(1)


def _variable_part(variable: Variable, coefficient: Fraction) -> _Summand:
    name = variable_text(variable)
    match variable.domain:
        case Bool():
            return _Summand(
                coefficient, name, f"1*{name}"
            )  # as a number; alone it would be a truth value
        case Category(labels):
            cases = "".join(
                f"{i} if {name} == {_quoted(label)} else "
                for i, label in enumerate(labels[:-1])
            )
            return _bracketed(coefficient, f"{cases}{len(labels) - 1}")
    return _Summand(coefficient / variable.unit.size, name, name)


def _bracketed(coefficient: Fraction, text: str) -> _Summand:
    return _Summand(coefficient, f"({text})", f"({text})")


def _max_part(arguments: Sequence[Linear], coefficient: Fraction) -> _Summand:
    """``max``, or where it reads better ``abs`` or ``min`` with the opposite sign."""
    if _is_abs(arguments):
        text = f"abs({linear_text(max(arguments, key=_leads))})"
    elif _is_min(arguments):
        text = f"min({_arguments([-argument for argument in arguments])})"
        coefficient = -coefficient
    else:
        text = f"max({_arguments(arguments)})"
    return _Summand(coefficient, text, text)


def _is_abs(arguments: Sequence[Linear]) -> bool:
    return len(arguments) == 2 and arguments[0] == -arguments[1]


def _is_min(arguments: Sequence[Linear]) -> bool:
    return not _is_abs(arguments) and not any(
        _leads(argument) for argument in arguments if argument.summands
    )


def _leads(linear: Linear) -> bool:
    """Whether the expression begins without a minus."""
    if not linear.summands:
        return True
    symbol, coefficient = linear.summands[0]
    turned = isinstance(symbol, Max) and _is_min(symbol.arguments)
    return (coefficient > 0) != turned


def _arguments(arguments: Iterable[Linear]) -> str:
    return ", ".join(map(_argument_text, arguments))


def _argument_text(linear: Linear) -> str:
    """The expression where an ``if … else`` needs no brackets."""
    match linear:
        case Linear(
            ((Ite(condition, then, otherwise), Fraction(numerator=1, denominator=1)),),
            Fraction(numerator=0),
        ):
            return _case_text(condition, then, otherwise)
    return linear_text(linear)


def _case_text(condition: Formula, then: Linear, otherwise: Linear) -> str:
    return f"{linear_text(then)} if {formula_text(condition)} else {_argument_text(otherwise)}"


# --- atoms ----------------------------------------------------------------------------------------------------------


def _atom_text(atom: Atom, *, negated: bool = False) -> str:
    """The comparison or its opposite, constants on the right and no minus in front."""
    formula = negation(atom) if negated else atom
    match atom.linear.summands:
        case ():
            return str(holds(formula, {}))
        case ((Variable(domain=Bool() | Category()) as variable, _),):
            return _finite_text(variable, formula)
        case (
            (Variable(domain=Category(labels)) as left, c),
            (Variable(domain=Category(others)) as right, d),
        ):
            if (
                atom.relation == "=="
                and labels == others
                and c == -d
                and not atom.linear.constant
            ):
                relation = "!=" if negated else "=="
                return f"{variable_text(left)} {relation} {variable_text(right)}"
    if isinstance(formula, Atom):
        return _comparison_text(formula.linear, formula.relation)
    return _comparison_text(atom.linear, "!=")


def _in_units(linear: Linear) -> Linear:
    """A positive multiple that reads well: rules are written in units, terms are made of whole numbers of them."""
    for symbol, c in linear.summands:
        if isinstance(symbol, Variable) and symbol.unit.size != 1:
            size = symbol.unit.size
            reads_well = abs(c / size) == 1 or (c.denominator > 1 and abs(c) != 1)
            return linear if reads_well else linear * size
    return linear


def _bound_text(bound: Fraction, linear: Linear) -> str:
    """A number that an expression is compared with: a date, if the expression is one."""
    match linear.summands:
        case ((Variable() as variable, Fraction(numerator=1 | -1, denominator=1)),):
            kind = variable.unit.kind
            if kind in ("date", "datetime") and bound.denominator == 1:
                text = moment_text(int(bound), "date" if kind == "date" else "datetime")
                return number_text(bound) if text is None else f'{kind}("{text}")'
    return number_text(bound)


def _comparison_text(linear: Linear, relation: Relation | Literal["!="]) -> str:
    if relation in ("<=", "<") and (curved := _curved_text(linear, relation)):
        return curved
    if relation in ("<=", "<") and (square := _square_text(linear, relation)):
        return square
    linear = _in_units(linear)
    parts = _parts(linear)
    bound = -linear.constant
    written = str(relation)
    if parts[0].coefficient < 0:
        parts = _negative(parts)
        bound = -bound
        written = _TURNED[relation]
    left = [part for part in parts if part.coefficient > 0]
    if bound or len(left) == len(parts):
        return f"{_sum_text(parts)} {written} {_bound_text(bound, linear)}"
    return f"{_sum_text(left)} {written} {_sum_text(_negative(part for part in parts if part.coefficient < 0))}"


def _negative(parts: Iterable[_Summand]) -> list[_Summand]:
    return [replace(part, coefficient=-part.coefficient) for part in parts]


def _finite_text(variable: Variable, formula: Formula) -> str:
    """A formula over one Boolean or category by the values it allows."""
    domain = variable.domain
    name = variable_text(variable)
    assert isinstance(domain, Bool | Category)
    allowed = [
        value for value in domain.values if holds(formula, {variable: Fraction(value)})
    ]
    if len(allowed) in (0, len(domain.values)):
        return str(bool(allowed))
    if variable.is_flag:
        return name if allowed == [1] else name.removesuffix("missing") + "not missing"
    if isinstance(domain, Bool):
        return name if allowed == [1] else f"not {name}"
    others = [value for value in domain.values if value not in allowed]
    if len(others) == 1 and isinstance(formula, Not):
        return f"{name} != {_quoted(domain.labels[others[0]])}"
    if len(allowed) == 1:
        return f"{name} == {_quoted(domain.labels[allowed[0]])}"
    return (
        f"{name} in {{{', '.join(_quoted(domain.labels[value]) for value in allowed)}}}"
    )


def _interval_text(lower: Formula, upper: Formula) -> str | None:
    """``0 < x <= 1`` for two neighbours in a conjunction that bound the same expression."""
    match lower, upper:
        case Atom(below, ("<" | "<=") as left), Atom(above, ("<" | "<=") as right):
            if below.summands == (-above).summands and _is_quantity(above):
                below = _in_units(below)
                above = _in_units(above)
                middle = _sum_text(_parts(above))
                ends = (
                    _bound_text(below.constant, above),
                    _bound_text(-above.constant, above),
                )
                return f"{ends[0]} {left} {middle} {right} {ends[1]}"
    return None


def _membership_text(arguments: Sequence[Formula], operator: str = "in") -> str | None:
    """``x in {1, 2}`` for a disjunction of such equalities."""
    atoms = [
        argument
        for argument in arguments
        if isinstance(argument, Atom) and argument.relation == "=="
    ]
    if (
        len(atoms) < 2
        or len(atoms) < len(arguments)
        or len({atom.linear.summands for atom in atoms}) > 1
    ):
        return None
    linear = atoms[0].linear
    match linear.summands:
        case (
            (
                Variable(domain=Category(labels)) as variable,
                Fraction(numerator=1, denominator=1),
            ),
        ):
            positions = [-atom.linear.constant for atom in atoms]
            if all(position in range(len(labels)) for position in positions):
                chosen = ", ".join(
                    _quoted(labels[int(position)]) for position in positions
                )
                return f"{variable_text(variable)} {operator} {{{chosen}}}"
    if not _is_quantity(linear):
        return None
    linears = [_in_units(atom.linear) for atom in atoms]
    numbers = ", ".join(_bound_text(-own.constant, own) for own in linears)
    return f"{_sum_text(_parts(linears[0]))} {operator} {{{numbers}}}"


def _is_quantity(linear: Linear) -> bool:
    """Whether the expression reads as one number: not constant, no minus in front, no truth value or label."""
    match linear.summands:
        case () | ((Variable(domain=Bool() | Category()), _),):
            return False
    return _leads(linear)


# --- formulas -------------------------------------------------------------------------------------------------------


def formula_text(formula: Formula) -> str:
    """The formula as a rule.

    Example:
        >>> x, y = Linear.of(Variable("x", 0)), Linear.of(Variable("y", 1))
        >>> formula_text(Or((Atom(-x + 2, "<="), And((Atom(x - y, "<"), Not(Atom(y - Fraction(1, 2), "==")))))))
        'x >= 2 or x < y and y != 0.5'
    """
    match formula:
        case Atom():
            return _atom_text(formula)
        case Not(argument):
            return _negation_text(argument)
        case And(arguments):
            return " and ".join(_conjuncts(arguments)) or "True"
        case Or(arguments):
            return (
                _membership_text(arguments)
                or " or ".join(map(formula_text, arguments))
                or "False"
            )
        case Iff(left, right):
            return f"iff({formula_text(left)}, {formula_text(right)})"


def _negation_text(argument: Formula) -> str:
    match argument:
        case Atom():
            return _atom_text(argument, negated=True)
        case Iff(left, right):
            return f"xor({formula_text(left)}, {formula_text(right)})"
        case Not(inner):
            return formula_text(inner)
        case Or(arguments) if text := _membership_text(arguments, "not in"):
            return text
    return f"not ({formula_text(argument)})"


def _conjuncts(arguments: Sequence[Formula]) -> Iterator[str]:
    """The parts of a conjunction; two neighbouring bounds of one expression become one chained comparison."""
    rest = list(reversed(arguments))
    while rest:
        first = rest.pop()
        if rest and (interval := _interval_text(first, rest[-1])):
            rest.pop()
            yield interval
        elif (
            isinstance(first, Or)
            and len(first.arguments) > 1
            and not _membership_text(first.arguments)
        ):
            yield f"({formula_text(first)})"
        else:
            yield formula_text(first)


# --- specifications -------------------------------------------------------------------------------------------------


def declaration_text(specification: Specification) -> str:
    """The declarations of all variables and functions, one a line.

    Example:
        >>> declaration_text(Specification((Variable("x[0]", 0), Variable("x[1]", 1), Variable("on", 2, Bool())), ()))
        'x: real[2]\\non: bool'
    """
    declared = [v for v in specification.variables if not v.is_flag]
    groups = [
        (base, list(group)) for (base, _), group in groupby(declared, key=_declared)
    ]
    nullable = specification.flags
    lines = [
        f"{name_text(base, WORDS)}: {_type_text(group, '?' if group[0] in nullable else '')}"
        for base, group in groups
    ]
    functions = [f"{name_text(name)}: function" for name in specification.functions]
    return "\n".join([*lines, *functions])


def domain_text(variable: Variable) -> str:
    """What the variable is declared as.

    Example:
        >>> domain_text(Variable("x[0]", 0, Int(1, 6)))
        'int[1, 6]'
    """
    return _type_text([replace(variable, name="")])


def specification_text(specification: Specification) -> str:
    """Declarations, assumptions and rules as a text that can be read again, one a line.

    Example:
        >>> from multiplexnet.language.parser.parse import parse
        >>> print(specification_text(parse("implies(a > 0, b >= 0.5*a)")))
        a: real
        b: real
        a <= 0 or 0.5*a <= b
    """
    assumed = [
        f"assume {formula_text(rule.formula)}" for rule in specification.assumptions
    ]
    rules = [formula_text(rule.formula) for rule in specification.rules]
    return "\n".join(
        [*filter(None, [declaration_text(specification)]), *assumed, *rules]
    )


def _declared(variable: Variable) -> tuple[str, bool]:
    """What tells the names of different declarations apart: a single variable may be named like an element."""
    return variable.place[0], variable.whole


def _type_text(group: Sequence[Variable], mark: str = "") -> str:
    """The kind of one variable, or of the vector or matrix of several, with ``?`` if it may be missing."""
    first = group[0]
    last = group[-1].place[1]
    size = mark + (f"[{', '.join(str(i + 1) for i in last)}]" if last else "")
    match first.domain:
        case Real(lower, upper) if first.is_input:
            if lower is None or upper is None:
                return f"input real{size}" if len(last) > 1 else f"input{size}"
            return f"input[{number_text(lower)}, {number_text(upper)}]{size}"
        case Int(lower, upper, unit):
            kind = _whole_text(lower, upper, unit, size)
        case Bool():
            kind = f"bool{size}"
        case Category(labels):
            kind = f"{{{', '.join(map(_quoted, labels))}}}{size}"
        case Real():
            kind = f"real{size}"
    return f"input {kind}" if first.is_input else kind


def _whole_text(lower: int, upper: int, unit: Unit, size: str) -> str:
    """Whole numbers of a unit, as they are declared."""
    ends = f"[{number_text(lower * unit.size)}, {number_text(upper * unit.size)}]"
    match unit.kind:
        case "int":
            return f"int{ends}{size}"
        case "step":
            return f"real{ends}{size} step {number_text(unit.size)}"
        case "decimal":
            return f"decimal({len(str(unit.size.denominator)) - 1}){ends}{size}"
        case "date" | "datetime" as kind:
            first = moment_text(lower, kind)
            last = moment_text(upper, kind)
            if first is None or last is None:
                return f"{kind}[{lower}, {upper}]{size}"
            return f'{kind}["{first}", "{last}"]{size}'


def _quoted(label: str) -> str:
    return json.dumps(label, ensure_ascii=False)
