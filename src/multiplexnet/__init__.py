"""Rules on a network's outputs that hold exactly, always.

A formula of linear arithmetic is a union of polyhedra; for each polyhedron there is a differentiable map from all of
R^r into it. The layer evaluates the maps, and a categorical variable chooses among them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiplexnet import errors as errors
    from multiplexnet.certificate.check import certify as certify
    from multiplexnet.certificate.document import Certificate as Certificate
    from multiplexnet.compiler.cascade.build import Budget as Budget
    from multiplexnet.errors import CompileTimeout as CompileTimeout
    from multiplexnet.errors import ContradictionError as ContradictionError
    from multiplexnet.errors import InputError as InputError
    from multiplexnet.errors import MultiplexError as MultiplexError
    from multiplexnet.errors import RuleSyntaxError as RuleSyntaxError
    from multiplexnet.errors import TermBudgetExceeded as TermBudgetExceeded
    from multiplexnet.layer.branches import Branches as Branches
    from multiplexnet.layer.multiplexer import Multiplexer as Multiplexer
    from multiplexnet.learning import estimators as estimators
    from multiplexnet.learning.baselines import dl2_loss as dl2_loss
    from multiplexnet.learning.baselines import penalty as penalty
    from multiplexnet.learning.baselines import semantic_loss as semantic_loss
    from multiplexnet.learning.distribution import (
        RulesDistribution as RulesDistribution,
    )
    from multiplexnet.learning.finite import EvidenceRatio as EvidenceRatio
    from multiplexnet.learning.finite import FiniteTerms as FiniteTerms
    from multiplexnet.learning.shortcuts import shortcuts as shortcuts
    from multiplexnet.learning.symmetry import symmetries as symmetries
    from multiplexnet.learning.term_transform import term_transform as term_transform
    from multiplexnet.quality.report import report as report
    from multiplexnet.rules import Rules as Rules
    from multiplexnet.synthesis.synthesizer import Synthesizer as Synthesizer
    from multiplexnet.tables.check import check as check
    from multiplexnet.tables.inference.infer import infer as infer
    from multiplexnet.tables.sql import sql as sql
    from multiplexnet.transforms.separable import PaperSeparable as PaperSeparable

__version__ = "0.1.0"

# Names load on first use: importing the package costs nothing, and a saved layer runs without z3.
_MODULES = {"errors": "errors", "estimators": "learning.estimators"}
_HOME = {
    "Rules": "rules",
    "Multiplexer": "layer.multiplexer",
    "Branches": "layer.branches",
    "Budget": "compiler.cascade.build",
    "PaperSeparable": "transforms.separable",
    "RulesDistribution": "learning.distribution",
    "FiniteTerms": "learning.finite",
    "EvidenceRatio": "learning.finite",
    "shortcuts": "learning.shortcuts",
    "symmetries": "learning.symmetry",
    "term_transform": "learning.term_transform",
    "dl2_loss": "learning.baselines",
    "penalty": "learning.baselines",
    "semantic_loss": "learning.baselines",
    "Certificate": "certificate.document",
    "certify": "certificate.check",
    "check": "tables.check",
    "infer": "tables.inference.infer",
    "sql": "tables.sql",
    "report": "quality.report",
    "Synthesizer": "synthesis.synthesizer",
    "CompileTimeout": "errors",
    "ContradictionError": "errors",
    "InputError": "errors",
    "MultiplexError": "errors",
    "RuleSyntaxError": "errors",
    "TermBudgetExceeded": "errors",
}
__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"multiplexnet.{_MODULES[name]}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from multiplexnet.errors import install, needing

    with needing("polars", f"multiplexnet.{name}", install("cli")):
        home = import_module(f"multiplexnet.{_HOME[name]}")
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
