"""The contract of every transform, and the float formats it speaks of.

A *transform* holds the maps h_1 … h_T of T terms as tables of constants with a leading axis T, so that ten thousand
terms are one tensor and not ten thousand objects::

    raw (*batch, 1, n) or (*batch, T, n)                 →  x (*batch, T, n)     all terms
    raw (*batch, n) with index (*batch,), int64          →  x (*batch, n)        term index[b] for row b

Each h_k maps all of R^n into the set of its part. What comes out satisfies the part exactly for every raw value; NaN
comes out as NaN. ``parameters``, ``(*batch, 1 or T, p)`` or with index ``(*batch, p)``, are the known values u of parts
whose bounds depend on them; other transforms take no notice. ``inverse`` and ``log_abs_det_jacobian`` belong to the
smooth map, before its values are rounded to floats. ``unrounded`` does too, and knows that they were: a float x stands
for all reals that are rounded to it, its *cell*. ``forward_and_log_det`` computes x and the log-determinant together,
since they share most of the work. :mod:`multiplexnet.transforms.as_torch` makes one term torch's own ``Transform``.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, wraps
from inspect import signature
from typing import Any, ParamSpec, Self, TypeVar, cast

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.utils import unwrap_dead_wrappers

from multiplexnet.errors import DtypeError, brief
from multiplexnet.transforms.graph_constants import for_onnx, solid_tables
from multiplexnet.transforms.tables import Tabled

__all__ = [
    "DTYPES",
    "Differentiable",
    "Precision",
    "Transform",
    "applied",
    "by_operations",
    "can_look",
    "can_overwrite",
    "checked_dtype",
    "dtype_name",
    "exactly",
    "finite",
    "following",
    "gradient_floor",
    "in_full_precision",
    "is_exported",
    "is_followed",
    "is_for_any_size",
    "is_forward_mode",
    "is_transformed",
    "largest_seen",
    "margin",
    "precision_of",
    "quarter_cell",
    "recorded",
    "rows_of",
    "saturated",
    "wants_gradient",
    "within",
    "without_zeros",
]

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
"""The dtypes the guarantee is made for."""

UNIT64 = 2.0**-53
"""Half the distance from 1 to the next float64: the relative error of one rounding."""

UNDERFLOW = 2.0**-1022
"""More than a product or a constant loses among the subnormal numbers, also where these are flushed to zero."""

LIMIT = 2.0**100
"""Raw values are cut here: far enough out in every direction, and a float32 number, as ONNX needs it."""


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype without that of its package: ``float32``."""
    return str(dtype).removeprefix("torch.")


def checked_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype.

    Raises:
        DtypeError: it is none of :data:`DTYPES`.
    """
    if not isinstance(dtype, torch.dtype):
        raise DtypeError(
            f"dtype = {brief(dtype)}; it is a dtype of torch, as in dtype=torch.float32"
        )
    if dtype not in DTYPES:
        names = ", ".join(map(dtype_name, DTYPES))
        raise DtypeError(f"no guarantee can be given in {dtype}; use one of {names}")
    return dtype


@dataclass(frozen=True)
class Precision:
    """What the proofs use of a float format.

    Args:
        dtype: the torch dtype.
        unit: a float64 ``c + r·q`` (both operations rounded) that is then rounded to the format is off by at most
            ``unit · (|c| + |r·q|) + tiny``.
        tiny: see ``unit``.
        largest: the largest finite number.
        computing: the dtype in which elementwise maps are evaluated.
    """

    dtype: torch.dtype
    unit: float
    tiny: float
    largest: float
    computing: torch.dtype


@lru_cache
def precision_of(dtype: torch.dtype) -> Precision:
    """The precision of a dtype.

    Raises:
        DtypeError: the dtype is none of the four.

    Example:
        >>> precision_of(torch.float16).largest
        65504.0
    """
    info = torch.finfo(checked_dtype(dtype))
    # One part in a thousand covers the second rounding of float64 → float32 → bfloat16, float16; 2⁻⁵⁰ covers float64.
    unit = info.eps / 2 * 1.001 + 2.0**-50
    # Subnormal results may be flushed to zero where float32 is, but float16 always has its subnormals.
    tiny = 2.0**-24 if dtype is torch.float16 else info.smallest_normal
    half = dtype in (torch.bfloat16, torch.float16)
    return Precision(dtype, unit, tiny, info.max, torch.float32 if half else dtype)


def quarter_cell(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A quarter of the distance between numbers of the dtype around ``x``, in float64.

    Where x is a number of the dtype at the end of an interval, the reals of the interval that are rounded to x reach
    from x to twice as far: this is their middle.

    Example:
        >>> quarter_cell(torch.tensor([1.0, 0.0, -5.0]), torch.float16).log2()
        tensor([-12., -26., -10.], dtype=torch.float64)
    """
    info = torch.finfo(dtype)
    y = x.detach().double()
    least = max(
        info.smallest_normal * info.eps / 4, torch.finfo(torch.float64).smallest_normal
    )
    exponent = torch.frexp(y)[1] - 1
    quarter = torch.ldexp(torch.full_like(y, info.eps / 4), exponent)
    return torch.where(y == 0, least, quarter.clamp(min=least))


