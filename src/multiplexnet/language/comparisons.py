"""Comparisons, membership and case distinctions between values: the way from numbers and labels to formulas."""

from __future__ import annotations

from typing import Literal

from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    Atom,
    Formula,
    Iff,
    Ite,
    Linear,
    Relation,
    compare,
    conjunction,
    disjunction,
    negation,
)
from multiplexnet.language.products import cleared
from multiplexnet.language.values import (
    Choice,
    Label,
    Number,
    Refusal,
    Truth,
    Value,
    Vector,
    described,
    did_you_mean,
    difference,
)

__all__ = ["Operator", "choice_between", "comparison", "equivalence", "membership"]

Operator = Literal["<", "<=", ">", ">=", "==", "!="]


def _atom(linear: Linear, relation: Relation) -> Formula:
    linear = cleared(linear, relation)
    if linear.is_constant:
        return TRUE if compare(linear.constant, relation) else FALSE
    return Atom(linear, relation)


def comparison(operator: Operator, left: Value, right: Value) -> Formula:
    """``left operator right``."""
    match operator:
        case "!=":
            return negation(comparison("==", left, right))
        case ">":
            return _related("<", right, left)
        case ">=":
            return _related("<=", right, left)
        case _:
            return _related(operator, left, right)


def _related(relation: Relation, left: Value, right: Value) -> Formula:
    match left, right:
        case Number(a), Number(b):
            return _atom(difference(a, b), relation)
        case (Vector(), _) | (_, Vector()):
            raise Refusal(f"{_both(left, right)}: compare element by element with `all`")
        case (Label() | Choice(), _) | (_, Label() | Choice()):
            return _same_label(relation, left, right)
        case Truth(p), Truth(q) if relation == "==":
            return equivalence(p, q)
        case Truth(), Truth():
            raise Refusal("truth values have no order: write `implies(p, q)`, `p == q` or `p != q`")
    raise Refusal(f"{_both(left, right)}: a truth value stands alone, as `p` or `not p`")


def _same_label(relation: Relation, left: Value, right: Value) -> Formula:
    match left, right:
        case (Choice() | Label(), Choice() | Label()) if relation != "==":
            raise Refusal("labels have no order: compare them with `==`, `!=` or `in`")
        case (Choice(variable, labels), Label(text)) | (Label(text), Choice(variable, labels)):
            if text not in labels:
                listed = ", ".join(f'"{label}"' for label in labels)
                raise Refusal(
                    f'`{variable.name}` has no label "{text}"{did_you_mean(text, labels)}: it has {listed}'
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
    if not isinstance(collection, Vector):
        raise Refusal(f"{described(collection)} after `in`: write a set, as in `x in {{1, 2}}`")
    return disjunction([comparison("==", value, element) for element in collection.elements])


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
    match then, otherwise:
        case Truth(p), Truth(q):
            return Truth(
                disjunction([conjunction([condition, p]), conjunction([negation(condition), q])])
            )
        case Number(a), Number(b):
            if condition in (TRUE, FALSE):
                return then if condition == TRUE else otherwise
            return Number(Linear.of(Ite(condition, a, b)))
    raise Refusal(
        f"{described(then)} on one side of `if … else` and {described(otherwise)} on the other: "
        "both have to be numbers, or both truth values"
    )
