"""What makes tables in ``benchmarks/made_tables.py``: this library and its neighbours.

A method learns once and has one or more *variants*: rows as they come, rows without those that break a rule, rows that
were moved into the rules.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib import import_module
from io import StringIO
from time import process_time
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from table_sets import TableSet, obeying

import multiplexnet as mx
from multiplexnet.language.formula import Specification
from multiplexnet.language.text import formula_text
from multiplexnet.synthesis import synthesizer, training
from multiplexnet.synthesis.network import Shape

Draw = Callable[[int], pl.DataFrame]
"""Makes so many rows."""
REJECTED = 20
"""Rejection gives up after so many times the rows that were asked for."""


@dataclass(frozen=True)
class Learned:
    """What a method learned.

    Args:
        draw: makes rows.
        log_prob: of held-out rows, if the method has one.
        facts: what else is worth noting.
    """

    draw: Draw
    log_prob: Callable[[pl.DataFrame], NDArray[np.float64]] | None = None
    facts: Mapping[str, Any] | None = None


Learn = Callable[[TableSet, int, float], Learned]
"""Learns from a data set, with a seed, in so many processor minutes."""


# --- ours -------------------------------------------------------------------------------------------------------------


NO_TREES = tuple(replace(recipe, leaf=0) for recipe in training.RECIPES)


def ours(*, rules: bool = True, trees: bool = True) -> Learn:
    """This library; the same without rules, or without trees."""

    def learn(own: TableSet, seed: int, minutes: float) -> Learned:
        nothing = mx.Rules.from_specification(Specification((), ()))
        recipes = training.RECIPES if trees else NO_TREES
        return _ours(own.rules if rules else nothing, recipes, own, seed, minutes)

    return learn


def _ours(
    rules: mx.Rules,
    recipes: tuple[training.Recipe, ...],
    own: TableSet,
    seed: int,
    minutes: float,
) -> Learned:
    for module in (training, synthesizer):  # everybody's minutes are the processor's
        assert hasattr(module, "monotonic"), "how does fit keep its minutes now?"
        vars(module)["monotonic"] = process_time
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = mx.Synthesizer(rules)
        model.fit(own.train, minutes=minutes, seed=seed, recipes=recipes)
    return Learned(
        lambda count: model.sample(count, seed=seed),
        model.log_prob,
        {"log_likelihood_apart": model.log_likelihood},
    )


# --- simple ones ------------------------------------------------------------------------------------------------------


def real(own: TableSet, seed: int, minutes: float) -> Learned:
    """The rows that others learn from: what a perfect method would make."""
    order = np.random.default_rng(seed).permutation(own.train.height)
    return Learned(lambda count: own.train[order[:count]])


def factorised(own: TableSet, seed: int, minutes: float) -> Learned:
    """Every column by itself."""
    generator = np.random.default_rng(seed)

    def draw(count: int) -> pl.DataFrame:
        rows = own.train.height
        return pl.DataFrame(
            [
                column.gather(generator.integers(0, rows, count))
                for column in own.train.get_columns()
            ]
        )

    return Learned(draw)


def cart(leaf: int) -> Learn:
    """One tree a column, from the columns before it; values are those of a row in the same leaf (as synthpop does)."""

    def learn(own: TableSet, seed: int, minutes: float) -> Learned:
        generator = np.random.default_rng(seed)
        columns = own.train.get_columns()
        coded = [_indicators(column, column) for column in columns]
        trees = []
        for k in range(1, len(columns)):
            before = np.concatenate(coded[:k], axis=1)
            is_label = columns[k].dtype == pl.String
            kind = DecisionTreeClassifier if is_label else DecisionTreeRegressor
            tree = kind(min_samples_leaf=leaf, random_state=seed)
            tree.fit(before, columns[k].to_numpy())
            trees.append((tree, _donors(tree.apply(before))))

        def draw(count: int) -> pl.DataFrame:
            first = columns[0].gather(generator.integers(0, own.train.height, count))
            made = [first]
            for k, (tree, donors) in enumerate(trees, start=1):
                before = np.concatenate(
                    [_indicators(made[j], columns[j]) for j in range(k)], axis=1
                )
                rows = donors.drawn(tree.apply(before), generator)
                made.append(columns[k].gather(rows))
            return pl.DataFrame(made)

        return Learned(draw)

    return learn


def _indicators(cells: pl.Series, like: pl.Series) -> NDArray[np.float64]:
    """Numbers as they are, labels as a column for each."""
    if cells.dtype != pl.String:
        return cells.cast(pl.Float64).to_numpy()[:, None]
    labels = like.unique().sort().to_list()
    return np.stack(
        [(cells == label).cast(pl.Float64).to_numpy() for label in labels], axis=1
    )


@dataclass(frozen=True)
class _Donors:
    """Rows by the leaf that they are in."""

    rows: NDArray[np.intp]
    starts: NDArray[np.intp]
    counts: NDArray[np.intp]

    def drawn(
        self, leaves: NDArray[np.intp], generator: np.random.Generator
    ) -> NDArray[np.intp]:
        """For every leaf one of its rows."""
        counts = self.counts[leaves]
        chosen = np.floor(generator.random(len(leaves)) * counts).astype(np.intp)
        found: NDArray[np.intp] = self.rows[self.starts[leaves] + chosen]
        return found


def _donors(leaves: NDArray[np.intp]) -> _Donors:
    counts = np.bincount(leaves)
    starts = np.cumsum(counts) - counts
    return _Donors(np.argsort(leaves, kind="stable"), starts, counts)


# --- others -----------------------------------------------------------------------------------------------------------


def forest(own: TableSet, seed: int, minutes: float) -> Learned:
    """Adversarial random forests (arfpy), with their own settings."""
    if not hasattr(np, "in1d"):  # arfpy 0.1.1 knows numpy before 2.4
        vars(np)["in1d"] = np.isin
    from arfpy import arf

    np.random.seed(seed)
    random.seed(seed)
    table = own.train.to_pandas()
    for name, dtype in zip(own.train.columns, own.train.dtypes, strict=True):
        if dtype != pl.String:
            table[name] = table[name].astype(float)
    model = arf.arf(x=table, verbose=False, random_state=seed)
    model.forde()
    return Learned(
        lambda count: _rounded(own.train, pl.from_pandas(model.forge(count)))
    )


def copula(own: TableSet, seed: int, minutes: float) -> Learned:
    """SDV's own constraints, with its Gaussian copula: they compare two columns, or three in a row."""
    chains = own.chains
    if chains is None:
        raise ValueError("SDV's constraints compare columns, and know no if-then rules")
    from sdv.cag import Inequality, Range
    from sdv.metadata import Metadata
    from sdv.single_table import GaussianCopulaSynthesizer

    table = own.train.to_pandas()
    kinds = Metadata.detect_from_dataframes({"rows": table})
    model = GaussianCopulaSynthesizer(kinds)
    model.add_constraints(
        [
            Inequality(*chain, strict_boundaries=True)
            if len(chain) == 2
            else Range(*chain, strict_boundaries=True)
            for chain in chains
        ]
    )
    np.random.seed(seed)
    torch.manual_seed(seed)
    model.fit({"rows": table})
    return Learned(
        lambda count: _rounded(own.train, pl.from_pandas(model.sample(count)["rows"]))
    )


