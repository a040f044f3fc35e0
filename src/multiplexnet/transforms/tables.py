"""Tables: constants that follow from the rules, kept where torch's tools do not take them for state.

Parameters and buffers are memory that anything may write to: ``to_empty`` leaves it as it was found,
``load_state_dict``, ``functional_call`` and ``AveragedModel`` put other numbers there, mixed precision rounds it. The
guarantee depends on every number in a table. So a table is a plain attribute of its module, which those tools pass by,
and the module that knows where its tables come from (:class:`Derived`) moves them, and makes them anew where their
memory is lost.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, Self, TypeVar, cast

import torch
from torch import Tensor, nn

from multiplexnet.errors import DtypeError

__all__ = [
    "Derived",
    "Tabled",
    "contents",
    "fingerprint",
    "in_memory",
    "memory",
    "named_tables",
]

P = ParamSpec("P")
R = TypeVar("R")


def memory() -> AbstractContextManager[Any]:
    """The processor as default device, whatever it is outside: on meta there are no numbers.

    Where it is the default anyway nothing is done, since torch's mode makes each of its calls some 5 µs slower.
    """
    if torch.get_default_device().type == "cpu":
        return nullcontext()
    return torch.device("cpu")


def in_memory(function: Callable[P, R]) -> Callable[P, R]:
    """The function, run in :func:`memory`."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with memory():
            return function(*args, **kwargs)

    return wrapped


class Tabled(nn.Module):
    """A module with tables.

    Example:
        >>> module = Tabled()
        >>> module.hold({"lower": torch.zeros(2)})
        >>> module.lower, list(module.buffers())
        (tensor([0., 0.]), [])
    """

    table_names: tuple[str, ...] = ()

    def hold(self, tables: Mapping[str, Tensor | None]) -> None:
        """From now on these are the tables, each an attribute of its name."""
        self.table_names = tuple(tables)
        # a module's own setattr first looks for parameters, buffers and modules
        vars(self).update(tables)

    def own_tables(self) -> dict[str, Tensor]:
        """The tables of this module itself by name."""
        found = {name: getattr(self, name) for name in self.table_names}
        return {name: table for name, table in found.items() if table is not None}


def _tabled(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, Tabled]]:
    """The modules with tables that belong to this one: not those inside another module that looks after its own."""
    if isinstance(module, Tabled):
        yield prefix, module
    for name, child in module.named_children():
        if not isinstance(child, Derived):
            yield from _tabled(child, f"{prefix}{name}.")


def named_tables(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All tables that belong to a module."""
    for prefix, part in _tabled(module):
        for name, table in part.own_tables().items():
            yield prefix + name, table


def contents(module: nn.Module) -> dict[str, Any]:
    """The tables that belong to a module, and what the modules inside it were told when they were built."""
    found: dict[str, Any] = dict(named_tables(module))
    for prefix, part in _tabled(module):
        if part is not module:
            hidden = ("training", *part.table_names)
            told = {
                name: value
                for name, value in vars(part).items()
                if name[0] != "_" and name not in hidden
            }
            found |= {prefix + name: value for name, value in told.items()}
    return found


def fingerprint(module: nn.Module) -> str:
    """A hash of :func:`contents`, every bit of every table included."""
    digest = hashlib.sha256()
    for name, value in sorted(contents(module).items()):
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(_bytes(value))
        else:
            digest.update(repr((name, value)).encode())
    return digest.hexdigest()


def _bytes(table: Tensor) -> bytes:
    held = table.detach().cpu()
    if held.dtype is torch.bfloat16:  # which numpy does not know
        held = held.view(torch.int16)
    content: bytes = held.numpy().tobytes()
    return content


class Derived(Tabled):
    """A module that can make its tables, and those of the modules inside it, anew.

    The buffer ``place`` holds no number. It says where the tables belong, to those who move a module by its buffers.
    """

    place: Tensor
    dtype: torch.dtype

    def __init__(self) -> None:
        super().__init__()
        place = torch.empty(0)
        if type(place) is not Tensor:
            raise DtypeError(
                f"a tensor made here is a {type(place).__name__}, which holds no numbers, and tables need them: "
                "build the layer outside of this mode, or under torch.device('meta'), which it knows"
            )
        self.register_buffer("place", place, persistent=False)

    @property
    def device(self) -> torch.device:
        """Where the tables are."""
        return next(
            (table.device for _, table in named_tables(self)), self.place.device
        )

    @abstractmethod
    def _make(self, dtype: torch.dtype) -> None:
        """Makes all tables anew for a dtype, in the memory of the processor; nothing changes if that is refused."""

    def _settle(self, device: torch.device, dtype: torch.dtype | None = None) -> None:
        """Right tables on the device: the same ones moved, or new ones where there is nothing to be moved."""
        dtype = dtype or self.dtype
        if dtype != self.dtype or (
            self.device.type == "meta" and device.type != "meta"
        ):
            self._make(dtype)
        for _, part in _tabled(self):
            part.hold(
                {**dict.fromkeys(part.table_names), **_moved(part.own_tables(), device)}
            )
        self.place = torch.empty(0, device=device)

    def reset_parameters(self) -> None:
        """There is nothing to be drawn; who gives modules new memory, as FSDP does, calls this on each of them."""
        self._settle(self.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What ``to``, ``half``, ``to_empty`` and ``share_memory`` come to: ``fn`` never gets to see a table."""
        probe = self._probed(fn)
        is_number = probe.is_floating_point() or probe.is_complex()
        self._settle(probe.device, probe.dtype if is_number else None)
        if probe.device.type == "cpu" and probe.is_shared():  # type: ignore[no-untyped-call]
            for _, table in named_tables(self):
                table.share_memory_()  # type: ignore[no-untyped-call]
        return cast(Self, super()._apply(fn, recurse))  # type: ignore[no-untyped-call]

    def _probed(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """What becomes of a tensor of this dtype on this device."""
        try:
            return fn(torch.empty(0, dtype=self.dtype, device=self.device))
        except (
            NotImplementedError
        ):  # out of the meta device nothing can be copied, but tables can be made
            return fn(torch.empty(0, dtype=self.dtype, device="cpu"))


def _moved(tables: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: table.to(device) for name, table in tables.items()}
