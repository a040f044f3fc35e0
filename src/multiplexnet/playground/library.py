"""Everything of the library that the playground uses beyond its public names, in one place."""

from __future__ import annotations

from multiplexnet.compiler.cascade.build import Cascade, Step
from multiplexnet.compiler.cascade.structure import Plan, planned
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
    holds,
)
from multiplexnet.language.formula import conjunction as conjunction_of
from multiplexnet.language.parser.moments import moment_number
from multiplexnet.language.parser.values import Refusal
from multiplexnet.language.text import number_text, value_text
from multiplexnet.reports.text import explain_json
from multiplexnet.smt.questions import satisfiable
from multiplexnet.tools.plane import (
    Edge,
    Frame,
    Region,
    frame_of,
    is_attained,
    outline,
    regions,
)
from multiplexnet.verdicts.units import refuse_indistinct

__all__ = [
    "FORMATS",
    "Atom",
    "Block",
    "Bool",
    "Cascade",
    "Category",
    "Compiled",
    "Edge",
    "Formula",
    "Frame",
    "Int",
    "Linear",
    "Plan",
    "Real",
    "Refusal",
    "Region",
    "Rule",
    "Specification",
    "Step",
    "Term",
    "Variable",
    "conjunction_of",
    "ends",
    "explain_json",
    "frame_of",
    "holds",
    "is_attained",
    "moment_number",
    "number_text",
    "outline",
    "planned",
    "refuse_indistinct",
    "regions",
    "satisfiable",
    "term_text",
    "value_text",
]