def network(kind: str) -> Learn:
    """TVAE or CTGAN of the package ctgan, as many times through the table as fit into the minutes."""

    def learn(own: TableSet, seed: int, minutes: float) -> Learned:
        drawn, epochs = _generator(kind, own.train, seed, minutes)
        return Learned(
            lambda count: _rounded(own.train, drawn(count)), facts={"epochs": epochs}
        )

    return learn


def encoded(kind: str) -> Learn:
    """The same, of columns that ``Synthesizer.encoder`` has freed from the rules, and decodes."""

    def learn(own: TableSet, seed: int, minutes: float) -> Learned:
        start = process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = mx.Synthesizer(own.rules).fit(own.train, minutes=0, recipes=UNUSED)
        codes = model.encoder.encode(own.train, seed=seed, labels="keep")
        left = minutes - (process_time() - start) / 60
        drawn, epochs = _generator(kind, codes, seed, left)
        return Learned(
            lambda count: model.encoder.decode(drawn(count)), facts={"epochs": epochs}
        )

    return learn


UNUSED = (training.Recipe(Shape(width=1, layers=0), steps=1, batch=10_000, leaf=0),)
"""The encoder uses neither network nor trees."""


def _generator(
    kind: str, table: pl.DataFrame, seed: int, minutes: float
) -> tuple[Draw, int]:
    """A generator of the package ctgan, and how often it went through the table."""
    module = import_module(f"ctgan.synthesizers.{kind.lower()}")
    torch.manual_seed(seed)
    np.random.seed(seed)
    labels = [name for name in table.columns if table[name].dtype == pl.String]
    epochs = _Epochs(process_time() + 60 * minutes)
    vars(module)["tqdm"] = epochs  # what counts its epochs
    model = getattr(module, kind)(enable_gpu=False)
    model.fit(table.to_pandas(), labels)
    return lambda count: pl.from_pandas(model.sample(count)), epochs.done


class _Epochs:
    """Times through a table: as many as end in time, but one.

    Args:
        end: what the processor's clock shows then.
    """

    def __init__(self, end: float) -> None:
        self.end = end
        self.done = 0

    def __call__(self, asked: Any, **options: Any) -> Iterator[int]:
        begun = process_time()
        each = 0.0
        while not self.done or process_time() + each < self.end:
            yield self.done
            self.done += 1
            each = (process_time() - begun) / self.done


def _rounded(train: pl.DataFrame, made: pl.DataFrame) -> pl.DataFrame:
    """Columns of the same kinds, numbers with as many decimal places as those of the table have."""
    columns = []
    for column in train.get_columns():
        cells = made[column.name]
        if column.dtype == pl.String:
            columns.append(cells.cast(pl.String))
        elif column.dtype == pl.Int64:
            columns.append(cells.cast(pl.Float64).round(0).cast(pl.Int64))
        else:
            columns.append(cells.cast(pl.Float64).round(places(column)))
    return pl.DataFrame(columns)


