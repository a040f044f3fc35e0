"""An explanation in words: the sentences that all reports use, and a report in plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from multiplexnet.compiler.terms import Block, Compiled, Term
from multiplexnet.language.formula import Bool, Category, Rule, Specification, Variable
from multiplexnet.language.text import declaration_text, formula_text, number_text
from multiplexnet.language.text import value_text as written_value

if TYPE_CHECKING:
    from multiplexnet.compiler.explanation.diagnose import (
        CascadeShape,
        Explanation,
        OutputRange,
        TermShape,
    )

__all__ = [
    "Finding",
    "cascade_lines",
    "counted",
    "explanation_text",
    "findings",
    "interval_text",
    "premises",
    "readable_number",
    "summary",
    "term_text",
    "value_text",
]

LONGEST_NUMBER = 24
"""Characters of an exact number before it is rounded for reading."""
TRUTH = ("false", "true")
"""The values of a Boolean in words."""
FEW_NAMES = 4
"""How many outputs of a cascade are named where the rest is plain."""
SHOWN = 20
"""How many blocks, terms of a block, and ranges the plain text shows."""


# --- small words ----------------------------------------------------------------------------------------------------


def counted(count: int, noun: str) -> str:
    """``1 rule``, ``2 rules``, ``4,096 rules``."""
    plural = "" if count == 1 else "s"
    return f"{count:,} {noun}{plural}"


def readable_number(number: Fraction) -> str:
    """The exact number, rounded if it is long."""
    text = number_text(number)
    if len(text) <= LONGEST_NUMBER:
        return text
    return f"≈ {_nearest_float(number):.6g}"


def _nearest_float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def value_text(variable: Variable, number: Fraction) -> str:
    """The value of a variable for reading: of a category its label, of a date the date."""
    if isinstance(variable.domain, Category) or variable.unit.kind in (
        "date",
        "datetime",
    ):
        return written_value(variable, number)
    return readable_number(number * variable.unit.size)


def summary(specification: Specification) -> str:
    """How many outputs, inputs and rules there are."""
    counts = [
        (len(specification.columns), "output"),
        (len(specification.inputs), "input"),
        (len(specification.assumptions), "assumption"),
        (len(specification.rules), "rule"),
    ]
    return ", ".join(counted(count, noun) for count, noun in counts if count)


def premises(specification: Specification) -> list[str]:
    """The declarations, and what is assumed of inputs, a line each."""
    assumed = [f"assume {rule.text}" for rule in specification.assumptions]
    return [*declaration_text(specification).splitlines(), *assumed]


def term_text(term: Term) -> str:
    """A term as a reader would write it, nested choices on lines of their own."""
    plain = formula_text(Term(term.rows, term.fixed).formula)
    return "\n".join([plain, *_nested_lines(term.blocks, "  ")])


def _nested_lines(blocks: Sequence[Block], indent: str) -> Iterator[str]:
    for block in blocks:
        yield f"{indent}and one of"
        for term in block.terms:
            plain = formula_text(Term(term.rows, term.fixed).formula)
            yield f"{indent}  {plain}"
            yield from _nested_lines(term.blocks, indent + "    ")


def interval_text(found: OutputRange) -> str:
    """The range of an output: an interval, the labels of a category, ``false or true``, or ``= 2``."""
    if isinstance(found.variable.domain, Bool):
        values = [
            TRUTH[int(end)] for end in (found.lower, found.upper) if end is not None
        ]
        return f"= {values[0]}" if values[0] == values[-1] else " or ".join(values)
    if found.labels is not None:
        return (
            f"= {found.labels[0]}"
            if len(found.labels) == 1
            else ", ".join(found.labels)
        )
    if found.lower is not None and found.lower == found.upper:
        return f"= {value_text(found.variable, found.lower)}"
    return f"{_lower_text(found)}, {_upper_text(found)}"


def _lower_text(found: OutputRange) -> str:
    if found.lower is None:
        return "(−∞"
    bracket = "[" if found.lower_attained else "("
    return bracket + value_text(found.variable, found.lower)


def _upper_text(found: OutputRange) -> str:
    if found.upper is None:
        return "∞)"
    bracket = "]" if found.upper_attained else ")"
    return value_text(found.variable, found.upper) + bracket


# --- what was found -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """One line about the rules.

    Args:
        text: the line.
        kind: whether something is wrong, superfluous, proved, or only worth knowing.
    """

    text: str
    kind: Literal["wrong", "superfluous", "proved", "known"]


def findings(explanation: Explanation) -> Iterator[Finding]:
    """What is wrong with the rules, what is superfluous, which outputs are fixed, and what was proved."""
    yield from _wrong(explanation)
    for variable, number in explanation.fixed:
        is_truth = isinstance(variable.domain, Bool)
        value = TRUTH[int(number)] if is_truth else value_text(variable, number)
        yield Finding(f"{variable.name} is always {value}", "known")
    for outputs in explanation.centred:
        yield Finding(
            f"{_listed(outputs, FEW_NAMES)}: inputs move a set too dense to be computed one output after another, so a "
            "layer goes out from a centre that they move: some raw values reach every point, random ones seldom the "
            "ends of the ranges",
            "known",
        )
    for rule in explanation.always_true:
        yield Finding(f"always true, and can go: {_place(rule)}", "superfluous")
    for rule in explanation.implied:
        yield Finding(f"follows from the other rules: {_place(rule)}", "superfluous")
    if explanation.compiled is not None and (
        explanation.compiled.blocks or not explanation.cascades
    ):
        yield _proved(explanation.compiled)


def _wrong(explanation: Explanation) -> Iterator[Finding]:
    if explanation.contradiction:
        told = "these rules contradict each other (change any one of them)"
        if len(explanation.contradiction) == 1:
            told = "this rule contradicts itself"
        yield Finding(f"no output obeys the rules: {told}:", "wrong")
        for rule in explanation.contradiction:
            yield Finding(f"  {_place(rule)}", "wrong")
    elif explanation.problem is not None:
        yield Finding(explanation.problem, "wrong")
    if explanation.uncovered_input is not None:
        values = [
            f"{v.name} = {written_value(v, n)}" for v, n in explanation.uncovered_input
        ]
        yield Finding(
            f"no output obeys the rules for the input {', '.join(values)}", "wrong"
        )


def _place(rule: Rule) -> str:
    return rule.text if rule.line is None else f"line {rule.line}: {rule.text}"


def _proved(compiled: Compiled) -> Finding:
    checks = counted(compiled.proof.checks, "check")
    proof = f"proved with {compiled.proof.solver} in {checks}"
    if compiled.complete:
        said = "complete: the terms are exactly the outputs that obey the rules"
        return Finding(f"{said} ({proof})", "proved")
    said = "not complete: every term obeys the rules, but some outputs that do are in no term"
    if compiled.covered is not None:
        percent = 100 * _nearest_float(compiled.covered)
        said += f"; they contain {percent:.4g} % of the given rows"
    return Finding(f"{said} ({proof})", "known")


# --- plain text -----------------------------------------------------------------------------------------------------


def explanation_text(explanation: Explanation) -> str:
    """The explanation in plain text; of what is long, the first lines.

    Example:
        >>> from multiplexnet import Rules
        >>> print(explanation_text(Rules("x >= 2 or x == 0").explain()).partition("complete")[0])
        1 output, 1 rule
          x: real
        1 block
          x: 2 terms
            0: x == 0 (dimension 0, bounded)
            1: x >= 2 (dimension 1, unbounded)
        ranges
          x: [0, ∞)
        <BLANKLINE>
    """
    specification = explanation.specification
    lines = [summary(specification)]
    lines += _first(_indented(premises(specification)))
    if explanation.compiled is not None:
        count = len(explanation.compiled.blocks) + len(explanation.cascades)
        lines.append(counted(count, "block"))
        lines += _first(list(_block_texts(explanation)))
    for cascade in explanation.cascades:
        lines += [f"  {line}" for line in cascade_lines(cascade)]
    if explanation.ranges:
        lines.append("ranges")
        texts = [
            f"{found.variable.name}: {interval_text(found)}"
            for found in explanation.ranges
        ]
        lines += _first(_indented(texts))
    lines += [finding.text for finding in findings(explanation)]
    return "\n".join(lines)


def _block_texts(explanation: Explanation) -> Iterator[str]:
    """Each block with its terms; their shapes are missing where the time did not suffice to find them."""
    blocks = explanation.compiled.blocks if explanation.compiled else ()
    for k, block in enumerate(blocks):
        shapes = (
            explanation.shapes[k] if explanation.shapes else [None] * len(block.terms)
        )
        terms = [
            _numbered(i, *pair)
            for i, pair in enumerate(zip(block.terms, shapes, strict=True))
        ]
        head = f"  {_names(block)}: {counted(len(block.terms), 'term')}"
        yield "\n".join([head, *_first(terms, "    ")])


def cascade_lines(cascade: CascadeShape) -> list[str]:
    """What a layer does with a part of the rules that it computes one output after another."""
    spacings: dict[Fraction, list[Variable]] = {}
    for variable, step in zip(cascade.order, cascade.spacing, strict=True):
        spacings.setdefault(step, []).append(variable)
    grid = "; ".join(
        f"multiples of {_nearest_float(step):.3g} for {_listed(own, FEW_NAMES)}"
        for step, own in spacings.items()
    )
    options = sum(count for count in cascade.options if count > 1)
    reached = "" if cascade.complete else "; some points that obey are not reached"
    most = max(cascade.options)
    told = f"at most {most} of one output" if options else "none"
    return [
        f"{_listed(sorted(cascade.order, key=lambda v: v.index), FEW_NAMES)}: a cascade, since {cascade.why}",
        f"  order: {_listed(cascade.order, SHOWN)}",
        f"  options: {told}" + (f", {options:,} in all" if options else ""),
        f"  grid in {cascade.form}: {grid}{reached}",
    ]


def _listed(variables: Sequence[Variable], most: int) -> str:
    names = [variable.name for variable in variables]
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])}, …, {names[-1]} ({counted(len(names), 'output')})"


def _names(block: Block) -> str:
    names = [variable.name for variable in block.outputs]
    if not names:
        return "inputs alone"
    if len(names) > SHOWN:
        return f"{', '.join(names[:SHOWN])}, … ({counted(len(names), 'output')})"
    return ", ".join(names)


def _numbered(position: int, term: Term, shape: TermShape | None) -> str:
    first, *more = term_text(term).splitlines()
    if shape is not None:
        bounded = "bounded" if shape.bounded else "unbounded"
        first += f" (dimension {shape.dimension}, {bounded})"
    return "\n".join([f"    {position}: {first}", *(f"       {line}" for line in more)])


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _first(lines: Sequence[str], indent: str = "  ") -> list[str]:
    """The first few, and how many more there are."""
    hidden = len(lines) - SHOWN
    if hidden <= 0:
        return list(lines)
    return [*lines[:SHOWN], f"{indent}… and {hidden:,} more"]
