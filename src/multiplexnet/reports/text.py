"""What the commands say: reports as text for people (rich) and as plain data for programs (JSON)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from multiplexnet.compiler.explanation.words import (
    counted,
    findings,
    interval_text,
    readable_number,
    summary,
    term_text,
)
from multiplexnet.compiler.terms import Block, Term
from multiplexnet.language.formula import Rule, Specification, Variable
from multiplexnet.language.text import declaration_text, formula_text, number_text, value_text

if TYPE_CHECKING:
    from multiplexnet.compiler.explanation.diagnose import Explanation, Range, TermShape
    from multiplexnet.tables.check import TableReport

__all__ = ["check_json", "check_text", "explain_json", "explain_text"]

SHOWN_TERMS = 50  # of a block, unless all are asked for
STEP_FORMAT = "float32"  # torch's own, for which the steps of outputs in equalities are told
_STYLES = {"wrong": "red", "superfluous": "yellow", "proved": "green", "known": ""}
Json = dict[str, Any]


# --- numbers and small words ----------------------------------------------------------------------------------------


def _number(number: Fraction | float) -> str:
    return "∞" if isinstance(number, float) else number_text(number)


def _readable(number: Fraction | float) -> str:
    return "∞" if isinstance(number, float) else readable_number(number)


def _domain(variable: Variable) -> str:
    return declaration_text(Specification((Variable("_", 0, variable.domain, variable.role),), ()))[
        3:
    ]


def _table(*columns: tuple[str, bool]) -> Table:
    """A plain table; a column is its header and whether it holds numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header, is_number in columns:
        table.add_column(
            header, justify="right" if is_number else "left", overflow="fold", header_style="dim"
        )
    return table


def _cells(*cells: object) -> tuple[Text, ...]:
    return tuple(Text("" if cell is None else str(cell)) for cell in cells)


# --- check ----------------------------------------------------------------------------------------------------------


def check_json(report: TableReport) -> Json:
    """The report as plain data; exact numbers are strings."""
    rules = [
        {
            "line": r.rule.line,
            "text": r.rule.text,
            "violating_rows": r.violations,
            "first_violating_row": r.first_row,
            "largest_violation": None if r.largest is None else _number(r.largest),
        }
        for r in report.rules
    ]
    domains = [
        {
            "variable": d.variable.name,
            "domain": _domain(d.variable),
            "rows_outside": d.violations,
            "first_row_outside": d.first_row,
        }
        for d in report.domains
    ]
    return {
        "table": report.table,
        "rows": report.rows,
        "obeying_rows": report.obeying,
        "all_obey": report.all_obey,
        "rules": rules,
        "domains": domains,
        "columns": {v.name: name for v, name in report.columns},
        "ignored_columns": list(report.ignored),
        "seconds": round(report.seconds, 3),
    }


def check_text(report: TableReport) -> RenderableType:
    """The report for reading."""
    parts: list[RenderableType] = [_verdict(report), "", _rule_table(report)]
    if any(d.violations for d in report.domains):
        parts += ["", _domain_table(report)]
    renamed = [f"{v.name} = {name}" for v, name in report.columns if name != v.name]
    if renamed:
        parts += ["", Text(f"columns: {', '.join(renamed)}", style="dim")]
    if report.ignored:
        parts += ["", Text(f"ignored columns: {', '.join(report.ignored)}", style="dim")]
    return Group(*parts)


def _verdict(report: TableReport) -> Text:
    if report.rows == 0:
        return Text(
            f"{report.table}: the table has a header and no rows, so nothing breaks the rules.",
            style="yellow",
        )
    head = f"{report.table}: {counted(report.rows, 'row')} checked in {report.seconds:.1f} s, "
    if report.all_obey:
        return Text.assemble(head, ("all obey the rules.", "green"))
    failed = report.rows - report.obeying
    return Text.assemble(
        head, (f"{failed:,} {'does' if failed == 1 else 'do'} not obey the rules.", "red")
    )


def _rule_table(report: TableReport) -> Table:
    table = _table(
        ("line", True),
        ("rule", False),
        ("violating rows", True),
        ("first", True),
        ("largest violation", True),
    )
    for r in report.rules:
        largest = _largest(r.largest)
        row = _cells(r.rule.line, r.rule.text, f"{r.violations:,}", r.first_row, largest)
        table.add_row(*row, style="red" if r.violations else "")
    return table


def _largest(violation: Fraction | float | None) -> str | None:
    if violation is None:
        return None
    if violation == 0:
        return "on the boundary"
    return _readable(violation)


