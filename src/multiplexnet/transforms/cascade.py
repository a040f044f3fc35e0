r"""The map of a cascade: one output after another, each a whole number of steps between exact ends.

Rows are evaluated on whole numbers below 2^53 (below 2^24 in float32), so no sum rounds, in whatever order it is added, and
``⌈n / a⌉`` computed from the rounded quotient is right: n/a is whole and representable, or at least 1/a away from every
whole number, which is more than the rounding of a quotient below 2^53. The value ``clamp(round(L + (U − L) σ), L, U)`` is a
whole number between L and U however inaccurate σ is, and ``h · k`` is a number of the format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from multiplexnet.compiler.cascade import EXACT, Cascade, Step
from multiplexnet.compiler.cascade_rows import Clause, Row
from multiplexnet.transforms.base import in_full_precision, precision_of
from multiplexnet.transforms.cascade_known import known_values
from multiplexnet.transforms.cascade_program import Program, program_of

__all__ = ["CascadeMap", "Chosen"]

SMALL = 2**24
"""Whole numbers below this are exact in float32."""

Number = Tensor | float


@dataclass(frozen=True)
class Option:
    """One interval of an output: its ends, and where it has any value; numbers where they are the same in all rows."""

    lower: Number
    upper: Number
    possible: Tensor | None


@dataclass(frozen=True)
class Chosen:
    """The interval in which an output lies, ends included, ``(B,)`` each; NaN where nothing is possible."""

    lower: Number
    upper: Number


Choose = Callable[[Sequence[Option], Tensor | None, torch.dtype], Chosen]


class CascadeMap(nn.Module):
    """Raw values and logits to outputs that obey, exactly.

    Args:
        cascade: what was compiled.
        dtype: of the values that come out; the cascade was made for it.

    ``in_values`` raw values (one for every output), ``in_logits`` logits: those of every output with more than one option,
    in the order of computing.
    """

    def __init__(self, cascade: Cascade, dtype: torch.dtype) -> None:
        super().__init__()
        if cascade.size >= EXACT:
            raise ValueError("the sums of this cascade are not exact in float64")
        self.cascade, self.precision = cascade, precision_of(dtype)
        self.computing = torch.float32 if cascade.size < SMALL and dtype is not torch.float64 else torch.float64
        self.in_values = len(cascade.visible)
        self.logit_start: dict[int, int] = {}
        self.in_logits = 0
        for step in cascade.steps:
            if step.size > 1:
                self.logit_start[step.variable] = self.in_logits
                self.in_logits += step.size
        spacing = torch.tensor([float(h) for h in cascade.spacing[: self.in_values]], dtype=torch.float64)
        self.register_buffer("spacing", spacing, persistent=False)
        self.program = program_of(cascade, self.logit_start)

    # --- values -----------------------------------------------------------------------------------------------------

    @in_full_precision
    def forward(self, values: Tensor, logits: Tensor | None = None, inputs: Tensor | None = None) -> Tensor:
        """The most probable option of every output, and in it the value that the raw value says.

        Args:
            values: ``(*batch, in_values)``.
            logits: ``(*batch, in_logits)``.
            inputs: ``(*batch, I)``.

        Returns:
            ``(*batch, in_values)``, NaN in rows whose inputs leave nothing.
        """
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            return self._run(values, logits, inputs, _best)
        flat, own, known = self._flat(values, logits, inputs)
        x = _Run.apply(self.program, self.spacing, flat, own, *known)  # type: ignore[no-untyped-call]
        return x.t().to(self.precision.dtype).reshape(values.shape)  # type: ignore[no-any-return]

    def _flat(
        self, values: Tensor, logits: Tensor | None, inputs: Tensor | None
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """Raw values ``(D, B)``, logits ``(O, B)`` without NaN and infinities, and what is known of the inputs."""
        flat = values.reshape(-1, self.in_values).to(self.computing).t()
        if not self.training:
            flat = flat.nan_to_num(0.0, torch.inf, -torch.inf)
        own = None
        if self.in_logits:
            assert logits is not None
            largest = torch.finfo(logits.dtype).max
            own = logits.detach().reshape(-1, self.in_logits).nan_to_num(-largest, largest, -largest).t().contiguous()
        known: list[Tensor] = []
        if self.cascade.known:
            assert inputs is not None
            ranges = self.cascade.ranges[len(self.cascade.outputs) :]
            found = known_values(self.cascade.known, ranges, inputs.reshape(-1, inputs.shape[-1]).t())
            known = [value.to(self.computing) for value in found]
        return flat.contiguous(), own, known

    def sample(
        self,
        values: Tensor,
        logits: Tensor | None = None,
        inputs: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Like ``forward``, with options drawn by their probabilities."""

        def drawn(options: Sequence[Option], own: Tensor | None, dtype: torch.dtype) -> Chosen:
            if own is not None:
                uniform = torch.rand(own.shape, generator=generator, dtype=torch.float64, device=own.device)
                own = own.double() - torch.log(-torch.log(uniform.clamp(1e-300, 1 - 1e-16)))
            return _best(options, own, dtype)

        return self._run(values, logits, inputs, drawn)

    def _run(self, values: Tensor, logits: Tensor | None, inputs: Tensor | None, choose: Choose) -> Tensor:
        batch = values.shape[:-1]
        rows = _Rows(self, values, logits, inputs)
        ks = rows.known
        for step in self.cascade.steps:
            options = rows.options(step)
            chosen = choose(options, rows.logits(step), self.computing)
            ks[step.variable] = rows.value(step, chosen)
        out = [ks[i] * float(self.cascade.spacing[i]) for i in range(self.in_values)]
        x = torch.stack([rows.full(o) for o in out], -1).to(self.precision.dtype)
        if rows.refused is not None:
            x = x.masked_fill(rows.refused.unsqueeze(-1), torch.nan)
        return x.reshape(*batch, self.in_values)


