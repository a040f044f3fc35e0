"""Models in files: a zip of one JSON document and plain arrays. Reading runs no code, and needs no solver."""

from __future__ import annotations

import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, astuple, replace
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from multiplexnet.compiler.cascade.record import cascade_from, record_of_cascade
from multiplexnet.compiler.record import (
    list_from,
    number_from,
    reading,
    record_of_specification,
    specification_from,
    text_from,
    variable_record,
    variables_from,
    whole_from,
)
from multiplexnet.errors import RecordError
from multiplexnet.language.formula import Bool, Category, Int, Variable, ends
from multiplexnet.synthesis.allowed import AllowedRows
from multiplexnet.synthesis.columns.others import GIVEN, OTHER_KINDS, Other
from multiplexnet.synthesis.columns.schema import (
    KINDS,
    Field,
    Schema,
    decimal_places,
)
from multiplexnet.synthesis.columns.tokens import Tokens
from multiplexnet.synthesis.columns.types import type_from, type_record
from multiplexnet.synthesis.growing import Branches
from multiplexnet.synthesis.leaves import LeafCounts, Leaves, Worth
from multiplexnet.synthesis.network import MOST_TOKENS, Shape
from multiplexnet.synthesis.texts import with_true_texts
from multiplexnet.synthesis.training import RowModel

__all__ = ["load", "save"]

WITH_OUTER = "multiplexnet table model 4"
"""In which rows may get stuck: who reads only the others must not take it for one of them."""
FORMAT = "multiplexnet table model 3"
OF_ONE_TREE = "multiplexnet table model 2"
"""One tree a column, and the first layer as one matrix."""
WITHOUT_TREES = "multiplexnet table model 1"
DOCUMENT = "model.json"
LARGEST_DOCUMENT = 1 << 25
"""Bytes of JSON: more would take seconds to be read, and no model that was met has a tenth of it."""
WIDEST = 4_096
MOST_NODES = 1 << 26
MOST_TREES = 1_000
MOST_WORTH = 1e9
MOST_DIGITS = 100
SIZES = {Fraction(1, 10**places) for places in range(19)}
DOMAINS: dict[str, type] = {"bool": Bool, "label": Category}
FURTHEST = {"date": 2**31 - 1, "datetime": 2**40}
"""Days, and seconds, from 1970 on."""
ADVICE = "fit and save the model again"

Record = Any


def save(
    path: Path | IO[bytes], schema: Schema, model: RowModel, further: Record
) -> None:
    """Write a model.

    Args:
        path: of the file, or the file.
        schema: the columns of the table.
        model: of its rows.
        further: what JSON can hold.

    Raises:
        RecordError: it is larger than what is read again.
    """
    own = schema.specification.variables
    document = {
        "format": WITH_OUTER if model.allowed.outer else FORMAT,
        "declared": record_of_specification(schema.declared),
        "variables": [variable_record(v) for v in own],
        "fields": [_field(field) for field in schema.fields],
        "types": [f.given and type_record(f.given) for f in schema.fields],
        "others": [astuple(other) for other in schema.others],
        "names": list(schema.names),
        "order": [v.index for v in model.allowed.columns],
        "cascades": [record_of_cascade(cascade) for cascade in model.allowed.cascades],
        "ranges": [[tokens.least, tokens.most] for tokens in model.tokens],
        "sizes": [len(tokens) for tokens in model.tokens],
        "shape": asdict(model.network.shape),
        "trees": [_tree(leaves) for leaves in model.leaves],
        "further": further,
    }
    if model.allowed.outer:
        document["outer"] = sorted(model.allowed.outer)
    content = json.dumps(document).encode()
    if len(content) > LARGEST_DOCUMENT:
        raise RecordError(
            f"columns, labels and rules of this model take {len(content):,} bytes, and files have "
            f"{LARGEST_DOCUMENT:,} at most: leave columns with many labels out"
        )
    arrays: dict[str, NDArray[Any]] = {}
    for j, tokens in enumerate(model.tokens):
        arrays[f"tokens/{j}"] = np.stack([tokens.lower, tokens.upper, tokens.counts])
    for name, tensor in model.network.state_dict().items():
        arrays[f"network/{name}"] = tensor.numpy()
    for j, leaves in enumerate(model.leaves):
        if leaves is not None:
            arrays[f"branches/{j}"] = _branches(leaves)
            arrays[f"leaves/{j}"] = _counts(leaves)
    with zipfile.ZipFile(path, "w") as file:
        _add(file, DOCUMENT, content)
        for name, array in arrays.items():
            buffer = BytesIO()
            np.save(buffer, array, allow_pickle=False)
            _add(file, f"{name}.npy", buffer.getvalue())