def places(column: pl.Series) -> int:
    """Decimal places of the numbers of a column, at most nine."""
    numbers = column.to_numpy()
    for count in range(9):
        if (np.round(numbers, count) == numbers).all():
            return count
    return 9


# --- variants ---------------------------------------------------------------------------------------------------------


def plain(own: TableSet, draw: Draw, count: int) -> pl.DataFrame:
    return draw(count)


def rejected(own: TableSet, draw: Draw, count: int) -> pl.DataFrame:
    """Rows that obey among those that are drawn; fewer than asked for, if too few do."""
    found: list[pl.DataFrame] = []
    drawn = 0
    while sum(part.height for part in found) < count and drawn < REJECTED * count:
        part = draw(count)
        drawn += count
        found.append(obeying(own.rules, part))
    return pl.concat(found).head(count)


def repaired(own: TableSet, draw: Draw, count: int) -> pl.DataFrame:
    """Rows that ``mux.repair`` moved into the rules."""
    made = draw(count)
    rules = discrete(own)
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    columns = [v.name for v in rules.outputs]
    numbers = [_numbers(made[name], own.train[name]) for name in columns]
    moved = mux.repair(torch.from_numpy(np.stack(numbers, -1)))
    return made.with_columns(
        [_cells(moved[:, k].numpy(), own.train[name]) for k, name in enumerate(columns)]
    )


def shielded(own: TableSet, draw: Draw, count: int) -> pl.DataFrame:
    """Rows that PiShield's layer corrected, column after column, and that are rounded afterwards."""
    if own.requirements is None or " or " in own.requirements.read_text("utf-8"):
        raise ValueError("PiShield corrects linear inequalities, not if-then rules")
    from pishield.shield_layer import build_shield_layer

    names = [name for name in own.train.columns if name != own.target]
    made = draw(count)
    with redirect_stdout(StringIO()):
        path = str(own.requirements)
        layer = build_shield_layer(len(names), path, requirements_type="linear")
        moved = layer(torch.from_numpy(made[names].to_numpy().astype(np.float32)))
    cells = {name: moved[:, k].double().numpy() for k, name in enumerate(names)}
    return _rounded(own.train, made.with_columns(**cells))


def discrete(own: TableSet) -> mx.Rules:
    """The rules over whole numbers, decimals and labels: what they allow needs no rounding."""
    names = [v.name for v in own.rules.specification.columns]
    declared = [_declaration(name, own.train[name]) for name in names]
    written = [formula_text(rule.formula) for rule in own.rules.specification.rules]
    return mx.Rules("\n".join([*declared, *written]))


def _declaration(name: str, column: pl.Series) -> str:
    if column.dtype == pl.String:
        labels = ", ".join(f'"{label}"' for label in column.unique().sort().to_list())
        return f"{name}: {{{labels}}}"
    numbers = column.to_numpy()
    low = numbers.min()
    high = numbers.max()
    if column.dtype == pl.Int64:
        return f"{name}: int[{low}, {high}]"
    count = places(column)
    return f"{name}: decimal({count})[{low:.{count}f}, {high:.{count}f}]"


def _numbers(cells: pl.Series, like: pl.Series) -> NDArray[np.float64]:
    if like.dtype != pl.String:
        return cells.cast(pl.Float64).to_numpy()
    place = {label: k for k, label in enumerate(like.unique().sort().to_list())}
    return cells.replace_strict(place, return_dtype=pl.Float64).to_numpy()


def _cells(numbers: NDArray[np.float64], like: pl.Series) -> pl.Series:
    if like.dtype == pl.String:
        labels = like.unique().sort()
        return labels.gather(np.rint(numbers).astype(np.int64)).alias(like.name)
    if like.dtype == pl.Int64:
        return pl.Series(like.name, np.rint(numbers).astype(np.int64))
    return pl.Series(like.name, numbers)


Variant = Callable[[TableSet, Draw, int], pl.DataFrame]
ONE: dict[str, Variant] = {"": plain}
THREE: dict[str, Variant] = {"": plain, "rejected": rejected, "repaired": repaired}
FOUR: dict[str, Variant] = {**THREE, "PiShield": shielded}
METHODS: dict[str, tuple[Learn, dict[str, Variant]]] = {
    "real rows": (real, ONE),
    "factorised": (factorised, ONE),
    "CART, leaf 5": (cart(5), FOUR),
    "CART, leaf 20": (cart(20), ONE),
    "ours": (ours(), ONE),
    "ours, no trees": (ours(trees=False), ONE),
    "TVAE": (network("TVAE"), FOUR),
    "CTGAN": (network("CTGAN"), FOUR),
    "TVAE, encoded": (encoded("TVAE"), ONE),
    "CTGAN, encoded": (encoded("CTGAN"), ONE),
    "ours without rules": (ours(rules=False), THREE),
    "ours without rules, no trees": (ours(rules=False, trees=False), THREE),
    "arfpy": (forest, ONE),
    "SDV, own constraints": (copula, ONE),
}
"""Every method with its variants, cheap ones first."""