class _Run(torch.autograd.Function):
    """A program on raw values ``(D, B)``; x, ``(D, B)``."""

    @staticmethod
    def forward(
        ctx: Any, program: Program, spacing: Tensor, values: Tensor, logits: Tensor | None, *known: Tensor
    ) -> Tensor:
        sigma = values.sigmoid()
        found, tape = program.run(sigma, logits, known)
        ctx.program, ctx.tape = program, tape
        ctx.scale = spacing.to(found.dtype).unsqueeze(-1)
        ctx.sigma = sigma
        return found * ctx.scale

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        raw, known = ctx.program.back(ctx.tape, ctx.sigma, grads[0] * ctx.scale)
        return None, None, raw, None, *known


def _best(options: Sequence[Option], logits: Tensor | None, dtype: torch.dtype) -> Chosen:
    """The possible option with the largest logit."""
    if logits is None:
        return Chosen(options[0].lower, options[0].upper)
    nothing = torch.full((logits.shape[-1],), torch.nan, dtype=dtype, device=logits.device)
    lower = upper = nothing
    best = torch.full_like(logits[0], -torch.inf)
    for option, logit in zip(options, logits.unbind(0), strict=True):
        better = logit > best
        if option.possible is not None:
            better = better & option.possible
        lower = _where(better, option.lower, lower, dtype)
        upper = _where(better, option.upper, upper, dtype)
        best = torch.where(better, logit, best)
    return Chosen(lower, upper)


