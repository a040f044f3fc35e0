"""Every exception of the library: small classes that build their own text from what was found.

All derive from :class:`MultiplexError` and from the builtin that fits, so both ``except`` styles work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from errno import ENOENT
from fractions import Fraction
from math import prod
from os import strerror
from reprlib import Repr

__all__ = [
    "CascadeBudgetExceeded",
    "CascadeError",
    "CoefficientError",
    "CompileTimeout",
    "ContradictionError",
    "CurvedError",
    "CyclicFunctionError",
    "DenseRulesError",
    "DomainError",
    "DtypeError",
    "EliminationError",
    "EqualityError",
    "GraphError",
    "GridError",
    "InputError",
    "MagnitudeError",
    "MissingFileError",
    "MissingLibrary",
    "MultiplexError",
    "NestedError",
    "OptionError",
    "OutOfRangeError",
    "PlotError",
    "ProductError",
    "QuestionError",
    "RangeError",
    "RecordError",
    "RuleSyntaxError",
    "RuleTypeError",
    "RunTimeEqualityError",
    "ShapeError",
    "SolverGaveUp",
    "TableError",
    "TermBudgetExceeded",
    "ThinTermError",
    "UnboundableError",
    "UnknownNameError",
    "brief",
    "install",
    "needing",
    "opening",
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
        self,
        reason: str,
        *,
        line: int | None = None,
        column: int | None = None,
        source: str | None = None,
    ) -> None:
        self.reason = reason
        self.line = line
        self.column = column
        self.source = source
        where = f"line {line}" if line is not None else ""
        if line is not None and column is not None:
            where += f", column {column}"
        text = f"{where}: {reason}" if where else reason
        if source is not None:
            text += f"\n    {source.rstrip()}"
            if column is not None:
                text += f"\n    {' ' * (column - 1)}^"
        super().__init__(text)


class UnknownNameError(MultiplexError, KeyError):
    """A name that the rules do not declare."""

    def __init__(self, name: str, hint: str, known: Sequence[str]) -> None:
        listed = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
        self.text = f"the rules declare no {name!r}{hint}; they declare: {listed}"
        super().__init__(self.text)

    def __str__(self) -> str:
        return self.text


class RuleTypeError(MultiplexError, TypeError):
    """Something else than text was given for rules.

    Args:
        found: what was given.
        advice: what to do with it.
    """

    def __init__(self, found: object, advice: str) -> None:
        super().__init__(
            f"rules are text, one rule a line, or a list of such texts; found {_shown(found)}: {advice}"
        )


def _shown(found: object) -> str:
    return "None" if found is None else f"an object of type {type(found).__name__}"


class MissingLibrary(MultiplexError, ImportError):
    """A library that is not installed and that something asks for.

    Args:
        what: what needs it.
        library: the library.
        command: what installs it.
    """

    def __init__(self, what: str, library: str, command: str) -> None:
        super().__init__(
            f"{what} needs {library}, which is not installed: {command}", name=library
        )


class MissingFileError(MultiplexError, FileNotFoundError):
    """A file that is not there.

    Args:
        path: its path.
    """

    def __init__(self, path: object) -> None:
        super().__init__(ENOENT, strerror(ENOENT), str(path))

    def __str__(self) -> str:
        return f"{self.filename}: there is no such file"


@contextmanager
def opening(path: object) -> Iterator[None]:
    """Says which file is not there."""
    try:
        yield
    except FileNotFoundError:
        raise MissingFileError(path) from None


def brief(found: object) -> str:
    """What was found, on one line and not too long.

    Example:
        >>> brief(list(range(100))), brief("a\\nb")
        ('[0, 1, 2, 3, 4, 5, ...]', "'a\\\\nb'")
    """
    return " ".join(_BRIEF.repr(found).split())


_BRIEF = Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80


def install(extra: str) -> str:
    """What to do for the libraries of an extra: the package is on no index, so it is installed from a clone."""
    return f"in a clone of multiplexnet, pip install -c constraints.txt '.[{extra}]'"


@contextmanager
def needing(library: str, what: str, command: str) -> Iterator[None]:
    """Says what to do where importing the library fails because it is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != library:
            raise
        raise MissingLibrary(what, library, command) from None


