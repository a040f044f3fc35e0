"""The settings of a layer: what it was told, apart from rules and dtype, that its maps depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from multiplexnet.arguments import refuse_unknown
from multiplexnet.compiler.cascade.build import Budget
from multiplexnet.compiler.cascade.structure import Structure
from multiplexnet.errors import OptionError
from multiplexnet.language.budget import MAX_TERMS
from multiplexnet.layer.checks import refuse_unknown_equality
from multiplexnet.transforms.cascade.inside import Values
from multiplexnet.transforms.separable import Separable
from multiplexnet.transforms.term_maps import Boxes

__all__ = ["Arithmetic", "CompileOptions", "Equality", "Functions", "Settings"]

Functions = Mapping[str, Callable[..., Tensor]]
Equality = Literal["exact", "nearest"]
Arithmetic = Literal["float64", "float32"]


@dataclass(frozen=True)
class Settings:
    """What the maps of a layer depend on; the first six are arguments of ``Multiplexer``, which explains them.

    Args:
        max_terms: the most combinations of several blocks that are written out.
        per_term: every term has raw values of its own.
        boxes: the map of intervals.
        equality: what is done with an equality that no float can meet.
        values: what a raw value means in a cascade.
        precision: what polytopes and equalities compute in.
        counted: whether logits of 0 mean that all plain terms are alike; layers of version 0.1.0 did not know this.
        started: whether cascades start where no output is better off than another; the first that were saved did not.
        in_turn: whether terms compute outputs that bound each other at run time one after another; 0.1.0 did not.

    Raises:
        OptionError: a word that is none of those known.
    """

    max_terms: int = MAX_TERMS
    per_term: bool = False
    boxes: Boxes = Separable
    equality: Equality = "exact"
    values: Values = "share"
    precision: Arithmetic = "float64"
    counted: bool = True
    started: bool = True
    in_turn: bool = True

    def __post_init__(self) -> None:
        refuse_unknown_equality(self.equality)
        refuse_unknown("values", self.values, ("share", "clamp"))
        refuse_unknown("precision", self.precision, ("float64", "float32"))


@dataclass(frozen=True)
class CompileOptions:
    """How rules become terms or cascades; arguments of ``Multiplexer``, which explains them.

    Args:
        cover: rows of data that the terms have to contain; ``None``: everything that obeys.
        structure: terms, cascades, or whichever fits.
        order: names of outputs in the order in which a cascade shall compute them.
        budget: what the projections of a cascade may cost.

    Raises:
        OptionError: an unknown structure, or a budget of another type.
    """

    cover: Any = None
    structure: Structure = "auto"
    order: Sequence[str] | None = None
    budget: Budget | None = None

    def __post_init__(self) -> None:
        refuse_unknown("structure", self.structure, ("auto", "terms", "cascade"))
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise OptionError(
                "budget", self.budget, "a Budget, as in Budget(clauses=5000), or None"
            )