class _Rows:
    """One batch on its way through a cascade."""

    def __init__(self, owner: CascadeMap, values: Tensor, logits: Tensor | None, inputs: Tensor | None) -> None:
        self.owner, self.computing = owner, owner.computing
        self.cascade = owner.cascade
        flat = values.reshape(-1, owner.in_values).to(owner.computing).t().contiguous()
        self.sigma = flat.sigmoid() if owner.training else flat.nan_to_num(0.0, torch.inf, -torch.inf).sigmoid()
        self.count = flat.shape[-1]
        self._like = flat
        self._logits = None
        if owner.in_logits:
            assert logits is not None
            own = logits.reshape(-1, owner.in_logits).t()
            largest = torch.finfo(logits.dtype).max
            self._logits = own.nan_to_num(-largest, largest, -largest)
        self.known: dict[int, Tensor] = {}
        self.refused: Tensor | None = None
        if self.cascade.known:
            assert inputs is not None
            first = len(self.cascade.outputs)
            found = known_values(
                self.cascade.known, self.cascade.ranges[first:], inputs.reshape(-1, inputs.shape[-1]).t()
            )
            for i, value in enumerate(found):
                self.known[first + i] = value.to(self.computing)
            for clause in self.cascade.guards:
                fails = ~self._any(clause)
                self.refused = fails if self.refused is None else self.refused | fails

    def full(self, value: Number) -> Tensor:
        if isinstance(value, Tensor):
            return value.expand(self.count)
        return torch.full((self.count,), value, dtype=self.computing, device=self._like.device)

    def logits(self, step: Step) -> Tensor | None:
        if step.size == 1:
            return None
        assert self._logits is not None
        start = self.owner.logit_start[step.variable]
        return self._logits[start : start + step.size]

    # --- rows -------------------------------------------------------------------------------------------------------

    def _sum(self, terms: Sequence[tuple[int, int]]) -> Number:
        total: Number = 0.0
        for v, c in terms:
            part = self.known[v] if c == 1 else self.known[v] * float(c)
            total = part if isinstance(total, float) else total + part
        return total

    def _any(self, rows: Sequence[Row]) -> Tensor:
        """Whether one of the rows holds."""
        held = [self._sum(row.terms) <= float(row.bound) for row in rows]
        result = held[0]
        for other in held[1:]:
            result = result | other
        assert isinstance(result, Tensor)
        return result

    def _end(self, x: int, row: Row) -> Number:
        """The end that a row gives to x: ⌈(rest − bound)/a⌉ of a lower one, ⌊(bound − rest)/a⌋ of an upper one."""
        c, rest = row.coefficient(x), self._sum(row.without(x))
        if c > 0:
            room = float(row.bound) - rest
            return room if c == 1 else _rounded(room / float(c), torch.floor)
        need = rest - float(row.bound)
        return need if c == -1 else _rounded(need / float(-c), torch.ceil)

    def _lower(self, x: int, clause: Clause, otherwise: float) -> Number:
        ends = [self._end(x, row) for row in clause if row.coefficient(x) < 0]
        return self._where_active(x, clause, _smallest(ends), otherwise)

    def _upper(self, x: int, clause: Clause, otherwise: float) -> Number:
        ends = [self._end(x, row) for row in clause if row.coefficient(x) > 0]
        return self._where_active(x, clause, _largest(ends), otherwise)

    def _where_active(self, x: int, clause: Clause, end: Number, otherwise: Number) -> Number:
        others = [row for row in clause if not row.coefficient(x)]
        return _where(self._any(others), otherwise, end, self.computing) if others else end

    # --- steps ------------------------------------------------------------------------------------------------------

    def options(self, step: Step) -> list[Option]:
        """The intervals of an output, given what comes before."""
        x, ends = step.variable, step.bucket.range
        lower = _largest([float(ends.lower), *(self._lower(x, c, float(ends.lower)) for c in step.bucket.lower)])
        upper = _smallest([float(ends.upper), *(self._upper(x, c, float(ends.upper)) for c in step.bucket.upper)])
        gaps = [self._gap(x, clause) for clause in step.bucket.gaps]
        if step.values is not None:
            return [self._value_option(float(v), lower, upper, gaps) for v in step.values]
        if step.size == 1 and not gaps:
            return [Option(lower, upper, None)]
        found = []
        for sides in step.sides:
            low = _largest([lower, *(above for (_, above), side in zip(gaps, sides, strict=False) if side)])
            high = _smallest([upper, *(below for (below, _), side in zip(gaps, sides, strict=False) if not side)])
            found.append(Option(low, high, self._full_mask(_at_most(low, high))))
        return found

    def _gap(self, x: int, clause: Clause) -> tuple[Number, Number]:
        """The largest value below a gap, and the smallest above; a gap that other rows close ends just below itself."""
        above = _smallest([self._end(x, row) for row in clause if row.coefficient(x) < 0])
        below = _largest([self._end(x, row) for row in clause if row.coefficient(x) > 0])
        return self._where_active(x, clause, _smallest([below, above - 1.0]), above - 1.0), above

    def _value_option(
        self, value: float, lower: Number, upper: Number, gaps: Sequence[tuple[Number, Number]]
    ) -> Option:
        possible = self._full_mask(_at_most(lower, value)) & self._full_mask(_at_most(value, upper))
        for below, above in gaps:
            possible = possible & (self._full_mask(_at_most(value, below)) | self._full_mask(_at_most(above, value)))
        return Option(value, value, possible)

    def _full_mask(self, mask: Tensor | bool) -> Tensor:
        if isinstance(mask, Tensor):
            return mask
        return torch.full((self.count,), mask, dtype=torch.bool, device=self._like.device)

    def value(self, step: Step, chosen: Chosen) -> Tensor:
        """A whole number of the chosen interval, where the raw value says; its gradient is that of the unrounded one."""
        lower, upper = chosen.lower, chosen.upper
        if step.variable >= self.owner.in_values:  # hidden: the interval is a point
            return self.full(lower)
        sigma = self.sigma[step.variable]
        smooth = torch.addcmul(self.full(lower), self.full(upper - lower), sigma)
        rounded = smooth.detach().round()
        return rounded + (smooth - smooth.detach()) if smooth.requires_grad else rounded


# --- numbers and tensors alike --------------------------------------------------------------------------------------


def _rounded(quotient: Number, rounding: Callable[[Tensor], Tensor]) -> Number:
    if not isinstance(quotient, Tensor):
        return float(rounding(torch.tensor(quotient, dtype=torch.float64)))
    value = rounding(quotient.detach())
    return value + (quotient - quotient.detach()) if quotient.requires_grad else value


def _largest(numbers: Sequence[Number]) -> Number:
    return _extreme(numbers, max, torch.maximum)


def _smallest(numbers: Sequence[Number]) -> Number:
    return _extreme(numbers, min, torch.minimum)


def _extreme(numbers: Sequence[Number], of_floats: Any, of_tensors: Any) -> Number:
    floats = [n for n in numbers if not isinstance(n, Tensor)]
    tensors = [n for n in numbers if isinstance(n, Tensor)]
    if not tensors:
        return float(of_floats(floats))
    result = tensors[0]
    for other in tensors[1:]:
        result = of_tensors(result, other)
    if floats:
        end = float(of_floats(floats))
        result = result.clamp(min=end) if of_floats is max else result.clamp(max=end)
    return result


def _at_most(small: Number, large: Number) -> Tensor | bool:
    return small <= large


def _where(mask: Tensor, yes: Number, no: Number, dtype: torch.dtype) -> Tensor:
    """``yes`` where the mask holds, else ``no``; two plain numbers would become a tensor of torch's default dtype."""
    if not isinstance(yes, Tensor):
        yes = torch.tensor(yes, dtype=dtype, device=mask.device)
    if not isinstance(no, Tensor):
        no = torch.tensor(no, dtype=dtype, device=mask.device)
    return torch.where(mask, yes, no)
