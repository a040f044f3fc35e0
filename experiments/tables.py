"""Write the tables of results into README.md, from the lines of JSON: ``python experiments/tables.py``.

A table stands between ``<!-- NAME -->`` and ``<!-- end -->``; nothing between them is written by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import harness
from harness import spread

Line = dict[str, Any]
RESULTS = harness.HERE / "results"
README = harness.HERE / "README.md"

PUBLISHED = {
    ("vae", 100): "14.7 / 9.30",
    ("vae", 250): "10.5 / 6.46",
    ("vae", 500): "5.48 / 4.99",
    ("vae", 1000): "4.91 / 4.78",
    ("dl2", 100): "17.5 / 12.4",
    ("dl2", 250): "13.3 / 8.8",
    ("dl2", 500): "7.9 / 5.6",
    ("dl2", 1000): "5.36 / 4.87",
    ("multiplexnet-paper", 100): "8.7 / 5.65",
    ("multiplexnet-paper", 250): "6.9 / 4.97",
    ("multiplexnet-paper", 500): "5.60 / 4.50",
    ("multiplexnet-paper", 1000): "5.22 / 4.40",
}
"""−ELBO and NLL of the authors' code, 5 seeds, with the constants that their figures leave out.

It was run apart from this repository; its lines are not kept."""

PAPER_CIFAR = {
    "vanilla": "75.0 / 84.0 / 83.8",
    "superclass": "– / 83.2 / –",
    "hierarchical": "71.2 / 84.7 / 100 (assumed)",
    "dl2": "75.3 / 84.3 / 85.8",
    "multiplexnet-paper": "74.4 / 85.4 / 100",
}
"""Class, super-class, satisfied, of a WRN-28-10, as printed in the paper."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def chosen(lines: Iterable[Line], **key: Any) -> list[Line]:
    """The lines with these values."""
    return [
        line
        for line in lines
        if all(line.get(name) == value for name, value in key.items())
    ]


def values(lines: Iterable[Line], name: str, scale: float = 1.0) -> list[float]:
    """One value of each line that has it."""
    return [scale * line[name] for line in lines if line.get(name) is not None]


def first_seen(lines: Iterable[Line], name: str) -> list[Any]:
    """The different values of a field, in order of appearance."""
    return list(dict.fromkeys(line[name] for line in lines))


# --- the experiments -------------------------------------------------------------------------------------------------


def synthetic() -> str:
    """Bounds and satisfaction, by number of rows and method."""
    return _densities(harness.read(RESULTS / "synthetic.jsonl"), published=True)


def same_recipe() -> str:
    """The baselines with the training of ours: as many steps, the same choice of the epoch."""
    ours = chosen(harness.read(RESULTS / "synthetic.jsonl"), method="multiplexnet")
    lines = harness.read(RESULTS / "synthetic-same-recipe.jsonl")
    sizes = first_seen(lines, "n")
    return _densities(
        [*lines, *(line for line in ours if line["n"] in sizes)], published=False
    )


def without() -> str:
    """What is lost when one ingredient of ours is left out, on the same seeds, by number of rows."""
    lines = harness.read(RESULTS / "synthetic-without.jsonl")
    whole = chosen(harness.read(RESULTS / "synthetic.jsonl"), method="multiplexnet")
    columns = list(product(("elbo", "nll"), sorted(first_seen(lines, "n"))))
    rows = [["–", *(spread(values(chosen(whole, n=n), name)) for name, n in columns)]]
    for left_out in INGREDIENTS:
        own = chosen(lines, without=left_out)
        rows.append(
            [left_out, *(_lost(chosen(own, n=n), whole, name) for name, n in columns)]
        )
    titles = {"elbo": "−ELBO", "nll": "NLL"}
    head = ["left out", *(f"{titles[name]}, N = {n}" for name, n in columns)]
    return table(head, rows if lines else [])


INGREDIENTS = ("conditional-prior", "raw-per-term", "bound", "draws", "steps")


def _lost(lines: Sequence[Line], whole: Sequence[Line], name: str) -> str:
    """The mean difference to the whole on the same seeds, its standard error, and how many seeds."""
    same = {(line["n"], line["seed"]): line[name] for line in whole}
    found = [line[name] - same[line["n"], line["seed"]] for line in lines]
    return f"{spread(found, 2, '+')} ({len(found)})" if found else "–"