class ContradictionError(MultiplexError, ValueError):
    """Rules that no output can obey, with a smallest set of them that contradict each other.

    Args:
        rules: the contradicting rules as (line or None, text).
    """

    def __init__(self, rules: Sequence[tuple[int | None, str]]) -> None:
        self.rules = tuple(rules)
        lines = [
            f"    line {line}: {text}" if line is not None else f"    {text}"
            for line, text in self.rules
        ]
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
        nested: whether inner blocks were tried as well.
        variable: the discrete output whose values alone are too many, if there is one.
        endless: names of the outputs that the rules give no ends; with ends a cascade needs no terms.
    """

    def __init__(
        self,
        count: int,
        max_terms: int,
        outputs: Sequence[str],
        *,
        nested: bool = False,
        variable: str | None = None,
        endless: Sequence[str] = (),
    ) -> None:
        self.count = count
        self.max_terms = max_terms
        self.outputs = tuple(outputs)
        self.endless = tuple(endless)
        ends = _advice_of_ends(self.endless)
        cover = "give cover=rows (data that the terms must contain: sound, but not complete)"
        if variable is not None:
            super().__init__(
                f"{variable} can take more than {max_terms} values, and every value needs a term of its own. "
                f"{_sentence(ends, 'declare')} fewer values, as in `{variable.partition('[')[0]}: int[0, 100]`, or "
                f"declare it as real and round it afterwards, or {cover}, or raise max_terms."
            )
            return
        names = _first_of(self.outputs)
        inner = (
            "inner blocks were tried and need too many terms as well"
            if nested
            else "let terms go on in inner blocks with compile(nested=True), which a Multiplexer tries by itself"
        )
        super().__init__(
            f"the rules over {names} have more than {max_terms} terms ({count} found so far"
            + (f"; {inner}). " if nested else "). ")
            + f"{_sentence(ends, 'raise')} max_terms, or {cover}, "
            + ("" if nested else f"or {inner}, ")
            + "or split the rules so that fewer outputs depend on each other."
        )


def _first_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _advice_of_ends(endless: Sequence[str]) -> str:
    if not endless:
        return ""
    return (
        f"Give {_first_of(endless)} ends, with rules such as `-1000 <= {endless[0]} <= 1000`: then a Multiplexer can "
        "compute the outputs one after another (a cascade), without terms. Otherwise "
    )


def _sentence(before: str, word: str) -> str:
    return before + word if before else word.capitalize()


class CompileTimeout(MultiplexError, TimeoutError):
    """Compiling rules, or building a layer, took longer than was allowed.

    Args:
        seconds: how long was allowed.
        doing: what was being done when the time was over.
        done: how far that was.
        advice: what makes it shorter.
    """

    def __init__(self, seconds: float, doing: str, done: str, advice: str) -> None:
        self.seconds = seconds
        self.doing = doing
        self.done = done
        others = f"{advice[:1].upper()}{advice[1:]}, or allow" if advice else "Allow"
        super().__init__(
            f"{seconds:g} s were not enough: they were over while {doing} ({done} so far). "
            f"{others} more time with seconds=… (None: no limit)."
        )


class SolverGaveUp(MultiplexError, RuntimeError):
    """z3 neither found a point nor proved that there is none; the text gives its reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"z3 could not decide the rules ({reason}). Try fewer or simpler rules."
        )


class ProductError(MultiplexError, RuntimeError):
    """Several blocks whose combinations of terms are too many to be written out.

    Args:
        sizes: the number of terms of each block.
        max_terms: the most combinations allowed.
    """

    def __init__(self, sizes: Sequence[int], max_terms: int) -> None:
        self.sizes = tuple(sizes)
        self.max_terms = max_terms
        product = " × ".join(map(str, self.sizes[:12])) + (
            " × …" if len(self.sizes) > 12 else ""
        )
        super().__init__(
            f"the {len(self.sizes)} blocks of the rules have {product} = {prod(self.sizes)} combinations, more "
            f"than max_terms = {max_terms}. best() and sample() need no combinations; for a loss, "
            "let it return one value per output (a sum over outputs is exact block by block), or give an estimator, or "
            "raise max_terms"
        )


