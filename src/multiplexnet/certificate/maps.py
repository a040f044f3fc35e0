"""What a certificate says of the layer: dtype, constants, and for every block the parts of its terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from multiplexnet.certificate.cascade.recorded import Cascade, cascade_from
from multiplexnet.certificate.curves import Curved, CurvedLattice
from multiplexnet.certificate.formats import FORMATS, Format
from multiplexnet.certificate.parts import (
    Box,
    Lattice,
    Parametric,
    Part,
    Polyhedron,
)
from multiplexnet.compiler.record import (
    RecordReader,
    list_from,
    number_from,
    text_from,
    whole_from,
)
from multiplexnet.compiler.terms import Block, Term
from multiplexnet.language.formula import Atom, Linear, Variable

__all__ = ["Layer", "RecordedBlock", "cascades_from", "layer_from", "own_rows"]


@dataclass(frozen=True)
class RecordedBlock:
    """What the layer made of one block.

    Args:
        block: the block; of several that are one for the layer, all of them together.
        terms: each with its equalities as they hold in the layer, and its parts.
        moved: by how much the right-hand sides of equalities were moved.
    """

    block: Block
    terms: tuple[tuple[Term, tuple[Part, ...]], ...]
    moved: tuple[Fraction, ...]


@dataclass(frozen=True)
class Layer:
    """The whole layer: dtype, constants of the error bound, blocks, cascades."""

    dtype: str
    bound: Mapping[str, Fraction]
    made: tuple[RecordedBlock, ...]
    cascades: tuple[Cascade, ...]

    @property
    def form(self) -> Format:
        """The float format of the dtype."""
        return FORMATS[self.dtype]


def own_rows(term: Term) -> list[Atom]:
    """What a term says by itself, its inner blocks left aside."""
    fixed = [Atom(Linear.of(v) - value, "==") for v, value in term.fixed]
    return [*term.rows, *fixed]


def cascades_from(
    record: Mapping[str, Any], reader: RecordReader, variables: Sequence[Variable]
) -> tuple[Cascade, ...]:
    """The cascades that a record of a layer describes, if it has any; no output is in two of them."""
    records = list_from(record.get("cascades", []))
    found = tuple(cascade_from(one, reader, variables) for one in records)
    outputs = [v for cascade in found for v in cascade.outputs]
    if len(set(outputs)) < len(outputs):
        raise ValueError("an output of two cascades")
    return found


def layer_from(
    record: Mapping[str, Any],
    reader: RecordReader,
    blocks: Sequence[Block],
    cascades: tuple[Cascade, ...] = (),
) -> Layer:
    """The layer that a record describes; every block, inner ones too, belongs to it once.

    Raises:
        KeyError, IndexError, TypeError, ValueError: it is not a record of a layer with these blocks.
    """
    dtype = text_from(record["dtype"])
    equality = text_from(record["equality"])
    if dtype not in FORMATS or equality not in ("exact", "nearest"):
        raise ValueError("an unknown dtype, or an unknown way with equalities")
    bound = {name: number_from(number) for name, number in record["bound"].items()}
    if bound.keys() != FORMATS[dtype].bound.keys():
        raise ValueError("other constants than those of the error bound")
    outer: list[int] = []
    inner: list[int] = []
    made = []
    for entry in list_from(record["maps"]):
        if not isinstance(entry, dict) or set(entry) != {"blocks", "inner", "terms"}:
            raise TypeError("a map has blocks, inner and terms")
        places = [whole_from(place) for place in list_from(entry["blocks"])]
        outer += places
        found = [blocks[place] for place in places]
        if entry["inner"] is not None:
            number = whole_from(entry["inner"])
            inner.append(number)
            found.append(reader.inner[number])
        block = _joined(found)
        made.append(
            _made(block, entry["terms"], reader, may_move=equality == "nearest")
        )
    with_outputs = [i for i, block in enumerate(blocks) if block.outputs]
    every_inner = list(range(len(reader.inner)))
    if sorted(outer) != with_outputs or sorted(inner) != every_inner:
        raise ValueError("the layer does not hold every block once")
    return Layer(dtype, bound, tuple(made), cascades)


def part_from(record: Any, reader: RecordReader) -> Part:
    """The part that a record describes.

    Raises:
        KeyError, IndexError, TypeError, ValueError: it is not a record of a part.
    """
    kinds: dict[str, Any] = {
        "box": Box,
        "polyhedron": Polyhedron,
        "lattice": Lattice,
        "parametric": Parametric,
        "curved": Curved,
        "curved lattice": CurvedLattice,
    }
    if (
        not isinstance(record, dict)
        or not isinstance(record.get("kind"), str)
        or record["kind"] not in kinds
    ):
        raise ValueError("a part of unknown kind")
    kind = kinds[record["kind"]]
    names = {"kind", *kind.__dataclass_fields__}
    if "flat" in names:
        names = {"kind", "cones", "sizes", "left", *kind.kind.__dataclass_fields__}
    if "margins" in names:
        names = names - {"margins"} | {"slack", "room", "loose"}
    if set(record) != names:
        raise ValueError(f"a {record['kind']} has exactly {', '.join(sorted(names))}")
    part: Part = kind.of(record, reader)
    return part


def _joined(blocks: Sequence[Block]) -> Block:
    """Several blocks of one term each as one block."""
    if len(blocks) == 1:
        return blocks[0]
    if not blocks or any(
        len(block.terms) > 1 or block.terms[0].blocks for block in blocks
    ):
        raise ValueError("blocks of several terms are not one block")
    outputs: list[Variable] = []
    rows: list[Atom] = []
    fixed: list[tuple[Variable, Fraction]] = []
    for block in blocks:
        (term,) = block.terms
        outputs += block.outputs
        rows += term.rows
        fixed += term.fixed
    joined = Term(tuple(rows), tuple(fixed))
    return Block(tuple(outputs), (joined,))


def _made(
    block: Block, records: Any, reader: RecordReader, *, may_move: bool
) -> RecordedBlock:
    if len(list_from(records)) != len(block.terms):
        raise ValueError("the layer has another number of terms than the rules")
    terms: list[tuple[Term, tuple[Part, ...]]] = []
    distances: list[Fraction] = []
    for term, record in zip(block.terms, records, strict=True):
        if not isinstance(record, dict) or set(record) != {"parts", "moved"}:
            raise TypeError("a term of a layer has parts and moved equalities")
        parts = tuple(part_from(part, reader) for part in list_from(record["parts"]))
        _refuse_misplaced(block, term, parts)
        moved = {
            whole_from(i): number_from(constant)
            for i, constant in map(list_from, list_from(record["moved"]))
        }
        if moved and not may_move:
            raise ValueError("a moved equality in a layer that moves none")
        distances += [
            constant - _equality(term, i).linear.constant
            for i, constant in moved.items()
        ]
        terms.append((_with_moved(term, moved), parts))
    return RecordedBlock(block, tuple(terms), tuple(distances))


def _refuse_misplaced(block: Block, term: Term, parts: Sequence[Part]) -> None:
    """Every output of the block that no inner block holds is in one part of the term, and only these are."""
    placed = [v.index for part in parts for v in part.outputs]
    inner = {v for own in term.blocks for v in own.outputs}
    own_outputs = [v.index for v in block.outputs if v not in inner]
    if sorted(placed) != sorted(own_outputs):
        raise ValueError("the parts of a term do not hold its outputs once")


def _equality(term: Term, i: int) -> Atom:
    if not 0 <= i < len(term.rows) or term.rows[i].relation != "==":
        raise ValueError("a moved row that is not an equality")
    return term.rows[i]


def _with_moved(term: Term, moved: Mapping[int, Fraction]) -> Term:
    rows = list(term.rows)
    for i, constant in moved.items():
        rows[i] = Atom(Linear(rows[i].linear.summands, constant), "==")
    return replace(term, rows=tuple(rows))
