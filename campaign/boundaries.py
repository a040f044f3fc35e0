"""Families of sentences at the boundaries of what a layer can keep: they are drawn apart from the other families.

Inputs as large as a format holds, rules about inputs alone, decisions over inputs in decomposed rules, bounds that are
zero or subnormal, sets that are wide and far away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise
from random import Random

from campaign.formulas import any_size, compared, linear, nonzero, reals, small, tree
from campaign.sentences import (
    Declared,
    Node,
    Sentence,
    number,
    product,
    total,
    variable,
)

__all__ = ["BOUNDARIES"]


def _above(random: Random) -> str:
    return random.choice([">", ">="])


def _below(random: Random) -> str:
    return random.choice(["<", "<="])


def wide(random: Random) -> Sentence:
    """Ends that are inputs of any size, and outputs that bound each other between them."""
    names = reals(random, 3)
    top = random.choice([None, Fraction(10) ** random.choice([4, 30, 38, 280, 308])])
    bottom = None if top is None else -top
    u = Declared("u", "input", bottom, top)
    v = Declared("v", "input", bottom, top)
    factor = random.choice([Fraction(1), Fraction(2), Fraction(-1), nonzero(random)])
    upper = product(factor, variable("u")) if factor != 1 else variable("u")
    chain = [
        Node(_below(random), (variable(a), variable(b))) for a, b in pairwise(names)
    ]
    match random.choice(["one", "one", "chain", "mirrored", "two", "sum"]):
        case "one":
            rules = [
                Node(
                    random.choice(["<", "<=", ">", ">="]), (variable(names[0]), upper)
                ),
                *chain,
            ]
        case "chain":
            rules = [*chain, Node(_below(random), (variable(names[-1]), upper))]
        case "mirrored":  # −|u| … |u|
            u = Declared("u", "input", Fraction(1), top or Fraction(10) ** 308)
            ends = product(-1, variable("u")), variable("u")
            rules = [
                *chain,
                Node("<=", (variable(names[-1]), ends[1])),
                Node(">=", (variable(names[0]), ends[0])),
            ]
        case "two":
            rules = [*chain, Node(">=", (variable(names[0]), variable("u")))]
            rules += [Node("<=", (variable(names[-1]), variable("v")))]
            open_ = Node(">=", (variable("u"), variable("v")))  # then nothing is asked
            rules = [Node("or", (open_, Node("and", tuple(rules))))]
        case _:
            rules = [
                Node(
                    _below(random),
                    (
                        linear(random, names),
                        total(upper, product(nonzero(random), variable("v"))),
                    ),
                )
            ]
    used = {name for rule in rules for name in rule.names}
    return Sentence(
        (*map(Declared, names), *(d for d in (u, v) if d.name in used)), tuple(rules)
    )


def alone(random: Random) -> Sentence:
    """Rules about inputs and about nothing else, which some values in their ranges break."""
    low = small(random)
    ends = random.choice(
        [(None, None), (low, low + abs(nonzero(random))), (low, low + 1000)]
    )
    known = [
        Declared("u", "input", *ends),
        Declared("v", "input", Fraction(0), Fraction(10)),
    ]
    about = [
        Node(
            random.choice(["<", "<=", ">", ">="]),
            (variable("u"), number(small(random))),
        )
    ]
    if random.random() < 0.4:
        about.append(
            compared(random, linear(random, ["u", "v"]), number(small(random)), equal=0)
        )
    if random.random() < 0.3:
        about = [
            Node(
                "or",
                (
                    *about,
                    compared(random, variable("v"), number(small(random)), equal=0),
                ),
            )
        ]
    follows = [Node(random.choice(["<", ">="]), (variable("x"), variable("u")))]
    rules = [
        *about,
        *(
            follows
            if random.random() < 0.8
            else [Node(">", (variable("x"), number(small(random))))]
        ),
    ]
    random.shuffle(rules)
    used = {name for rule in rules for name in rule.names}
    return Sentence(
        (Declared("x"), *(d for d in known if d.name in used)), tuple(rules)
    )


def circuits(random: Random) -> Sentence:
    """Counts of truth values with too many plain terms, beside decisions over inputs: compiled to inner blocks."""
    size = random.randint(9, 11)
    flags = [f"p[{i}]" for i in range(size)]
    counted = Node("+", tuple(map(variable, flags)), f"p/{size}")
    known = [Declared("u", "input", Fraction(-4), Fraction(4))]

    def decides() -> Node:
        return Node(
            random.choice(["<", "<=", ">", ">="]),
            (variable("u"), number(small(random))),
        )

    def flag() -> Node:
        return Node("flag", (), random.choice(flags))

    rules = [Node("<=", (counted, number(3 if size > 9 else 4)))]
    gap = random.randint(
        -3, 1
    )  # u is left of it or right of it: two ways to hold, and no output in either
    apart = (
        Node("<", (variable("u"), number(gap))),
        Node(">", (variable("u"), number(gap + 1))),
    )
    rules += [Node("or", (flag(), *(apart if random.random() < 0.5 else [decides()])))]
    outputs = [Declared(name, "bool") for name in flags]
    if random.random() < 0.4:
        outputs.append(Declared("x"))
        rules.append(
            Node(
                "implies",
                (
                    flag(),
                    Node(random.choice(["<", ">="]), (variable("x"), variable("u"))),
                ),
            )
        )
    return Sentence((*outputs, *known), tuple(rules))


def subnormal(random: Random) -> Sentence:
    """Open ends at zero, bounds that are subnormal in some format, and inputs that may be."""
    tiny = Fraction(10) ** -random.choice([5, 7, 39, 40, 44, 310, 320])
    ends = [
        Fraction(0),
        Fraction(0),
        tiny,
        -tiny,
        tiny * Fraction(random.randint(1, 40), 8),
    ]
    known: list[Declared] = []
    match random.choice(["open", "open", "between", "input", "either", "tied"]):
        case "open":
            rules = [
                Node(
                    random.choice([">", "<", ">="]),
                    (variable("x"), number(random.choice(ends))),
                )
            ]
        case "between":
            rules = [Node(_above(random), (variable("x"), number(random.choice(ends))))]
            rules.append(
                Node(
                    "<",
                    (variable("x"), number(random.choice([Fraction(1), 1000 * tiny]))),
                )
            )
        case "input":
            known = [Declared("u", "input", Fraction(0), Fraction(1))]
            sides = random.choice(
                [(">", 1), (">=", 1), ("<", 1), (">", -1), ("<=", -1)]
            )
            rules = [
                Node(
                    sides[0],
                    (
                        variable("x"),
                        product(sides[1], variable("u"))
                        if sides[1] < 0
                        else variable("u"),
                    ),
                )
            ]
        case "either":
            sign = Node(
                "or", tuple(Node(op, (variable("x"), number(0))) for op in ("<", ">"))
            )
            rules = [
                sign,
                Node(_above(random), (variable("y"), number(random.choice(ends)))),
            ]
        case _:
            rules = [
                Node(">", (variable("x"), variable("y"))),
                Node(">", (variable("y"), number(random.choice(ends)))),
            ]
    used = {name for rule in rules for name in rule.names}
    return Sentence(
        (*(Declared(name) for name in "xy" if name in used), *known), tuple(rules)
    )


def cones(random: Random) -> Sentence:
    """Sets without an end, far from the origin: wide wherever the format still has numbers."""
    away = random.choice(
        [abs(any_size(random)), Fraction(2 ** random.randint(8, 40)), Fraction(2000)]
    )
    names = ["x", "y", "z"][: random.randint(2, 3)]
    first = variable(names[0])
    last = variable(names[-1])
    match random.choice(["ordered", "ordered", "sum", "difference", "fan"]):
        case "ordered":
            rules = [Node(_above(random), (first, number(away)))]
            rules += [
                Node(_below(random), (variable(a), variable(b)))
                for a, b in pairwise(names)
            ]
        case "sum":
            names = ["x", "y", "z"]
            rules = [Node("==", (variable("x"), total(variable("y"), variable("z"))))]
            rules.append(
                Node(random.choice([">", ">="]), (variable("x"), number(away)))
            )
        case "difference":
            rules = [
                Node(_above(random), (total(first, product(-1, last)), number(away)))
            ]
        case _:
            steep = abs(nonzero(random)) + 1
            rules = [
                Node(_above(random), (last, number(away))),
                Node(_below(random), (first, product(steep, last))),
            ]
            rules.append(Node(_above(random), (first, product(-steep, last))))
    return Sentence(tuple(map(Declared, names)), tuple(rules), satisfiable=True)


def sides(random: Random) -> Sentence:
    """Intervals and half-lines of some units, in every dtype, as alternatives: where densities can be compared."""
    names = reals(random, 2)

    def part(name: str) -> Node:
        start = Fraction(random.randint(-8, 8), random.choice([1, 2]))
        low = Node(_above(random), (variable(name), number(start)))
        high = Node(
            _below(random), (variable(name), number(start + random.randint(1, 6)))
        )
        return random.choice([low, high, Node("and", (low, high))])

    return Sentence(
        tuple(map(Declared, names)),
        tuple(
            Node("or", (part(name), part(name)))
            if random.random() < 0.6
            else part(name)
            for name in names
        ),
        satisfiable=True,
    )


def deciding(random: Random) -> Sentence:
    """Cases over inputs, some of whose terms are impossible in some rows."""
    names = reals(random, 2)
    known = [Declared("u", "input", Fraction(-4), Fraction(4)), Declared("v", "input")]

    def leaf() -> Node:
        name = random.choice(names)
        bound = random.choice(
            [
                variable("u"),
                number(small(random)),
                total(variable("v"), number(small(random))),
            ]
        )
        return Node(random.choice(["<", "<=", ">", ">="]), (variable(name), bound))

    def guard() -> Node:
        return compared(
            random, variable(random.choice(["u", "v"])), number(small(random)), equal=0
        )

    rules = [
        Node("case", (guard(), leaf(), tree(random, leaf, 1))),
        *(Node("or", (guard(), leaf())) for _ in range(random.randint(0, 2))),
    ]
    used = {name for rule in rules for name in rule.names}
    outputs = [Declared(name) for name in names if name in used]
    return Sentence((*outputs, *(d for d in known if d.name in used)), tuple(rules))


BOUNDARIES: Mapping[str, Callable[[Random], Sentence]] = {
    "wide": wide,
    "alone": alone,
    "circuits": circuits,
    "subnormal": subnormal,
    "cones": cones,
    "sides": sides,
    "deciding": deciding,
}