def _densities(lines: Sequence[Line], *, published: bool) -> str:
    order = [
        "uniform",
        "counted",
        "vae",
        "dl2",
        "multiplexnet-paper",
        "multiplexnet-paper-prior",
        "multiplexnet-shared-raw",
        "multiplexnet",
        "multiplexnet-inside",
        "multiplexnet-density",
    ]
    rows = []
    for n in sorted(first_seen(lines, "n")):
        for method in order:
            if own := chosen(lines, method=method, n=n):
                cells = [
                    spread(values(own, "elbo"), 2),
                    f"{median(values(own, 'elbo')):.2f}",
                ]
                obey = [_mean(values(own, name, 100), 1) for name in OBEY]
                energy = [
                    _mean(values(own, name), 3) for name in ("energy", "means_energy")
                ]
                last = [PUBLISHED.get((method, n), "")] if published else []
                rows.append(
                    [
                        str(n),
                        method,
                        *cells,
                        spread(values(own, "nll"), 2),
                        *obey,
                        *energy,
                        *last,
                    ]
                )
    head = [
        "N",
        "method",
        "−ELBO",
        "median",
        "NLL",
        "reconstructions obey %",
        "prior means obey %",
    ]
    head += ["samples obey %", "energy distance", "of the means"]
    return table([*head, "original: −ELBO / NLL"] if published else head, rows)


OBEY = ("satisfied", "prior_satisfied", "sample_satisfied")


def _mean(found: Sequence[float], digits: int) -> str:
    """The mean, or a dash where it was not measured."""
    return f"{mean(found):.{digits}f}" if found else "–"


def mnist() -> str:
    """Accuracy without labels, by label net."""
    lines = harness.read(RESULTS / "mnist.jsonl")
    rows = []
    for method in first_seen(lines, "method"):
        for encoder in first_seen(lines, "encoder"):
            own = chosen(lines, method=method, encoder=encoder)
            found = values(own, "accuracy", 100)
            if found:
                span = f"{min(found):.2f} – {max(found):.2f}"
                goal = {"mlp": 98.0, "cnn": 99.0}[encoder]
                reached = f"{sum(value >= goal for value in found)} of {len(found)}"
                seconds = f"{mean(values(own, 'seconds')):.0f}"
                paper = (
                    "97.5 ± 0.3, the best 5 of 20 seeds"
                    if (method, encoder) == ("multiplexnet", "mlp")
                    else ""
                )
                elbo = spread(values(own, "elbo"), 1)
                rows.append(
                    [
                        method,
                        encoder,
                        spread(found, 2),
                        span,
                        f"{goal:g} %: {reached}",
                        elbo,
                        seconds,
                        paper,
                    ]
                )
    return table(
        [
            "method",
            "encoder",
            "accuracy %",
            "span",
            "at least",
            "−ELBO",
            "seconds a run",
            "paper",
        ],
        rows,
    )


def ablations() -> str:
    """What is lost when one ingredient is left out or changed."""
    lines = harness.read(RESULTS / "mnist-ablations.jsonl")
    whole = chosen(
        harness.read(RESULTS / "mnist.jsonl"), method="multiplexnet", encoder="mlp"
    )
    runs = [
        ("nothing", values(whole, "accuracy", 100)),
        ("phase B left out", values(whole, "accuracy_a", 100)),
        *(
            (
                name,
                values(
                    chosen(lines, ablation=name),
                    "accuracy_a" if name in PHASE_A else "accuracy",
                    100,
                ),
            )
            for name in first_seen(lines, "ablation")
        ),
    ]
    rows = [
        [
            name,
            f"{sum(value >= 95 for value in found)} of {len(found)}",
            f"{min(found):.1f} – {max(found):.1f}",
        ]
        for name, found in runs
    ]
    head = ["what was changed", "seeds above 95 %", "accuracy %, from – to"]
    return table(head, rows)


PHASE_A = ("full-initialisation",)
"""Ablations that are read after phase A: what is stuck there stays stuck."""


def cifar100() -> str:
    """Accuracy and satisfaction on frozen features, with paired differences."""
    lines = chosen(harness.read(RESULTS / "cifar100.jsonl"), backbone="features")
    rows = []
    for method in first_seen(lines, "method"):
        own = chosen(lines, method=method)
        three = [values(own, name) for name in ("fine", "coarse", "satisfied")]
        cells = [spread(found, 2) for found in three]
        rows.append(
            [
                method,
                *cells,
                *(_paired(lines, method, base) for base in BASES),
                PAPER_CIFAR.get(method, ""),
            ]
        )
    head = [
        "method",
        "class %",
        "super-class %",
        "satisfied %",
        *(f"super-class over {base}" for base in BASES),
    ]
    return table(
        [*head, "paper, another network: class / super-class / satisfied"], rows
    )


