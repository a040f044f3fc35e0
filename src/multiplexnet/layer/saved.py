"""Saved layers: rules, terms and settings as JSON bytes, which run nothing when they are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, cast

import torch
from torch import Tensor

from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.compiler.cascade.record import cascade_from, record_of_cascade
from multiplexnet.compiler.record import (
    compiled_from,
    flag_from,
    list_from,
    record_of_compiled,
    record_of_specification,
    specification_from,
    whole_from,
)
from multiplexnet.errors import RecordError
from multiplexnet.language.formula import Specification
from multiplexnet.layer.construction.blueprint import Blueprint
from multiplexnet.layer.construction.settings import Arithmetic, Settings
from multiplexnet.transforms.base import DTYPES, dtype_name
from multiplexnet.transforms.cascade.inside import Values
from multiplexnet.transforms.term_maps import Boxes

__all__ = ["SavedLayer", "record_in", "saved_state"]

VERSION = 1
CHECKSUM = "sha256"
"""Where a record says the checksum of the rest; the first that were saved have none."""


def saved_state(specification: Specification, blueprint: Blueprint) -> Tensor:
    """The rules and what they were compiled to as a vector of bytes."""
    settings = blueprint.settings
    record = {
        "version": VERSION,
        "specification": record_of_specification(specification),
        "compiled": record_of_compiled(blueprint.compiled),
        "dtype": dtype_name(blueprint.dtype),
        "equality": settings.equality,
        "max_terms": settings.max_terms,
        "per_term": settings.per_term,
        "counted": settings.counted,
        "cascades": [record_of_cascade(cascade) for cascade in blueprint.cascades],
        "values": settings.values,
        "precision": settings.precision,
        "started": settings.started,
        "in_turn": settings.in_turn,
    }
    record[CHECKSUM] = _checksum(record)
    content = bytearray(json.dumps(record).encode())
    return torch.frombuffer(content, dtype=torch.uint8).clone()


def record_in(state: Any) -> Any:
    """The record in a saved state.

    Raises:
        RecordError: it is not the state of a layer, or does not fit its checksum.
    """
    if isinstance(state, Tensor) and state.is_meta:
        raise RecordError(
            "this state is on the meta device, which holds no numbers: load it without map_location"
        )
    if not isinstance(state, Tensor) or state.dtype != torch.uint8 or state.dim() != 1:
        raise RecordError(
            "this is not the state of a Multiplexer: its _extra_state is a vector of bytes"
        )
    try:
        record = json.loads(state.cpu().numpy().tobytes())
        fits = _fits(record)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"this is not the state of a Multiplexer ({error})") from None
    if not isinstance(record, dict) or record.get("version") != VERSION:
        raise RecordError(
            "this is not the state of a Multiplexer: a record of version 1 is expected"
        )
    if not fits:
        raise RecordError(
            "this state was changed or damaged: its content does not fit its checksum. Take another copy of it, or "
            "build the layer from the rules again"
        )
    return record


def _fits(record: Any) -> bool:
    """Whether a record has the checksum that it names, if it names one."""
    named = isinstance(record, dict) and CHECKSUM in record
    return not named or record[CHECKSUM] == _checksum(record)


def _checksum(record: dict[str, Any]) -> str:
    """Of all that a record holds beside it, in whatever order and with whatever blanks it is written."""
    content = {name: value for name, value in record.items() if name != CHECKSUM}
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class SavedLayer:
    """The record of a layer; what it holds is read when it is asked for, and refused then if it cannot be."""

    record: Any

    def specification(self) -> Specification:
        return specification_from(self.record["specification"])

    def blueprint(self, specification: Specification, boxes: Boxes) -> Blueprint:
        """What the layer was made from.

        Args:
            specification: the saved one.
            boxes: the map of intervals; code is not saved.
        """
        cascades = self._cascades(specification)
        compiled = self._compiled(specification, cascades)
        settings = Settings(
            max_terms=whole_from(self.record["max_terms"]),
            per_term=flag_from(self.record["per_term"]),
            boxes=boxes,
            equality=self.record["equality"],
            values=self._values,
            precision=self._precision,
            counted=flag_from(self.record.get("counted", False)),
            started=flag_from(self.record.get("started", False)),
            in_turn=flag_from(self.record.get("in_turn", False)),
        )
        named = f"torch.{self.record['dtype']}"
        dtypes = {str(dtype): dtype for dtype in DTYPES}
        if named not in dtypes:
            raise ValueError(f"{named} is not a dtype that layers have")
        return Blueprint(compiled, dtypes[named], settings, cascades)

    def taken_over(self, own: Blueprint, specification: Specification) -> Blueprint:
        """The blueprint of a layer that loads this one: its own dtype and arguments, the saved terms.

        Args:
            own: the blueprint of the layer that loads.
            specification: its rules.

        Raises:
            RecordError: the saved layer was built from other rules, or in a way that gives logits another meaning.
        """
        if self.specification() != specification:
            raise RecordError(
                "the saved layer was built from other rules than this one"
            )
        per_term = self.record["per_term"]
        if per_term != own.settings.per_term:
            raise RecordError(
                f"the saved layer has per_term={per_term}; build this one alike"
            )
        cascades = self._cascades(specification)
        dtype = self.record["dtype"]
        if cascades and dtype != dtype_name(own.dtype):
            raise RecordError(
                f"the saved layer is one of {dtype}; build this one for the same dtype"
            )
        settings = replace(
            own.settings,
            values=self._values,
            precision=self._precision,
            counted=flag_from(self.record.get("counted", False)),
            started=flag_from(self.record.get("started", False)),
            in_turn=flag_from(self.record.get("in_turn", False)),
        )
        compiled = self._compiled(specification, cascades)
        return Blueprint(compiled, own.dtype, settings, cascades)

    def _compiled(
        self, specification: Specification, cascades: Sequence[Cascade]
    ) -> Any:
        computed = frozenset(v for cascade in cascades for v in cascade.visible)
        return compiled_from(self.record["compiled"], specification, computed)

    def _cascades(self, specification: Specification) -> tuple[Cascade, ...]:
        """The cascades; layers saved before there were any have none."""
        inputs = len(specification.inputs)
        found = tuple(
            cascade_from(one, specification.variables, inputs)
            for one in list_from(self.record.get("cascades", []))
        )
        outputs = [v for cascade in found for v in cascade.visible]
        if len(set(outputs)) < len(outputs):
            raise RecordError("the saved layer computes an output twice")
        return found

    def _known(self, name: str, choices: Sequence[str]) -> str:
        """A setting; the first of its choices if the layer was saved before there was one."""
        found = self.record.get(name, choices[0])
        if found not in choices:
            raise RecordError(
                f"the saved layer has {name} = {found!r}, which this version does not know"
            )
        return str(found)

    @property
    def _values(self) -> Values:
        return cast(Values, self._known("values", ("share", "clamp")))

    @property
    def _precision(self) -> Arithmetic:
        return cast(Arithmetic, self._known("precision", ("float64", "float32")))
