r"""Outputs that bound each other and are bounded at run time, one after another: all of the set is reached.

A part ``A x + P u ≤ b`` with known u comes with its triangular form: bounds of x_1 by u, of x_2 by u and x_1, and so
on. So x_1 is mapped between its ends, rounded to the format, and is known from then on; what is left for x_2 is an
interval again::

    L_1(u) ≤ x_1 ≤ U_1(u)      L_2(u, x_1) ≤ x_2 ≤ U_2(u, x_1)      …

Every step is the map of :mod:`multiplexnet.transforms.run_time.intervals`, whose ends are moved inward by their
rounding errors, and each row of the part is among the bounds of the last of its outputs, or follows from those that
are: where all steps find a number of the format, all rows hold. However thin a band ``u ≤ x_1 + x_2 ≤ u + 0.01`` is,
raw values of ordinary size reach both of its ends, which a map around a single anchor does not do.

In between two numbers of the format there may be none for x_2. There the point that the real numbers would have is
drawn towards an anchor until it is shown to be inside, as :mod:`multiplexnet.transforms.run_time.parametric` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from multiplexnet.geometry.parts import Bound, OutputBounds, Parametric
from multiplexnet.transforms.base import Transform, exactly, quarter_cell
from multiplexnet.transforms.run_time.intervals import IntervalFrame, Intervals
from multiplexnet.transforms.run_time.parametric import ParametricGauge

__all__ = ["Triangular"]


class TriangularWalk(NamedTuple):
    """What came out step by step.

    Args:
        x: the outputs, ``(*batch, T, n)``, numbers of the format.
        met: whether every step had a number that is shown to be inside, ``(*batch, T)``.
        frames: what was left for each of them.
    """

    x: Tensor
    met: Tensor
    frames: tuple[IntervalFrame, ...]


class Triangular(Transform):
    """``A x + P u ≤ b`` for u known at run time, one output after another.

    Args:
        parts: one part per term; smaller ones are padded.
        dtype: of the values that come out.

    Example: 0 ≤ x, 0 ≤ y, u ≤ x + y ≤ u + 0.01.
        >>> from fractions import Fraction
        >>> from multiplexnet.geometry.elimination import triangular
        >>> from multiplexnet.language.formula import Atom, Linear, Variable
        >>> x, y, u = (Linear.of(v) for v in (Variable("x", 0), Variable("y", 1), Variable("u", 2, role="input")))
        >>> band = [u - x - y, x + y - u - Fraction(1, 100), -x, -y]
        >>> part = triangular((Variable("x", 0), Variable("y", 1)), [Atom(row, "<=") for row in band])
        >>> Triangular([part], torch.float32)(torch.tensor([[9.0, 0.0]]), parameters=torch.tensor([[50.0]]))
        tensor([[5.0004e+01, 3.0850e-03]])
    """

    real: Tensor

    def __init__(self, parts: Sequence[Parametric], dtype: torch.dtype) -> None:
        n = max(len(part.outputs) for part in parts)
        real = [[float(j < len(part.outputs)) for j in range(n)] for part in parts]
        super().__init__(dtype, {"real": torch.tensor(real, dtype=torch.float64)})
        self.around = ParametricGauge(parts, dtype)
        for j in range(n):
            steps = [_step(part, j) for part in parts]
            self.add_module(f"step_{j}", Intervals(steps, dtype))

    @property
    def _steps(self) -> list[Intervals]:
        n = self.real.shape[-1]
        return [cast(Intervals, self._modules[f"step_{j}"]) for j in range(n)]

    def feasible(self, parameters: Tensor, index: Tensor | None = None) -> Tensor:
        """Whether an anchor is shown to lie strictly inside, ``(*batch, T)`` or ``(*batch,)``."""
        return self.around.feasible(parameters, index)

    def forward(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        assert parameters is not None
        return self._inside(self._mapped(raw, index, parameters), index, parameters)

    def nearest(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        """Each output cut where nothing is left for it."""
        assert parameters is not None
        y = x.double()

        def cut(step: Intervals, frame: IntervalFrame, j: int) -> Tensor:
            own = frame.cut(y[..., j : j + 1])
            return torch.where(frame.is_met, own, step.middle(frame))

        return self._inside(self._walk(cut, index, parameters), index, parameters)

    def inverse(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        assert parameters is not None
        least = torch.full_like(x, torch.finfo(torch.float64).smallest_normal).double()
        return self._mapped_back(x, least, index, parameters).to(self.precision.dtype)

    def unrounded(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        assert parameters is not None
        cell = quarter_cell(x, self.precision.dtype)
        return self._mapped_back(x, cell, index, parameters)

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        assert parameters is not None
        walk = self._mapped(raw, index, parameters)
        slopes = [
            step.log_slopes(frame.read(raw[..., j : j + 1]), frame, index).double()
            for j, (step, frame) in enumerate(
                zip(self._steps, walk.frames, strict=True)
            )
        ]
        log_det = (torch.cat(slopes, -1) * self._at(self.real, index)).sum(-1)
        x = self._inside(walk, index, parameters)
        return x, log_det.to(self.precision.computing)

    def _mapped(
        self, raw: Tensor, index: Tensor | None, parameters: Tensor
    ) -> TriangularWalk:
        def inside(step: Intervals, frame: IntervalFrame, j: int) -> Tensor:
            z = frame.read(raw[..., j : j + 1])
            middle = step.middle(frame)
            lost = exactly(middle, middle + step.floor * z)
            return torch.where(frame.is_met, step.inside(z, frame, index), lost)

        return self._walk(inside, index, parameters)

    def _mapped_back(
        self, x: Tensor, least: Tensor, index: Tensor | None, parameters: Tensor
    ) -> Tensor:
        """The raw values of x, which is taken to lie at least so far from all ends."""
        own = self._of_all(x, index)
        walk = self._walk(lambda step, frame, j: own[..., j : j + 1], index, parameters)
        raws = [
            step.mapped_back(
                own[..., j : j + 1].double(), frame, least[..., j : j + 1], index
            )
            for j, (step, frame) in enumerate(
                zip(self._steps, walk.frames, strict=True)
            )
        ]
        return torch.cat(raws, -1)

    def _walk(
        self,
        value: Callable[[Intervals, IntervalFrame, int], Tensor],
        index: Tensor | None,
        parameters: Tensor,
    ) -> TriangularWalk:
        """One output after another, each as ``value`` says."""
        u = self._of_all(parameters, index)
        found: list[Tensor] = []
        frames: list[IntervalFrame] = []
        for j, step in enumerate(self._steps):
            known = torch.cat([*found, u], -1) if found else u
            frame = step.frame(known, index)
            own = value(step, frame, j)
            found.append(own.to(u.dtype))
            frames.append(frame)
        met = torch.cat([frame.is_met for frame in frames], -1).all(-1)
        return TriangularWalk(torch.cat(found, -1), met, tuple(frames))

    def _inside(
        self, walk: TriangularWalk, index: Tensor | None, parameters: Tensor
    ) -> Tensor:
        """The points that were found, those without a number of the format drawn towards the anchor."""
        if _is_all(walk.met):
            return walk.x
        drawn = self.around.drawn(walk.x, index, parameters)
        return torch.where(walk.met.unsqueeze(-1), walk.x, drawn)


def _step(part: Parametric, j: int) -> Parametric:
    """What bounds output j, the outputs before it being known; nothing if the part has fewer."""
    own = part.outputs[:j]
    padding = part.outputs[:1] * max(0, j - len(part.outputs))
    known = (*own, *padding, *part.parameters)
    step = OutputBounds((), ())
    if j < len(part.outputs):
        step = part.steps[j]
    lower = tuple(_known(bound) for bound in step.lower)
    upper = tuple(_known(bound) for bound in step.upper)
    return Parametric(
        outputs=part.outputs[:1],
        parameters=known,
        A=(),
        P=(),
        b=(),
        strict=(),
        steps=(OutputBounds(lower, upper),),
        guards=(),
    )


def _known(bound: Bound) -> Bound:
    """The bound with the outputs before it among what is known."""
    known = (*bound.outputs, *bound.parameters)
    return Bound((), known, bound.constant, bound.strict)


def _is_all(met: Tensor) -> bool:
    """Whether all are met, as far as that can be looked at: not while a graph is recorded, nor under vmap."""
    if torch.compiler.is_compiling() or met.is_meta:
        return False
    try:
        return bool(met.all())
    except RuntimeError:
        return False