BASES = ("vanilla", "vanilla-superclass", "dl2", "hierarchical")


def _paired(lines: Sequence[Line], method: str, base: str) -> str:
    """The mean difference over equal seeds, with its standard error."""
    if not method.startswith("multiplexnet"):
        return ""
    theirs = {line["seed"]: line["coarse"] for line in chosen(lines, method=base)}
    own = chosen(lines, method=method)
    differences = [
        line["coarse"] - theirs[line["seed"]] for line in own if line["seed"] in theirs
    ]
    return spread(differences) if differences else ""


def scarce() -> str:
    """Accuracy over the number of training images, and what is gained on the same test images."""
    lines = harness.read(RESULTS / "scarce.jsonl")
    paired = harness.read(RESULTS / "scarce-paired.jsonl")
    rows = []
    for images in sorted(first_seen(lines, "images")):
        for method in first_seen(lines, "method"):
            own = chosen(lines, images=images, method=method)
            pairs = chosen(paired, images=images, method=method)
            over = [
                next((_points(each) for each in chosen(pairs, against=base)), "")
                for base in ("vanilla", "vanilla-superclass")
            ]
            shares = [values(own, name) for name in ("fine", "coarse", "satisfied")]
            rows.append(
                [
                    f"{images:,}",
                    method,
                    str(len(own)),
                    *(spread(found) for found in shares),
                    *over,
                ]
            )
    head = ["images", "method", "seeds", "class %", "super-class %", "satisfied %"]
    over_both = [
        f"super-class over {base}" for base in ("vanilla", "vanilla-superclass")
    ]
    return table([*head, *over_both], rows)


def _points(pair: Line) -> str:
    """A difference with its error over test images."""
    return f"{pair['difference']:+.2f} ± {pair['error']:.2f} (p = {pair['p']:.1g})"


FROM_MEMORY = {
    ("sushi", "semantic"): "13.6 – 15.0",
    ("sushi", "multiplexnet"): "SPL 20.8",
    ("sushi", "multiplexnet-ranks"): "SPL 20.8",
    ("paths", "semantic"): "28.5, the first path",
    ("paths", "multiplexnet-first"): "SPL 37.6, the first path",
}
"""Exact match in per cent, from memory of the literature and not checked here."""


def structured(name: str) -> str:
    """Answers that are exactly right, and answers that obey."""
    lines = harness.read(RESULTS / f"{name}.jsonl")
    first = ["first path %"] if name == "paths" else []
    rows = []
    for method in first_seen(lines, "method"):
        own = chosen(lines, method=method)
        rows.append(
            [
                method,
                str(len(own)),
                spread(values(own, "exact", 100)),
                *(spread(values(own, "first", 100)) for _ in first),
                spread(values(own, "consistent", 100), 1),
                spread(values(own, "validation", 100)),
                f"{mean(values(own, 'seconds')):.0f}",
                FROM_MEMORY.get((name, method), ""),
            ]
        )
    head = ["method", "seeds", "exact %", *first, "consistent %"]
    last = ["exact %, validation", "seconds a run", "from memory, not checked here"]
    return table([*head, *last], rows)


def sushi() -> str:
    """Orders of four kinds."""
    return structured("sushi")


def sushi_splits() -> str:
    """The same with a split for every seed."""
    return structured("sushi-splits")


def sushi_predictors() -> str:
    """What could say the logits, compared on rows that are not reported on."""
    lines = harness.read(RESULTS / "sushi-predictors.jsonl")
    rows = []
    for method in first_seen(lines, "method"):
        own = chosen(lines, method=method)
        exact, likelihood = mean(values(own, "exact", 100)), values(own, "likelihood")
        rows.append([method, f"{exact:.1f}", f"{mean(likelihood):.3f}"])
    return table(["predictor", "exact %", "log-likelihood"], rows)


def paths() -> str:
    """Shortest paths."""
    return structured("paths")


FROM_MEMORY_SUMS = {
    "sum-1": "97.9 / 97.7",
    "sum-2": "96.4 / 96.0",
    "sum-4": "92.7 / 92.6",
}
"""Sums in per cent, DeepStochLog and A-NeSI, from memory of the literature and not checked here."""


