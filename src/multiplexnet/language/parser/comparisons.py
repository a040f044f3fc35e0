"""Comparisons, membership and case distinctions between values: the way from numbers and labels to formulas."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Literal

from multiplexnet.language.curves import merged, settled, within
from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    Atom,
    Formula,
    Iff,
    Ite,
    Linear,
    Relation,
    Variable,
    compare,
    conjunction,
    disjunction,
    negation,
)
from multiplexnet.language.parser.moments import Moment, moment_number
from multiplexnet.language.parser.products import cleared
from multiplexnet.language.parser.values import (
    Cases,
    Choice,
    Label,
    Number,
    Refusal,
    Squares,
    Stairs,
    Truth,
    Value,
    Vector,
    described,
    did_you_mean,
    difference,
    is_whole,
    meant,
    squares,
)

__all__ = ["Operator", "choice_between", "comparison", "equivalence", "membership"]

Operator = Literal["<", "<=", ">", ">=", "==", "!="]


def _atom(linear: Linear, relation: Relation) -> Formula:
    linear = cleared(linear, relation)
    if linear.is_constant:
        return TRUE if compare(linear.constant, relation) else FALSE
    return settled(linear, relation)


def _of_squares(sum_of_squares: Squares, relation: Relation) -> Formula:
    """``Σ weight · linear² + rest relation 0``."""
    kept = [square for square in merged(sum_of_squares.squares) if square[1].summands]
    constants = [(w, own) for w, own in sum_of_squares.squares if own.is_constant]
    number = sum((w * own.constant**2 for w, own in constants), Fraction(0))
    rest = sum_of_squares.rest + number
    if not kept:
        return _atom(rest, relation)
    if relation == "==":
        raise Refusal(
            "a sum of squares that equals something is no convex set: write `<=`"
        )
    below = [square for square in kept if square[0] < 0]
    if below and len(below) < len(kept):
        raise Refusal(
            "a difference of squares bounds no convex set: on the smaller side of `<=` write sums of squares alone, "
            "and on the larger side none; `norm(x) <= t` is a cone"
        )
    if not below:
        return within(kept, rest, relation)
    turned = [(-weight, linear) for weight, linear in kept]
    return negation(within(turned, -rest, "<" if relation == "<=" else "<="))


def comparison(operator: Operator, left: Value, right: Value) -> Formula:
    """``left operator right``, of two single values."""
    left, right = _settled(left, right), _settled(right, left)
    match operator:
        case "!=":
            return negation(comparison("==", left, right))
        case ">":
            return _related("<", right, left)
        case ">=":
            return _related("<=", right, left)
        case _:
            return _related(operator, left, right)


def _settled(value: Value, other: Value) -> Value:
    """A quoted text beside another value: a label of a category, else a declared name, else a date beside a date."""
    if isinstance(value, Label) and value.meaning is not None:
        beside = meant(other)
        if not (isinstance(beside, Choice) and value.text in beside.labels):
            return value.meaning
    if isinstance(value, Label) and value.meaning is None:
        kind = _kind_of_moment(meant(other))
        if kind is not None:
            return Number(Linear.number(moment_number(value.text, kind)), kind)
    return value


def _kind_of_moment(value: Value) -> Moment | None:
    """Whether the value is a date or a time; days between two dates are neither."""
    if not isinstance(value, Number) or value.linear.is_constant:
        return None
    if sum(coefficient for _, coefficient in value.linear.summands) != 1:
        return None
    kind = _moment(value)
    if kind == "date":
        return "date"
    return "datetime" if kind == "datetime" else None


def _related(relation: Relation, left: Value, right: Value) -> Formula:
    match left, right:
        case Number(a), Number(b):
            _refuse_mixed_moments(left, right)
            return _atom(difference(a, b), relation)
        case (Squares() | Number(), Squares()) | (Squares(), Number()):
            return _of_squares(squares(left) + squares(right) * Fraction(-1), relation)
        case (Vector(), _) | (_, Vector()):
            raise Refusal(
                f"{_both(left, right)}: compare element by element with `all`"
            )
        case (Cases(cases), Number() | Cases() | Stairs()):
            return disjunction(
                conjunction([p, _related(relation, Number(Linear.number(n)), right)])
                for n, p in cases
            )
        case (Number() | Stairs(), Cases(cases)):
            return disjunction(
                conjunction([p, _related(relation, left, Number(Linear.number(n)))])
                for n, p in cases
            )
        case (Stairs(), Number(whole)):
            return _on_stairs(relation, left, whole, is_left=True)
        case (Number(whole), Stairs()):
            return _on_stairs(relation, right, whole, is_left=False)
        case (Label() | Choice(), _) | (_, Label() | Choice()):
            return _same_label(relation, left, right)
        case Truth(p), Truth(q) if relation == "==":
            return equivalence(p, q)
        case Truth(), Truth():
            raise Refusal(
                "truth values have no order: write `implies(p, q)`, `p == q` or `p != q`"
            )
    raise Refusal(
        f"{_both(left, right)}: a truth value stands alone, as `p` or `not p`"
    )


def _on_stairs(
    relation: Relation, stairs: Stairs, whole: Linear, *, is_left: bool
) -> Formula:
    """``stairs relation whole``, or the other way round."""
    if whole.is_constant and whole.constant.denominator > 1:
        return _beside_fraction(relation, stairs, whole.constant, is_left)
    if not is_whole(whole):
        raise Refusal(
            f"`{stairs.name}` beside a number that need not be whole: declare one, as in `n: int[0, 9]`, "
            f"and write `n == {stairs.name}(…)`"
        )
    if relation == "==":
        return conjunction(
            [_reaches(stairs, whole), negation(_reaches(stairs, whole + 1))]
        )
    if is_left:  # stairs <= whole: the next step is not reached
        return negation(_reaches(stairs, whole + 1 if relation == "<=" else whole))
    return _reaches(stairs, whole if relation == "<=" else whole + 1)


def _beside_fraction(
    relation: Relation, stairs: Stairs, bound: Fraction, is_left: bool
) -> Formula:
    if relation == "==":
        return FALSE
    above = _reaches(stairs, Linear.number(ceil(bound)))
    return negation(above) if is_left else above


def _reaches(stairs: Stairs, whole: Linear) -> Formula:
    """``stairs >= whole``."""
    return _atom(
        difference(stairs.start(whole), stairs.linear), "<" if stairs.strict else "<="
    )


def _refuse_mixed_moments(left: Number, right: Number) -> None:
    """Raises ``Refusal`` where a date is compared with a time: one counts days, the other seconds."""
    kinds = {_moment(left), _moment(right)}
    if kinds == {"date", "datetime"}:
        raise Refusal(
            "a date beside a datetime: one counts days, the other seconds; compare two dates or two datetimes, "
            'as in `d >= date("2024-08-03")` and `t >= datetime("2024-08-03 00:00")`'
        )


def _moment(number: Number) -> str | None:
    """What the expression is made of, if of dates alone or of times alone."""
    if number.moment is not None:
        return number.moment
    kinds = {
        symbol.unit.kind if isinstance(symbol, Variable) else "int"
        for symbol, _ in number.linear.summands
    }
    return kinds.pop() if len(kinds) == 1 else None


LISTED = 12
"""Labels that a message names; others are counted."""


def _listed(labels: Sequence[str]) -> str:
    shown = ", ".join(f'"{label}"' for label in labels[:LISTED])
    left = len(labels) - LISTED
    return f"{shown} and {left:,} more" if left > 0 else shown


def _same_label(relation: Relation, left: Value, right: Value) -> Formula:
    match left, right:
        case (Choice() | Label(), Choice() | Label()) if relation != "==":
            raise Refusal("labels have no order: compare them with `==`, `!=` or `in`")
        case (Choice(variable, labels), Label(text)) | (
            Label(text),
            Choice(variable, labels),
        ):
            if text not in labels:
                raise Refusal(
                    f'`{variable.name}` has no label "{text}"{did_you_mean(text, labels)}: it has {_listed(labels)}'
                )
            return Atom(Linear.of(variable) - labels.index(text), "==")
        case Label(a), Label(b):
            return TRUE if a == b else FALSE
        case Choice(a, labels), Choice(b, others):
            if labels != others:
                raise Refusal(
                    f"`{a.name}` and `{b.name}` have different labels: only equal lists can be compared"
                )
            return _atom(Linear.of(a) - Linear.of(b), "==")
    raise Refusal(
        f"{_both(left, right)}: a category is compared with a label, "
        'after `colour: {"red", "green"}` as in `colour == "red"`'
    )


def _both(left: Value, right: Value) -> str:
    return f"{described(left)} and {described(right)} cannot be compared"


def membership(value: Value, collection: Value) -> Formula:
    """``value in collection``."""
    collection = meant(collection)
    if not isinstance(collection, Vector):
        raise Refusal(
            f"{described(collection)} after `in`: write a set, as in `x in {{1, 2}}`"
        )
    return disjunction(
        [comparison("==", value, element) for element in collection.elements]
    )


def equivalence(p: Formula, q: Formula) -> Formula:
    """``p`` and ``q`` both true or both false; a constant side falls away."""
    for side, other in ((p, q), (q, p)):
        if side == TRUE:
            return other
        if side == FALSE:
            return negation(other)
    return Iff(p, q)


def choice_between(condition: Formula, then: Value, otherwise: Value) -> Value:
    """``then if condition else otherwise`` over two numbers or two truth values."""
    match meant(then), meant(otherwise):
        case Truth(p), Truth(q):
            return Truth(
                disjunction(
                    [conjunction([condition, p]), conjunction([negation(condition), q])]
                )
            )
        case Number(a), Number(b):
            if condition in (TRUE, FALSE):
                return then if condition == TRUE else otherwise
            return Number(Linear.of(Ite(condition, a, b)))
    raise Refusal(
        f"{described(then)} on one side of `if … else` and {described(otherwise)} on the other: "
        "both have to be numbers, or both truth values"
    )
