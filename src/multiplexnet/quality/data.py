"""A report as plain data for programs, and as a few lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from multiplexnet.quality.detection import Detection
from multiplexnet.quality.nearness import Nearness
from multiplexnet.quality.pairs import Pairs
from multiplexnet.quality.usefulness import Usefulness
from multiplexnet.reports.tables import check_json
from multiplexnet.tables.report import TableReport

if TYPE_CHECKING:
    from multiplexnet.quality.report import QualityReport

__all__ = ["data_of", "lines_of"]

Json = dict[str, Any]
MOST_PAIRS = 200
"""Pairs that are listed, those that differ most."""


def data_of(report: QualityReport) -> Json:
    """Everything but pictures."""
    made, learned, others = report.rows
    return {
        "violations": {
            "data": _violations(report.data),
            "made": _violations(report.made),
            "holdout": _violations(report.holdout),
        },
        "rows_compared": {"made": made, "first_half": learned, "second_half": others},
        "has_holdout": report.holdout is not None,
        "notes": list(report.notes),
        "columns_left_out": [asdict(own) for own in report.left_out],
        "detection": {
            "made": _detection(report.detection.made),
            "real": _detection(report.detection.real),
        },
        "usefulness": _usefulness(report.usefulness),
        "pairs": {
            "made": _pairs(report.pairs.made),
            "real": _pairs(report.pairs.real),
        },
        "columns": [
            {
                "column": own.column.name,
                "kind": own.column.kind,
                "measure": own.measure,
                "made": own.made,
                "real": own.real,
                "marks": [asdict(mark) for mark in own.marks],
            }
            for own in report.columns
        ],
        "heaps": [asdict(own) for own in report.heaps],
        "boundaries": [asdict(own) for own in report.tight],
        "copies": {**asdict(report.copies), "are_many": report.copies.are_many},
        "nearness": _nearness(report.nearness),
        "seed": report.seed,
        "seconds": round(report.seconds, 3),
    }


def _violations(own: TableReport | None) -> Json | None:
    if own is None:
        return None
    return {key: value for key, value in check_json(own).items() if key != "seconds"}


def _detection(own: Detection | None) -> Json | None:
    if own is None:
        return None
    score = None if own.is_reversed else own.score
    return {"score": score, "is_reversed": own.is_reversed, **asdict(own)}


def _nearness(own: Nearness | None) -> Json | None:
    """Without copies, which a sample does not show."""
    if own is None:
        return None
    found = asdict(own)
    for distances in ("made_to_learned", "made_to_others", "real_to_learned"):
        del found[distances]["copies"]
    return found


def _usefulness(own: Usefulness | str) -> Json:
    return {"reason": own} if isinstance(own, str) else asdict(own)


def _pairs(own: Pairs | None) -> Json | None:
    if own is None:
        return None
    listed = [asdict(pair) for pair in own.pairs[:MOST_PAIRS]]
    return {
        "trend": own.trend,
        "weighted_nmi": own.weighted,
        "rows": own.rows,
        "most_different": listed,
    }


# --- for a terminal ---------------------------------------------------------------------------------------------------


def lines_of(report: QualityReport) -> Iterator[str]:
    """The figures, one a line: made, and what other real rows have."""
    broken = report.made.rows - report.made.obeying
    real = report.data.rows - report.data.obeying
    yield f"{'':34}{'made':>12}  {'real':>12}"
    yield _line("rows that break a rule", f"{broken:,}", f"{real:,}")
    yield _line("of", f"{report.made.rows:,}", f"{report.data.rows:,}")
    told = report.detection.made
    apart = report.detection.real
    yield _line("detection: AUC (½: cannot tell)", _auc(told), _auc(apart))
    yield _line("detection: score (1: cannot tell)", _score(told), _score(apart))
    useful = report.usefulness
    if isinstance(useful, str):
        yield f"usefulness: {useful}"
    else:
        for name in ("auc", "f1", "r2"):
            made = getattr(useful.made, name)
            own = getattr(useful.real, name)
            if made is not None:
                title = f"trained for {useful.target}: {name.upper()}"
                yield _line(title, f"{made:.3f}", f"{own:.3f}")
    one = report.pairs.made
    other = report.pairs.real
    if one is not None and other is not None:
        yield _line(
            "pairs: weighted NMI", _number(one.weighted), _number(other.weighted)
        )
        yield _line("pairs: trend", _number(one.trend), _number(other.trend))
    near = report.nearness
    if near is not None and report.holdout is not None:
        yield _line("nearer to learned rows", f"{near.share:.1%}", "50.0%")
    copied = report.copies
    yield _line(
        "copies of rows of the real table", f"{copied.made:.1%}", f"{copied.real:.1%}"
    )


def _line(title: str, made: str, real: str) -> str:
    return f"{title:34}{made:>12}  {real:>12}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _auc(own: Detection | None) -> str:
    return "–" if own is None else f"{own.auc:.3f}"


def _score(own: Detection | None) -> str:
    return "–" if own is None or own.is_reversed else f"{own.score:.3f}"