def addition() -> str:
    """Sums and digits, with what was predicted and what the evidence ratio says."""
    lines = harness.read(RESULTS / "addition.jsonl")
    foretold = harness.read(RESULTS / "addition-predicted.jsonl")
    predicted = {line["case"]: line for line in foretold}
    rows = []
    for case in CASES:
        for encoder, method in product(("mlp", "cnn"), ("likelihood", "evidence")):
            if own := chosen(lines, case=case, method=method, encoder=encoder):
                evidence = spread(values(own, "evidence"))
                truth = spread(values(own, "evidence_of_truth"))
                rows.append(
                    [
                        case,
                        encoder,
                        method,
                        str(len(own)),
                        *(f"{predicted[case][name]:,}" for name in PREDICTED),
                        spread(values(own, "accuracy", 100)),
                        spread(values(own, "digits", 100)),
                        ends(own),
                        f"{evidence} ({truth})" if values(own, "evidence") else "",
                        FROM_MEMORY_SUMS.get(case, ""),
                    ]
                )
    head = [
        "known",
        "label net",
        "loss",
        "seeds",
        *PREDICTED,
        "what is known is met %",
    ]
    head += ["digits right %", "labels in the end", "evidence ratio (of the truth)"]
    return table([*head, "sums %: DeepStochLog / A-NeSI, from memory"], rows)


def mnist_fixed() -> str:
    """Digits without labels from few quadruples."""
    lines = harness.read(RESULTS / "mnist-fixed.jsonl")
    rows = []
    for encoder in ("mlp", "cnn"):
        own = chosen(lines, encoder=encoder)
        for count in sorted(first_seen(own, "rows")):
            same = chosen(own, rows=count)
            right = values(same, "accuracy", 100)
            rows.append(
                [
                    encoder,
                    f"{count:,}",
                    f"{mean(values(same, 'images')):,.0f}",
                    str(len(same)),
                    spread(right),
                    f"{min(right):.2f} – {max(right):.2f}",
                    spread(values(same, "evidence")),
                ]
            )
    head = ["label net", "quadruples", "different images", "seeds", "accuracy %"]
    return table([*head, "span", "evidence ratio on held-out images"], rows)


def addition_curve() -> str:
    """Digits from few sums."""
    lines = harness.read(RESULTS / "addition-curve.jsonl")
    rows = []
    for case, encoder in product(CASES, ("mlp", "cnn")):
        own = chosen(lines, case=case, encoder=encoder)
        for count in sorted(first_seen(own, "rows")):
            same = chosen(own, rows=count)
            rows.append(
                [
                    case,
                    encoder,
                    f"{count:,}",
                    str(len(same)),
                    spread(values(same, "accuracy", 100)),
                    spread(values(same, "digits", 100)),
                ]
            )
    head = ["known", "label net", "rows", "seeds"]
    return table([*head, "what is known is met %", "digits right %"], rows)


def ended(line: Line) -> tuple[int, ...]:
    """The map of digits to labels in which a run ended: the label that each digit gets most often.

    Older lines have no map, but the shares of labels of each digit; or more than 95 % of the digits are right, and then
    every digit is, since each has 9 % of the test images or more.
    """
    if "map" in line:
        return tuple(line["map"])
    if "labels" in line:
        return tuple(shares.index(max(shares)) for shares in line["labels"])
    if line["digits"] < 0.95:
        raise ValueError(f"nothing tells in which labels this run ended: {line}")
    return tuple(range(10))


def ends(lines: Sequence[Line]) -> str:
    """The maps in which runs ended, as the labels of 0, 1, 2 …, with the number of runs."""
    counts = Counter(map(ended, lines))
    texts = []
    for labels, runs in counts.most_common():
        right = labels == tuple(range(len(labels)))
        text = "the digits" if right else "".join(map(str, labels))
        texts.append(text if len(counts) == 1 else f"{text} ({runs})")
    return ", ".join(texts)


PREDICTED = ("relabellings", "shortcuts")

CASES = ("sum-1", "sum-2", "sum-4", "free-1", "free-2", "free-4", "parity", "half")


POWER = (
    "net",
    "clip",
    "dc3",
    "projection",
    "repair",
    "multiplexnet",
    "multiplexnet-cost",
    "multiplexnet-cost-long",
)


def power() -> str:
    """Cost over the optimum, exact violations, and time."""
    lines = harness.read(RESULTS / "power.jsonl")
    rows = []
    for case in sorted(first_seen(lines, "case"), key=int):
        solver = values(chosen(lines, case=case), "solver_ms")
        rows.append([case, "solver", "", "0", "", "", f"{mean(solver):.0f}", ""])
        for method in POWER:
            if own := chosen(lines, case=case, method=method):
                rows.append(
                    [
                        case,
                        method,
                        str(len(own)),
                        spread(values(own, "gap", 100), 3),
                        spread(values(own, "violations", 100), 0),
                        f"{max(values(own, 'largest')):.2g}",
                        f"{mean(values(own, 'ms_alone')):.1f}",
                        f"{mean(values(own, 'ms_batch')):.3f}",
                    ]
                )
    head = ["buses", "method", "seeds", "gap %", "rows that break a limit, %"]
    head += ["by at most, MW", "ms, one alone", "ms a row, 100 together"]
    return table(head, rows)


