"""Random sentences of many families. ``sentence(seed, index)`` depends on its two numbers and on nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

from campaign.sentences import (
    COMPARISONS,
    Declared,
    Node,
    Sentence,
    call,
    number,
    product,
    total,
    variable,
)

__all__ = ["FAMILIES", "LATER", "drawn"]

Point = Mapping[str, Fraction]


def drawn(family: str, random: Random) -> Sentence:
    """A sentence of the family."""
    return replace({**FAMILIES, **LATER}[family](random), kind=family)


# --- numbers and sums -----------------------------------------------------------------------------------------------


def small(random: Random) -> Fraction:
    """Mostly whole numbers, some that no float holds."""
    return Fraction(random.randint(-5, 5), random.choice([1, 1, 1, 2, 3, 7, 8, 10, 10]))


def nonzero(random: Random) -> Fraction:
    return small(random) or Fraction(random.choice([-2, -1, 1, 2]))


def any_size(random: Random) -> Fraction:
    """A number of any size, from 10⁻¹² to 10¹²."""
    return nonzero(random) * Fraction(10) ** random.randint(-12, 12)


def dyadic(random: Random) -> Fraction:
    """A number that every float format holds."""
    return Fraction(random.randint(-24, 24), random.choice([1, 1, 2, 4, 8]))


Numbers = Callable[[Random], Fraction]


def linear(
    random: Random, names: Sequence[str], *, numbers: Numbers = nonzero, most: int = 3
) -> Node:
    """Multiples of some of the variables, added up."""
    chosen = random.sample(list(names), random.randint(1, min(most, len(names))))
    return total(*(_multiple(numbers(random), name) for name in chosen))


def _multiple(factor: Fraction, name: str) -> Node:
    return variable(name) if factor == 1 else product(factor, variable(name))


def compared(random: Random, left: Node, right: Node, *, equal: float = 0.1) -> Node:
    """A comparison, strict or not; with probability ``equal`` an equality, and half as often a disequality."""
    chance = random.random()
    op = (
        "=="
        if chance < equal
        else "!="
        if chance < 1.5 * equal
        else random.choice(COMPARISONS[:4])
    )
    return Node(op, (left, right))


def value_at(node: Node, point: Point) -> Fraction:
    """The value of sums and multiples at a point."""
    if node.op == "variable":
        return point[str(node.value)]
    if node.op == "+":
        return sum((value_at(part, point) for part in node.parts), Fraction(0))
    assert isinstance(node.value, Fraction)
    return node.value * value_at(node.parts[0], point) if node.op == "*" else node.value


def true_at(random: Random, node: Node, point: Point, slack: Fraction) -> Node:
    """An inequality over ``node`` that holds at the point with this much to spare."""
    if random.random() < 0.5:
        return Node(
            random.choice(["<=", "<"]), (node, number(value_at(node, point) + slack))
        )
    return Node(
        random.choice([">=", ">"]), (node, number(value_at(node, point) - slack))
    )


def reals(random: Random, most: int = 3) -> list[str]:
    return ["x", "y", "z", "w"][: random.randint(1, most)]


def over(
    names: Sequence[str], rules: Sequence[Node], *, satisfiable: bool | None = None
) -> Sentence:
    """A sentence over real outputs."""
    return Sentence(tuple(map(Declared, names)), tuple(rules), satisfiable=satisfiable)


# --- Boolean combinations -------------------------------------------------------------------------------------------


def tree(random: Random, leaf: Callable[[], Node], depth: int) -> Node:
    """A Boolean combination of leaves with every connective."""
    if depth == 0 or random.random() < 0.2:
        return leaf()
    op = random.choice(
        ["and", "and", "or", "or", "or", "not", "implies", "iff", "xor", "case"]
    )
    count = {
        "and": random.randint(2, 3),
        "or": random.randint(2, 3),
        "not": 1,
        "case": 3,
    }.get(op, 2)
    return Node(op, tuple(tree(random, leaf, depth - 1) for _ in range(count)))


def nested(random: Random) -> Sentence:
    names = reals(random)
    rules = [
        tree(
            random,
            lambda: compared(random, linear(random, names), number(small(random))),
            2,
        )
        for _ in range(random.randint(1, 2))
    ]
    return over(names, rules)


def arithmetic(random: Random) -> Sentence:
    """``abs``, ``max``, ``min`` and ``a if p else b`` inside comparisons."""
    names = reals(random)

    def part() -> Node:
        return linear(random, names, most=2)

    def compound() -> Node:
        op = random.choice(["abs", "max", "min", "case"])
        if op == "case":
            return Node(
                "case",
                (compared(random, part(), number(small(random))), part(), part()),
            )
        return Node(
            op, tuple(part() for _ in range(1 if op == "abs" else random.randint(2, 3)))
        )

    rules = [
        Node(
            random.choice(["<=", "<", ">="]),
            (compound(), total(part(), number(small(random)))),
        ),
        *(
            compared(random, part(), number(small(random)))
            for _ in range(random.randint(0, 2))
        ),
    ]
    return over(names, rules)


def disequalities(random: Random) -> Sentence:
    names = reals(random)
    rules = [
        Node("!=", (linear(random, names, most=2), number(small(random))))
        for _ in range(random.randint(1, 2))
    ]
    if random.random() < 0.5:
        rules += (
            [Node("!=", (variable(names[0]), variable(names[-1])))]
            if len(names) > 1
            else []
        )
    rules += [
        Node(
            "<=",
            (
                number(-7),
                Node("min", tuple(map(variable, names)))
                if len(names) > 1
                else variable(names[0]),
            ),
        )
    ]
    return over(names, rules, satisfiable=True)


# --- convex sets ----------------------------------------------------------------------------------------------------


def boxes(random: Random) -> Sentence:
    """Intervals and half-lines with ends of any kind, one by one or as alternatives."""
    names = reals(random, 4)

    def side() -> list[Node]:
        found = []
        for name in names:
            start = random.choice([small, small, any_size, dyadic])(random)
            width = abs(random.choice([nonzero, any_size])(random))
            kind = random.choice(["interval", "interval", "above", "below", "free"])
            if kind in ("interval", "above"):
                found.append(
                    Node(random.choice([">", ">="]), (variable(name), number(start)))
                )
            if kind in ("interval", "below"):
                found.append(
                    Node(
                        random.choice(["<", "<="]),
                        (variable(name), number(start + width)),
                    )
                )
        return found

    if random.random() < 0.6:
        return over(names, side(), satisfiable=True)
    return over(
        names,
        [Node("or", tuple(Node("and", tuple(side())) for _ in range(2)))],
        satisfiable=True,
    )


def _rows(
    random: Random,
    names: Sequence[str],
    centre: Point,
    slack: Numbers,
    numbers: Numbers,
) -> list[Node]:
    count = random.randint(len(names), len(names) + 3)
    return [
        true_at(
            random,
            linear(random, names, numbers=numbers),
            centre,
            abs(slack(random)) or Fraction(1),
        )
        for _ in range(count)
    ]


def polytopes(random: Random) -> Sentence:
    names = reals(random, 4)
    centre = {name: small(random) for name in names}
    return over(names, _rows(random, names, centre, nonzero, nonzero), satisfiable=True)


def unions(random: Random) -> Sentence:
    """Two or three polytopes apart from each other or not."""
    names = reals(random)

    def one() -> Node:
        centre = {name: 3 * small(random) for name in names}
        return Node("and", tuple(_rows(random, names, centre, nonzero, nonzero)))

    return over(
        names,
        [Node("or", tuple(one() for _ in range(random.randint(2, 3))))],
        satisfiable=True,
    )


def thin(random: Random) -> Sentence:
    """Slacks down to 10⁻¹⁸ of the numbers in them."""
    names = reals(random)
    centre = {name: small(random) for name in names}
    size = Fraction(1, 10 ** random.randint(2, 18))
    rows = _rows(random, names, centre, lambda r: size * abs(nonzero(r)), nonzero)
    return over(names, rows, satisfiable=True)


def far(random: Random) -> Sentence:
    """Sets of ordinary size, far from the origin."""
    names = reals(random)
    away = Fraction(10) ** random.randint(2, 12)
    centre = {name: away * nonzero(random) for name in names}
    return over(names, _rows(random, names, centre, nonzero, nonzero), satisfiable=True)


def scales(random: Random) -> Sentence:
    """Huge and tiny coefficients side by side."""
    names = reals(random)
    power = random.choice([3, 6, 9])

    def numbers(random: Random) -> Fraction:
        return nonzero(random) * Fraction(10) ** random.randint(-power, power)

    centre = {name: small(random) for name in names}
    return over(names, _rows(random, names, centre, numbers, numbers), satisfiable=True)


def ends(random: Random) -> Sentence:
    """Bounds near the largest and the smallest numbers of the formats."""
    largest = random.choice([Fraction(65504), Fraction(2) ** 127, Fraction(2) ** 1000])
    tiny = random.choice(
        [
            Fraction(1, 2**24),
            Fraction(1, 2**126),
            Fraction(1, 2**149),
            Fraction(1, 2**133),
        ]
    )
    bound = random.choice([largest, tiny]) * Fraction(random.randint(1, 16), 8)
    if random.random() < 0.6:
        centre = {"x": Fraction(0), "y": Fraction(0)}
        node = total(
            *(_multiple(Fraction(random.choice([-1, 1])), name) for name in centre)
        )
        rows = [
            true_at(random, node, centre, bound) for _ in range(random.randint(1, 2))
        ]
        return over(list(centre), rows, satisfiable=True)
    rules = [
        Node(
            random.choice([">", ">="]),
            (variable("x"), number(random.choice([-1, 1]) * bound)),
        )
    ]
    return over(reals(random, 2), rules, satisfiable=True)


# --- equalities -----------------------------------------------------------------------------------------------------


def equalities(random: Random) -> Sentence:
    """Sums that have to come out, mostly at numbers that floats hold, among inequalities."""
    names = reals(random, 4)
    centre = {name: dyadic(random) for name in names}
    numbers: Numbers = random.choice(
        [lambda r: Fraction(r.choice([-1, 1, 1, 2, 3])), nonzero]
    )
    node = linear(random, names, numbers=numbers, most=4)
    rules = [Node("==", (node, number(value_at(node, centre))))]
    if len(names) > 2 and random.random() < 0.3:
        second = linear(random, names, numbers=numbers, most=2)
        rules.append(Node("==", (second, number(value_at(second, centre)))))
    rules += [
        true_at(random, linear(random, names, most=2), centre, abs(nonzero(random)))
        for _ in range(random.randint(0, 3))
    ]
    return over(names, rules, satisfiable=True)


def simplexes(random: Random) -> Sentence:
    names = reals(random, 4) if random.random() < 0.5 else ["x", "y", "z"]
    whole = random.choice([1, 1, 2, 100])
    rules = [Node("==", (total(*map(variable, names)), number(whole)))]
    rules += [
        Node(random.choice([">=", ">"]), (variable(name), number(0))) for name in names
    ]
    if random.random() < 0.4:
        cap = Fraction(whole * random.randint(5, 9), 10)
        alternatives = [Node("<=", (variable(name), number(cap))) for name in names]
        rules.append(Node(random.choice(["and", "or"]), tuple(alternatives)))
    return over(names, rules)


def degenerate(random: Random) -> Sentence:
    """Inequalities that leave a flat set: a segment, a face, a vertex."""
    names = reals(random)
    centre = {name: dyadic(random) for name in names}
    node = linear(random, names, numbers=lambda r: Fraction(r.choice([-2, -1, 1, 1])))
    value = number(value_at(node, centre))
    rules = [Node("<=", (node, value)), Node(">=", (node, value))]
    if random.random() < 0.4:
        shifted = [total(variable(name), number(-centre[name])) for name in names]
        rules = [Node(">=", (part, number(0))) for part in shifted] + [
            Node("<=", (total(*shifted), number(0)))
        ]
    rules += [
        true_at(random, linear(random, names, most=2), centre, abs(nonzero(random)))
    ]
    return over(names, rules, satisfiable=True)


def points(random: Random) -> Sentence:
    """Rules that one point alone obeys, said in different ways."""
    names = reals(random)
    centre = {name: dyadic(random) for name in names}
    rules: list[Node] = []
    point = tuple(centre[name] for name in names)
    if random.random() < 0.3:  # a corner, cut off at its vertex
        parts = [
            product(random.randint(1, 3), total(variable(name), number(-centre[name])))
            for name in names
        ]
        rules = [
            *(Node(">=", (part, number(0))) for part in parts),
            Node("<=", (total(*parts), number(0))),
        ]
        return replace(over(names, rules, satisfiable=True), point=point)
    for i, name in enumerate(names):
        left = variable(name)
        right = number(centre[name])
        match random.choice(["equal", "squeezed", "through", "abs"]):
            case "equal":
                rules.append(Node("==", (left, right)))
            case "squeezed":
                rules += [
                    Node("<=", (left, right)),
                    Node(">=", (product(3, left), product(3, right))),
                ]
            case "abs":
                rules.append(
                    Node(
                        "<=",
                        (Node("abs", (total(left, product(-1, right)),)), number(0)),
                    )
                )
            case _:
                mixed = total(
                    left,
                    *(
                        product(random.randint(1, 3), variable(other))
                        for other in names[:i]
                    ),
                )
                rules.append(Node("==", (mixed, number(value_at(mixed, centre)))))
    return replace(over(names, rules, satisfiable=True), point=point)


# --- nothing obeys --------------------------------------------------------------------------------------------------


def empty(random: Random) -> Sentence:
    names = reals(random)
    match random.choice(["farkas", "denied", "circle", "gap", "parity", "domain"]):
        case "farkas":
            rows = [linear(random, names) for _ in range(2)]
            weights = [abs(nonzero(random)), abs(nonzero(random))]
            bounds = [small(random), small(random)]
            combined = total(
                *(product(w, row) for w, row in zip(weights, rows, strict=True))
            )
            least = sum(
                (w * b for w, b in zip(weights, bounds, strict=True)), Fraction(0)
            )
            rules = [
                Node("<=", (row, number(b)))
                for row, b in zip(rows, bounds, strict=True)
            ]
            gap = random.choice([Fraction(0), Fraction(1, 10**9), Fraction(1)])
            rules.append(
                Node(">" if not gap else ">=", (combined, number(least + gap)))
            )
        case "denied":
            claim = nested(random)
            return replace(
                claim,
                rules=(*claim.rules, Node("not", (Node("and", claim.rules),))),
                satisfiable=False,
            )
        case "circle":
            names = ["x", "y", "z"]
            turns = zip(names, [*names[1:], names[0]], strict=True)
            rules = [Node("<", (variable(a), variable(b))) for a, b in turns]
        case "gap":
            bound = random.choice([small, any_size])(random)
            rules = [
                Node("<", (variable("x"), number(bound))),
                Node(">", (product(2, variable("x")), number(2 * bound))),
            ]
        case "parity":
            declared = (
                Declared("n", "int", Fraction(-9), Fraction(9)),
                Declared("m", "int", Fraction(-9), Fraction(9)),
            )
            odd = Node(
                "==",
                (
                    product(2, variable("n")),
                    total(product(2, variable("m")), number(1)),
                ),
            )
            return Sentence(declared, (odd,), satisfiable=False)
        case _:
            declared = (Declared("x"), Declared("n", "int", Fraction(0), Fraction(3)))
            beyond = Node(
                ">=", (total(variable("n"), product(-1, variable("x"))), number(4))
            )
            return Sentence(
                declared,
                (beyond, Node(">=", (variable("x"), number(0)))),
                satisfiable=False,
            )
    random.shuffle(rules)
    return over(names, rules, satisfiable=False)


# --- discrete outputs and inputs ------------------------------------------------------------------------------------


def discrete(random: Random) -> Sentence:
    """Whole numbers, truth values and labels, by themselves or with real outputs that depend on them."""
    whole = Declared(
        "n", "int", Fraction(random.randint(-3, 0)), Fraction(random.randint(1, 3))
    )
    on = Declared("on", "bool")
    colour = Declared("colour", "category", labels=("red", "green", "blue"))
    declared = random.sample([whole, on, colour], random.randint(1, 2))
    names = reals(random, 2) if random.random() < 0.7 else []

    def about(d: Declared) -> Node:
        if d.kind == "bool":
            return Node("flag", (), d.name)
        if d.kind == "category":
            return Node("is", (Node("label", (), random.choice(d.labels)),), d.name)
        if random.random() < 0.3:
            return Node(
                "in",
                (variable(d.name), *(number(random.randint(-3, 3)) for _ in range(2))),
            )
        return compared(
            random, variable(d.name), number(random.randint(-3, 3)), equal=0.3
        )

    def leaf() -> Node:
        if not names or random.random() < 0.5:
            return about(random.choice(declared))
        counted = [
            variable(d.name)
            for d in declared
            if d.kind != "category" and random.random() < 0.5
        ]
        return compared(
            random, total(linear(random, names), *counted), number(small(random))
        )

    rules = [Node("implies", (about(random.choice(declared)), leaf()))]
    rules += [tree(random, leaf, 1) for _ in range(random.randint(0, 2))]
    together = [*declared, *map(Declared, names)]
    random.shuffle(together)
    return Sentence(tuple(together), tuple(rules))


def inputs(random: Random) -> Sentence:
    """Bounds that are known at run time only."""
    names = reals(random, 2)
    low = small(random)
    ranges = [
        Declared("u", "input", low, low + abs(nonzero(random))),
        Declared("v", "input", Fraction(0), Fraction(10) ** random.randint(0, 5)),
        Declared("t", "input"),
    ]
    known = random.sample(ranges, random.randint(1, 2))

    def bound() -> Node:
        own = [
            product(nonzero(random), variable(d.name))
            for d in known
            if random.random() < 0.8
        ]
        return total(*own, number(small(random)))

    match random.choice(["sided", "between", "tied", "cases", "cancelled"]):
        case "sided":
            rules = [
                Node(random.choice(["<", "<=", ">", ">="]), (variable(name), bound()))
                for name in names
            ]
        case "between":
            lower = bound()
            upper = total(lower, number(abs(nonzero(random))))
            node = linear(random, names)
            rules = [
                Node(random.choice(["<", "<="]), (lower, node)),
                Node("<", (node, upper)),
            ]
        case "tied":
            rules = [
                Node(random.choice(["<", "<=", ">="]), (linear(random, names), bound()))
                for _ in range(2)
            ]
        case (
            "cancelled"
        ):  # u/3 − v/7 is 0 at the ends of both ranges, and some 10⁻¹² in floats
            size = Fraction(10) ** random.randint(0, 3)
            known = [
                Declared("u", "input", Fraction(0), 3 * size),
                Declared("v", "input", Fraction(0), 7 * size),
            ]
            difference = [
                product(Fraction(1, 3), variable("u")),
                product(Fraction(-1, 7), variable("v")),
            ]
            rules = [
                Node(
                    random.choice(["<", "<=", ">", ">="]),
                    (linear(random, names, most=1), total(*difference)),
                )
            ]
            if random.random() < 0.5:
                above = total(*difference, number(abs(nonzero(random))))
                rules = [
                    Node("<", (total(*difference), variable("x"))),
                    Node("<=", (variable("x"), above)),
                ]
        case _:
            decides = compared(
                random, variable(known[0].name), number(small(random)), equal=0
            )
            first = Node(random.choice(["<", ">="]), (variable(names[0]), bound()))
            second = Node(random.choice(["<=", ">"]), (variable(names[-1]), bound()))
            rules = [
                random.choice(
                    [
                        Node("case", (decides, first, second)),
                        Node("implies", (decides, first)),
                    ]
                )
            ]
    return Sentence((*map(Declared, names), *known), tuple(rules))


def vectors(random: Random) -> Sentence:
    """Rows, sums and cases over the elements of a vector, one by one and all together."""
    names = [f"v[{i}]" for i in range(random.randint(2, 4))]
    whole = Node("+", tuple(map(variable, names)), f"v/{len(names)}")
    centre = {name: dyadic(random) for name in names}
    rules = [
        true_at(
            random,
            random.choice([whole, linear(random, names)]),
            centre,
            abs(nonzero(random)),
        )
        for _ in range(random.randint(1, 3))
    ]
    if random.random() < 0.4:
        rules.append(Node("==", (whole, number(value_at(whole, centre)))))
    if random.random() < 0.4:
        rules.append(
            Node(
                "or",
                tuple(
                    Node(">=", (variable(name), number(small(random))))
                    for name in names
                ),
            )
        )
    together = [*map(Declared, names)]
    together.insert(random.choice([0, len(names)]), Declared("x"))
    return Sentence(tuple(together), tuple(rules))


def functions(random: Random) -> Sentence:
    """Outputs that follow what a function makes of others, or of an input."""
    known = (
        [Declared("u", "input", Fraction(-3), Fraction(5))]
        if random.random() < 0.4
        else []
    )
    first = random.choice(["x", *(d.name for d in known)])

    def value(*names: str) -> Node:
        called = (
            call("mean", *names)
            if len(names) > 1
            else call(random.choice(["ramp", "bent", "steps"]), *names)
        )
        return total(product(nonzero(random), called), number(small(random)))

    def bound(name: str, *names: str) -> Node:
        return Node(
            random.choice(["<", "<=", ">", ">="]), (variable(name), value(*names))
        )

    match random.choice(["sided", "between", "chain", "two", "tied", "cases"]):
        case "sided":
            rules = [bound("y", first)]
        case "between":
            lower = value(first)
            upper = total(
                lower, number(5 + abs(nonzero(random)))
            )  # room for bfloat16 too
            rules = [
                Node("<", (lower, variable("y"))),
                Node(random.choice(["<", "<="]), (variable("y"), upper)),
            ]
        case "chain":
            rules = [bound("y", first), bound("z", "y")]
        case "two":
            rules = [bound("z", first, "y")]
        case "tied":
            rules = [
                Node(
                    random.choice(["<", ">="]),
                    (linear(random, ["y", "z"]), value(first)),
                )
                for _ in range(2)
            ]
            rules += [
                Node("<=", (Node("abs", (variable(name),)), number(900)))
                for name in "yz"
            ]
        case _:
            decides = compared(random, variable(first), number(small(random)), equal=0)
            rules = [Node("case", (decides, bound("y", first), bound("y", first)))]
    if random.random() < 0.5:
        rules.append(
            Node(random.choice(["<=", ">"]), (variable("x"), number(small(random))))
        )
    return Sentence((*map(Declared, "xyz"), *known), tuple(rules))


def closing(random: Random) -> Sentence:
    """Intervals whose ends are inputs, down to single points."""
    names = reals(random, 4)
    top = Fraction(random.choice([1, 2, 1000]))
    known = [
        Declared("u", "input", Fraction(0), top),
        Declared("v", "input", Fraction(0), top),
    ]

    def interval(name: str) -> list[Node]:
        low = random.choice([[], [variable("u")]])
        width = random.choice(["u", "v"])
        factor = random.choice(
            [Fraction(1), Fraction(1), Fraction(2), abs(nonzero(random))]
        )
        high = [*low, _multiple(factor, width)]
        base = [number(random.choice([Fraction(0), Fraction(0), small(random)]))]
        ends = [total(*base, *low), total(*base, *high)]
        return [
            Node(">=", (variable(name), ends[0])),
            Node("<=", (variable(name), ends[1])),
        ]

    rules = [
        row for name in names for row in interval(name)[: random.choice([1, 2, 2])]
    ]
    if random.random() < 0.3:
        rules = [
            Node(
                "or",
                (
                    Node("and", tuple(rules)),
                    Node("==", (variable(names[0]), number(-1))),
                ),
            )
        ]
    return Sentence((*map(Declared, names), *known), tuple(rules))


def beyond(random: Random) -> Sentence:
    """Numbers that are at the ends of float64, or beyond them."""

    def far_off(random: Random) -> Fraction:
        return nonzero(random) * Fraction(10) ** (
            random.choice([-1, 1]) * random.randint(250, 420)
        )

    def some(random: Random) -> Fraction:
        return random.choice([nonzero, far_off])(random)

    names = reals(random, 3)
    known = []
    rows = [
        compared(
            random, linear(random, names, numbers=some), number(some(random)), equal=0
        )
        for _ in range(2)
    ]
    match random.choice(["box", "rows", "cases", "equality", "input", "whole"]):
        case "box":
            ops = [random.choice(["<", ">="]) for _ in names]
            rules = [
                Node(op, (variable(name), number(far_off(random))))
                for op, name in zip(ops, names, strict=True)
            ]
        case "rows":
            rules = rows
        case "cases":
            rules = [Node("or", tuple(rows))]
        case "equality":
            rules = [
                Node(
                    "==",
                    (
                        linear(random, names, numbers=some),
                        number(random.choice([Fraction(0), far_off(random)])),
                    ),
                )
            ]
        case "input":
            known = [
                Declared(
                    "u",
                    "input",
                    *random.choice([(None, None), (Fraction(0), Fraction(3))]),
                )
            ]
            bound = total(product(far_off(random), variable("u")), number(some(random)))
            rules = [
                Node(
                    random.choice(["<", ">="]),
                    (linear(random, names, numbers=some), bound),
                )
            ]
        case _:
            known = [Declared("n", "int", Fraction(0), Fraction(2))]
            rules = [
                Node(
                    "<=", (variable(names[0]), product(far_off(random), variable("n")))
                )
            ]
    return Sentence((*map(Declared, names), *known), tuple(rules))


def counts(random: Random) -> Sentence:
    """Whole numbers about as large as the formats hold, which skip some of them."""
    start = 2 ** random.choice([8, 11, 24, 53]) - random.randint(-2, 3)
    whole = Declared(
        "n", "int", Fraction(start), Fraction(start + random.randint(0, 4))
    )
    here = number(start + random.randint(0, 4))
    rules = [compared(random, variable("n"), here, equal=0.4)]
    if random.random() < 0.5:
        sides = (linear(random, ["x", "n"]), number(start * small(random)))
        rules.append(Node(random.choice(["<", ">="]), sides))
    return Sentence((Declared("x"), whole), tuple(rules))


def closed(random: Random) -> Sentence:
    """Polytopes that end in every direction, of any size that float32 has; of some the sum is fixed."""
    names = ["x", "y", "z", "w"][: random.randint(2, 4)]
    size = Fraction(10) ** random.choice([0, 0, random.randint(-30, 30)])
    rules = [
        Node(
            random.choice(["<", "<="]),
            (
                _mostly(random, sign, name, names),
                number(size * abs(nonzero(random))),
            ),
        )
        for name in names
        for sign in (-1, 1)
    ]
    if random.random() < 0.3:
        rules.append(Node("==", (total(*map(variable, names)), number(0))))
    return over(names, rules, satisfiable=True)


def _mostly(random: Random, sign: int, name: str, names: Sequence[str]) -> Node:
    """The variable or its negative, and so little of others that such rows bound it."""
    others = [other for other in names if other != name and random.random() < 0.5]
    return total(
        _multiple(Fraction(sign), name),
        *(_multiple(nonzero(random) / 20, other) for other in others),
    )


FAMILIES: Mapping[str, Callable[[Random], Sentence]] = {
    "nested": nested,
    "arithmetic": arithmetic,
    "disequalities": disequalities,
    "boxes": boxes,
    "polytopes": polytopes,
    "unions": unions,
    "thin": thin,
    "far": far,
    "scales": scales,
    "ends": ends,
    "equalities": equalities,
    "simplexes": simplexes,
    "degenerate": degenerate,
    "points": points,
    "empty": empty,
    "discrete": discrete,
    "inputs": inputs,
}
"""Every family of sentences by its name."""

LATER: Mapping[str, Callable[[Random], Sentence]] = {
    "vectors": vectors,
    "functions": functions,
    "closing": closing,
    "beyond": beyond,
    "counts": counts,
    "closed": closed,
}
"""Families that came later: drawn apart from the others, so that these keep their numbers."""