class ShortcutBudgetExceeded(MultiplexError, RuntimeError):
    """Too many maps of labels would have to be tried to know all shortcuts.

    Args:
        tried: how many there are, as far as was seen.
        allowed: the most that are tried.
    """

    def __init__(self, tried: int, allowed: int) -> None:
        super().__init__(
            f"{tried} images of labels would have to be tried, more than {allowed}. Pass rows with fewer labels "
            "each, say which outputs are given, or ask mx.symmetries, which speaks of permutations alone"
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


class CoefficientError(MultiplexError, ValueError):
    """Inputs times outputs in a shape that no layer computes.

    Args:
        what: was found.
        advice: what to do.
    """

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(f"coefficients from inputs: {what}; {advice}")


class InputError(MultiplexError, TypeError):
    """An input (or a function) of the rules that is missing, or one that they do not have."""


class OptionError(MultiplexError, ValueError):
    """An argument whose value is none of those that it may have.

    Args:
        name: of the argument.
        found: what was given for it.
        allowed: what may be given.
    """

    def __init__(self, name: str, found: object, allowed: str) -> None:
        self.name = name
        super().__init__(f"{name} = {brief(found)}; it is {allowed}")


class GraphError(MultiplexError, RuntimeError):
    """What has to look at the values of its arguments was called where they are not known yet.

    Args:
        what: was called.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} looks at the values of every row, and here they cannot be looked at (a graph is being recorded, "
            f"torch.vmap, the meta device): call {what} outside, on what the graph returns"
        )


class RecordError(MultiplexError, ValueError):
    """A saved layer or certificate that cannot be read."""


class PlotError(MultiplexError, ValueError):
    """A picture that cannot be drawn, and why."""


class QuestionError(MultiplexError, ValueError):
    """A question to the playground that it cannot answer as it was put."""


class DomainError(MultiplexError, ValueError):
    """Rules whose outputs have another kind of domain than is asked for."""


class SourceError(MultiplexError, ValueError):
    """Arrays, a schema or a table that rules cannot be made from: what was found, where, what to give instead."""


class SqlError(MultiplexError, ValueError):
    """Rules that cannot be written in SQL: what was found, and what to do."""


class TableError(MultiplexError, ValueError):
    """A table that cannot be checked against the rules: what is wrong with it and where."""


class DenseRulesError(TableError):
    """Rules that tie so many columns together that what they leave of one column cannot be written down.

    Args:
        error: where compiling them ended.
    """

    def __init__(self, error: CascadeBudgetExceeded | CompileTimeout) -> None:
        found = str(error).partition(". ")[0]
        super().__init__(
            f"no model can be fitted under these rules: {found}. Rows are made one column after another, in "
            "exactly what the rules leave of each. Drop or split rules that tie many columns together, or declare "
            "narrower ranges; or fit without such rules, and move the rows that are made into all rules with "
            "mx.Multiplexer(rules).repair(rows): these obey as well, and have no likelihood"
        )


class StuckRowsError(TableError):
    """Rows of which every try came to a column of which the rules left nothing: names these columns."""


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
        self.rows = tuple(rows)
        self.dtype = dtype
        self.wider = wider
        advice = (
            f"{wider} would do"
            if wider
            else "no wider dtype would do either: give the rows more room"
        )
        super().__init__(
            f"these rows are too thin for {dtype} ({advice}):{_listed(self.rows)}"
        )


class OutOfRangeError(ThinTermError):
    """Rows that ask for numbers beyond the largest one of a format.

    Args:
        rows: the rows, as text.
        dtype: the format asked for.
        largest: its largest number.
        wider: a format that would do, if one is known.
    """

    def __init__(
        self, rows: Sequence[str], dtype: str, largest: Fraction, wider: str | None
    ) -> None:
        super().__init__(rows, dtype, wider)
        end = _power_of_ten(largest)
        advice = (
            f"{wider} would do"
            if wider
            else "no dtype reaches that far: measure in other units"
        )
        self.args = (
            f"these rows are beyond the range of {dtype}, ±{end} ({advice}):{_listed(self.rows)}",
        )


class EqualityError(MultiplexError, ValueError):
    """An equality that cannot be met exactly: which one, why, and what to do.

    Args:
        rows: the equalities, as text.
        reason: why not, and what would do.
    """

    def __init__(self, rows: Sequence[str], reason: str) -> None:
        self.rows = tuple(rows)
        self.reason = reason
        super().__init__(f"{reason}:{_listed(self.rows)}")


class RunTimeEqualityError(EqualityError):
    """An equality of outputs that holds run-time values, which terms do not meet.

    Args:
        rows: the equalities, as text.
        advice: what to do.
    """

    def __init__(self, rows: Sequence[str], advice: str) -> None:
        super().__init__(
            rows,
            "equalities of outputs that run-time values bound are not supported by terms, but by a cascade: "
            + advice,
        )


class MagnitudeError(MultiplexError, ValueError):
    """Numbers of rows that are too large or too small to compute with in float64.

    Args:
        rows: the rows, as text.
        number: the number that was found, or that the rows lead to.
    """

    def __init__(self, rows: Sequence[str], number: Fraction) -> None:
        self.rows = tuple(rows)
        self.number = number
        super().__init__(
            f"these rows need the number {_power_of_ten(number)}, and a layer computes with numbers between 1e-301 and "
            "1e301, and with quotients of them between 1e-270 and 1e270: "
            f"measure the outputs in other units, or leave the rows out:{_listed(self.rows)}"
        )


def _power_of_ten(number: Fraction) -> str:
    """About the number, whatever its size.

    Example:
        >>> _power_of_ten(Fraction(10) ** 400), _power_of_ten(-Fraction(1, 3 * 10 ** 400))
        ('1.00e+400', '-3.33e-401')
    """
    return f"{Decimal(number.numerator) / Decimal(number.denominator):.3g}"


class CurvedError(MultiplexError, ValueError):
    """A curved wall, a norm or a sum of squares, where no map is known for it.

    Args:
        rule: the rule or row as text.
        found: what stands in the way.
        advice: what to write instead.
    """

    def __init__(self, rule: str, found: str, advice: str) -> None:
        super().__init__(f"`{rule}` has a curved wall: {found}; {advice}")


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
        self.count = count
        self.budget = budget
        self.outputs = tuple(outputs)
        super().__init__(
            f"bounds of {', '.join(self.outputs)} with run-time values in them need {count} rows (allowed: {budget}): "
            "declare the ranges of inputs, as in `u: input[0, 10]`, tie fewer of these outputs together, or take the "
            "run-time values out of the rules that do"
        )


# --- cascades -------------------------------------------------------------------------------------------------------


class CascadeBudgetExceeded(MultiplexError, RuntimeError):
    """Rules whose projection onto fewer and fewer outputs grew beyond what it was given.

    Args:
        output: the output at which it exploded.
        allowed: how much was allowed.
        what: of what: ``"clauses"`` of a projection, ``"options"`` of an output, or clauses of the rules as
            ``"written"``, or as written because of ``"conditional"`` numbers.
        seconds: after how long.
    """

    def __init__(
        self, output: str, allowed: int, what: str = "clauses", seconds: float = 0.0
    ) -> None:
        self.output = output
        self.allowed = allowed
        self.what = what
        written = f"the rules over {output} and others are more than {allowed} clauses when written as such"
        if what == "conditional":
            super().__init__(
                f"{written}. Conditional numbers with values that vary, as in `v if c else 5`, make a case for every "
                "combination of them inside a sum: declare an output for each, as in "
                "`w: real[4]; all(w[i] == (x[i] if x[i] >= 1 else 5) for i in range(4))`, and sum these"
            )
            return
        found = {
            "clauses": f"the rules without {output} have more than {allowed} clauses",
            "options": f"{output} has more than {allowed} options, given the outputs before it",
            "written": written,
        }[what]
        more = (
            ""
            if what == "written"
            else f", or allow more with budget=mx.Budget({what}=…)"
        )
        after = f" (after {seconds:.1f} s)" if seconds else ""
        super().__init__(
            f"{found}{after}. Drop or split rules that tie {output} to many others, name another order of the outputs "
            f"with order=[…], or give outputs narrower ranges{more}"
        )


class CascadeError(MultiplexError, RuntimeError):
    """Something that needs terms alone, or a cascade alone, was asked of rules that have both, or the other one.

    Args:
        wanted: what was asked for.
        has_terms: whether some outputs come from terms.
    """

    def __init__(self, wanted: str, *, has_terms: bool = False) -> None:
        if has_terms:
            super().__init__(
                f"some of these outputs come from terms, so there are no {wanted}. For learning, take a loss of "
                "branches.best(), the exact log_prob of a RulesDistribution(mux, base, logits), or an estimator on its "
                'own, as in ScoreFunction()(branches, f); structure="cascade" computes one after another all outputs '
                "that rules tie together, and has branches.log_prob(x) if these are all"
            )
            return
        super().__init__(
            f"these rules are computed one output after another (a cascade), so there are no {wanted}. For learning, "
            "take a loss of branches.best(), the exact -branches.log_prob(x), or an estimator on its own, as in "
            'ScoreFunction()(branches, f); structure="terms" insists on terms'
        )


class ValuesError(MultiplexError, RuntimeError):
    """A probability was asked of a layer whose values are predictions, cut at the ends of their intervals."""

    def __init__(self) -> None:
        super().__init__(
            'with values="clamp" an output is a prediction, cut at the ends of what is left for it: it has no density, '
            'and so no log_prob. Build the layer with values="share" for probabilities, or train with a loss of '
            "branches.best()"
        )


class RangeError(MultiplexError, ValueError):
    """An output that others depend on and that the rules leave without ends.

    Args:
        output: its name.
        lower: the lower end that was found, if any.
        upper: the upper end that was found, if any.
    """

    def __init__(
        self, output: str, lower: Fraction | None, upper: Fraction | None
    ) -> None:
        self.output = output
        missing = [
            name for name, end in (("lower", lower), ("upper", upper)) if end is None
        ]
        super().__init__(
            f"{output} depends on other outputs, and the rules give it no {' and no '.join(missing)} end: a cascade "
            f"needs one to choose its grid. Add a rule such as `-1000 <= {output} <= 1000`"
        )


class GridError(MultiplexError, ValueError):
    """Rules that no point of the grid obeys, or that need a grid finer than exact sums allow.

    Args:
        reason: what was found, and what to do.
        is_empty: whether it is known that no point of the grid obeys.
    """

    def __init__(self, reason: str, is_empty: bool = False) -> None:
        self.reason = reason
        self.is_empty = is_empty
        super().__init__(reason)
