"""Random sentences that are computed one output after another: what a list of terms cannot hold.

Lots, counts, orders, whole numbers, moved bands, balances and tables, mostly small, now and then with thirty outputs
or a hundred; some of them in units from 10⁻³⁰ to 10³⁰. A sentence with ``satisfiable`` has plenty of room, and a layer
in float64 has to be built for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

from campaign.formulas import nonzero, small
from campaign.sentences import (
    Declared,
    Node,
    Sentence,
    number,
    product,
    total,
    variable,
)

__all__ = ["CASCADES", "cascaded"]


def cascaded(random: Random) -> Sentence:
    """A sentence of one of the families."""
    kind = random.choice(list(CASCADES))
    return replace(CASCADES[kind](random), kind=kind)


# --- parts ----------------------------------------------------------------------------------------------------------


def _size(random: Random, *, least: int = 2, wide: bool = True) -> int:
    """A number of outputs: mostly a few, one time in twelve thirty, one in a hundred a hundred."""
    chance = random.random()
    if wide and chance < 0.01:
        return 100
    if wide and chance < 0.08:
        return 30
    return random.randint(least, random.choice([3, 6, 10]))


def _vector(name: str, count: int) -> list[str]:
    return [f"{name}[{i}]" for i in range(count)]


def _sum(names: Sequence[str]) -> Node:
    """``sum(x)`` of a whole vector."""
    return Node(
        "+", tuple(map(variable, names)), f"{names[0].partition('[')[0]}/{len(names)}"
    )


def _unit(random: Random) -> Fraction:
    """What everything is measured in: mostly 1."""
    if random.random() < 0.7:
        return Fraction(1)
    return Fraction(10) ** random.choice([-30, -9, -3, -2, 3, 7, 30])


def _between(name: str, low: Fraction | int, high: Fraction | int) -> Node:
    ends = (
        Node("<=", (number(low), variable(name))),
        Node("<=", (variable(name), number(high))),
    )
    return Node("and", ends)


def _if(condition: Node) -> Node:
    """``(1 if condition else 0)``."""
    return Node("case", (condition, number(1), number(0)))


def _compared(random: Random, left: Node, right: Node, equal: float) -> Node:
    op = "==" if random.random() < equal else random.choice(["<=", "<=", "<", ">="])
    return Node(op, (left, right))


# --- families -------------------------------------------------------------------------------------------------------


def lots(random: Random) -> Sentence:
    """Each 0 or in a band, and together at most, or exactly, a number or an input."""
    unit = _unit(random)
    names = _vector("x", _size(random))
    alike = random.random() < 0.6
    least, most = 10 * unit, 100 * unit
    rules = []
    highest = Fraction(0)
    for name in names:
        if not alike:
            least = unit * random.randint(1, 20)
            most = least + unit * random.choice([0, 1, 7, 80])
        highest += most
        off = Node("==", (variable(name), number(0)))
        rules.append(Node("or", (off, _between(name, least, most))))
    among = min(3 * most, highest)
    if random.random() < 0.5:
        rules.append(_compared(random, _sum(names), number(among), 0.3))
        return Sentence(tuple(map(Declared, names)), tuple(rules))
    low = random.choice([Fraction(0), least, among])
    known = Declared("u", "input", low, max(low, highest))
    rules.append(_compared(random, _sum(names), variable("u"), 0.5))
    return Sentence((*map(Declared, names), known), tuple(rules))


def counted(random: Random) -> Sentence:
    """At most, at least, exactly k of n: truth values, quantities, or both."""
    names = _vector("x", _size(random, least=3))
    most = random.randint(1, len(names) - 1)
    relation = random.choice(["<=", "<=", "==", ">=", "<"])
    known: list[Declared] = []
    bound = number(most)
    if random.random() < 0.2:
        known = [Declared("u", "input", Fraction(1), Fraction(len(names)))]
        bound = variable("u")
        relation = random.choice(["<=", ">="])
    if random.random() < 0.4:
        rules = [Node(relation, (total(*map(variable, names)), bound))]
        return Sentence((*(Declared(n, "bool") for n in names), *known), tuple(rules))
    unit = _unit(random)
    top = unit * random.choice([1, 9, 100])
    rules = [_between(name, 0, top) for name in names]
    rules.append(
        Node(
            relation,
            (total(*(_if(Node(">", (variable(n), number(0)))) for n in names)), bound),
        )
    )
    if random.random() < 0.4:
        rules.append(Node("<=", (_sum(names), number(top * random.randint(1, 3)))))
    satisfiable = True if not known else None
    return Sentence(
        (*map(Declared, names), *known), tuple(rules), satisfiable=satisfiable
    )


def apart(random: Random) -> Sentence:
    """The largest of some, all different, a distance between any two."""
    kind = random.choice(["largest", "different", "distance"])
    if kind == "largest":
        names = _vector("x", random.randint(2, 6))
        labels = tuple(f"l{i}" for i in range(len(names)))
        margin = number(random.choice([Fraction(0), Fraction(1, 8), Fraction(1, 10)]))
        rules = [_between(name, -5, 5) for name in names]
        for label, name in zip(labels, names, strict=True):
            chosen = Node("is", (Node("label", (), label),), "best")
            for other in names:
                if other != name:
                    above = Node(">=", (variable(name), total(variable(other), margin)))
                    rules.append(Node("implies", (chosen, above)))
        declared = (*map(Declared, names), Declared("best", "category", labels=labels))
        return Sentence(declared, tuple(rules), satisfiable=True)
    count = random.randint(2, 4)
    names = _vector("n" if kind == "different" else "x", count)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    if kind == "different":
        top = random.choice([count - 1, count, 40])
        rules = [Node("!=", (variable(a), variable(b))) for a, b in pairs]
        whole = [Declared(name, "int", Fraction(0), Fraction(top)) for name in names]
        return Sentence(tuple(whole), tuple(rules), satisfiable=True)
    top = random.choice([count - 1, count, 2 * count])
    rules = [_between(name, 0, top) for name in names]
    for a, b in pairs:
        distance = Node("abs", (total(variable(a), product(-1, variable(b))),))
        rules.append(Node(">=", (distance, number(1))))
    return Sentence(tuple(map(Declared, names)), tuple(rules), satisfiable=True)


def wholes(random: Random) -> Sentence:
    """Whole numbers of any size: sums, orders and multiples, with real numbers and labels."""
    power = random.choice([2, 2, 3, 4, 6, 9])
    top = Fraction(10) ** power
    names = ["n", "m", "k"][: random.randint(2, 3)]
    declared = [Declared(name, "int", Fraction(0), top) for name in names]
    n, m = variable("n"), variable("m")
    factor = random.randint(1, 3)
    rules = [Node("<=", (n, m)), Node("<=", (m, total(product(factor, n), number(5))))]
    match random.choice(["order", "sum", "multiple", "cone", "apart"]):
        case "sum":
            rules = [
                Node(
                    random.choice(["<=", "=="]),
                    (total(n, product(factor, m)), number(top)),
                )
            ]
        case "multiple":
            rules = [Node("==", (m, product(random.randint(2, 12), n)))]
        case "cone":
            rules = [
                Node("<=", (product(2, n), product(3, m))),
                Node(
                    "<=",
                    (product(3, m), total(product(7, n), number(random.randint(0, 3)))),
                ),
            ]
        case "apart":
            rules = [
                Node(">=", (Node("abs", (total(n, product(-1, m)),)), number(factor)))
            ]
    if len(names) == 3:
        rules.append(Node(random.choice(["<", "<="]), (variable("k"), n)))
    if random.random() < 0.4:
        declared.append(Declared("x"))
        share = Fraction(1, random.choice([2, 4, 10]))
        rules += [_between("x", 0, top), Node("<=", (variable("x"), product(share, n)))]
    if random.random() < 0.4:
        declared.append(Declared("size", "category", labels=("small", "large", "none")))
        small_ = Node("is", (Node("label", (), "small"),), "size")
        none = Node("is", (Node("label", (), "none"),), "size")
        rules.append(
            Node("implies", (small_, Node("<=", (n, number(random.randint(1, 9))))))
        )
        rules.append(Node("implies", (none, Node("==", (m, number(0))))))
    return Sentence(tuple(declared), tuple(rules))


def moved(random: Random) -> Sentence:
    """Bands and polytopes that inputs move, down to the width of a spacing."""
    unit = _unit(random)
    names = ["a", "b", "c"][: random.randint(2, 3)]
    width = unit / random.choice([1, 10, 100, 1000, 10**5])
    if random.random() < 0.4:  # about as far apart as floats of some dtype
        width = 10 * unit / 2 ** random.choice([6, 7, 8, 9, 10, 11, 22, 23])
    known = [Declared("u", "input", -2 * unit, 5 * unit)]
    rules = [_between(name, -10 * unit, 10 * unit) for name in names]
    node = total(
        *(product(random.choice([1, 1, 1, -1, 2, 3]), variable(name)) for name in names)
    )
    start: Node = variable("u")
    if random.random() < 0.4:
        known.append(Declared("v", "input", Fraction(0), unit))
        start = total(variable("u"), product(nonzero(random), variable("v")))
    rules += [
        Node(random.choice(["<", "<="]), (start, node)),
        Node(random.choice(["<", "<="]), (node, total(start, number(width)))),
    ]
    if random.random() < 0.5:
        other = total(variable("a"), product(-1, variable("b")))
        rules.append(
            Node("<=", (other, total(variable("u"), number(unit * abs(small(random))))))
        )
    if random.random() < 0.5:
        rules.append(
            Node(
                "or",
                (
                    Node("<=", (variable("a"), number(0))),
                    Node(">=", (variable("a"), start)),
                ),
            )
        )
    return Sentence((*map(Declared, names), *known), tuple(rules))


def balances(random: Random) -> Sentence:
    """Equalities with inputs that share outputs: stores over time, flows between nodes."""
    unit = _unit(random)
    if random.random() < 0.5:
        return _stores(random, unit)
    return _flows(random, unit)


def _stores(random: Random, unit: Fraction) -> Sentence:
    hours = _size(random, wide=False)
    top = unit * random.choice([8, 100])
    stored, bought = _vector("s", hours), _vector("q", hours)
    known = [
        Declared(name, "input", Fraction(0), top / random.choice([2, 4]))
        for name in (f"d{t}" for t in range(hours))
    ]
    rules = [_between(name, 0, top) for name in (*stored, *bought)]
    for t in range(hours):
        start: Node = variable(stored[t - 1]) if t else number(top / 2)
        change = total(start, variable(bought[t]), product(-1, variable(known[t].name)))
        rules.append(Node("==", (variable(stored[t]), change)))
    if random.random() < 0.4:
        off = Node("==", (variable(bought[0]), number(0)))
        rules.append(
            Node("or", (off, Node(">=", (variable(bought[0]), number(top / 4)))))
        )
    return Sentence((*map(Declared, (*stored, *bought)), *known), tuple(rules))


def _flows(random: Random, unit: Fraction) -> Sentence:
    """A tree of nodes and one more line: what flows in less what flows out is what a node asks for."""
    nodes = random.randint(2, 5)
    lines = [(random.randrange(i), i) for i in range(1, nodes)]
    lines.append((0, nodes - 1))
    limit = 64 * unit
    flows = _vector("f", len(lines))
    known = [
        Declared(name, "input", Fraction(0), 4 * unit)
        for name in (f"d{i}" for i in range(1, nodes))
    ]
    rules = [_between(name, -limit, limit) for name in flows]
    for node in range(1, nodes):
        parts = [
            variable(f) if end == node else product(-1, variable(f))
            for f, (start, end) in zip(flows, lines, strict=True)
            if node in (start, end)
        ]
        rules.append(Node("==", (total(*parts), variable(known[node - 1].name))))
    return Sentence((*map(Declared, flows), *known), tuple(rules))


def if_then(random: Random) -> Sentence:
    """Tables of «if … and … then …» over columns between −20 and 20."""
    columns = random.choice([4, 5, 6, 10, 20])
    names = _vector("x", columns)
    unit = _unit(random)
    rules = [_between(name, -20 * unit, 20 * unit) for name in names]

    def atom(first: str, second: str) -> Node:
        right = number(unit * random.randint(-10, 10))
        if random.random() < 0.3:
            right = total(variable(second), right)
        return Node(random.choice(["<=", ">=", "<", ">"]), (variable(first), right))

    for _ in range(random.randint(columns // 2, columns)):
        a, b, c, d = random.sample(names, 4)
        condition = Node("and", (atom(a, b), atom(b, c)))
        rules.append(Node("implies", (condition, atom(c, d))))
    return Sentence(tuple(map(Declared, names)), tuple(rules))


CASCADES: Mapping[str, Callable[[Random], Sentence]] = {
    "lots": lots,
    "counted": counted,
    "apart": apart,
    "wholes": wholes,
    "moved": moved,
    "balances": balances,
    "if then": if_then,
}
"""Every family by its name."""
