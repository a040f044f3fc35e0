"""What the commands say: reports as text for people (rich) and as plain data for programs (JSON)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from multiplexnet.compiler.explanation.words import (
    cascade_lines,
    counted,
    findings,
    interval_text,
    premises,
    summary,
    term_text,
)
from multiplexnet.compiler.terms import Block, Term
from multiplexnet.language.formula import Rule, Variable
from multiplexnet.language.text import (
    domain_text,
    formula_text,
    number_text,
    value_text,
)
from multiplexnet.reports.printing import plain_table, row_cells

if TYPE_CHECKING:
    from multiplexnet.compiler.explanation.diagnose import (
        CascadeShape,
        Explanation,
        OutputRange,
        TermShape,
    )

__all__ = ["explain_json", "explain_text"]

SHOWN_TERMS = 50  # of a block, unless all are asked for
STEP_FORMAT = (
    "float32"  # torch's own, for which the steps of outputs in equalities are told
)
_STYLES = {"wrong": "red", "superfluous": "yellow", "proved": "green", "known": ""}
Json = dict[str, Any]


# --- numbers and small words ----------------------------------------------------------------------------------------


def _number(number: Fraction | float) -> str:
    return "∞" if isinstance(number, float) else number_text(number)


# --- explain --------------------------------------------------------------------------------------------------------


def explain_json(explanation: Explanation) -> Json:
    """The explanation as plain data; exact numbers are strings."""
    compiled = explanation.compiled
    specification = explanation.specification
    answer: Json = {
        "outputs": [
            {"name": v.name, "domain": domain_text(v)} for v in specification.columns
        ],
        "inputs": [
            {"name": v.name, "domain": domain_text(v)} for v in specification.inputs
        ],
        "functions": list(specification.functions),
        "rules": _rules_json(specification.rules),
        "assumptions": _rules_json(specification.assumptions),
        "ranges": [_range_json(r) for r in explanation.ranges],
        "diagnosis": {
            "contradiction": _rules_json(explanation.contradiction),
            "always_true": _rules_json(explanation.always_true),
            "implied": _rules_json(explanation.implied),
            "fixed": _point_json(explanation.fixed),
            "input_without_output": None
            if explanation.uncovered_input is None
            else _point_json(explanation.uncovered_input),
        },
        "problem": explanation.problem,
        "blocks": None,
        "cascades": [_cascade_json(cascade) for cascade in explanation.cascades],
        "seconds": round(explanation.seconds, 3),
    }
    if compiled is not None:
        certificate = compiled.proof
        answer["blocks"] = [
            _block_json(b, s)
            for b, s in zip(compiled.blocks, _shapes(explanation), strict=True)
        ]
        answer["complete"] = compiled.complete
        answer["covered"] = (
            None if compiled.covered is None else _number(compiled.covered)
        )
        answer["certificate"] = {
            "sound": certificate.sound,
            "complete": certificate.complete,
            "solver": certificate.solver,
            "checks": certificate.checks,
        }
    return answer


def _shapes(explanation: Explanation) -> Sequence[Sequence[TermShape | None]]:
    """The shapes of the terms, ``None`` for each where the time did not suffice to find them."""
    if explanation.compiled is None or explanation.shapes:
        return explanation.shapes
    return [[None] * len(block.terms) for block in explanation.compiled.blocks]


def _rules_json(rules: Iterable[Rule]) -> list[Json]:
    return [{"line": rule.line, "text": rule.text} for rule in rules]


def _point_json(point: Iterable[tuple[Variable, Fraction]]) -> dict[str, str]:
    return {variable.name: _value(variable, number) for variable, number in point}


def _value(variable: Variable, number: Fraction) -> str:
    """The exact value of a variable as people write it."""
    return value_text(variable, number)


def _range_json(r: OutputRange) -> Json:
    if r.labels is not None:
        return {"name": r.variable.name, "labels": list(r.labels)}
    return {
        "name": r.variable.name,
        "lower": None if r.lower is None else _value(r.variable, r.lower),
        "lower_attained": r.lower_attained,
        "upper": None if r.upper is None else _value(r.variable, r.upper),
        "upper_attained": r.upper_attained,
        **({"outer": True} if r.outer else {}),
    }


def _block_json(block: Block, shapes: Sequence[TermShape | None]) -> Json:
    terms = []
    for term, shape in zip(block.terms, shapes, strict=True):
        known = (None, None) if shape is None else (shape.dimension, shape.bounded)
        steps = {
            name: number_text(step) for name, step in _steps(block, term, shape).items()
        }
        terms.append(
            {
                **_term_json(term),
                "dimension": known[0],
                "bounded": known[1],
                "steps": steps,
            }
        )
    return {
        "outputs": [v.name for v in block.outputs],
        "size": block.size,
        "terms": terms,
    }


def _cascade_json(cascade: CascadeShape) -> Json:
    return {
        "outputs": [v.name for v in sorted(cascade.order, key=lambda v: v.index)],
        "why": cascade.why,
        "order": [v.name for v in cascade.order],
        "options": list(cascade.options),
        "steps": {
            v.name: number_text(step)
            for v, step in zip(cascade.order, cascade.spacing, strict=True)
        },
        "complete": cascade.complete,
        "dtype": cascade.form,
    }


def _term_json(term: Term) -> Json:
    nested = [
        {
            "outputs": [v.name for v in b.outputs],
            "terms": [_term_json(t) for t in b.terms],
        }
        for b in term.blocks
    ]
    return {
        "rows": [formula_text(row) for row in term.rows],
        "fixed": _point_json(term.fixed),
        "blocks": nested,
    }


def explain_text(
    explanation: Explanation, *, all_terms: bool = False
) -> RenderableType:
    """The explanation for reading."""
    specification = explanation.specification
    parts: list[RenderableType] = [
        Text(summary(specification), style="bold"),
        _indented("\n".join(premises(specification))),
    ]
    if explanation.compiled is not None:
        blocks = explanation.compiled.blocks
        limit = None if all_terms else SHOWN_TERMS
        for k, (block, shapes) in enumerate(
            zip(blocks, _shapes(explanation), strict=True), start=1
        ):
            parts += [
                "",
                _block_table(block, shapes, f"block {k} of {len(blocks)}: ", limit),
            ]
    for cascade in explanation.cascades:
        parts += ["", Text("\n".join(cascade_lines(cascade)))]
    if explanation.ranges:
        parts += ["", _range_table(explanation.ranges)]
    told = [
        Text(finding.text, style=_STYLES[finding.kind])
        for finding in findings(explanation)
    ]
    parts += ["", *told, Text(f"{explanation.seconds:.2f} s", style="dim")]
    return Group(*parts)


def _indented(text: str) -> Text:
    return Text("\n".join(f"  {line}" for line in text.splitlines()))


def _block_table(
    block: Block, shapes: Sequence[TermShape | None], head: str, limit: int | None
) -> RenderableType:
    names = ", ".join(v.name for v in block.outputs)
    size = (
        f" ({counted(block.size, 'term')} in disjunctive normal form)"
        if block.size != len(block.terms)
        else ""
    )
    title = Text(
        f"{head}{names}: {counted(len(block.terms), 'term')}{size}", style="bold"
    )
    steps = [
        _steps_text(_steps(block, *pair))
        for pair in zip(block.terms[:limit], shapes[:limit], strict=True)
    ]
    more = [(f"steps in {STEP_FORMAT}", False)] if any(steps) else []
    table = plain_table(
        ("", True), ("term", False), ("dimension", True), ("bounded", False), *more
    )
    for k, (term, shape) in enumerate(
        zip(block.terms[:limit], shapes[:limit], strict=True)
    ):
        known: tuple[int | None, str | None] = (None, None)
        if shape is not None:
            known = (shape.dimension, "yes" if shape.bounded else "no")
        own = [steps[k]] if more else []
        table.add_row(*row_cells(k, term_text(term), *known, *own))
    if not (hidden := len(block.terms[limit:]) if limit is not None else 0):
        return Group(title, table)
    return Group(
        title,
        table,
        Text(f"… and {hidden:,} more terms (--all-terms shows them)", style="dim"),
    )


def _steps(block: Block, term: Term, shape: TermShape | None) -> dict[str, Fraction]:
    """What the values of outputs that equalities tie together lie apart in a layer; none if it would be refused."""
    from multiplexnet.errors import MultiplexError
    from multiplexnet.geometry.parts import Lattice
    from multiplexnet.geometry.split import parts_of

    if shape is None or shape.dimension == len(block.outputs) - len(term.fixed):
        return {}
    try:
        parts = parts_of(term, block.outputs, STEP_FORMAT)
    except MultiplexError:
        return {}
    return {
        name: step
        for part in parts
        if isinstance(part, Lattice)
        for name, step in part.steps.items()
    }


def _steps_text(steps: dict[str, Fraction]) -> str:
    """Outputs with the same step together."""
    names: dict[Fraction, list[str]] = {}
    for name, step in steps.items():
        names.setdefault(step, []).append(name)
    return "; ".join(
        f"{', '.join(own)}: {float(step):.3g}" for step, own in names.items()
    )


def _range_table(ranges: Sequence[OutputRange]) -> Table:
    table = plain_table(("output", False), ("range", False))
    for r in ranges:
        within = "within " if r.outer and (r.lower, r.upper) != (None, None) else ""
        table.add_row(*row_cells(r.variable.name, within + interval_text(r)))
    return table
