r"""The map of a cascade: one output after another, each a whole number of steps between exact ends.

Rows are evaluated on whole numbers below 2^53 (below 2^24 in float32), so no sum rounds, in whatever order it is
added, and ``⌈n / a⌉`` computed from the rounded quotient is right: n/a is whole and representable, or at least 1/a
away from every whole number, which is more than the rounding of a quotient below 2^53. The value ``round(L + (U − L)
σ)`` with ``0 ≤ σ ≤ 1`` is a whole number between L and U, fused or not, since rounding is monotone and L and U are
numbers of the format that is computed in. ``h · k`` is a number of the format that comes out, and so is ``h · k + f``
of an output that carries what an input has beyond the grid (:mod:`~multiplexnet.compiler.cascade.carriers`).

**Probabilities.** With z drawn from a logistic distribution around the raw value, ``k = round(L + (U − L)
sigmoid(z))`` takes each whole number with a probability that is known in closed form, and the whole interval with
equal probabilities if the raw value is 0. On a grid a density is a probability, so points and intervals need no
common measure. Every value belongs to exactly one option, so ``log p(x)`` is a sum over outputs of the logarithm of
one product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from multiplexnet.compiler.cascade.build import EXACT, Cascade, Step
from multiplexnet.errors import ValuesError
from multiplexnet.transforms.base import (
    in_full_precision,
    is_forward_mode,
    is_transformed,
    precision_of,
    saturated,
)
from multiplexnet.transforms.cascade.input_parts import known_values, rest_of
from multiplexnet.transforms.cascade.inside import Inside, Values, inside_of
from multiplexnet.transforms.cascade.late_rows import Budgets
from multiplexnet.transforms.cascade.operations import offset_of
from multiplexnet.transforms.cascade.program import Kept, program_of
from multiplexnet.transforms.cascade.start import shifts_of, starts_of
from multiplexnet.transforms.cascade.walk import Option, Walk
from multiplexnet.transforms.run_time.reading import exact_number, read
from multiplexnet.transforms.tables import Tabled

__all__ = ["CascadeMap", "cell_of", "cell_width"]

SMALL = 2**24
"""Whole numbers below this are exact in float32."""

LARGEST_LOGIT = torch.finfo(torch.float32).max
"""Where logits are cut. ONNX's exporter makes plain numbers float32, and the end of float64 infinite."""

SURE = 100.0
"""The logit of a chosen option in ``inverse``: beyond what any start adds to the others."""

Mass = Callable[[int, Tensor, Tensor], Tensor]
Decide = Callable[[Walk, Step, Sequence[Option]], Tensor]


