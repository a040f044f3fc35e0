"""The certificate of a layer, written from what the layer is made of."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import Any

import torch

from multiplexnet.certificate.document import FORMAT, VERSION, Certificate, hashes
from multiplexnet.certificate.written import rules_text
from multiplexnet.compiler.cascade.record import record_of_cascade
from multiplexnet.compiler.cascade.structure import rule_parts
from multiplexnet.compiler.record import (
    BlockRecorder,
    atom_record,
    formula_record,
    tangent_records,
    variable_record,
)
from multiplexnet.compiler.terms import Compiled, Term
from multiplexnet.exact.rows import Number
from multiplexnet.geometry.curves import atom_of
from multiplexnet.geometry.magnitudes import LEAST_SLACK
from multiplexnet.geometry.parts import Box, Lattice, Parametric, Part, Polyhedron
from multiplexnet.language.formula import (
    Atom,
    Linear,
    Relation,
    Specification,
    Symbol,
    Variable,
)
from multiplexnet.layer.construction.blocks import BuiltBlock, Moved
from multiplexnet.transforms.base import dtype_name, precision_of
from multiplexnet.transforms.cascade.map import CascadeMap
from multiplexnet.transforms.curves import Margins, cone_rows
from multiplexnet.transforms.gauge import LOOSE, SAFETY, GaugeRows, gauge_rows
from multiplexnet.transforms.lattice import in_steps

__all__ = ["issued"]


def issued(
    specification: Specification,
    compiled: Compiled,
    made: Sequence[BuiltBlock],
    cascades: Sequence[CascadeMap],
    dtype: torch.dtype,
    equality: str,
) -> Certificate:
    """The certificate of a layer.

    Args:
        specification: the rules.
        compiled: their terms.
        made: what the layer made of its blocks, outer ones first.
        cascades: the maps of its cascades.
        dtype: of the layer.
        equality: its option of this name.
    """
    from multiplexnet import __version__

    writer = BlockRecorder()
    proof = compiled.proof
    blocks = [writer.block(block) for block in compiled.blocks]
    computed = _cascades(specification, cascades)
    data = {
        "format": FORMAT,
        "version": VERSION,
        "rules": _rules(specification),
        "terms": {
            "blocks": blocks,
            "inner": writer.inner,
            **tangent_records(compiled.tangents),
        },
        "layer": {
            "dtype": dtype_name(dtype),
            "equality": equality,
            "bound": _bound(dtype),
            "maps": [_map(own, compiled, writer, dtype) for own in made],
            **({"cascades": computed} if computed else {}),
        },
        "proved": {
            "sound": proof.sound,
            "complete": proof.complete,
            "solver": proof.solver,
            "questions": proof.checks,
            "covered": None if compiled.covered is None else str(compiled.covered),
            "version": __version__,
        },
    }
    return Certificate({**data, "sha256": hashes(data)})


# --- rules ----------------------------------------------------------------------------------------------------------


def _rules(specification: Specification) -> dict[str, Any]:
    language, text = rules_text(specification)
    return {
        "language": language,
        "text": text,
        "variables": [variable_record(v) for v in specification.variables],
        "functions": list(specification.functions),
    }


# --- cascades -------------------------------------------------------------------------------------------------------


def _cascades(specification: Specification, maps: Sequence[CascadeMap]) -> list[Any]:
    """What is saved of every cascade, what its hidden outputs stand for, and the dtype in which it adds."""
    if not maps:
        return []
    conditions = {part.outputs: part.conditions for part in rule_parts(specification)}
    return [
        {
            **record_of_cascade(own.cascade),
            "conditions": [
                formula_record(one) for one in conditions[own.cascade.visible]
            ],
            "computing": dtype_name(own.computing),
        }
        for own in maps
    ]


# --- layer ----------------------------------------------------------------------------------------------------------


def _bound(dtype: torch.dtype) -> dict[str, str]:
    precision = precision_of(dtype)
    numbers: dict[str, float | Fraction] = {
        "unit": precision.unit,
        "tiny": precision.tiny,
        "largest": precision.largest,
        "safety": SAFETY,
        "loose": LOOSE,
        "least_slack": LEAST_SLACK,
    }
    return {name: str(Fraction(number)) for name, number in numbers.items()}


def _map(
    made: BuiltBlock, compiled: Compiled, writer: BlockRecorder, dtype: torch.dtype
) -> dict[str, Any]:
    inner = writer.number_of(made.block)
    own = set(made.block.outputs)
    places = [
        i
        for i, block in enumerate(compiled.blocks)
        if block.outputs and own.issuperset(block.outputs)
    ]
    terms = [
        {
            "parts": [_part(part, dtype) for part in parts],
            "moved": _moved(term, parts, moved),
        }
        for term, (parts, moved) in zip(made.block.terms, made.terms, strict=True)
    ]
    return {"blocks": places if inner is None else [], "inner": inner, "terms": terms}


def _moved(term: Term, parts: Sequence[Part], moved: Moved) -> list[list[Any]]:
    """The equalities that hold with another right-hand side, by their position, and their constant then."""
    if not moved:
        return []
    point = dict[Symbol, Fraction](term.fixed)
    for part in parts:
        if isinstance(part, Box):
            point |= {
                v: a
                for v, a, b in zip(part.outputs, part.lower, part.upper, strict=True)
                if a is not None
            }
        elif isinstance(part, Lattice):
            point |= dict(zip(part.outputs, part.origin, strict=True))
    found = []
    for i, row in enumerate(term.rows):
        if row in moved:
            constant = -sum((c * point[s] for s, c in row.linear.summands), Fraction(0))
            found.append([i, str(constant)])
    return found


def _part(part: Part, dtype: torch.dtype) -> dict[str, Any]:
    outputs = [v.index for v in part.outputs]
    match part:
        case Box(_, lower, upper):
            ends = {
                "lower": [_end(e) for e in lower],
                "upper": [_end(e) for e in upper],
            }
            return {"kind": "box", "outputs": outputs, **ends}
        case Polyhedron():
            precision = precision_of(dtype)
            rows = gauge_rows(
                part.A, part.b, part.anchor, unit=precision.unit, tiny=precision.tiny
            )
            atoms = _atoms(part.outputs, part.A, part.b, part.strict)
            anchor = {"anchor": [str(c) for c in part.anchor], **_margins(part, rows)}
            flat = {"outputs": outputs, "rows": atoms, **anchor}
            if part.cones:
                return {"kind": "curved", **flat, **_cones(part, dtype)}
            return {"kind": "polyhedron", **flat}
        case Lattice():
            flat = {"outputs": outputs, **_lattice(part)}
            if part.cones:
                return {"kind": "curved lattice", **flat, **_lattice_cones(part)}
            return {"kind": "lattice", **flat}
        case Parametric():
            both = [
                _coprime((*a, *p), b)
                for a, p, b in zip(part.A, part.P, part.b, strict=True)
            ]
            symbols = (*part.outputs, *part.parameters)
            atoms = _atoms(
                symbols,
                [row for row, _ in both],
                [bound for _, bound in both],
                part.strict,
            )
            atoms += [atom_record(atom_of(cone, symbols)) for cone in part.cones]
            return {"kind": "parametric", "outputs": outputs, "rows": atoms}


def _cones(part: Polyhedron, dtype: torch.dtype) -> dict[str, Any]:
    """The curved walls, how fast each moves with each output, and what rounding leaves of it."""
    precision = precision_of(dtype)
    margins = Margins(precision.unit, precision.tiny, SAFETY, LOOSE)
    rows = cone_rows(part.cones, part.anchor, margins)
    sizes = [cone.gauge(part.anchor).sizes for cone in part.cones]
    return {
        "cones": [atom_record(atom_of(cone, part.outputs)) for cone in part.cones],
        "sizes": [[str(size) for size in own] for own in sizes],
        "left": [str(Fraction(float(left))) for left in rows.left],
    }


def _lattice_cones(part: Lattice) -> dict[str, Any]:
    """The same over t, in steps."""
    double = precision_of(torch.float64)
    margins = Margins(double.unit, double.tiny + 0.5, SAFETY, LOOSE)
    cones = part.cones_in_steps
    rows = cone_rows(cones, part.anchor_in_steps, margins)
    sizes = [cone.gauge(part.anchor_in_steps).sizes for cone in cones]
    t = tuple(Variable(f"t[{j}]", j) for j in range(len(part.anchor)))
    return {
        "cones": [atom_record(atom_of(cone, t)) for cone in part.cones],
        "sizes": [[str(size) for size in own] for own in sizes],
        "left": [str(Fraction(float(left))) for left in rows.left],
    }


def _end(end: Fraction | None) -> str | None:
    return None if end is None else str(end)


def _margins(part: Polyhedron, rows: GaugeRows) -> dict[str, Any]:
    """Slacks, what is left of each as the float64 that the layer divides by, and the rows that are taken loosely."""
    products = (
        sum((c * x for c, x in zip(a, part.anchor, strict=True) if c), Fraction(0))
        for a in part.A
    )
    slacks = [str(b - product) for b, product in zip(part.b, products, strict=True)]
    loose = [
        i
        for i, (w, e) in enumerate(zip(rows.W, rows.E, strict=True))
        if e.any() and not w.any()
    ]
    return {
        "slack": slacks,
        "room": [str(Fraction(float(r))) for r in rows.room],
        "loose": loose,
    }


def _lattice(part: Lattice) -> dict[str, Any]:
    double = precision_of(torch.float64)
    count = len(part.A) - part.cuts
    d = len(part.anchor)
    used = in_steps(
        part
    )  # with those of the bounds of t that do not follow from its other rows
    ends = [
        next([j, 1 if a > 0 else -1] for j, a in enumerate(row) if a)
        for row in used.A[len(part.A) :]
    ]
    bounds = tuple(
        tuple(sign * part.step * (i == j) for i in range(d))
        for j in range(d)
        for sign in (1, -1)
    )
    n = len(part.A)
    whole = Polyhedron(
        (),
        used.A[:n] + bounds,
        used.b[:n] + (part.bound,) * len(bounds),
        (),
        used.anchor,
    )
    rows = gauge_rows(
        whole.A, whole.b, whole.anchor, unit=double.unit, tiny=double.tiny + 0.5
    )
    t = tuple(Variable(f"t[{j}]", j) for j in range(d))
    return {
        "origin": [str(c) for c in part.origin],
        "basis": [[[j, str(c)] for j, c in enumerate(row) if c] for row in part.basis],
        "step": str(part.step),
        "bound": str(part.bound),
        "rows": _atoms(t, part.A[:count], part.b[:count], part.strict[:count]),
        "cuts": _cuts(part, count),
        "ends": ends,
        "anchor": [str(c) for c in part.anchor],
        **_margins(whole, rows),
    }


def _cuts(part: Lattice, first: int) -> list[list[Any]]:
    """The outputs that the last rows keep within ± a size, by two coprime rows ``±basis · t ≤ size ∓ origin`` each."""
    found: list[list[Any]] = []
    for k in range(first, len(part.A), 2):
        for i in range(found[-1][0] + 1 if found else 0, len(part.origin)):
            divisor = gcd(*part.basis[i])
            origin = part.origin[i]
            size = part.b[k] * divisor + origin
            same = divisor and all(
                a * divisor == c for a, c in zip(part.A[k], part.basis[i], strict=True)
            )
            if same and size == part.b[k + 1] * divisor - origin:
                found.append([i, str(size)])
                break
    return found


def _coprime(
    row: Sequence[Fraction], bound: Fraction
) -> tuple[list[Fraction], Fraction]:
    scale = lcm(*(c.denominator for c in row))
    factor = Fraction(scale, gcd(*(int(c * scale) for c in row)) or 1)
    return [c * factor for c in row], bound * factor


def _atoms(
    symbols: Sequence[Symbol],
    A: Sequence[Sequence[Number]],
    b: Sequence[Fraction],
    strict: Sequence[bool],
) -> list[Any]:
    """The rows ``A x ≤ b`` as records."""
    found = []
    for row, bound, is_strict in zip(A, b, strict, strict=True):
        relation: Relation = "<" if is_strict else "<="
        parts = {s: Fraction(c) for s, c in zip(symbols, row, strict=True) if c}
        found.append(atom_record(Atom(Linear.total(parts, -bound), relation)))
    return found
