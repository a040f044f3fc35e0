"""Inputs as people give them: Python's numbers, numpy's, integer tensors, and things that are not numbers at all.

The rules hold for the number that was given, whatever the dtype makes of it. The judge therefore reads a sentence in
which the number itself stands instead of the input: no float comes between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from campaign.sentences import Declared, Node, Sentence, number
from campaign.subject import Finding, Subject
from campaign.verdict import Judge
from multiplexnet.errors import MultiplexError

__all__ = ["given_numbers"]

TIMES = 6
"""How many different ways are tried on one layer."""
ROWS = 9

WHOLE = (0, 1, 3, 257, 2049, 65521, 16777217, -16777217, 2**53 + 1, 10**17 + 1, 10**400)
"""Whole numbers, most of which some format cannot hold."""
BROKEN = (0.1, -0.1, 1 / 3, 0.30000000000000004, 2.0000000001, 1e-9, 1e39, 1e-46)

Form = Callable[[Fraction], Any]
"""How a number is given."""

FLOATS: Mapping[str, Form] = {
    "float": float,
    "numpy.float64": lambda value: np.float64(float(value)),
    "list": lambda value: [float(value)] * ROWS,
    "array of float64": lambda value: np.full(ROWS, float(value)),
    "tensor of float64": lambda value: torch.full(
        (ROWS,), float(value), dtype=torch.float64
    ),
}
WHOLES: Mapping[str, Form] = {
    "int": int,
    "numpy.int64": lambda value: np.int64(int(value)),
    "list of int": lambda value: [int(value)] * ROWS,
    "array of int64": lambda value: np.full(ROWS, int(value), dtype=np.int64),
    "tensor of int64": lambda value: torch.full((ROWS,), int(value), dtype=torch.int64),
    "tensor without shape": lambda value: torch.tensor(int(value), dtype=torch.int64),
}
ANY: Mapping[str, Form] = {
    "Fraction": Fraction,
    "Decimal": lambda value: Decimal(float(value)),
}

NO_NUMBERS: tuple[Any, ...] = (
    None,
    "3",
    1j,
    [],
    {},
    torch.tensor(1j),
    np.array("3"),
    float("nan"),
    float("inf"),
)
"""They have to be refused."""


@dataclass(frozen=True)
class Offer:
    """A number, and the way in which it is given."""

    value: Fraction
    form: str
    thing: Any


def given_numbers(subject: Subject) -> Iterator[Finding]:
    """``forward``, ``repair`` and ``satisfied`` with inputs in every form."""
    if not subject.sentence.inputs or subject.sentence.calls:
        return
    for _ in range(TIMES):
        yield from _tried(
            subject, {d.name: _offer(subject, d) for d in subject.sentence.inputs}
        )
    yield from _refused(subject)


def _offer(subject: Subject, declared: Declared) -> Offer:
    random = subject.random
    whole = random.random() < 0.5
    values = [Fraction(value) for value in (WHOLE if whole else BROKEN)]
    if declared.lower is not None and declared.upper is not None:
        low = declared.lower
        high = declared.upper
        drawn = low + (high - low) * Fraction(random.random())
        near = [drawn, drawn, low, high]
        more = (
            [Fraction(round(value)) for value in near]
            if whole
            else [Fraction(float(value)) for value in near]
        )
        inside = [value for value in values if low <= value <= high]
        values = more + 2 * inside + [values[random.randrange(len(values))]]
    value = random.choice(values)
    name, form = random.choice(
        [pair for forms in _forms(value) for pair in forms.items()]
    )
    return Offer(value, name, form(value))


def _forms(value: Fraction) -> Iterator[Mapping[str, Form]]:
    """The forms that hold the number as it is."""
    if value.denominator == 1:
        yield WHOLES if abs(value) < 2**63 else {"int": int}
    if abs(value) < 2**1000 and Fraction(float(value)) == value:
        yield {**FLOATS, **ANY}


def _tried(subject: Subject, offers: Mapping[str, Offer]) -> Iterator[Finding]:
    """Whatever is answered obeys with respect to the numbers themselves."""
    things = {name: offer.thing for name, offer in offers.items()}
    judge = Judge(_with_numbers(subject.sentence, offers))
    told = ", ".join(
        f"{name} = {offer.value} as {offer.form}" for name, offer in offers.items()
    )
    outside = not all(_inside(d, offers[d.name].value) for d in subject.sentence.inputs)
    x0 = subject.outputs(ROWS)
    asked: dict[str, Callable[[], Tensor]] = {
        "forward": lambda: subject.mux(subject.raw(ROWS), **things).best(),
        "repair": lambda: subject.mux.repair(x0, **things),
    }
    for name, ask in asked.items():
        check = f"inputs as they are given: {name}"
        try:
            x = ask()
        except MultiplexError:
            yield Finding(check)
            continue
        except Exception as error:
            yield Finding(check, f"{told}: {type(error).__name__}")
            continue
        if outside:
            yield Finding(check, f"{told}: outside its range, and taken")
            continue
        bad = np.flatnonzero(~judge(x.detach().double().numpy()))
        wrong = (
            f"{told}: {x[int(bad[0])].tolist()} breaks the rules" if len(bad) else ""
        )
        yield Finding(check, wrong, rows=len(x))
    if not outside:
        yield Finding(
            "inputs as they are given: satisfied",
            _verdicts(subject, judge, x0, things, told),
        )


def _verdicts(
    subject: Subject, judge: Judge, x0: Tensor, things: Mapping[str, Any], told: str
) -> str:
    """Where ``Rules.satisfied`` says something else than the judge."""
    try:
        found = subject.mux.rules.satisfied(x0, **things)
    except MultiplexError:
        return ""
    except Exception as error:
        return f"{told}: {type(error).__name__}"
    expected = judge(x0.double().numpy())
    different = np.flatnonzero(np.asarray(found) != expected)
    return (
        f"{told}: satisfied is wrong on {x0[int(different[0])].tolist()}"
        if len(different)
        else ""
    )


def _refused(subject: Subject) -> Iterator[Finding]:
    """What is not a number ends in an exception of the library's own, in all three places."""
    thing = subject.random.choice(NO_NUMBERS)
    things = {d.name: thing for d in subject.sentence.inputs}
    x0 = subject.outputs(ROWS)
    raw = subject.raw(ROWS)
    mux = subject.mux
    asked: dict[str, Callable[[], object]] = {
        "forward": lambda: mux(raw, **things).best(),
        "repair": lambda: mux.repair(x0, **things),
        "satisfied": lambda: mux.rules.satisfied(x0, **things),
    }
    for name, ask in asked.items():
        if name == "satisfied" and isinstance(thing, float):
            continue  # no row obeys: an answer as well
        try:
            ask()
            wrong = f"{name} takes {thing!r}"
        except MultiplexError:
            wrong = ""
        except Exception as error:
            wrong = f"{name} with {thing!r} ends in {type(error).__name__}"
        yield Finding("inputs that are not numbers", wrong)


def _with_numbers(sentence: Sentence, offers: Mapping[str, Offer]) -> Sentence:
    """The sentence over its outputs alone, numbers for its inputs."""

    def instead(node: Node) -> Node | None:
        return (
            number(offers[str(node.value)].value)
            if node.op == "variable" and node.value in offers
            else None
        )

    rules = tuple(rule.replaced(instead) for rule in sentence.rules)
    return replace(sentence.plain(), declared=sentence.outputs, rules=rules)


def _inside(declared: Declared, value: Fraction) -> bool:
    above = declared.lower is None or declared.lower <= value
    return above and (declared.upper is None or value <= declared.upper)