def _tree(leaves: Leaves | None) -> Record:
    if leaves is None:
        return None
    sizes = [len(leaves.branches.asked), len(leaves.found.tokens)]
    return [*sizes, leaves.worth.anywhere, leaves.worth.nearby]


def _branches(leaves: Leaves) -> NDArray[np.int32]:
    own = leaves.branches
    return np.stack([own.asked, own.most, own.first, own.second]).astype(np.int32)


def _counts(leaves: Leaves) -> NDArray[np.int32]:
    found = leaves.found
    own = np.repeat(np.arange(len(found.starts) - 1), np.diff(found.starts))
    return np.stack([own, found.tokens, found.counts]).astype(np.int32)


def _add(file: zipfile.ZipFile, name: str, content: bytes) -> None:
    """A part of the file, without the time: the same model is the same bytes."""
    file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def _field(field: Field) -> Record:
    flag = None if field.flag is None else field.flag.index
    names = [field.name, field.declared]
    return [
        *names,
        field.variable.index,
        flag,
        str(field.size),
        field.kind,
        *(["rounded"] if field.is_rounded else []),
    ]


def load(opened: IO[bytes], title: str) -> tuple[Schema, RowModel, Record]:
    """What was saved.

    Args:
        opened: the file.
        title: what messages call it.

    Raises:
        RecordError: the file is damaged, or is not a model.
    """
    with _own_errors(title), zipfile.ZipFile(opened) as file:
        document = _document(file)
        with reading(f"a model of tables in {title}", ADVICE):
            known = (WITH_OUTER, FORMAT, OF_ONE_TREE, WITHOUT_TREES)
            if document["format"] not in known:
                raise ValueError(f"its format is {str(document['format'])[:60]!r}")
            schema, said = _schema(document)
            further = document["further"]
            further = {**further, "notes": [*list_from(further["notes"]), *said]}
            return schema, _model(file, document, schema), further


@contextmanager
def _own_errors(title: str) -> Iterator[None]:
    try:
        yield
    except RecordError:
        raise
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        LookupError,
        NotImplementedError,
        ArithmeticError,
        AttributeError,
        TypeError,
        ValueError,
        RuntimeError,
        RecursionError,
        MemoryError,
        struct.error,
        lzma.LZMAError,
        OSError,  # places in the file that cannot be
    ) as error:
        raise RecordError(
            f"{title} is damaged, or is not a model of tables ({error}); {ADVICE}"
        ) from None


def _document(file: zipfile.ZipFile) -> Record:
    return json.loads(_bytes(file, DOCUMENT, LARGEST_DOCUMENT))


def _bytes(file: zipfile.ZipFile, name: str, most: int) -> bytes:
    """A part of the file, no longer than it may be, whatever its header says."""
    with file.open(name) as part:
        if file.getinfo(name).file_size > most:
            raise _too_long(name, most)
        found = part.read(most + 1)
        if len(found) > most:
            raise _too_long(name, most)
        return found


def _too_long(name: str, most: int) -> ValueError:
    return ValueError(f"{name} is longer than it can be, {most:,} bytes")


def _array(
    file: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: str
) -> NDArray[Any]:
    size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    content = BytesIO(_bytes(file, f"{name}.npy", size + 1_024))
    try:
        found = np.load(content, allow_pickle=False)
    except Exception as error:  # numpy reads its header with a parser of Python
        raise zipfile.BadZipFile(f"{name} is not an array: {error}") from None
    if found.shape != shape or found.dtype != np.dtype(dtype):
        raise ValueError(f"{name} is of shape {found.shape} and type {found.dtype}")
    return np.asarray(found)


def _schema(document: Record) -> tuple[Schema, tuple[str, ...]]:
    recorded = specification_from(document["declared"])
    declared, said = with_true_texts(recorded)
    own = variables_from(document["variables"])
    fields: list[Field] = []
    types = _types(document)
    for name, called, place, flag, size, kind, *more in list_from(document["fields"]):
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}")
        mark = None if flag is None else own[_place(flag, len(own))]
        variable = own[_place(place, len(own))]
        step = number_from(size)
        if step not in SIZES or not variable.is_discrete or variable.is_input:
            raise ValueError("a column that is not counted in steps")
        _refuse_other_kind(kind, variable)
        _refuse_parts(kind, step * variable.unit.size)
        _refuse_no_decimals(kind, variable, step * variable.unit.size)
        called_so = text_from(name), text_from(called)
        if more not in ([], ["rounded"]):
            raise ValueError(f"a column with {more}")
        is_rounded = bool(more)
        given = types[len(fields)]
        field = Field(*called_so, variable, mark, step, kind, is_rounded, given)
        if not field.holds:
            raise ValueError(f"a column that {given} does not hold")
        fields.append(field)
    others = tuple(_other(item) for item in list_from(document["others"]))
    names = tuple(text_from(name) for name in list_from(document["names"]))
    every = [field.name for field in fields] + [other.name for other in others]
    if sorted(names) != sorted(every) or len(set(names)) < len(names):
        raise ValueError("names of columns that do not fit")
    schema = Schema(tuple(fields), declared, others, names)
    if schema.specification.variables != own:
        raise ValueError("columns that do not fit together")
    return schema, said