# --- small experiments -----------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """A field of the lines, how it is called, and how it is shown."""

    field: str
    title: str
    digits: int
    scale: float = 1.0


def _part(part: str, names: Sequence[str], columns: Sequence[Column]) -> str:
    """One row for every combination of these fields, with means over seeds."""
    lines = chosen(harness.read(RESULTS / "extras.jsonl"), part=part)
    keys = list(dict.fromkeys(tuple(line[name] for name in names) for line in lines))
    rows = []
    for key in keys:
        own = chosen(lines, **dict(zip(names, key, strict=True)))
        cells = [
            spread(values(own, each.field, each.scale), each.digits) for each in columns
        ]
        rows.append(
            [
                *(f"{each:,}" if isinstance(each, int) else str(each) for each in key),
                *cells,
            ]
        )
    return table([*names, *(each.title for each in columns)], rows)


def extras_terms() -> str:
    """Learning against the number of terms."""
    columns = [
        Column("error", "error, % of the range", 2),
        Column("trivial", "of the median", 2),
        Column("loss", "expected loss", 1),
        Column("ms", "ms a step", 1),
    ]
    return _part("terms", ["terms"], columns)


def extras_estimators() -> str:
    """Ways to train a choice."""
    columns = [
        Column("error", "error, % of the range", 2),
        Column("loss", "expected loss, exactly", 1),
        Column("noise", "squared error of gradients, at the start", 1),
        Column("noise_after", "in the end", 1),
        Column("ms", "ms a step", 1),
    ]
    return _part("estimators", ["method"], columns)


def extras_wrong() -> str:
    """Rows that break the rules, rules that are wrong."""
    columns = [
        Column("error", "error against the truth", 3),
        Column("seen", "training rows refused, %", 0, 100),
        Column("broken", "outputs above the true limit, %", 1, 100),
    ]
    return _part("wrong", ["share", "factor", "method"], columns)


def extras_attack() -> str:
    """Inputs that are changed so as to break a rule."""
    columns = [
        Column("error", "error before", 3),
        Column("broken", "rows that break, %", 1, 100),
        Column("broken_attacked", "attacked, %", 1, 100),
        Column("excess", "largest sum over its limit", 3),
    ]
    return _part("attack", ["method"], columns)


def extras_mixed() -> str:
    """Whole numbers, truth values and reals in one density."""
    columns = [
        Column("nll_start", "nats a row, before", 3),
        Column("nll", "after", 3),
        Column("nll_truth", "the true density", 3),
        Column("obey", "samples that obey, %", 0, 100),
    ]
    return _part("mixed", ["method"], columns)


def extras_generators() -> str:
    """A flow and a GAN, with and without the layer."""
    columns = [
        Column("obey", "samples that obey, %", 1, 100),
        Column("energy", "energy distance to test rows", 3),
        Column("nll", "NLL, nats a row", 2),
    ]
    return _part("generators", ["method"], columns)


TABLES: dict[str, Callable[[], str]] = {
    "synthetic": synthetic,
    "same-recipe": same_recipe,
    "without": without,
    "mnist": mnist,
    "mnist-ablations": ablations,
    "cifar100": cifar100,
    "scarce": scarce,
    "sushi": sushi,
    "sushi-splits": sushi_splits,
    "sushi-predictors": sushi_predictors,
    "paths": paths,
    "addition": addition,
    "addition-curve": addition_curve,
    "mnist-fixed": mnist_fixed,
    "power": power,
    "extras-terms": extras_terms,
    "extras-estimators": extras_estimators,
    "extras-wrong": extras_wrong,
    "extras-attack": extras_attack,
    "extras-mixed": extras_mixed,
    "extras-generators": extras_generators,
}


def is_measured(name: str) -> bool:
    """Whether there are results for a table: it has rows beneath its head."""
    return len(TABLES[name]().splitlines()) > 2


def filled(text: str) -> str:
    """The text with every table made anew."""

    def made(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{TABLES[found[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- end -->", made, text, flags=re.DOTALL)


def main(path: Path = README) -> None:
    """Fill in the tables of a file."""
    path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
