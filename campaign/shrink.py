"""From a failure to a small one: fewer rules, smaller formulas, rounder numbers, as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from campaign.sentences import Node, Sentence, number

__all__ = ["MOST_ATTEMPTS", "shrunk"]

MOST_ATTEMPTS = 150


def shrunk(
    sentence: Sentence,
    fails: Callable[[Sentence], bool],
    *,
    attempts: int = MOST_ATTEMPTS,
) -> Sentence:
    """A sentence that fails as well and from which nothing can be taken away, or the best that was found.

    What was known of the sentence holds no longer and is dropped; if the failure goes with it, the sentence is kept.

    Example:
        >>> from campaign.sentences import Declared, variable
        >>> low, high = (Node(op, (variable("x"), number(Fraction(n, 7)))) for op, n in ((">", 1), ("<", 9)))
        >>> both = Sentence((Declared("x"), Declared("y")), (low, Node("or", (high, high))))
        >>> print(shrunk(both, lambda s: "<" in str(s)))
        x: real
        (x < 1)
    """
    best = sentence.plain()
    if not fails(best):
        return sentence
    found = True
    while found and attempts > 0:
        found = False
        for candidate in _smaller(best):
            attempts -= 1
            if attempts < 0:
                break
            if fails(candidate):
                best = candidate
                found = True
                break
    return best


def _smaller(sentence: Sentence) -> Iterator[Sentence]:
    """Sentences with one thing less, the boldest first."""
    rules = sentence.rules
    for i in range(len(rules) if len(rules) > 1 else 0):
        yield replace(sentence, rules=rules[:i] + rules[i + 1 :])
    used = {name for rule in rules for name in rule.names}
    for declared in sentence.declared:
        if (
            declared.name not in used
            and not declared.vector
            and len(sentence.outputs) > (declared in sentence.outputs)
        ):
            yield replace(
                sentence,
                declared=tuple(d for d in sentence.declared if d is not declared),
            )
    for i, rule in enumerate(rules):
        for other in _simpler(rule):
            yield replace(sentence, rules=(*rules[:i], other, *rules[i + 1 :]))


TRUTHS = ("and", "or", "not", "implies", "iff", "xor")


def _simpler(node: Node) -> Iterator[Node]:
    """The node with a part instead of it, a part less, or a simpler part or number."""
    if node.op in (*TRUTHS, "+", "max", "min", "abs"):
        yield from node.parts
    if node.op == "case":
        yield from node.parts[1:]
    if node.op in ("and", "or", "+", "max", "min") and len(node.parts) > 2:
        for i in range(len(node.parts)):
            yield replace(node, parts=node.parts[:i] + node.parts[i + 1 :])
    if node.op == "*":
        yield node.parts[0]
        yield from (replace(node, value=value) for value in _rounder(node.value))
    if node.op == "number":
        yield from map(number, _rounder(node.value))
    for i, part in enumerate(node.parts):
        for other in _simpler(part):
            yield replace(node, parts=(*node.parts[:i], other, *node.parts[i + 1 :]))


def _rounder(value: Fraction | str | None) -> Iterator[Fraction]:
    """Fractions with fewer digits."""
    assert isinstance(value, Fraction)
    for other in (Fraction(round(value)), value.limit_denominator(10)):
        if other and other != value:
            yield other