def _types(document: Record) -> list[pl.DataType | None]:
    """The types that the cells of columns are given back in; older files know none."""
    count = len(list_from(document["fields"]))
    records = list_from(document.get("types", [None] * count))
    if len(records) != count:
        raise ValueError("types that are too many or too few")
    return [None if record is None else type_from(record) for record in records]


def _refuse_other_kind(kind: str, variable: Variable) -> None:
    """A kind that its column cannot have, or values that cells of the kind cannot hold."""
    if not isinstance(variable.domain, DOMAINS.get(kind, Int)):
        raise ValueError(f"a column of the kind {kind!r} that is another")
    least, most = ends(variable.domain)
    assert least is not None
    assert most is not None
    if max(-least, most) > FURTHEST.get(kind, 2**62):
        raise ValueError(f"a column of the kind {kind!r} with too wide a range")


def _refuse_parts(kind: str, step: Fraction) -> None:
    """Parts of ones, where cells are whole."""
    if kind not in ("float", "decimal") and step.denominator > 1:
        raise ValueError(f"a column of the kind {kind!r} in steps of {step}")


def _refuse_no_decimals(kind: str, variable: Variable, step: Fraction) -> None:
    """Decimals whose steps are none, or that are too many."""
    if kind != "decimal":
        return
    places = decimal_places(step)
    if places is None:
        raise ValueError(f"decimals in steps of {step}")
    least, most = ends(variable.domain)
    assert least is not None
    assert most is not None
    if max(-least, most) * step * 10**places > 2**62:
        raise ValueError("decimals with too wide a range")


def _other(record: Record) -> Other:
    name, kind, before, digits, *given = list_from(record)
    if kind not in OTHER_KINDS or not 0 <= whole_from(digits) <= MOST_DIGITS:
        raise ValueError(f"unknown kind {str(kind)[:60]!r}")
    own = Other(text_from(name), kind, text_from(before), digits, *given[:1])
    if own.given != "" and GIVEN.get(text_from(own.given)) != kind:
        raise ValueError(f"unknown type {str(own.given)[:60]!r}")
    return own


def _place(record: Record, count: int) -> int:
    place = whole_from(record)
    if not 0 <= place < count:
        raise ValueError(f"there is no column {place}")
    return place


def _model(file: zipfile.ZipFile, document: Record, schema: Schema) -> RowModel:
    own = schema.specification.variables
    order = [_place(place, len(own)) for place in list_from(document["order"])]
    if sorted(order) != list(range(len(own))):
        raise ValueError("an order that leaves columns out")
    cascades = tuple(
        cascade_from(item, own, 0) for item in list_from(document["cascades"])
    )
    _refuse_other_order(cascades, [own[i] for i in order])
    outer = _outer(document, len(cascades))
    allowed = AllowedRows(tuple(own[i] for i in order), cascades, outer)
    sizes = [whole_from(size) for size in list_from(document["sizes"])]
    ranges = [
        tuple(map(whole_from, list_from(ends)))
        for ends in list_from(document["ranges"])
    ]
    if (
        len(sizes) != len(own)
        or len(ranges) != len(own)
        or not 0 < sum(sizes) <= MOST_TOKENS
    ):
        raise ValueError("tokens that are too many or too few")
    for column, found in zip(allowed.columns, ranges, strict=True):
        if list(found) != list(ends(column.domain)):
            raise ValueError(f"a range that {column.name!r} does not have")
    tokens = tuple(_tokens(file, j, sizes[j], ranges[j]) for j in range(len(own)))
    shape = _shape(document["shape"])
    if shape.is_too_large(len(own), sum(sizes)):
        raise ValueError("a network that is too large")
    model = RowModel.fresh(allowed, tokens, shape)
    is_dense = document["format"] not in (WITH_OUTER, FORMAT)
    first = model.network.first
    state = {}
    for name, tensor in model.network.state_dict().items():
        if not (is_dense and name.startswith("first.")):
            state[name] = _weights(file, name, tuple(tensor.shape))
    if is_dense:
        sides = len(own) * first.inputs, len(own) * first.outputs
        parts = first.parts_of(_weights(file, "first", sides))
        state |= {f"first.{name}": part for name, part in parts.items()}
    model.network.load_state_dict(state)
    model.network.eval()
    return replace(model, leaves=_trees(file, document, sizes))


