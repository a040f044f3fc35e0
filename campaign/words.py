"""Sentences in the words that came later: names that only quotes can hold, whole numbers as dates and as steps.

They mean what the same sentence means in plain words, so that the judge needs to know nothing new.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from campaign.sentences import Declared, Node, Sentence

__all__ = ["in_other_words"]

NAMES = (
    "Loan Amount",
    "class",
    "größe [€]",
    "a.b",
    "sum",
    "x-y",
    "`tick`",
    "odd[7]",
    " edge ",
    "Ünï",
    "1st",
    "date",
)


def in_other_words(sentence: Sentence, random: Random) -> Sentence:
    """The sentence with odd names, and some of its whole numbers declared as dates or steps."""
    plain = [d for d in sentence.declared if d.vector is None]
    chosen = random.sample(NAMES, min(len(plain), len(NAMES)))
    names = {d.name: name for d, name in zip(plain, chosen, strict=False)}

    def renamed(node: Node) -> Node | None:
        if node.op in ("variable", "flag", "is", "missing") and node.value in names:
            return replace(node, value=names[str(node.value)])
        return None

    declared = tuple(
        _respelled(d, names.get(d.name, d.name), random) for d in sentence.declared
    )
    rules = tuple(rule.replaced(renamed) for rule in sentence.rules)
    return replace(sentence, declared=declared, rules=rules, twin=None)


def _respelled(declared: Declared, name: str, random: Random) -> Declared:
    if declared.kind != "int":
        return replace(declared, name=name)
    return replace(declared, name=name, word=random.choice(["", "date", "step"]))
