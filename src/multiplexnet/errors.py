"""Every exception of the library: small classes that build their own text from what was found.

All derive from :class:`MultiplexError` and from the builtin that fits, so both ``except`` styles work.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ContradictionError", "MultiplexError", "RuleSyntaxError", "TableError", "TermBudgetExceeded"]


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
            f"or split the rules so that fewer outputs depend on each other."
        )


class TableError(MultiplexError, ValueError):
    """A table that cannot be checked against the rules: what is wrong with it and where."""