def _weights(file: zipfile.ZipFile, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    array = _array(file, f"network/{name}", shape, "float32")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds numbers that are none")
    return torch.from_numpy(array.copy())


def _trees(
    file: zipfile.ZipFile, document: Record, sizes: list[int]
) -> tuple[Leaves | None, ...]:
    if document["format"] == WITHOUT_TREES:
        return ()
    trees = list_from(document["trees"])
    if not trees:
        return ()
    if len(trees) != len(sizes):
        raise ValueError("trees that are too many or too few")
    return tuple(
        None if tree is None else _leaves(file, j, sizes[j], list_from(tree))
        for j, tree in enumerate(trees)
    )


def _leaves(file: zipfile.ZipFile, j: int, size: int, record: list[Any]) -> Leaves:
    nodes, entries, anywhere, nearby = record
    if not 0 < whole_from(nodes) <= MOST_NODES:
        raise ValueError("a tree of no usual size")
    if not 0 < whole_from(entries) <= MOST_NODES:
        raise ValueError("leaves of no usual size")
    worth = Worth(float(anywhere), float(nearby))
    if not 0 < worth.anywhere <= MOST_WORTH or not 0 <= worth.nearby <= MOST_WORTH:
        raise ValueError("a tree that is mixed with nothing")
    shape = (4, nodes)
    asked, most, first, second = _array(file, f"branches/{j}", shape, "int32")
    ways = (own.astype(np.int64) for own in (asked, most, first, second))
    branches = Branches(*ways)
    _refuse_other_branches(branches, j)
    own, tokens, counts = _array(file, f"leaves/{j}", (3, entries), "int32")
    own, tokens = own.astype(np.int64), tokens.astype(np.int64)
    count = int(branches.is_leaf.sum())
    inside = (tokens >= 0) & (tokens < size) & (counts > 0)
    is_ascending = (np.diff(own * size + tokens) > 0).all()
    if not inside.all() or not is_ascending or set(own) != set(range(count)):
        raise ValueError("leaves that do not fit their tree")
    starts = np.searchsorted(own, np.arange(count + 1))
    found = LeafCounts(starts, tokens, counts.astype(np.int64))
    return Leaves(branches, found, worth)


def _refuse_other_branches(branches: Branches, j: int) -> None:
    """Branches that ask what is not known yet, or do not lead down."""
    own = np.arange(len(branches.asked))
    ends = branches.is_leaf & (branches.second == own)
    both = np.stack([branches.first, branches.second])
    leads_down = ((both > own) & (both < len(own))).all(0)
    asks = (branches.asked >= 0) & (branches.asked < j)
    if not (ends | leads_down).all() or not asks.all():
        raise ValueError("a tree whose branches lead nowhere")
    if len(branches.roots) > MOST_TREES:
        raise ValueError("trees that are too many")


def _outer(document: Record, count: int) -> frozenset[int]:
    """Which cascades rows may get stuck in; older files have none."""
    if document["format"] != WITH_OUTER:
        return frozenset()
    return frozenset(_place(place, count) for place in list_from(document["outer"]))


def _refuse_other_order(cascades: Any, order: list[Any]) -> None:
    for cascade in cascades:
        places = [order.index(v) for v in cascade.order if v in cascade.visible]
        if places != sorted(places) or any(h != 1 for h in cascade.spacing):
            raise ValueError("a cascade in another order than the columns")
    visible = [v for cascade in cascades for v in cascade.visible]
    if len(set(visible)) < len(visible):
        raise ValueError("a column in two cascades")


def _tokens(file: zipfile.ZipFile, j: int, size: int, ends: tuple[int, ...]) -> Tokens:
    least, most = ends
    lower, upper, counts = _array(file, f"tokens/{j}", (3, size), "int64")
    touching = (
        (upper[:-1] < lower[1:]).all()
        and (lower <= upper).all()
        and (counts >= 0).all()
    )
    if not touching or not least <= lower[0] or not upper[-1] <= most:
        raise ValueError("tokens that are not in order")
    return Tokens(lower, upper, counts, least, most)


def _shape(record: Record) -> Shape:
    sizes = [
        whole_from(record[name]) for name in ("embedding", "width", "layers", "waves")
    ]
    if not all(0 < size <= WIDEST for size in sizes) or sizes[2] > 16:
        raise ValueError("a network of no usual size")
    embedding, width, layers, waves = sizes
    return Shape(embedding, width, layers, waves, dropout=0.0)
