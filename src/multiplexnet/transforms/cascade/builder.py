r"""From a cascade to the operations that compute it: as few as can be, decided when the layer is built.

* Affine functions are built from those that were there before (``300 − x_1 − x_2 − x_3`` is ``300 − x_1 − x_2`` less
  x_3), so that a sum of n outputs costs n operations and not n².
* The ends between which every slot stays are known (*spans*). A comparison that they decide is not made, and an end
  that never counts is not computed.
* Whether an option is possible is said by *conditions*: intervals in which slots lie. All rows over the same sum speak
  of one slot, so that ``10 ≤ r``, ``r − 90 ≤ 0`` and ``−r ≤ −20`` are one interval. Conditions show which options
  exclude each other, or are possible whenever another one is, and such options need not be compared.
* Where an option is chosen its condition holds: with ``10 ≤ r ≤ 100`` the interval from max(10, r) to min(100, r) is
  the number r.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from multiplexnet.compiler.cascade.build import Cascade, Step
from multiplexnet.compiler.cascade.projection.rows import Clause, Range, Row
from multiplexnet.transforms.cascade.operations import (
    LARGEST_DUEL,
    Affine,
    AnyOf,
    Choice,
    Compared,
    Divided,
    Extreme,
    Operand,
    Operation,
    Rival,
    Terms,
    Unless,
    Within,
)
from multiplexnet.transforms.cascade.start import Start

__all__ = ["Builder"]

RECENT = 24
"""So many affine functions with a term in common are looked at for one to start from."""


@dataclass(frozen=True)
class Condition:
    """What holds where an option is possible.

    Args:
        within: for some slots the ends between which they lie.
        compared: pairs of slots of which the first is at most the second.
        masks: other truth values that hold.
        never: whether it holds nowhere.
    """

    within: Mapping[int, tuple[float, float]]
    compared: frozenset[tuple[int, int]] = frozenset()
    masks: frozenset[int] = frozenset()
    never: bool = False

    @property
    def always(self) -> bool:
        """Whether it holds everywhere."""
        return not (self.within or self.compared or self.masks or self.never)

    def implies(self, other: Condition) -> bool:
        """Whether the other one holds wherever this does."""
        if other.never or not other.compared <= self.compared:
            return False
        if not other.masks <= self.masks:
            return False
        return all(
            low <= own[0] and own[1] <= high
            for slot, (low, high) in other.within.items()
            for own in [self.within.get(slot, (-inf, inf))]
        )

    def excludes(self, other: Condition) -> bool:
        """Whether the two hold together nowhere, as far as single slots show it."""
        return any(
            max(low, other.within[slot][0]) > min(high, other.within[slot][1])
            for slot, (low, high) in self.within.items()
            if slot in other.within
        )


NEVER = Condition({}, never=True)


class Builder:
    """Collects the operations of a cascade.

    Args:
        cascade: what was compiled.
        first_logit: where the logits of each output with options begin.
        starts: what they mean.
        limit: whole numbers below this are exact.
    """

    def __init__(
        self,
        cascade: Cascade,
        first_logit: Mapping[int, int],
        starts: Mapping[int, Start],
        limit: int,
    ) -> None:
        self._cascade = cascade
        self._first_logit = first_logit
        self._starts = starts
        self._limit = limit
        self.slots = len(cascade.ranges)
        self.operations: list[Operation] = []
        self._affine: dict[tuple[Terms, int], int] = {}
        self._meaning: dict[int, tuple[Terms, int]] = {}
        self._homes: dict[Terms, int] = {}
        self._sets: dict[int, frozenset[tuple[int, int]]] = {}
        self._by_term: dict[tuple[int, int], list[int]] = {}
        self._made: dict[int, Extreme] = {}
        self._found: dict[tuple[object, ...], int] = {}
        self._spans: dict[int, Range] = {
            v: cascade.ranges[v]
            for v in range(len(cascade.outputs), len(cascade.ranges))
        }

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _span(self, operand: Operand) -> Range:
        if isinstance(operand, float):
            return Range(int(operand), int(operand))
        return self._spans[operand]

    # --- affine functions -------------------------------------------------------------------------------------------

    def affine(self, terms: Terms, constant: int) -> Operand:
        """A slot that holds ``constant + Σ c v``."""
        if not terms:
            return float(constant)
        if len(terms) == 1 and terms[0][1] == 1 and not constant:
            return terms[0][0]
        key = (terms, constant)
        if key in self._affine:
            return self._affine[key]
        base = self._best_base(terms, constant)
        if base is None:
            ordered = tuple(sorted(terms, key=lambda term: term[1] != 1))
            return self._add_affine(key, None, ordered, constant)
        known, total = self._meaning[base]
        given = dict(known)
        more = tuple((v, c - given.get(v, 0)) for v, c in terms if c != given.get(v, 0))
        if more and total != constant:
            base = self._add_affine((terms, total), base, more, 0)
            more = ()
        return self._add_affine(key, base, more, constant - total)

    def _add_affine(
        self, key: tuple[Terms, int], base: int | None, more: Terms, constant: int
    ) -> int:
        terms, total = key
        operation = Affine(self._slot(), base, more, float(constant))
        self.operations.append(operation)
        self._affine[key] = operation.out
        self._meaning[operation.out] = key
        self._spans[operation.out] = self._span_of(terms, total)
        if _negative(terms) not in self._homes:
            self._homes.setdefault(terms, operation.out)
        self._sets[operation.out] = frozenset(terms)
        for term in terms:
            self._by_term.setdefault(term, []).append(operation.out)
        return operation.out

    def _span_of(self, terms: Terms, constant: int) -> Range:
        row = Row(terms, 0)
        return Range(
            row.least(self._spans) + constant, row.most(self._spans) + constant
        )

    def _best_base(self, terms: Terms, constant: int) -> int | None:
        """The slot of an affine function from which this one takes fewer operations than from nothing."""
        wanted = frozenset(terms)
        cost = len(terms) - 1 + any(c != 1 for _, c in terms[:1]) + bool(constant)
        best = None
        candidates = dict.fromkeys(
            slot for term in terms for slot in self._by_term.get(term, ())[-RECENT:]
        )
        for candidate in candidates:
            own = self._sets[candidate]
            _, total = self._meaning[candidate]
            price = len(wanted) - len(own) + (total != constant)
            if price < cost and own <= wanted and self._is_exact(terms, total):
                best, cost = candidate, price
        return best

    def _is_exact(self, terms: Terms, constant: int) -> bool:
        return Row(terms, constant).size(self._spans) < self._limit

    # --- truth values -----------------------------------------------------------------------------------------------

    def guard(self, clause: Clause) -> int:
        """A slot that says whether one of the rows about known variables holds.

        Every row is looked at: that the known variables stay in their ranges is what guards are there to say.
        """
        masks = []
        for row in clause:
            slot, low, high = self._interval(row)
            masks.append(self._inside(slot, float(low), float(high)))
        return self._any_of(masks)

    def holds(self, clause: Clause) -> int | bool:
        """A slot that says whether one of the rows holds, or the answer if it is the same everywhere."""
        found = [self._within(*self._interval(row)) for row in clause]
        if any(held is True for held in found):
            return True
        masks = [held for held in found if held is not False]
        return self._any_of(masks) if masks else False

    def _interval(self, row: Row) -> tuple[int, float, float]:
        """A slot that lies between two ends where the row holds."""
        slot, sign, shift = self._home(row.terms, 0)
        bound = row.bound - shift
        return (slot, -inf, bound) if sign > 0 else (slot, -bound, inf)

    def _any_of(self, masks: Sequence[int]) -> int:
        different = tuple(dict.fromkeys(masks))
        if len(different) == 1:
            return different[0]
        return self._once(("any", different), AnyOf(self.slots, different))

    def never(self) -> int:
        """A slot that says that nothing holds."""
        return self._any_of(())

    def _once(self, key: tuple[object, ...], operation: Operation) -> int:
        """The slot of an operation that was made before, or of this one."""
        if key not in self._found:
            operation.out = self._slot()
            self.operations.append(operation)
            self._found[key] = operation.out
        return self._found[key]

    def _home(self, terms: Terms, constant: int) -> tuple[int, int, int]:
        """A slot, a sign and a shift: ``constant + Σ c v`` is sign times the slot, plus the shift."""
        if len(terms) == 1 and abs(terms[0][1]) == 1:
            return terms[0][0], terms[0][1], constant
        for own, sign in ((terms, 1), (_negative(terms), -1)):
            if own in self._homes:
                slot = self._homes[own]
                return slot, sign, constant - sign * self._meaning[slot][1]
        made = self.affine(terms, 0)
        assert isinstance(made, int)
        return made, 1, constant

    def _home_of(self, slot: int) -> tuple[int, int, int]:
        return self._home(*self._meaning.get(slot, (((slot, 1),), 0)))

    def _within(self, slot: int, low: float, high: float) -> int | bool:
        """A slot that says whether another one lies between two ends, or the answer."""
        low, high = self._open_ends(slot, low, high)
        if low > high:
            return False
        if low == -inf and high == inf:
            return True
        return self._inside(slot, low, high)

    def _inside(self, slot: int, low: float, high: float) -> int:
        return self._once(("in", slot, low, high), Within(self.slots, slot, low, high))

    def _open_ends(self, slot: int, low: float, high: float) -> tuple[float, float]:
        """The ends without those that hold anyway; crossed if nothing lies between them."""
        span = self._spans[slot]
        if low > high or low > span.upper or high < span.lower:
            return inf, -inf
        return (
            -inf if low <= span.lower else float(low),
            inf if high >= span.upper else float(high),
        )

    # --- ends -------------------------------------------------------------------------------------------------------

    def end(self, x: int, row: Row) -> Operand:
        """The end that a row gives to x: ⌈(rest − bound)/a⌉ of a lower one, ⌊(bound − rest)/a⌋ of an upper one."""
        c, rest = row.coefficient(x), row.without(x)
        sign = -1 if c > 0 else 1
        inner = self.affine(tuple((v, sign * a) for v, a in rest), -sign * row.bound)
        if isinstance(inner, float):
            return float(int(inner) // c if c > 0 else -(-int(inner) // -c))
        if abs(c) == 1:
            return inner
        divisor = abs(c)
        span = self._spans[inner]
        found = self._once(
            ("divided", inner, divisor, c < 0),
            Divided(self.slots, inner, divisor, c < 0),
        )
        self._spans[found] = (
            Range(-(-span.lower // divisor), -(-span.upper // divisor))
            if c < 0
            else Range(span.lower // divisor, span.upper // divisor)
        )
        return found

    def extreme(self, operands: Sequence[Operand], *, largest: bool) -> Operand:
        """The largest (or the smallest) of some operands."""
        flat = [part for operand in operands for part in self._flat(operand, largest)]
        slots = self._without_parallel(
            [o for o in flat if not isinstance(o, float)], largest
        )
        numbers = [o for o in flat if isinstance(o, float)]
        number = None
        if numbers:
            number = max(numbers) if largest else min(numbers)
        slots, number = self._that_count(slots, number, largest)
        if not slots:
            assert number is not None
            return number
        if len(slots) == 1 and number is None:
            return slots[0]
        key = ("extreme", slots, number, largest)
        operation = Extreme(self.slots, slots, number, largest)
        found = self._once(key, operation)
        self._made.setdefault(found, operation)
        self._spans[found] = self._span_among(slots, number, largest)
        return found

    def _that_count(
        self, slots: Sequence[int], number: float | None, largest: bool
    ) -> tuple[tuple[int, ...], float | None]:
        """Without those that another one beats everywhere."""
        sign = 1 if largest else -1
        least = {slot: min(sign * end for end in self._spans[slot]) for slot in slots}
        most = {slot: max(sign * end for end in self._spans[slot]) for slot in slots}
        fixed = [sign * least[slot] for slot in slots if least[slot] == most[slot]]
        numbers = [*fixed, *([] if number is None else [number])]
        top = max((sign * own for own in numbers), default=-inf)
        floor = max([top, *least.values()])
        kept = tuple(slot for slot in slots if most[slot] > floor)
        beaten = any(least[slot] >= top for slot in kept)
        return kept, None if beaten or not numbers else float(sign * top)

    def _span_among(
        self, slots: Sequence[int], number: float | None, largest: bool
    ) -> Range:
        spans = [self._spans[slot] for slot in slots]
        if number is not None:
            spans.append(self._span(number))
        better = max if largest else min
        return Range(better(s.lower for s in spans), better(s.upper for s in spans))

    def _flat(self, operand: Operand, largest: bool) -> list[Operand]:
        """The arguments of a maximum inside a maximum (a minimum inside a minimum), or the operand itself."""
        inner = None if isinstance(operand, float) else self._made.get(operand)
        if inner is None or inner.is_largest != largest:
            return [operand]
        return [*inner.slots, *([] if inner.number is None else [inner.number])]

    def _without_parallel(self, slots: Sequence[int], largest: bool) -> tuple[int, ...]:
        """Of affine functions that differ by a number only the one that wins."""
        best: dict[object, tuple[int, int]] = {}
        for slot in slots:
            terms, constant = self._meaning.get(slot, (((slot, 1),), 0))
            old = best.get(terms)
            if old is None or (constant > old[0] if largest else constant < old[0]):
                best[terms] = constant, slot
        return tuple(slot for _, slot in best.values())

    def _unless(
        self, x: int, clause: Clause, end: Operand, otherwise: Operand
    ) -> Operand:
        others = tuple(row for row in clause if not row.coefficient(x))
        if not others or _same(end, otherwise):
            return end
        held = self.holds(others)
        if held is True:
            return otherwise
        if held is False:
            return end
        found = self._once(
            ("unless", held, end, otherwise, type(end), type(otherwise)),
            Unless(self.slots, held, end, otherwise),
        )
        spans = self._span(end), self._span(otherwise)
        self._spans[found] = Range(
            min(span.lower for span in spans), max(span.upper for span in spans)
        )
        return found

    # --- conditions -------------------------------------------------------------------------------------------------

    def _condition(self, pairs: Iterable[tuple[Operand, Operand]]) -> Condition:
        """Where the first of each pair is at most the second."""
        within: dict[int, tuple[float, float]] = {}
        compared: set[tuple[int, int]] = set()
        for low, high in pairs:
            held = self._order_of(low, high)
            if held is True:
                continue
            if held is False:
                return NEVER
            if isinstance(low, int) and isinstance(high, int):
                compared.add((low, high))
                continue
            slot, bottom, top = self._one_sided(low, high)
            old = within.get(slot, (-inf, inf))
            ends = self._open_ends(slot, max(old[0], bottom), min(old[1], top))
            if ends[0] > ends[1]:
                return NEVER
            within[slot] = ends
        return Condition(within, frozenset(compared))

    def _order_of(self, low: Operand, high: Operand) -> bool | None:
        """Whether ``low ≤ high``, if that is the same in all rows."""
        one, other = self._span(low), self._span(high)
        if one.upper <= other.lower:
            return True
        if one.lower > other.upper:
            return False
        if isinstance(low, float) or isinstance(high, float):
            return None
        (terms, constant), (others, more) = (
            self._meaning.get(slot, (((slot, 1),), 0)) for slot in (low, high)
        )
        return constant <= more if terms == others else None

    def _one_sided(self, low: Operand, high: Operand) -> tuple[int, float, float]:
        """``low ≤ high`` of a slot and a number as an interval of the slot's home."""
        if isinstance(low, float):
            assert isinstance(high, int)
            slot, sign, shift = self._home_of(high)
            number = int(low) - shift
        else:
            assert isinstance(high, float)
            slot, sign, shift = self._home_of(low)
            number, sign = shift - int(high), -sign
        return (slot, number, inf) if sign > 0 else (slot, -inf, -number)

    def _crossings(self, low: Operand, high: Operand) -> Condition:
        """Where ``low ≤ high``: the arguments of a maximum below those of a minimum."""
        lows, highs = self._flat(low, largest=True), self._flat(high, largest=False)
        return self._condition((a, b) for a in lows for b in highs if not _same(a, b))

    def _tests(
        self, condition: Condition, low: Operand = 0.0, high: Operand = 0.0
    ) -> tuple[int, ...] | None:
        """Truth values that say together whether a condition holds; one comparison of its ends, if that is less."""
        if condition.never:
            return (self.never(),)
        if condition.always:
            return None
        many = len(condition.within) + len(condition.compared) > 2
        if many and isinstance(low, int) and isinstance(high, int):
            return (self._compared(low, high),)
        within = [self._within(slot, *ends) for slot, ends in condition.within.items()]
        compared = [self._compared(*pair) for pair in sorted(condition.compared)]
        return tuple(int(slot) for slot in (*within, *compared))

    def _compared(self, low: int, high: int) -> int:
        return self._once(("≤", low, high), Compared(self.slots, low, high))

    # --- steps ------------------------------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        """Adds what computes an output."""
        x, bucket = step.variable, step.bucket
        bottom, top = float(bucket.range.lower), float(bucket.range.upper)
        lowers = [self._unless(x, c, self._lower(x, c), bottom) for c in bucket.lower]
        uppers = [self._unless(x, c, self._upper(x, c), top) for c in bucket.upper]
        lower = self.extreme([bottom, *lowers], largest=True)
        upper = self.extreme([top, *uppers], largest=False)
        gaps = [self._gap(x, clause) for clause in bucket.gaps]
        if step.values is not None:
            options = [self._at(float(v), lower, upper, gaps) for v in step.values]
        else:
            options = [self._between(lower, upper, gaps, sides) for sides in step.sides]
        plan = plan_of(options)
        self._spans[x] = self._hull([option.plain for option in options])
        self.operations.append(
            Choice(
                x,
                x if x < len(self._cascade.visible) else None,
                plan.ends,
                plan.tests,
                plan.rivals,
                self._first_logit.get(x),
                self._started(self._starts.get(x)),
            )
        )

    def _hull(self, ends: Sequence[tuple[Operand, Operand]]) -> Range:
        return Range(
            min(self._span(low).lower for low, _ in ends),
            max(self._span(high).upper for _, high in ends),
        )

    def _started(self, start: Start | None) -> Start | None:
        """The start with the sum of what counts in one slot."""
        if start is None or not start.before:
            return start
        slot = self.affine(tuple((v, 1) for v in sorted(start.before)), 0)
        return Start((int(slot),), start.offsets)

    def _lower(self, x: int, clause: Clause) -> Operand:
        return self.extreme(
            [self.end(x, row) for row in clause if row.coefficient(x) < 0],
            largest=False,
        )

    def _upper(self, x: int, clause: Clause) -> Operand:
        return self.extreme(
            [self.end(x, row) for row in clause if row.coefficient(x) > 0], largest=True
        )

    def _gap(self, x: int, clause: Clause) -> tuple[Operand, Operand]:
        """The largest value below a gap, and the smallest above; a gap that other rows close ends just below itself."""
        above, below = self._lower(x, clause), self._upper(x, clause)
        just_below = self._less_one(above)
        return self._unless(
            x, clause, self.extreme([below, just_below], largest=False), just_below
        ), above

    def _less_one(self, operand: Operand) -> Operand:
        if isinstance(operand, float):
            return operand - 1.0
        terms, constant = self._meaning.get(operand, (((operand, 1),), 0))
        return self.affine(terms, constant - 1)

    # --- options ----------------------------------------------------------------------------------------------------

    def _between(
        self,
        lower: Operand,
        upper: Operand,
        gaps: Sequence[tuple[Operand, Operand]],
        sides: Sequence[bool],
    ) -> Option:
        """The interval above some gaps and below the others."""
        above = [gap[1] for gap, up in zip(gaps, sides, strict=False) if up]
        below = [gap[0] for gap, up in zip(gaps, sides, strict=False) if not up]
        low = self.extreme([lower, *above], largest=True)
        high = self.extreme([upper, *below], largest=False)
        condition = self._crossings(low, high)
        plain = self._as_point(low, high)
        simple = self._where_held(condition, *plain)
        return Option(plain, simple, condition, self._tests(condition, low, high))

    def _as_point(self, low: Operand, high: Operand) -> tuple[Operand, Operand]:
        """The ends, as one number where these are the only value that a possible interval can have."""
        least = self._limit_of(low, largest=True)
        most = self._limit_of(high, largest=False)
        return (least, least) if least is not None and least == most else (low, high)

    def _limit_of(self, operand: Operand, *, largest: bool) -> float | None:
        """A number that a maximum is never below (a minimum never above), if it shows one."""
        if isinstance(operand, float):
            return operand
        found = self._made.get(operand)
        if found is None or found.is_largest != largest:
            return None
        return found.number

    def _where_held(
        self, condition: Condition, low: Operand, high: Operand
    ) -> tuple[Operand, Operand]:
        """The ends where the condition of an option holds."""
        return (
            self._simpler(condition, low, largest=True),
            self._simpler(condition, high, largest=False),
        )

    def _simpler(self, condition: Condition, end: Operand, *, largest: bool) -> Operand:
        """A maximum (minimum) of one slot and a number as that which a condition makes it."""
        made = None if isinstance(end, float) else self._made.get(end)
        if made is None or made.is_largest != largest or made.number is None:
            return end
        if len(made.slots) != 1:
            return end
        slot, number = made.slots[0], made.number
        pair = (number, slot) if largest else (slot, number)
        home, low, high = self._one_sided(*pair)
        known = condition.within.get(home, (-inf, inf))
        return slot if low <= known[0] and known[1] <= high else end

    def _at(
        self,
        value: float,
        lower: Operand,
        upper: Operand,
        gaps: Sequence[tuple[Operand, Operand]],
    ) -> Option:
        """A single value."""
        point = value, value
        condition = self._condition([(lower, value), (value, upper)])
        outside = [self._outside(value, gap) for gap in gaps]
        if condition.never or any(held is False for held in outside):
            return Option(point, point, NEVER, (self.never(),))
        masks = tuple(int(held) for held in outside if held is not True)
        tests = (*(self._tests(condition) or ()), *masks)
        condition = replace(condition, masks=frozenset(masks))
        return Option(point, point, condition, tests or None)

    def _outside(self, value: float, gap: tuple[Operand, Operand]) -> int | bool:
        """Whether a value is not in a gap."""
        below, above = gap
        sides = [
            self._condition([(value, below)]),
            self._condition([(above, value)]),
        ]
        if any(side.always for side in sides):
            return True
        masks: list[int] = []
        for side in sides:
            if not side.never:
                masks += self._tests(side) or ()
        return self._any_of(masks) if masks else False