def finite(
    raw: Tensor, dtype: torch.dtype = torch.float64, cut: float = LIMIT
) -> Tensor:
    """Raw values in float64 or float32, cut at ±cut (before they are converted, which is faster; not in float16)."""
    wide = raw.to(dtype) if raw.dtype is torch.float16 else raw
    return wide.clamp(-cut, cut).to(dtype)


def exactly(value: Tensor, smooth: Tensor) -> Tensor:
    """``value`` with the gradient of ``smooth`` (finite): the added zero changes no bit.

    The usual straight-through sum ``smooth + (value - smooth).detach()`` rounds, and so misses ``value``.
    """
    return value.detach() + (smooth - smooth.detach())


def following(value: Tensor, smooth: Tensor) -> Tensor:
    """:func:`exactly` where somebody may ask how ``value`` changes; ``value`` elsewhere."""
    return exactly(value, smooth) if is_followed(smooth) else value


def is_followed(*smooth: Tensor) -> bool:
    """Whether somebody may ask how something changes with these, now or of a graph later."""
    return wants_gradient(*smooth) or by_operations()


P = ParamSpec("P")
R = TypeVar("R")


def in_full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """The method of a module without autocast, which would change the dtypes that the proofs speak of.

    In a graph for ONNX its tables are such that no optimiser changes them.
    """

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        on = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
        if not on and not for_onnx():
            return function(*args, **kwargs)
        # one `with` for all: graphs are recorded through it, but not through an ExitStack
        solid = _solid(*args, **kwargs) if for_onnx() else nullcontext()
        with _switched_off("cpu", on), _switched_off("cuda", on), solid:
            return function(*args, **kwargs)

    return wrapped


def _switched_off(device: str, on: Sequence[str]) -> AbstractContextManager[object]:
    """Autocast off for a device, if it is one of those where it is on."""
    return torch.autocast(device, enabled=False) if device in on else nullcontext()


def _solid(module: Any, *args: Any, **kwargs: Any) -> AbstractContextManager[None]:
    """The tables of a module that is called with these arguments, for a graph."""
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
    return solid_tables(module, tensors[0]) if tensors else nullcontext()


class Differentiable(torch.autograd.Function):
    """A function with a gradient of its own, whose signature torch asks for in every call: it is found once."""

    generate_vmap_rule = True

    def __init_subclass__(cls) -> None:
        cls.forward.__signature__ = signature(cls.forward)  # type: ignore[attr-defined]