class CascadeMap(Tabled):
    """Raw values and logits to outputs that obey, exactly.

    Args:
        cascade: what was compiled.
        dtype: of the values that come out; the cascade was made for it.
        values: how raw values become values: see :mod:`~multiplexnet.transforms.cascade.inside`.
        started: whether 0 means that no output is better off: see :mod:`~multiplexnet.transforms.cascade.start`.

    Raw values are ``(*batch, in_values)``, one for every output, logits ``(*batch, in_logits)``, those of every
    output with more than one option in the order of computing, inputs ``(*batch, I)``.

    In training NaN stays NaN; in ``eval()`` a raw value that is NaN is read as 0.
    """

    spacing: Tensor
    shift: Tensor | None

    def __init__(
        self,
        cascade: Cascade,
        dtype: torch.dtype,
        values: Values = "share",
        *,
        started: bool = True,
    ) -> None:
        super().__init__()
        if cascade.size >= EXACT:
            raise ValueError("the sums of this cascade are not exact in float64")
        self.cascade, self.precision = cascade, precision_of(dtype)
        self.computing = (
            torch.float32
            if cascade.size < SMALL and dtype is not torch.float64
            else torch.float64
        )
        self.in_values = len(cascade.visible)
        self.values = values
        self._inside = inside_of(values, cascade.ranges[: self.in_values])
        self.first_logit = dict(_first_logits(cascade))
        self.in_logits = sum(step.size for step in cascade.steps if step.size > 1)
        self._used = cascade.used
        self.started = started
        self._starts = starts_of(cascade) if started else {}
        self.ranked = any(step.ranked for step in cascade.steps)
        limit = SMALL if self.computing is torch.float32 else EXACT
        self.program = (
            None
            if self.ranked
            else program_of(
                cascade, self.first_logit, self._starts, limit, self._inside
            )
        )  # compared when a certificate is asked for; one with ranks has none, since it has to sort
        spacing = torch.tensor(
            [float(h) for h in cascade.spacing[: self.in_values]], dtype=torch.float64
        )
        shifts = shifts_of(cascade) if started and values == "share" else []
        shift = torch.tensor(shifts, dtype=torch.float64) if any(shifts) else None
        self.hold({"spacing": spacing, "shift": shift})

    # --- values -----------------------------------------------------------------------------------------------------

    @in_full_precision
    def forward(
        self,
        values: Tensor,
        logits: Tensor | None = None,
        inputs: Tensor | None = None,
        known: list[Tensor] | None = None,
    ) -> Tensor:
        """The most probable option of every output, and in it the value that the raw value says.

        ``known`` is what :meth:`known` says of the inputs, if that was asked before.

        Returns:
            ``(*batch, in_values)``, NaN in rows whose inputs leave nothing.
        """
        known = self.known(inputs) if known is None else known
        given = None if logits is None else logits.detach()
        return self._computed(values, self._read_logits(given), inputs, known)

    @in_full_precision
    def sample(
        self,
        values: Tensor,
        logits: Tensor | None = None,
        inputs: Tensor | None = None,
        generator: torch.Generator | None = None,
        known: list[Tensor] | None = None,
        *,
        noisy: bool = False,
    ) -> Tensor:
        """Like ``forward``, with options drawn by their probabilities.

        Args:
            values: as for ``forward``.
            logits: as for ``forward``.
            inputs: as for ``forward``.
            generator: of the random numbers.
            known: as for ``forward``.
            noisy: whether values are drawn as well, so that x is distributed as ``log_prob`` says.
        """
        known = self.known(inputs) if known is None else known
        own = self._read_logits(None if logits is None else logits.detach())
        if own is not None:
            own = own.double() - torch.log(-torch.log(_uniform(own, generator)))
        noise = None
        if noisy:
            self._refuse_clamp()
            rows = values.reshape(-1, self.in_values).t()
            uniform = _uniform(rows, generator)
            noise = torch.log(uniform) - torch.log1p(-uniform)
        return self._computed(values, own, inputs, known, noise)

    def _computed(
        self,
        values: Tensor,
        logits: Tensor | None,
        inputs: Tensor | None,
        known: list[Tensor],
        noise: Tensor | None = None,
    ) -> Tensor:
        """x, ``(*batch, in_values)``, for logits ``(O, B)`` and noise ``(D, B)`` on the raw values."""
        values = saturated(values)
        recorded = is_transformed() or is_forward_mode()
        if recorded or self.program is None or self.cascade.late:
            return self.recorded(values, logits, inputs, known, noise)
        x: Tensor = _Run.apply(self, values, logits, inputs, noise, *known)  # type: ignore[no-untyped-call]
        return x

    def recorded(
        self,
        values: Tensor,
        logits: Tensor | None,
        inputs: Tensor | None,
        known: list[Tensor],
        noise: Tensor | None = None,
    ) -> Tensor:
        """The same with torch's own operations, which it can record and differentiate as often as it likes."""
        read = self._inside.read(self._flat(values, noise))
        return self._shaped(self.walked(read, logits, known), values.shape, inputs)

    def run(
        self,
        values: Tensor,
        logits: Tensor | None,
        inputs: Tensor | None,
        noise: Tensor | None,
        known: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, Kept]:
        """The same with the program: x, what was read of the raw values, and what is kept for the way back."""
        assert self.program is not None
        read = self._inside.read(self._flat(values, noise))
        steps, nothing, kept = self.program.run(read, logits, known)
        x = torch.addcmul(nothing, steps, self.scale(steps))  # x, or x + NaN
        return self._shaped(x, values.shape, inputs), read, kept

    def back(
        self, kept: Kept, read: Tensor, values: Tensor, grad: Tensor
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Gradients of the raw values and of the known variables, given that of x."""
        assert self.program is not None
        wanted = torch.empty_like(read, memory_format=torch.contiguous_format)
        torch.mul(grad.reshape(-1, self.in_values).t(), self.scale(read), out=wanted)
        found, known = self.program.back(self._inside, kept, read, wanted)
        raw = found.t().to(values.dtype).reshape(values.shape)
        if not self.training:  # what is read as another number gets no gradient
            raw = raw.masked_fill(~values.isfinite(), 0.0)
        return raw, known

    @property
    def inside(self) -> Inside:
        """How raw values become whole numbers."""
        return self._inside

    def walked(
        self, read: Tensor, logits: Tensor | None, known: list[Tensor]
    ) -> Tensor:
        """The same with torch's own operations."""

        def decide(walk: Walk, step: Step, options: Sequence[Option]) -> Tensor:
            lower, upper = self._best(walk, step, options, logits)
            if step.variable >= self.in_values:  # hidden: the interval is a point
                return lower
            return self._inside.value(lower, upper, read[step.variable])

        walk = self._walk(known, read[0], decide)
        x = torch.stack([walk.values[i] for i in range(self.in_values)]) * self.scale(
            read
        )
        return x.masked_fill(walk.refused, torch.nan)

    def _walk(self, known: list[Tensor], like: Tensor, decide: Decide) -> Walk:
        walk = self._start(known, like)
        for step in self.cascade.steps:
            walk.take(step, decide(walk, step, walk.options(step)))
        return walk

    def _start(self, known: list[Tensor], like: Tensor) -> Walk:
        if not self.cascade.late:
            return Walk(self.cascade, known, like)
        *others, rows = known
        return Walk(self.cascade, others, like, Budgets(self.cascade, rows))

    # --- one output at a time ---------------------------------------------------------------------------------------

    def walk(self, inputs: Tensor | None, rows: int, device: torch.device) -> Walk:
        """The start of a walk, to be taken output by output."""
        like = torch.zeros(rows, dtype=self.computing, device=device)
        return self._start(self.known(inputs), like)

    def chosen(
        self, walk: Walk, step: Step, options: Sequence[Option], said: Tensor
    ) -> Tensor:
        """The value that a raw value and logits, ``(B, 1 + K)``, give an output, ``(B,)``, in steps."""
        raw = torch.zeros(
            self.in_values, len(said), dtype=self.computing, device=said.device
        )
        raw[step.variable] = said[:, 0].to(self.computing)
        flat = self._flat(raw.t())
        logits = None
        if step.size > 1:
            logits = said.new_zeros(len(said), self.in_logits)
            first = self.first_logit[step.variable]
            logits[:, first : first + step.size] = said[:, 1:]
        lower, upper = self._best(walk, step, options, self._read_logits(logits))
        return self._inside.value(lower, upper, self._inside.read(flat)[step.variable])

    def in_steps(self, x: Tensor, inputs: Tensor | None) -> Tensor:
        """Outputs ``(*batch, in_values)`` as whole numbers ``(D, B)``."""
        return self._given(x, inputs)[0]

    def _best(
        self, walk: Walk, step: Step, options: Sequence[Option], logits: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The ends of the possible option with the largest logit; NaN where none is possible."""
        lower, upper = walk.full(options[0].lower), walk.full(options[0].upper)
        if step.size == 1:
            return lower, upper
        assert logits is not None
        own = self._own(walk, step, logits)
        lower = upper = walk.full(torch.nan)
        best = torch.full_like(own[0], -torch.inf)
        for option, logit in zip(options, own.unbind(0), strict=True):
            better = logit > best
            if option.possible is not None:
                better = better & option.possible
            lower = torch.where(better, walk.full(option.lower), lower)
            upper = torch.where(better, walk.full(option.upper), upper)
            best = torch.where(better, logit, best)
        return lower, upper

    def _own(self, walk: Walk, step: Step, logits: Tensor) -> Tensor:
        """The logits of one output, from where they start."""
        first = self.first_logit[step.variable]
        own = logits[first : first + step.size]
        start = self._starts.get(step.variable)
        if start is None:
            return own
        offset = offset_of(start, [walk.values[v] for v in start.before], own)
        return torch.stack([own[0], own[1] + offset])

    # --- probabilities ----------------------------------------------------------------------------------------------

    @in_full_precision
    def log_prob(
        self,
        x: Tensor,
        values: Tensor,
        logits: Tensor | None = None,
        inputs: Tensor | None = None,
    ) -> Tensor:
        """The logarithm of the probability with which ``sample(noisy=True)`` gives x, ``(*batch,)``, in float64.

        It is −inf for x that disobey or do not lie on the grid. Gradients reach values and logits.

        Raises:
            ValuesError: predictions that are cut have no probabilities.
        """
        flat = self._flat(values)

        def mass(variable: int, steps: Tensor, width: Tensor) -> Tensor:
            return _log_mass(steps, width, flat[variable].double())

        return self.log_prob_under(x, logits, inputs, mass)

    @in_full_precision
    def log_prob_under(
        self, x: Tensor, logits: Tensor | None, inputs: Tensor | None, mass: Mass
    ) -> Tensor:
        """As :meth:`log_prob` where ``mass(variable, steps, width)`` is the log-probability within an interval.

        Args:
            x: ``(*batch, in_values)``.
            logits: ``(*batch, in_logits)``.
            inputs: ``(*batch, I)``.
            mass: of the value that lies so many steps, ``(B,)``, above the lower end of an interval of that width.
        """
        self._refuse_clamp()
        found = self._found(x, logits, inputs)
        given, total = self._steps(x, inputs), found.log_q
        for variable, (lower, upper) in found.ends.items():
            safe = torch.where(found.possible, given[variable], lower)
            total = total + mass(variable, safe - lower, (upper - lower).clamp(min=0.0))
        total = torch.where(found.possible, total, -torch.inf)
        return total.masked_fill(found.refused, torch.nan).reshape(x.shape[:-1])

    @in_full_precision
    def contains(self, x: Tensor, inputs: Tensor | None) -> Tensor:
        """Whether x, ``(*batch, in_values)``, is reached: it obeys, and lies on the grid."""
        logits = (
            x.new_zeros((*x.shape[:-1], self.in_logits)) if self.in_logits else None
        )
        found = self._found(x.nan_to_num(torch.inf), logits, inputs)
        return (found.possible & ~found.refused).reshape(x.shape[:-1])

    def _found(
        self, x: Tensor, logits: Tensor | None, inputs: Tensor | None
    ) -> _Scored:
        given = self._steps(x, inputs)
        like = torch.zeros_like(given[0], dtype=self.computing)
        return self._scored(given, self._read_logits(logits), self.known(inputs), like)

    @in_full_precision
    def draw(
        self,
        values: Tensor,
        logits: Tensor | None = None,
        inputs: Tensor | None = None,
        generator: torch.Generator | None = None,
        known: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """``sample``, and the log-probability of the options drawn, ``(*batch,)``, with gradients to the logits."""
        known = self.known(inputs) if known is None else known
        x = self.sample(values, logits, inputs, generator, known)
        given = self._steps(x.detach(), inputs)
        like = torch.zeros_like(given[0], dtype=self.computing)
        found = self._scored(given, self._read_logits(logits), known, like)
        return x, found.log_q.masked_fill(found.refused, torch.nan).reshape(
            values.shape[:-1]
        ).to(self.precision.computing)

    def _refuse_clamp(self) -> None:
        if self.values == "clamp":
            raise ValuesError

    def _steps(self, x: Tensor, inputs: Tensor | None) -> Tensor:
        """Outputs in steps, ``(D, B)``, in float64; whole numbers if they lie on the grid."""
        flat = x.reshape(-1, self.in_values).t().double()
        return self._with_rests(flat, inputs, -1.0) / self.spacing.unsqueeze(-1)

    def _with_rests(
        self, x: Tensor, inputs: Tensor | None, sign: float = 1.0
    ) -> Tensor:
        """x ``(D, B)`` with what inputs have beyond the grid added to the outputs that carry it: no sum rounds."""
        if not self.cascade.carried:
            return x
        assert inputs is not None
        rows = self._rows(inputs.detach())
        rests = torch.stack(
            [rest_of(form, rows) for _, form in self.cascade.carried]
        ).to(x.dtype)
        places = torch.tensor(
            [variable for variable, _ in self.cascade.carried], device=x.device
        )
        return x.index_add(0, places, rests, alpha=sign)

    def _scored(
        self, given: Tensor, logits: Tensor | None, known: list[Tensor], like: Tensor
    ) -> _Scored:
        """Which options given outputs, ``(D, B)`` in steps, belong to, and how probable these are."""
        log_q = torch.zeros_like(given[0])
        possible = (given == given.round()).all(0)
        ends: dict[int, tuple[Tensor, Tensor]] = {}

        def decide(walk: Walk, step: Step, options: Sequence[Option]) -> Tensor:
            nonlocal log_q, possible
            if step.variable >= self.in_values:
                return walk.full(options[0].lower)
            k = given[step.variable].to(self.computing)
            lower, upper, chosen, inside = _containing(walk, options, k)
            if step.size > 1:
                assert logits is not None
                log_q = log_q + _log_softmax_at(
                    self._own(walk, step, logits), options, chosen
                )
            possible = possible & inside
            if step.values is None:
                ends[step.variable] = lower.double(), upper.double()
            return k

        walk = self._walk(known, like, decide)
        return _Scored(log_q, possible, walk.refused, ends)

    def refused(self, known: list[Tensor]) -> Tensor:
        """Where inputs leave no output at all, or none on the grid, by what is known of them: ``(B,)``."""
        like = known[-1][0].to(self.computing) if self.cascade.late else known[0]
        return self._start(known, like).refused

    @in_full_precision
    def inverse(self, x: Tensor, inputs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Raw values and logits that are mapped to x, as far as their dtype can say; x obeys and lies on the grid."""
        given, known = self._given(x, inputs)
        values = torch.zeros_like(given, dtype=torch.float64)
        logits = torch.zeros(
            (self.in_logits, given.shape[-1]), dtype=torch.float64, device=x.device
        )

        def decide(walk: Walk, step: Step, options: Sequence[Option]) -> Tensor:
            if step.variable >= self.in_values:
                return walk.full(options[0].lower)
            k = given[step.variable]
            lower, upper, chosen, _ = _containing(walk, options, k)
            if step.size > 1:
                start = self.first_logit[step.variable]
                for number in range(step.size):
                    logits[start + number] = SURE * (chosen == number).double()
            values[step.variable] = self._inside.raw_of(k, lower, upper, step.variable)
            return k

        self._walk(known, given[0], decide)
        if self.shift is not None:
            values = values - self.shift.unsqueeze(-1)
        dtype, batch = self.precision.dtype, x.shape[:-1]
        return values.t().to(dtype).reshape(x.shape), logits.t().to(dtype).reshape(
            *batch, self.in_logits
        )

    @in_full_precision
    def nearest(self, x: Tensor, inputs: Tensor | None = None) -> Tensor:
        """A point that obeys, near x: output by output the nearest value that is left. What lies on the grid and obeys
        comes back as it is."""
        given, known = self._given(x, inputs)

        def decide(walk: Walk, step: Step, options: Sequence[Option]) -> Tensor:
            if step.variable >= self.in_values:
                return walk.full(options[0].lower)
            wanted = given[step.variable]
            found, distance = walk.full(torch.nan), walk.full(torch.inf)
            for option in options:
                lower, upper = walk.full(option.lower), walk.full(option.upper)
                point = torch.minimum(torch.maximum(wanted, lower), upper)
                closer = (point - wanted).abs() < distance
                if option.possible is not None:
                    closer = closer & option.possible
                found = torch.where(closer, point, found)
                distance = torch.where(closer, (point - wanted).abs(), distance)
            return found

        walk = self._walk(known, given[0], decide)
        found = torch.stack(
            [walk.values[i] for i in range(self.in_values)]
        ) * self.scale(given)
        return self._shaped(found.masked_fill(walk.refused, torch.nan), x.shape, inputs)

    def _given(self, x: Tensor, inputs: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """Outputs as whole numbers ``(D, B)`` in the ranges of the variables."""
        whole = self._steps(x.detach().nan_to_num(0.0), inputs).round()
        ranges = self.cascade.ranges[: self.in_values]
        cut = [
            row.clamp(r.lower, r.upper)
            for row, r in zip(whole.unbind(0), ranges, strict=True)
        ]
        return torch.stack(cut).to(self.computing), self.known(inputs)

    # --- shapes -----------------------------------------------------------------------------------------------------

    def _flat(self, values: Tensor, noise: Tensor | None = None) -> Tensor:
        """Raw values ``(D, B)``, from where they start."""
        flat = (
            saturated(values)
            .reshape(-1, self.in_values)
            .t()
            .contiguous()
            .to(self.computing)
        )
        if not self.training:
            flat = flat.nan_to_num(0.0, torch.inf, -torch.inf)
        if self.shift is not None:
            flat = flat + self.shift.to(flat.dtype).unsqueeze(-1)
        return flat if noise is None else flat + noise.to(flat.dtype)

    def _read_logits(self, logits: Tensor | None) -> Tensor | None:
        """Logits ``(O, B)`` without NaN and infinities."""
        if logits is None or not self.in_logits:
            return None
        largest = min(torch.finfo(logits.dtype).max, LARGEST_LOGIT)
        own = logits.reshape(-1, self.in_logits)
        if own.dtype is torch.float64:
            own = own.clamp(-largest, largest)
        return own.nan_to_num(-largest, largest, -largest).t().contiguous()

    @in_full_precision
    def known(self, inputs: Tensor | None) -> list[Tensor]:
        """The known variables, ``(B,)`` each; NaN where an input cannot be read exactly, or not be carried.

        Where there are late rows, the inputs themselves come last, ``(I, B)``.
        """
        if not self.cascade.known and not self.cascade.late:
            return []
        rows = self._rows(inputs)
        ranges = self.cascade.ranges[len(self.cascade.outputs) :]
        lost = rows.isnan().any(0)
        if (
            self.precision.dtype is not torch.float16
        ):  # it keeps its subnormal numbers everywhere
            tiny = exact_number(self.precision.tiny, rows)
            for _, form in self.cascade.carried:
                rest = rest_of(form, rows.detach())
                lost = lost | ((rest != 0) & (rest.abs() < tiny))
        first = len(self.cascade.outputs)
        used = [i for i in range(len(ranges)) if first + i in self._used]
        known = [torch.zeros_like(rows[0], dtype=self.computing)] * len(ranges)
        values = known_values(
            [self.cascade.known[i] for i in used], [ranges[i] for i in used], rows
        )
        for i, value in zip(used, values, strict=True):
            known[i] = value.to(self.computing)
        if known:  # one that is NaN is enough
            known[0] = known[0].masked_fill(lost, torch.nan)
        return [*known, rows] if self.cascade.late else known

    def _rows(self, inputs: Tensor | None) -> Tensor:
        """Inputs as ``(I, B)`` in float64, exactly; NaN where they are subnormal in float64 itself."""
        assert inputs is not None
        known = read(inputs.reshape(-1, inputs.shape[-1]).t())
        return (
            known.low
            if known.rise is None
            else known.low.masked_fill(known.rise > 0, torch.nan)
        )

    def scale(self, like: Tensor) -> Tensor:
        """The spacing, ``(D, 1)``, in the dtype of another tensor."""
        return self.spacing.to(like.dtype).unsqueeze(-1)

    def _shaped(self, x: Tensor, shape: torch.Size, inputs: Tensor | None) -> Tensor:
        """x ``(D, B)`` as ``(*batch, D)`` in the dtype of the layer."""
        return self._with_rests(x, inputs).t().to(self.precision.dtype).reshape(shape)


@dataclass(frozen=True)
class _Scored:
    """Where given outputs stand.

    Args:
        log_q: the log-probability of all their options together, ``(B,)``.
        possible: whether they obey and lie on the grid.
        refused: whether the inputs leave nothing at all.
        ends: for every output that is a number the ends of its option.
    """

    log_q: Tensor
    possible: Tensor
    refused: Tensor
    ends: dict[int, tuple[Tensor, Tensor]]


def _first_logits(cascade: Cascade) -> Iterator[tuple[int, int]]:
    first = 0
    for step in cascade.steps:
        if step.size > 1:
            yield step.variable, first
            first += step.size


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Uniform numbers in float64, strictly between 0 and 1."""
    drawn = torch.rand(
        like.shape, generator=generator, dtype=torch.float64, device=like.device
    )
    return drawn.clamp(1e-300, 1 - 1e-16)


def _containing(
    walk: Walk, options: Sequence[Option], k: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The ends and the number of the option that contains k, and whether there is one."""
    lower, upper = walk.full(options[0].lower), walk.full(options[0].upper)
    chosen, inside = (
        torch.zeros_like(k, dtype=torch.int64),
        torch.zeros_like(k, dtype=torch.bool),
    )
    for number, option in enumerate(options):
        low, high = walk.full(option.lower), walk.full(option.upper)
        here = (low <= k) & (k <= high)
        if option.possible is not None:
            here = here & option.possible
        lower, upper = torch.where(here, low, lower), torch.where(here, high, upper)
        chosen = chosen.masked_fill(here, number)
        inside = inside | here
    return lower, upper, chosen, inside


def _log_softmax_at(
    logits: Tensor, options: Sequence[Option], chosen: Tensor
) -> Tensor:
    """The log-probability of the chosen option among the possible ones."""
    rows = []
    for option, logit in zip(options, logits.double().unbind(0), strict=True):
        rows.append(
            logit
            if option.possible is None
            else logit.masked_fill(~option.possible, -torch.inf)
        )
    scores = torch.stack(rows)
    scores = torch.where(
        (scores == -torch.inf).all(0), torch.zeros_like(scores), scores
    )
    return torch.log_softmax(scores, 0).gather(0, chosen.unsqueeze(0)).squeeze(0)


def cell_of(steps: Tensor, width: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The z with ``round(width · σ(z)) = steps``: from, to, and whether it has no lower or no upper end.

    Where there is no end, some finite number stands for it.
    """
    first, last = steps <= 0, steps >= width
    left = torch.where(first, torch.ones_like(steps), steps)
    right = torch.where(last, torch.zeros_like(steps), steps)
    return _edge(left - 0.5, width), _edge(right + 0.5, width), first, last


def cell_width(steps: Tensor, width: Tensor, inner: Tensor) -> Tensor:
    """How far the edges of a cell are apart; not from the edges, which are the same float among 2^50 cells."""
    below, above = (
        torch.where(inner, steps, 1.0),
        torch.where(inner, width - steps, 1.0),
    )
    return -torch.log1p(-1 / (below + 0.5)) - torch.log1p(-1 / (above + 0.5))


def _edge(steps: Tensor, width: Tensor) -> Tensor:
    return torch.log(steps.clamp(min=0.25)) - torch.log((width - steps).clamp(min=0.25))


def _log_mass(steps: Tensor, width: Tensor, raw: Tensor) -> Tensor:
    """The log-probability that ``round(width · sigmoid(z)) = steps`` for z from a logistic distribution around ``raw``.

    The edges of the cell are ``logit((steps ± ½) / width)``; the first and the last cell have the tails. With a < b
    for the edges less raw, ``σ(b) − σ(a) = σ(b) σ(−a) (1 − e^{a − b})``, which does not cancel; ``b − a`` is the width
    of the cell, without raw.
    """
    left, right, first, last = cell_of(steps, width)
    left, right = left - raw, right - raw
    zero = torch.zeros_like(raw)
    inner = first.logical_or(last).logical_not()
    overlap = torch.log(-torch.expm1(-cell_width(steps, width, inner)))
    below = torch.where(last, zero, logsigmoid(right))
    above = torch.where(first, zero, logsigmoid(-left))
    return below + above + torch.where(inner, overlap, zero)


class _Run(torch.autograd.Function):
    """The program of a cascade, as one operation with a gradient of its own.

    A gradient that shall be differentiated again is taken of the walk, which torch can differentiate as often as it
    likes.
    """

    @staticmethod
    def forward(
        ctx: Any,
        owner: CascadeMap,
        values: Tensor,
        logits: Tensor | None,
        inputs: Tensor | None,
        noise: Tensor | None,
        *known: Tensor,
    ) -> Tensor:
        x, ctx.read, ctx.kept = owner.run(values, logits, inputs, noise, known)
        ctx.owner, ctx.logits, ctx.inputs, ctx.noise = owner, logits, inputs, noise
        ctx.save_for_backward(values, *known)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        owner = ctx.owner
        values, *rest = ctx.saved_tensors
        if not torch.is_grad_enabled():
            raw, known = owner.back(ctx.kept, ctx.read, values, grads[0])
            return None, raw, None, None, None, *known
        x = owner.recorded(values, ctx.logits, ctx.inputs, rest, ctx.noise)
        wanted = [tensor for tensor in (values, *rest) if tensor.requires_grad]
        found = iter(
            torch.autograd.grad(
                x, wanted, grads[0], create_graph=True, allow_unused=True
            )
        )
        passed = [
            next(found) if tensor.requires_grad else None for tensor in (values, *rest)
        ]
        return None, passed[0], None, None, None, *passed[1:]
