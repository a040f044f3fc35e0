"""Everything of the library that the playground uses beyond its public names, in one place."""

from __future__ import annotations

from multiplexnet.compiler.explanation.words import term_text
from multiplexnet.compiler.terms import Block, Compiled, Term
from multiplexnet.exact.formats import FORMATS
from multiplexnet.language.formula import (
    Atom,
    Bool,
    Category,
    Formula,
    Int,
    Linear,
    Real,
    Rule,
    Specification,
    Variable,
    ends,
)
from multiplexnet.language.formula import conjunction as conjunction_of
from multiplexnet.language.text import number_text
from multiplexnet.reports.text import explain_json
from multiplexnet.smt.questions import satisfiable
from multiplexnet.tools.plane import Edge, Frame, Region, frame_of, is_attained, outline, regions

__all__ = [
    "FORMATS",
    "Atom",
    "Block",
    "Bool",
    "Category",
    "Compiled",
    "Edge",
    "Formula",
    "Frame",
    "Int",
    "Linear",
    "Real",
    "Region",
    "Rule",
    "Specification",
    "Term",
    "Variable",
    "conjunction_of",
    "ends",
    "explain_json",
    "frame_of",
    "is_attained",
    "number_text",
    "outline",
    "regions",
    "satisfiable",
    "term_text",
]