class _Saturated(Differentiable):
    """The values as they are, with a gradient within the format: in float16 that of a wide range would be infinite."""

    @staticmethod
    def forward(values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> Tensor:
        largest = torch.finfo(grad[0].dtype).max
        return grad[0].clamp(-largest, largest)


def saturated(raw: Tensor) -> Tensor:
    """Raw values whose gradients stay finite; float16 alone needs it."""
    if raw.dtype is not torch.float16:
        return raw
    result: Tensor = applied(_Saturated, raw)
    return result


def gradient_floor(dtype: torch.dtype) -> float:
    """What the derivative of a saturated map is raised by, so that it survives in the dtype; values do not change."""
    return 2.0**-14 if dtype is torch.float16 else 1e-12


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """``table[index]``, in half the time."""
    return table.index_select(0, index.flatten()).reshape(
        (*index.shape, *table.shape[1:])
    )


def can_look(values: Tensor) -> bool:
    """Whether the numbers of a tensor can be looked at: not in a graph, nor under vmap or on the meta device."""
    return largest_seen(values) is not None


def largest_seen(values: Tensor) -> float | None:
    """The largest number of a tensor, NaN if there is one; ``None`` if its numbers cannot be looked at."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return None
    try:
        return float(values.detach().amax())
    except RuntimeError:  # nor of a tensor without numbers
        return None


def applied(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """``function.apply(…)``, or its ``forward`` alone where no gradient is wanted, which starts 40 µs earlier."""
    if wants_gradient(*arguments):
        return recorded(function, *arguments)
    return function.forward(*arguments)


def recorded(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """``function.apply(…)``; in forward mode its ``forward``, which torch differentiates operation by operation."""
    if is_forward_mode():
        return function.forward(*arguments)
    if is_transformed() or not torch.is_grad_enabled():
        return function.apply(*arguments)  # type: ignore[no-untyped-call]
    # What torch's own `apply` comes to here, but for 25 µs in which it binds arguments to names.
    plain: Any = super(torch.autograd.Function, function)
    return plain.apply(*unwrap_dead_wrappers(arguments))


def wants_gradient(*arguments: Any) -> bool:
    """Whether a gradient of what is made of the arguments may be asked for.

    Under ``vmap`` tensors do not say so, whoever takes gradients outside of it. In forward mode there is none.
    """
    is_compiling = torch.compiler.is_compiling()
    levels = None if is_compiling else torch._C._functorch.get_interpreter_stack()
    if levels:
        return not any(level.key() == TransformType.Jvp for level in levels)
    if not torch.is_grad_enabled():
        return False
    return any(getattr(argument, "requires_grad", False) for argument in arguments)


def is_forward_mode() -> bool:
    """Whether derivatives are carried along with the values: ``jvp``, ``jacfwd``, dual numbers."""
    return bool(_dual_level() >= 0)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _dual_level() -> int:
    """The level of dual numbers, −1 if there are none: looked up while a graph is recorded, and not guarded."""
    level: int = torch.autograd.forward_ad._current_level
    return level


def by_operations() -> bool:
    """Whether torch differentiates operation by operation: in forward mode, and in what torch.export records."""
    return is_forward_mode() or is_exported()


def is_exported() -> bool:
    """Whether torch.export records a graph: it keeps operations, and gradients are theirs; ONNX has none."""
    return torch.compiler.is_exporting() and not for_onnx()


def is_transformed() -> bool:
    """Whether a graph is being recorded, or a transform of ``torch.func`` is at work."""
    if torch.compiler.is_compiling():
        return True
    return bool(torch._C._are_functorch_transforms_active())


def is_for_any_size() -> bool:
    """Whether sizes may not be looked at: graphs are made for batches of any size."""
    return is_transformed() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]


def can_overwrite() -> bool:
    """Whether a result on the way may be overwritten by the next: nothing records what is done to it."""
    return not (torch.is_grad_enabled() or is_transformed())


def without_zeros(ctx: Any) -> None:
    """Gradients of outputs that get none are not made up of zeros, which nobody reads; transforms want them."""
    if not is_transformed():
        ctx.set_materialize_grads(False)


def within(values: Tensor, largest: Tensor) -> Tensor:
    """``values`` cut at ±largest, a table: ONNX's exporter makes plain numbers float32, and float64's end infinite."""
    return torch.minimum(torch.maximum(values, -largest), largest)


def margin(value: float, count: int, axes: int = 1) -> Tensor:
    """A constant close to 0 or 1 that a proof needs, as a table ``(T, 1, …)`` with so many axes after T; read row 0.

    ONNX's exporter takes a plain number within 1e-8 of 0 for 0, and one within 1e-5 of 1 for 1, and leaves out the sum
    or product. Tables it leaves alone.
    """
    return torch.full((count, *[1] * axes), value, dtype=torch.float64)


class Transform(Tabled, ABC):
    """Maps of T terms, one row of every table per term.

    Args:
        dtype: of the values that come out, one of the four formats.
        tables: constants by name, each with leading axis T. They are no buffers; casts leave their dtype alone, since
            the guarantee is made of it, and only moves between devices reach them.
    """

    def __init__(self, dtype: torch.dtype, tables: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.precision = precision_of(dtype)
        self.hold(tables)

    def __len__(self) -> int:
        """The number T of terms."""
        return len(cast(Tensor, getattr(self, self.table_names[0])))

    def terms(self, start: int, stop: int) -> Self:
        """The transform of terms ``start`` to ``stop`` alone; it shares the memory of this one."""
        part = copy.copy(self)
        part.hold(
            {name: table[start:stop] for name, table in self.own_tables().items()}
        )
        part._modules = {}
        for name, module in self._modules.items():
            part._modules[name] = cast(Transform, module).terms(start, stop)
        return part

    @abstractmethod
    def forward(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        """``x = h_k(raw)``, exactly inside."""

    @abstractmethod
    def inverse(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        """A raw value that is mapped to ``x`` (up to rounding; ``x`` outside goes to the nearest end of the ray)."""

    @abstractmethod
    def unrounded(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        """The raw value, in float64, of the reals that ``x`` inside stands for.

        As ``inverse``, but a point that is nearer to the boundary than the middle of its cell is taken to lie as far
        inside as that: the floats at the boundary have densities of what was rounded to them, and not of the boundary
        itself, where raw values are infinite.
        """

    @abstractmethod
    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """``x`` and ``log |det ∂x/∂raw|``, of shape ``(*batch, T)`` or ``(*batch,)``, at least in float32."""

    def log_abs_det_jacobian(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        """``log |det ∂x/∂raw|`` alone."""
        return self.forward_and_log_det(raw, index, parameters)[1]

    def nearest(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        """A point inside that is near ``x``; shapes as in ``forward``."""
        raw = self.inverse(x, index, parameters)
        raw = torch.nan_to_num(raw)  # far out a ray may have no float64 numbers
        return self.forward(raw, index, parameters)

    def _of_all(self, values: Tensor, index: Tensor | None) -> Tensor:
        """Values ``(*batch, 1 or T, p)`` for every term; those of chosen terms, ``(*batch, p)``, as they are."""
        if index is not None:
            return values
        return values.expand(*values.shape[:-2], len(self), values.shape[-1])

    def _at(self, table: Tensor, index: Tensor | None) -> Tensor:
        """The table for all terms, or its rows for the chosen terms (one term needs no gather)."""
        if index is None:
            return table
        return table[0] if len(table) == 1 else rows_of(table, index)
