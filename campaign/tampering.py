"""A table that was changed in place: the certificate has to notice, however often it was read before."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from campaign.subject import Finding, Subject
from multiplexnet.errors import MultiplexError, RecordError
from multiplexnet.layer.checks import ARBITRARY

__all__ = ["changed_tables"]


def changed_tables(subject: Subject) -> Iterator[Finding]:
    """One table after the other that a rule depends on."""
    mux = subject.mux
    tables = {
        name: table
        for name, table in _tables(mux)
        if table.numel() and name.rpartition(".")[2] not in ARBITRARY
    }
    try:
        _ = mux.certificate
    except MultiplexError:
        return
    for name in subject.random.sample(sorted(tables), min(2, len(tables))):
        check = "the certificate sees changed tables"
        before = tables[name].clone()
        tables[name].copy_(_other(before))
        try:
            _ = mux.certificate
            yield Finding(check, f"{name} was changed in place, and nothing is said")
        except RecordError:
            yield Finding(check)
        finally:
            tables[name].copy_(before)
    yield Finding("the certificate returns with the tables", _lost(subject))


def _tables(mux: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that a module of the layer keeps, as a buffer or as a plain attribute."""
    for prefix, module in mux.named_modules():
        kept = {**vars(module), **dict(module.named_buffers(recurse=False))}
        yield from (
            (f"{prefix}.{name}", value)
            for name, value in kept.items()
            if isinstance(value, Tensor)
        )


def _lost(subject: Subject) -> str:
    try:
        _ = subject.mux.certificate
    except MultiplexError as error:
        return f"the tables are as they were, and it says: {error}"
    return ""


def _other(table: Tensor) -> Tensor:
    """Other numbers of the same kind, in every place."""
    if table.dtype is torch.bool:
        return ~table
    if not table.is_floating_point():
        return table + 1
    other = torch.where(table.isfinite(), table * 0.5 + 1.25, torch.zeros_like(table))
    return torch.where(other == table, table + 1, other)  # as 2.5 is
