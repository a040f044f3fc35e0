"""Does a model that was trained on made rows work on real ones? Boosted trees predict one column from all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from multiplexnet.errors import TableError
from multiplexnet.quality.columns import ComparedColumn, Floats, SampledRows
from multiplexnet.quality.detection import FEWEST, auc
from multiplexnet.quality.trees import Learner, classifier, features, regressor

__all__ = ["Performance", "Usefulness", "target_of", "usefulness"]

LARGEST = 1e100
"""Numbers beyond it are measured in larger units: squares of larger ones may be infinite."""
MOST_CLASSES = 20
"""Labels of a target that are told apart, the most frequent; all others are one."""


@dataclass(frozen=True)
class Performance:
    """How well a model worked on real rows that it had not seen.

    Args:
        auc: of classes; of more than two the mean of one against the others.
        f1: of the rarer of two classes; of more than two the mean over them.
        r2: of numbers, the share of their variance that is explained.
    """

    auc: float | None = None
    f1: float | None = None
    r2: float | None = None


@dataclass(frozen=True)
class Usefulness:
    """What a model that was trained on made rows is worth.

    Args:
        target: the column that is predicted.
        task: whether it is a class or a number.
        rows: how many rows it was trained on.
        tested: how many real rows it was tested on.
        positive: of two classes the one that F1 is about.
        made: trained on made rows.
        real: trained on as many real ones.
        note: what was done to the target, if something was.
    """

    target: str
    task: Literal["class", "number"]
    rows: int
    tested: int
    positive: str | None
    made: Performance
    real: Performance
    note: str = ""


def target_of(
    columns: tuple[ComparedColumn, ...], name: str | None
) -> ComparedColumn | None:
    """The column to predict: the one that is named, or else the last of labels or truth values, or else the last.

    Raises:
        TableError: there is no such column.
    """
    if name is not None:
        named = [column for column in columns if column.name == name]
        if not named:
            known = ", ".join(column.name for column in columns)
            raise TableError(
                f"--target {name}: there is no such column to compare; there are: {known}"
            )
        return named[0]
    if len(columns) < 2:
        return None
    classes = [
        column
        for column in columns
        if column.kind == "truth"
        or (column.kind == "label" and len(column.labels) <= MOST_CLASSES)
    ]
    return classes[-1] if classes else columns[-1]


def usefulness(
    made: SampledRows,
    trained: SampledRows,
    tested: SampledRows,
    target: ComparedColumn,
    seed: int,
    *,
    learner: Learner = classifier,
) -> Usefulness | str:
    """Trees trained on made rows, beside trees trained on as many real ones; both are tested on other real rows.

    Returns:
        A reason, if nothing can be said.
    """
    if len(made.columns) < 2:
        return "there is one column alone, and nothing to predict it from"
    task: Literal["class", "number"] = (
        "class" if target.kind in ("truth", "label") else "number"
    )
    k = made.columns.index(target)
    note = ""
    if len(target.labels) > MOST_CLASSES:
        note = f"labels beyond the {MOST_CLASSES - 1} most frequent are one class"
    parts = [_with_target(own, k) for own in (made, trained, tested)]
    count = min(len(parts[0]), len(parts[1]))
    if min(count, len(parts[2])) < FEWEST:
        return f"it takes {FEWEST} rows of each table with a value of {target.name}"
    learned = parts[0].take(_first(count))
    real = parts[1].take(_first(count))
    judged = parts[2]
    largest = max(float(np.abs(own.values[:, k]).max()) for own in parts)
    problem = _Problem(k, task, target, seed, learner, max(largest / LARGEST, 1.0))
    if task == "class":
        for own, title in ((learned, "made"), (real, "real"), (judged, "real")):
            if len(np.unique(problem.answers(own))) < 2:
                return f"{target.name} has one value alone in the {title} rows"
    positive = problem.positive(judged)
    return Usefulness(
        target.name,
        task,
        count,
        len(judged),
        None if positive is None else problem.label(positive),
        problem.worked(learned, judged, positive),
        problem.worked(real, judged, positive),
        note,
    )


def _first(count: int) -> NDArray[np.intp]:
    return np.arange(count)


def _with_target(rows: SampledRows, k: int) -> SampledRows:
    return rows.take(np.flatnonzero(np.isfinite(rows.values[:, k])))


@dataclass(frozen=True)
class _Problem:
    """One column predicted from all others, in so large a unit."""

    place: int
    task: Literal["class", "number"]
    target: ComparedColumn
    seed: int
    learner: Learner
    unit: float

    def answers(self, rows: SampledRows) -> Floats:
        found = rows.values[:, self.place]
        if self.target.kind == "label":
            return np.minimum(found, MOST_CLASSES - 1)
        return found / self.unit

    def questions(self, rows: SampledRows) -> Floats:
        return np.delete(features(rows.values, rows.columns), self.place, axis=1)

    def positive(self, judged: SampledRows) -> float | None:
        """The rarer of two classes."""
        if self.task == "number":
            return None
        classes, counts = np.unique(self.answers(judged), return_counts=True)
        if len(classes) != 2:
            return None
        return float(classes[np.argmin(counts)])

    def label(self, answer: float) -> str:
        if self.target.kind == "label":
            return self.target.labels[int(answer)]
        return "true" if answer else "false"

    def worked(
        self, learned: SampledRows, judged: SampledRows, positive: float | None
    ) -> Performance:
        others = tuple(np.delete(np.array(learned.columns, dtype=object), self.place))
        truth = self.answers(judged)
        if self.task == "number":
            model = regressor(others, self.seed)
            model.fit(self.questions(learned), self.answers(learned))
            return Performance(r2=_r2(truth, model.predict(self.questions(judged))))
        model = self.learner(others, self.seed)
        model.fit(self.questions(learned), self.answers(learned))
        chances = _chances(model, self.questions(judged), np.unique(truth))
        return _classified(truth, chances, positive)


def _chances(model: object, questions: Floats, classes: Floats) -> dict[float, Floats]:
    """The probability of every class; 0 of one that the model has not seen."""
    found = model.predict_proba(questions)  # type: ignore[attr-defined]
    known = {float(c): found[:, j] for j, c in enumerate(model.classes_)}  # type: ignore[attr-defined]
    nothing = np.zeros(len(questions))
    return {**dict.fromkeys(map(float, classes), nothing), **known}


def _classified(
    truth: Floats, chances: dict[float, Floats], positive: float | None
) -> Performance:
    names = np.array(list(chances))
    guess = names[np.argmax(np.stack(list(chances.values())), axis=0)]
    asked = [positive] if positive is not None else np.unique(truth).tolist()
    aucs = [auc(truth == own, chances[own]) for own in asked]
    f1s = [_f1(truth == own, guess == own) for own in asked]
    return Performance(auc=float(np.mean(aucs)), f1=float(np.mean(f1s)))


def _f1(truth: NDArray[np.bool_], guess: NDArray[np.bool_]) -> float:
    hits = float((truth & guess).sum())
    return 2 * hits / max(float(truth.sum() + guess.sum()), 1.0)


def _r2(truth: Floats, guess: Floats) -> float:
    spread = float(((truth - truth.mean()) ** 2).sum())
    missed = float(((truth - guess) ** 2).sum())
    return 1 - missed / spread if spread else float(missed == 0)