@dataclass(frozen=True)
class Option:
    """One option of an output.

    Args:
        plain: its ends, whatever holds.
        simple: its ends where its condition holds.
        condition: where it is possible.
        tests: truth values that say so.
    """

    plain: tuple[Operand, Operand]
    simple: tuple[Operand, Operand]
    condition: Condition
    tests: tuple[int, ...] | None


@dataclass(frozen=True)
class Plan:
    """How an output is chosen among its options: the ends, tests and rivals of a :class:`Choice`."""

    ends: tuple[tuple[Operand, Operand], ...]
    tests: tuple[tuple[int, ...] | None, ...]
    rivals: tuple[tuple[Rival, ...] | None, ...]


def plan_of(options: Sequence[Option]) -> Plan:
    """What has to be compared, and what not.

    The first option is taken where no other one is, so it is not looked at itself: its ends are those that hold
    whatever else, and cross where nothing is possible. Another option is not looked at if it is never possible, or if
    it excludes all others and has the ends of the first, which is then taken in its place.
    """
    first = options[0]
    if len(options) == 1:
        return Plan((first.plain,), (None,), ((),))
    if len(options) > LARGEST_DUEL:
        return Plan(
            (first.plain, *(option.simple for option in options[1:])),
            tuple(option.tests for option in options),
            ((),) * len(options),
        )
    rivals = [_rivals(options, number) for number in range(len(options))]
    doubted = any(
        rival.number == 0 and not rival.is_sure for own in rivals for rival in own or ()
    )
    ends = [first.plain]
    tests = [first.tests if doubted else None]
    for option, own in zip(options[1:], rivals[1:], strict=True):
        ends.append(first.plain if own is None else option.simple)
        tests.append(None if own is None else option.tests)
    return Plan(tuple(ends), tuple(tests), tuple(rivals))


def _rivals(options: Sequence[Option], number: int) -> tuple[Rival, ...] | None:
    """The options before one that it has to beat; ``None`` if it is not looked at."""
    if number and _is_left_out(options, number):
        return None
    own = options[number].condition
    return tuple(
        Rival(place, own.implies(other.condition))
        for place, other in enumerate(options[:number])
        if not other.condition.never
        and not own.excludes(other.condition)
        and not (place and _is_left_out(options, place))
    )


def _is_left_out(options: Sequence[Option], number: int) -> bool:
    own = options[number]
    if own.condition.never:
        return True
    others = [option for place, option in enumerate(options) if place != number]
    return _same_ends(own.plain, options[0].plain) and all(
        own.condition.excludes(other.condition) for other in others
    )


def _same_ends(one: tuple[Operand, Operand], other: tuple[Operand, Operand]) -> bool:
    return _same(one[0], other[0]) and _same(one[1], other[1])


def _negative(terms: Terms) -> Terms:
    return tuple((v, -c) for v, c in terms)


def _same(one: Operand, other: Operand) -> bool:
    return one == other and isinstance(one, float) == isinstance(other, float)