def _domain_table(report: TableReport) -> Table:
    table = _table(
        ("variable", False), ("declared as", False), ("rows outside", True), ("first", True)
    )
    for d in report.domains:
        if d.violations:
            table.add_row(
                *_cells(d.variable.name, _domain(d.variable), f"{d.violations:,}", d.first_row),
                style="red",
            )
    return table


# --- explain --------------------------------------------------------------------------------------------------------


def explain_json(explanation: Explanation) -> Json:
    """The explanation as plain data; exact numbers are strings."""
    compiled = explanation.compiled
    specification = explanation.specification
    answer: Json = {
        "outputs": [{"name": v.name, "domain": _domain(v)} for v in specification.outputs],
        "inputs": [{"name": v.name, "domain": _domain(v)} for v in specification.inputs],
        "functions": list(specification.functions),
        "rules": _rules_json(specification.rules),
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
        "seconds": round(explanation.seconds, 3),
    }
    if compiled is not None:
        certificate = compiled.proof
        answer["blocks"] = [
            _block_json(b, s) for b, s in zip(compiled.blocks, _shapes(explanation), strict=True)
        ]
        answer["complete"] = compiled.complete
        answer["covered"] = None if compiled.covered is None else _number(compiled.covered)
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


def _range_json(r: Range) -> Json:
    if r.labels is not None:
        return {"name": r.variable.name, "labels": list(r.labels)}
    return {
        "name": r.variable.name,
        "lower": None if r.lower is None else _value(r.variable, r.lower),
        "lower_attained": r.lower_attained,
        "upper": None if r.upper is None else _value(r.variable, r.upper),
        "upper_attained": r.upper_attained,
    }


def _block_json(block: Block, shapes: Sequence[TermShape | None]) -> Json:
    terms = []
    for term, shape in zip(block.terms, shapes, strict=True):
        known = (None, None) if shape is None else (shape.dimension, shape.bounded)
        steps = {name: number_text(step) for name, step in _steps(block, term, shape).items()}
        terms.append(
            {**_term_json(term), "dimension": known[0], "bounded": known[1], "steps": steps}
        )
    return {"outputs": [v.name for v in block.outputs], "size": block.size, "terms": terms}


def _term_json(term: Term) -> Json:
    nested = [
        {"outputs": [v.name for v in b.outputs], "terms": [_term_json(t) for t in b.terms]}
        for b in term.blocks
    ]
    return {
        "rows": [formula_text(row) for row in term.rows],
        "fixed": _point_json(term.fixed),
        "blocks": nested,
    }


def explain_text(explanation: Explanation, *, all_terms: bool = False) -> RenderableType:
    """The explanation for reading."""
    specification = explanation.specification
    parts: list[RenderableType] = [
        Text(summary(specification), style="bold"),
        _indented(declaration_text(specification)),
    ]
    if explanation.compiled is not None:
        blocks = explanation.compiled.blocks
        limit = None if all_terms else SHOWN_TERMS
        for k, (block, shapes) in enumerate(
            zip(blocks, _shapes(explanation), strict=True), start=1
        ):
            parts += ["", _block_table(block, shapes, f"block {k} of {len(blocks)}: ", limit)]
    if explanation.ranges:
        parts += ["", _range_table(explanation.ranges)]
    told = [Text(finding.text, style=_STYLES[finding.kind]) for finding in findings(explanation)]
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
    title = Text(f"{head}{names}: {counted(len(block.terms), 'term')}{size}", style="bold")
    steps = [
        _steps_text(_steps(block, *pair))
        for pair in zip(block.terms[:limit], shapes[:limit], strict=True)
    ]
    more = [(f"steps in {STEP_FORMAT}", False)] if any(steps) else []
    table = _table(("", True), ("term", False), ("dimension", True), ("bounded", False), *more)
    for k, (term, shape) in enumerate(zip(block.terms[:limit], shapes[:limit], strict=True)):
        known = (
            (None, None) if shape is None else (shape.dimension, "yes" if shape.bounded else "no")
        )
        own = [steps[k]] if more else []
        table.add_row(*_cells(k, term_text(term), *known, *own))
    if not (hidden := len(block.terms[limit:]) if limit is not None else 0):
        return Group(title, table)
    return Group(
        title, table, Text(f"… and {hidden:,} more terms (--all-terms shows them)", style="dim")
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
    return "; ".join(f"{', '.join(own)}: {float(step):.3g}" for step, own in names.items())


def _range_table(ranges: Sequence[Range]) -> Table:
    table = _table(("output", False), ("range", False))
    for r in ranges:
        table.add_row(*_cells(r.variable.name, interval_text(r)))
    return table
