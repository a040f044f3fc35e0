"""Every exception of the library: small classes that build their own text from what was found.

All derive from :class:`MultiplexError` and from the builtin that fits, so both ``except`` styles work.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from math import prod

__all__ = [
    "CascadeBudgetExceeded",
    "CascadeError",
    "ContradictionError",
    "CyclicFunctionError",
    "DomainError",
    "DtypeError",
    "EliminationError",
    "EqualityError",
    "GridError",
    "InputError",
    "MagnitudeError",
    "MultiplexError",
    "NestedError",
    "PlotError",
    "ProductError",
    "RangeError",
    "RecordError",
    "RuleSyntaxError",
    "ShapeError",
    "TableError",
    "TermBudgetExceeded",
    "ThinTermError",
    "UnboundableError",
]


class MultiplexError(Exception):
    """The root of all exceptions of this library."""


class RuleSyntaxError(MultiplexError, ValueError):
    """Rules that cannot be read. The text names line and column, shows the line and says what to do.

    Args:
        reason: what was found, what was expected, what to do.
        line: 1-based line in the text, if known.
        column: 1-based column in that line, if known.
        source: the line as written, if known.
    """

    def __init__(
        self, reason: str, *, line: int | None = None, column: int | None = None, source: str | None = None
    ) -> None:
        self.reason, self.line, self.column, self.source = reason, line, column, source
        where = f"line {line}" if line is not None else ""
        if line is not None and column is not None:
            where += f", column {column}"
        text = f"{where}: {reason}" if where else reason
        if source is not None:
            text += f"\n    {source.rstrip()}"
            if column is not None:
                text += f"\n    {' ' * (column - 1)}^"
        super().__init__(text)


class ContradictionError(MultiplexError, ValueError):
    """Rules that no output can obey, with a smallest set of them that contradict each other.

    Args:
        rules: the contradicting rules as (line or None, text).
    """

    def __init__(self, rules: Sequence[tuple[int | None, str]]) -> None:
        self.rules = tuple(rules)
        lines = [f"    line {line}: {text}" if line is not None else f"    {text}" for line, text in self.rules]
        head = (
            "this rule contradicts itself"
            if len(self.rules) == 1
            else f"these {len(self.rules)} rules contradict each other (drop or change any one of them)"
        )
        super().__init__("\n".join([f"no output obeys the rules: {head}:", *lines]))


class TermBudgetExceeded(MultiplexError, RuntimeError):
    """A block of the rules has more terms than ``max_terms``.

    Args:
        count: terms found when the budget ran out.
        max_terms: the budget.
        outputs: names of the outputs of the block that explodes.
    """

    def __init__(self, count: int, max_terms: int, outputs: Sequence[str]) -> None:
        self.count, self.max_terms, self.outputs = count, max_terms, tuple(outputs)
        names = ", ".join(self.outputs[:8]) + (f" and {len(self.outputs) - 8} more" if len(self.outputs) > 8 else "")
        super().__init__(
            f"the rules over {names} have more than {max_terms} terms ({count} found so far). "
            f"Raise max_terms, or give cover=rows (data that the terms must contain: sound, but not complete), "
            f"or let terms go on in inner blocks with compile(nested=True), which a Multiplexer tries by itself, "
            f"or split the rules so that fewer outputs depend on each other."
        )


class ProductError(MultiplexError, RuntimeError):
    """Several blocks whose combinations of terms are too many to be written out.

    Args:
        sizes: the number of terms of each block.
        max_terms: the most combinations allowed.
    """

    def __init__(self, sizes: Sequence[int], max_terms: int) -> None:
        self.sizes, self.max_terms = tuple(sizes), max_terms
        product = " × ".join(map(str, self.sizes[:12])) + (" × …" if len(self.sizes) > 12 else "")
        super().__init__(
            f"the {len(self.sizes)} blocks of the rules have {product} = {prod(self.sizes)} combinations, more "
            f"than max_terms = {max_terms}. best() and sample() need no combinations; for a loss, "
            "let it return one value per output (a sum over outputs is exact block by block), or give an estimator, or "
            "raise max_terms"
        )


class NestedError(MultiplexError, RuntimeError):
    """Something that needs plain terms was asked of rules whose terms go on in inner blocks.

    Args:
        wanted: what was asked for.
    """

    def __init__(self, wanted: str) -> None:
        super().__init__(
            f"the rules have too many plain terms and were decomposed, so there are no {wanted}: use best() and "
            "sample(), and for learning a loss that returns one value per output, or the estimator ScoreFunction; "
            "or raise max_terms"
        )


class ShapeError(MultiplexError, ValueError):
    """A tensor or array whose shape does not fit the rules."""


class DtypeError(MultiplexError, TypeError):
    """Numbers of a type that is not read exactly: integers, complex numbers, extended floats."""


class InputError(MultiplexError, TypeError):
    """An input (or a function) of the rules that is missing, or one that they do not have."""


class RecordError(MultiplexError, ValueError):
    """A saved layer or certificate that cannot be read."""


class PlotError(MultiplexError, ValueError):
    """A picture that cannot be drawn, and why."""


class DomainError(MultiplexError, ValueError):
    """Rules whose outputs have another kind of domain than is asked for."""


class TableError(MultiplexError, ValueError):
    """A table that cannot be checked against the rules: what is wrong with it and where."""


def _listed(rows: Sequence[str]) -> str:
    return "".join(f"\n    {row}" for row in rows[:12]) + (
        f"\n    … and {len(rows) - 12} more" if len(rows) > 12 else ""
    )


class ThinTermError(MultiplexError, ValueError):
    """A term whose set leaves no room between the floats of a format.

    Args:
        rows: the rows of the set, as text.
        dtype: the format asked for.
        wider: a format that would do, if one is known.
    """

    def __init__(self, rows: Sequence[str], dtype: str, wider: str | None) -> None:
        self.rows, self.dtype, self.wider = tuple(rows), dtype, wider
        advice = f"{wider} would do" if wider else "no wider dtype would do either: give the rows more room"
        super().__init__(f"these rows are too thin for {dtype} ({advice}):{_listed(self.rows)}")


class EqualityError(MultiplexError, ValueError):
    """An equality that cannot be met exactly: which one, why, and what to do.

    Args:
        rows: the equalities, as text.
        reason: why not, and what would do.
    """

    def __init__(self, rows: Sequence[str], reason: str) -> None:
        self.rows, self.reason = tuple(rows), reason
        super().__init__(f"{reason}:{_listed(self.rows)}")


class MagnitudeError(MultiplexError, ValueError):
    """Numbers of rows that are too large or too small to compute with in float64.

    Args:
        rows: the rows, as text.
        number: the number that was found, or that the rows lead to.
    """

    def __init__(self, rows: Sequence[str], number: Fraction) -> None:
        self.rows, self.number = tuple(rows), number
        super().__init__(
            f"these rows need the number {_power_of_ten(number)}, and a layer computes with numbers between 1e-301 and "
            f"1e301: measure the outputs in other units, or leave the rows out:{_listed(self.rows)}"
        )


def _power_of_ten(number: Fraction) -> str:
    """About the number, whatever its size.

    Example:
        >>> _power_of_ten(Fraction(10) ** 400), _power_of_ten(-Fraction(1, 3 * 10 ** 400))
        ('1.00e+400', '-3.33e-401')
    """
    return f"{Decimal(number.numerator) / Decimal(number.denominator):.3g}"


class CyclicFunctionError(MultiplexError, ValueError):
    """Opaque functions whose arguments depend on the very outputs that they bound.

    Args:
        rows: the rows that no order of the outputs can meet, as text.
    """

    def __init__(self, rows: Sequence[str]) -> None:
        self.rows = tuple(rows)
        super().__init__(
            "a function bounds an output that its own arguments depend on, so that no order of computing the outputs "
            f"meets these rows; remove the cycle:{_listed(self.rows)}"
        )


class UnboundableError(MultiplexError, ValueError):
    """Rows that would have to hold for the value of an opaque function, which nobody knows beforehand.

    Args:
        rows: the rows that hold only for some values of the function, as text.
    """

    def __init__(self, rows: Sequence[str]) -> None:
        self.rows = tuple(rows)
        super().__init__(
            "the rules ask this of the value of a function, which can be anything; leave one side of the output open, "
            f"or bound it by something that can follow:{_listed(self.rows)}"
        )


class EliminationError(MultiplexError, RuntimeError):
    """Bounds that depend on run-time values and multiply too fast when outputs are ordered.

    Args:
        count: rows when it was given up.
        budget: rows allowed.
        outputs: names of the outputs that are tied together.
    """

    def __init__(self, count: int, budget: int, outputs: Sequence[str]) -> None:
        self.count, self.budget, self.outputs = count, budget, tuple(outputs)
        super().__init__(
            f"bounds of {', '.join(self.outputs)} with run-time values in them need {count} rows (allowed: {budget}): "
            "tie fewer of these outputs together, or take the run-time values out of the rules that do"
        )


# --- cascades -------------------------------------------------------------------------------------------------------


class CascadeBudgetExceeded(MultiplexError, RuntimeError):
    """Rules whose projection onto fewer and fewer outputs grew beyond what it was given.

    Args:
        output: the output at which it exploded.
        found: how many clauses its projection had by then.
        seconds: the time that had passed.
        allowed: what was allowed, as text.
    """

    def __init__(self, output: str, found: int, seconds: float, allowed: str) -> None:
        self.output, self.found, self.seconds = output, found, seconds
        super().__init__(
            f"the rules without {output} have {found} clauses after {seconds:.1f} s ({allowed}). Drop or split rules "
            f"that tie {output} to many others, name another order of the outputs with order=[…], give outputs "
            "narrower ranges, or allow more time or clauses"
        )


class CascadeError(MultiplexError, RuntimeError):
    """Something that needs terms was asked of rules that are computed one output after another.

    Args:
        wanted: what was asked for.
    """

    def __init__(self, wanted: str) -> None:
        super().__init__(
            f"these rules are computed one output after another (a cascade), so there are no {wanted}. For learning, "
            "take a loss of branches.best(), the exact -branches.log_prob(x), or an estimator on its own, as in "
            'ScoreFunction()(branches, f); structure="terms" insists on terms'
        )


class RangeError(MultiplexError, ValueError):
    """An output that others depend on and that the rules leave without ends.

    Args:
        output: its name.
        lower: the lower end that was found, if any.
        upper: the upper end that was found, if any.
    """

    def __init__(self, output: str, lower: Fraction | None, upper: Fraction | None) -> None:
        self.output = output
        missing = [name for name, end in (("lower", lower), ("upper", upper)) if end is None]
        super().__init__(
            f"{output} depends on other outputs, and the rules give it no {' and no '.join(missing)} end: a cascade "
            f"needs one to choose its grid. Add a rule such as `-1000 <= {output} <= 1000`"
        )


class GridError(MultiplexError, ValueError):
    """Rules that no point of the grid obeys, or that need a grid finer than exact sums allow.

    Args:
        reason: what was found, and what to do.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)
