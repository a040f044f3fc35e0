"""``Branches``: what a Multiplexer returns. The values of all terms, the choice among them, and ways to decide it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from multiplexnet.errors import CascadeError, NestedError, ProductError, ShapeError
from multiplexnet.layer.checks import (
    checked_loss,
    refuse_lost,
    refuse_no_tensor,
    whole_rows,
)
from multiplexnet.layer.holes import Holes
from multiplexnet.layer.stacks import Stacked
from multiplexnet.layer.units import Units
from multiplexnet.transforms.base import in_full_precision
from multiplexnet.transforms.cascade.choice import CascadeChoice, OneTerm
from multiplexnet.transforms.chosen import largest_place, reordered
from multiplexnet.transforms.run_time.intervals import IntervalFrame
from multiplexnet.transforms.run_time.parameters import Functions
from multiplexnet.transforms.term_maps import TermMaps

if TYPE_CHECKING:
    from multiplexnet.layer.objective import Prior

__all__ = ["Branches", "Choice"]

Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Inner:
    """A choice that has to be made as well if a certain term is chosen.

    Args:
        term: that one.
        choice: what is to be chosen then.
        places: of its outputs among those of the block that the term belongs to.
    """

    term: int
    choice: Choice
    places: Tensor


@dataclass(frozen=True)
class Choice:
    """The branches of one block.

    Args:
        maps: the maps h_1 … h_K of its terms.
        raw: what they read, ``(*batch, D_b)``, or ``(*batch, K, D_b)`` if every term has values of its own.
        given: the logits of the choice as they came, ``(*batch, K)``; ``None`` for a single term.
        columns: the positions of its outputs among all D.
        feasible: which terms can be met for the inputs of a row, ``(*batch, K)``; ``None``: all.
        inputs: the inputs of the rules, ``(*batch, I)``, if there are any.
        functions: the torch code of their opaque functions.
        per_term: whether every term has raw values of its own.
        inner: choices that terms go on with; their outputs are among those of this block.
        offset: what ``given`` starts from, ``(K,)``: log-counts of the plain terms below; ``None``: all alike.
        units: of its outputs, if some have one; all values that leave this object are in them.
        frames: what the inputs leave to outputs that they bound; see :class:`~multiplexnet.transforms.term_maps.Room`.
    """

    maps: TermMaps | OneTerm
    raw: Tensor
    given: Tensor | None
    columns: Tensor
    feasible: Tensor | None = None
    inputs: Tensor | None = None
    functions: Functions = field(default_factory=dict)
    per_term: bool = False
    inner: tuple[Inner, ...] = ()
    offset: Tensor | None = None
    units: Units | None = None
    frames: Mapping[int, IntervalFrame] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number K of terms."""
        return len(self.maps)

    def without(self, rows: Tensor) -> Choice:
        """The choice with no term left in these rows, ``(*batch,)``, so that they come out as NaN."""
        kept = ~rows.unsqueeze(-1)
        feasible = (
            kept.expand(*rows.shape, self.size)
            if self.feasible is None
            else self.feasible & kept
        )
        return replace(self, feasible=feasible)

    def with_room(self) -> Choice:
        """The choice, of which it was seen that every row has a term that can be met: if there is one, it can be."""
        if self.size > 1 or self.feasible is None:
            return self
        return replace(self, feasible=None)

    def with_inner(self, inner: Sequence[Inner]) -> Choice:
        """The choice whose terms go on with these; a term that cannot be finished cannot be met either.

        An inner choice without outputs is a condition on inputs: whether it holds is all that there is to it.
        """
        feasible = self.feasible
        for part in inner:
            if part.choice.feasible is not None:
                others = torch.arange(self.size, device=self.raw.device) != part.term
                finished = part.choice.feasible.any(-1, keepdim=True) | others
                feasible = finished if feasible is None else feasible & finished
        return replace(
            self,
            inner=tuple(part for part in inner if part.choice.columns.numel()),
            feasible=feasible,
        )

    @property
    def logits(self) -> Tensor:
        """Of the choice, ``(*batch, K)``: finite or NaN, and −inf exactly where a term cannot be met."""
        if self.given is None:
            logits = self.raw.new_zeros(
                (*self.raw.shape[: -2 if self.per_term else -1], 1)
            )
        else:
            largest = _largest_logit(self.given.dtype)
            logits = self.given.clamp(-largest, largest)
        return (
            logits
            if self.feasible is None
            else logits.masked_fill(~self.feasible, -torch.inf)
        )

    @property
    def log_probs(self) -> Tensor:
        """log q(k), ``(*batch, K)``."""
        return torch.log_softmax(self.logits, -1)

    @property
    def x(self) -> Tensor:
        """The values of all terms, ``(*batch, K, D_b)``; NaN where a term cannot be met."""
        return self.terms(0, self.size)

    def stand_in(self) -> Tensor | None:
        """Values for terms that cannot be met, ``(*batch, 1, D_b)``: those of the best term. ``None`` if all can be.

        A loss has to be finite for every term, also where it does not count: 0 · NaN is NaN, and so is its gradient.
        """
        if self.feasible is None:
            return None
        with torch.no_grad():
            return self.at(self.best_index()).unsqueeze(-2)

    def terms(self, start: int, stop: int, instead: Tensor | None = None) -> Tensor:
        """The values of terms ``start`` to ``stop``, ``(*batch, stop − start, D_b)``.

        Where a term cannot be met stands ``instead``, ``(*batch, 1, D_b)``, or else NaN.
        """
        raw = self.raw[..., start:stop, :] if self.per_term else self.raw
        maps = self.maps
        given: dict[str, Any] = {"inputs": self.inputs, "functions": self.functions}
        if stop - start < self.size:
            maps = maps.terms(start, stop)
        elif self.frames:
            given["frames"] = self.frames
        x: Tensor = maps(raw, per_term=self.per_term, **given)
        feasible = None if self.feasible is None else self.feasible[..., start:stop]
        if self.functions:
            x = self._found(x, raw if self.per_term else raw.unsqueeze(-2), feasible)
        x = self._seen(x)
        if feasible is None:
            return x
        met = feasible.unsqueeze(-1)
        return (
            x.masked_fill(~met, torch.nan)
            if instead is None
            else torch.where(met, x, instead)
        )

    def at(self, index: Tensor) -> Tensor:
        """The values of the chosen terms alone: index ``(*batch,)``, result ``(*batch, D_b)``."""
        raw = self.raw
        if self.per_term:
            chosen = index[..., None, None].expand(*index.shape, 1, raw.shape[-1])
            raw = raw.gather(-2, chosen).squeeze(-2)
        x: Tensor = self.maps(raw, index, inputs=self.inputs, functions=self.functions)
        if (
            self.feasible is not None
        ):  # refused already, unless a graph is being recorded
            x = x.masked_fill(~self.feasible.gather(-1, index.unsqueeze(-1)), torch.nan)
        if self.functions:
            x = self._found(x, raw, None)
        return self._seen(x)

    def _seen(self, x: Tensor) -> Tensor:
        """Values as they leave the layer, in their units."""
        return x if self.units is None else self.units.outward(x)

    def _found(self, x: Tensor, raw: Tensor, feasible: Tensor | None) -> Tensor:
        """x, which depends on functions, and in which nothing may be NaN without a reason."""
        expected = raw.isnan().any(-1) if self.maps.training else None
        if feasible is not None:
            expected = ~feasible if expected is None else expected | ~feasible
        refuse_lost(x, expected, self.functions)
        return whole_rows(x)

    def best(self) -> Tensor:
        """The values of the most probable term, ``(*batch, D_b)``."""
        if self.inner:
            return self.settled(Choice.best_index)[0]
        return (
            self.terms(0, 1).squeeze(-2)
            if self.size == 1
            else self.at(self.best_index())
        )

    def best_index(self) -> Tensor:
        """The most probable term of every row. A NaN may win, a term that cannot be met never does."""
        if self.given is None or self.feasible is not None:
            return self._ranked().max(-1).indices
        return largest_place(self.given)

    def draw(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """The values of a term drawn from q, inner choices included, and log q of all that was drawn, ``(*batch,)``."""
        return self.settled(lambda choice: choice.sampled_index(generator))

    @in_full_precision
    def settled(
        self,
        decide: Callable[[Choice], Tensor],
        done: dict[int, tuple[Tensor, Tensor]] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The values and the log-probability of what ``decide`` chooses here and in all inner choices."""
        done = {} if done is None else done
        if id(self) not in done:
            index = decide(self)
            x = self.at(index)
            log_q = self.log_probs.gather(-1, index.unsqueeze(-1)).squeeze(-1)
            for part in self.inner:
                value, more = part.choice.settled(decide, done)
                here = index == part.term
                x = torch.where(
                    here.unsqueeze(-1), x.index_copy(-1, part.places, value), x
                )
                log_q = torch.where(here, log_q + more, log_q)
            done[id(self)] = x, log_q
        return done[id(self)]

    def _ranked(self) -> Tensor:
        """The logits with NaN above −inf, so that a term that cannot be met is never chosen."""
        smallest = -_largest_logit(self.logits.dtype)
        return torch.nan_to_num(
            self.logits, nan=smallest, posinf=torch.inf, neginf=-torch.inf
        )

    def sampled_index(self, generator: torch.Generator | None = None) -> Tensor:
        """A term drawn from q(k) for every row, as the largest logit after Gumbel noise was added."""
        logits = self._ranked().double()
        uniform = torch.rand(
            logits.shape, generator=generator, dtype=logits.dtype, device=logits.device
        )
        return (logits - torch.log(-torch.log(uniform.clamp(min=1e-30)))).argmax(-1)


def _largest_logit(dtype: torch.dtype) -> float:
    """Where logits are cut, so that −inf means a term that cannot be met and nothing else.

    Within float32 for float64 too: ONNX's exporter makes plain numbers float32, and the end of float64 infinite.
    """
    return min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)


@dataclass(frozen=True)
class Branches:
    """All branches of a layer: a product of independent choices, one per block.

    Args:
        blocks: their choices.
        batch: the leading shape.
        max_terms: how many combinations of terms are written out at most.
        order: where each output stands when the blocks are laid side by side, if that is known already.
        cascades: parts of the outputs that are computed one after another, after the blocks.
        holes: which outputs may be missing, if any may: they are NaN where a term, or a cascade, says so.
        units: of all outputs, if some have one.
        stacked: the blocks again, those of one shape together, if there are such.
        visible: the outputs in the order of the blocks, if that is known already.

    With one block (most rules) ``x`` is ``(*batch, K, D)`` and ``logits`` ``(*batch, K)``, term by term. With several,
    a *term* is a combination of one term per block, the last block running fastest.

    Example: two terms, of which the logits choose the second.
        >>> import multiplexnet as mx
        >>> rules = mx.Rules("x >= 2 or x <= -2")
        >>> branches = mx.Multiplexer(rules)(torch.tensor([[0.5, -1.0, 1.0]]))
        >>> branches.x.shape, branches.logits.shape
        (torch.Size([1, 2, 1]), torch.Size([1, 2]))
        >>> bool(branches.best() <= -2) ^ bool(branches.best() >= 2)
        True
        >>> branches.loss(lambda x: x.square().sum(-1)).shape
        torch.Size([1])
    """

    blocks: tuple[Choice, ...]
    batch: torch.Size
    max_terms: int
    order: Tensor | None = None
    cascades: tuple[CascadeChoice, ...] = ()
    holes: Holes | None = None
    units: Units | None = None
    stacked: Stacked | None = None
    visible: Tensor | None = None

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The blocks, then those of the cascades in which there is nothing to choose, each as a block of one term."""
        single = [
            Choice(part.as_term, part.raw, None, part.columns, inputs=part.inputs)
            for part in self.cascades
            if part.as_term is not None
        ]
        return (*self.blocks, *single)

    @property
    def _parts(self) -> list[Choice | CascadeChoice]:
        """The blocks, then the cascades."""
        return [*self.blocks, *self.cascades]

    def _refuse_cascade(self, wanted: str) -> None:
        if any(part.as_term is None for part in self.cascades):
            raise CascadeError(wanted, has_terms=bool(self.blocks))

    @property
    def size(self) -> int:
        """The number of combinations of terms."""
        return prod([choice.size for choice in self.choices])

    @property
    def masked(self) -> bool:
        """Whether some terms may be impossible for some rows."""
        return any(choice.feasible is not None for choice in self.choices)

    @property
    def _order(self) -> Tensor:
        if self.order is not None:
            return self.order
        return torch.cat([choice.columns for choice in self._parts]).argsort()

    @property
    def x(self) -> Tensor:
        """The values of all terms, ``(*batch, K, D)``.

        A term that the inputs of a row rule out is NaN there, and its logit −inf: a sum over the terms has to leave it
        out, as ``torch.where(b.logits.isneginf(), 0.0, …)`` of finite numbers does. ``loss`` and ``evidence_loss`` do.
        """
        return self.terms(0, self.written_out())

    @property
    def logits(self) -> Tensor:
        """The logits of the choice, ``(*batch, K)``: as given with one block, sums of log-probabilities with more."""
        self._refuse_cascade("logits of terms")
        if len(self.choices) == 1:
            return self.choices[0].logits
        return self.log_probs

    @property
    def log_probs(self) -> Tensor:
        """log q(k), ``(*batch, K)``."""
        return self.joint([choice.log_probs for choice in self.choices])

    def terms(
        self, start: int, stop: int, values: Sequence[Tensor] | None = None
    ) -> Tensor:
        """The values of terms ``start`` to ``stop``, ``(*batch, stop − start, D)``.

        With several blocks these are picked from ``values``, the values of all terms of each block, if given.
        """
        self._refuse_cascade("terms")
        if len(self.choices) == 1:
            return self._outward([self.choices[0].terms(start, stop)]).contiguous()
        indices = self._of_blocks(
            torch.arange(start, stop, device=self.choices[0].raw.device)
        )
        values = [choice.x for choice in self.choices] if values is None else values
        return self._outward(
            [x.index_select(-2, i) for x, i in zip(values, indices, strict=True)]
        )

    def best(self) -> Tensor:
        """The value of the most probable term, ``(*batch, D)``; no other term is evaluated.

        Example:
            >>> import multiplexnet as mx
            >>> mx.Multiplexer("x >= 2 or x <= -2")(torch.tensor([0.5, 1.0, -1.0])).best() >= 2
            tensor([True])
        """
        if self.stacked is not None:
            x = self.stacked.best(self.blocks)
            return x if self.holes is None else self.holes.outward(x)
        return self._outward([self._seen(part, part.best()) for part in self._parts])

    def _seen(self, part: Choice | CascadeChoice, x: Tensor) -> Tensor:
        """Values of a part as they leave the layer; those of a cascade are whole numbers of their units."""
        if self.units is None or isinstance(part, Choice):
            return x
        return self.units.of(part.columns).outward(x)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """The value of a term drawn from q(k), ``(*batch, D)``.

        Example:
            >>> import multiplexnet as mx
            >>> mx.Multiplexer("x >= 2 or x <= -2")(torch.zeros(3)).sample().abs() >= 2
            tensor([True])
        """
        return self.draw(generator)[0]

    @in_full_precision
    def draw(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """The value of a term drawn from q(k), ``(*batch, D)``, and log q of what was drawn, ``(*batch,)``."""
        drawn = [part.draw(generator) for part in self._parts]
        log_q = torch.stack([log_q for _, log_q in drawn]).sum(0)
        values = [
            self._seen(part, x) for part, (x, _) in zip(self._parts, drawn, strict=True)
        ]
        return self._outward(values), log_q

    def log_prob(self, x: Tensor) -> Tensor:
        """The exact log-probability of x, ``(*batch, D)``, if all rules are computed one output after another.

        On the grid of a cascade every point has a probability: that with which options are drawn by their logits and
        values by a logistic distribution around the raw values. It is −inf where x disobeys, or is not on the grid.
        NaN in an output that may be missing is a value like others.

        Raises:
            CascadeError: some outputs come from terms, where densities are those of a ``RulesDistribution``.
            ShapeError: x has another number of outputs, or a batch that does not fit.

        Example:
            >>> import multiplexnet as mx
            >>> mux = mx.Multiplexer("n: int[0, 3]; m: int[0, 3]; n + m <= 3", structure="cascade")
            >>> branches = mux(torch.zeros(mux.in_features))
            >>> points = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))
            >>> every = torch.stack([branches.log_prob(x) for x in points])
            >>> round(float(every.exp().sum()), 6)
            1.0
        """
        if self.blocks:
            raise CascadeError("probabilities of single points", has_terms=True)
        self._refuse_shape(x)
        x = x if self.units is None else self.units.first(x.shape[-1]).inward(x)
        x = x if self.holes is None else self.holes.inward(x)
        parts = [
            part.log_prob(x.index_select(-1, part.columns)) for part in self.cascades
        ]
        return torch.stack(parts).sum(0)

    def _refuse_shape(self, x: Tensor) -> None:
        """Raises ``ShapeError`` for values that are no outputs of these branches."""
        refuse_no_tensor("x", x)
        computed = sum(part.columns.numel() for part in self._parts)
        width = computed if self.holes is None else self.holes.width
        batch = [1] * (x.dim() - 1 - len(self.batch)) + list(self.batch)
        pairs = zip(reversed(x.shape[:-1]), reversed(batch), strict=False)
        if (
            x.dim() == 0
            or x.shape[-1] != width
            or any(1 not in (a, b) and a != b for a, b in pairs)
        ):
            raise ShapeError(
                f"x has shape {tuple(x.shape)}; it holds {width} outputs for every row: {(*self.batch, width)}"
            )

    def at(self, indices: Sequence[Tensor]) -> Tensor:
        """The value of one chosen term per block, each index ``(*batch,)``; result ``(*batch, D)``."""
        self._refuse_cascade("terms to choose from")
        return self._outward(
            [
                choice.at(index)
                for choice, index in zip(self.choices, indices, strict=True)
            ]
        )

    def at_combination(self, index: Tensor) -> Tensor:
        """The value of one chosen combination of terms, index ``(*batch,)``; result ``(*batch, D)``."""
        return self.at(self._of_blocks(index))

    def loss(
        self,
        f: Loss,
        prior: Prior = None,
        estimator: Callable[[Branches, Loss], Tensor] | None = None,
    ) -> Tensor:
        """The marginal objective, Eq. 9 of the paper: Σ_k q(k) [f(x_k) − log p(k) + log q(k)].

        Args:
            f: maps values ``(*batch, K', D)`` of some terms to their losses ``(*batch, K')``; −log p(y | x_k), say. If
                it returns ``(*batch, K', D)``, one loss per output, they are summed, and with several blocks no
                combination of terms is ever formed. It sees the number next to 0 in place of missing values, never NaN.
            prior: logits of p(k), ``(K,)`` or ``(*batch, K)``, trained or not; ``None`` is uniform. With several blocks
                a list of these, one per block, or logits of all combinations.
            estimator: one of :mod:`multiplexnet.learning.estimators` for the expected loss; ``None`` sums exactly.

        Returns:
            One loss per row, ``(*batch,)``.

        Raises:
            ProductError: several blocks with too many combinations, and neither of the ways around them.

        Example:
            >>> import multiplexnet as mx
            >>> branches = mx.Multiplexer("x >= 2 or x <= -2")(torch.zeros(4, 3))
            >>> branches.loss(lambda x: (x - 3).square().sum(-1)).shape
            torch.Size([4])
        """
        from multiplexnet.layer.objective import marginal_loss

        self._refuse_cascade("terms to sum a loss over")
        return marginal_loss(self._whole, self._loss(f), prior, estimator)

    def evidence_loss(self, f: Loss, prior: Prior = None) -> Tensor:
        """−log Σ_k p(k) e^{−f(x_k)}: the least that ``loss`` can be, with the optimal q(k) ∝ p(k) e^{−f(x_k)}.

        The logits do not matter here (but for terms that cannot be met); arguments as for ``loss``.
        """
        from multiplexnet.layer.objective import evidence_loss

        self._refuse_cascade("terms to sum a loss over")
        return evidence_loss(self._whole, self._loss(f), prior)

    @property
    def _whole(self) -> Branches:
        """The same branches with everything that is computed for outputs: flags too, and no NaN for missing ones."""
        return self if self.holes is None else replace(self, holes=None)

    def _loss(self, f: Loss) -> Loss:
        f = checked_loss(f)
        return f if self.holes is None else self.holes.loss(f)

    def _outward(self, parts: Sequence[Tensor]) -> Tensor:
        """Values of the blocks as outputs; NaN where they are missing."""
        x = self.ordered(parts)
        return x if self.holes is None else self.holes.outward(x)

    @in_full_precision
    def ordered(self, parts: Sequence[Tensor]) -> Tensor:
        """Values of the blocks, each ``(…, D_b)``, as values of all outputs ``(…, D)``."""
        if len(parts) == 1:
            return parts[0]
        x = torch.cat(list(parts), -1)
        order = self._order
        back = order.argsort() if self.visible is None else self.visible
        return self.whole(reordered(x, order, back, -1))

    def whole(self, x: Tensor) -> Tensor:
        """Values of all outputs; where some of a row may be NaN for what its inputs are, all are."""
        partly = any(c.functions for c in self.blocks) or any(
            c.inputs is not None for c in self.cascades
        )
        return whole_rows(x) if partly else x

    def joint(self, parts: Sequence[Tensor]) -> Tensor:
        """Numbers of the terms of each block, ``(…, K_b)`` or ``(…, 1)``, summed for all combinations: ``(…, K)``."""
        self.written_out()
        axes = max(part.dim() for part in parts)
        term_first = [
            part.reshape(*[1] * (axes - part.dim()), *part.shape).movedim(-1, 0)
            for part in parts
        ]
        result = term_first[0]
        count = self.choices[0].size
        for part, choice in zip(term_first[1:], self.choices[1:], strict=True):
            result = result.unsqueeze(1) + part.unsqueeze(0)
            if result.shape[:2].numel() > 1:
                result = result.expand(count, choice.size, *result.shape[2:])
            result = result.flatten(0, 1)
            count *= choice.size
        return result.movedim(0, -1)

    def _of_blocks(self, combination: Tensor) -> list[Tensor]:
        """For each block the terms that these combinations take of it."""
        indices = []
        for choice in reversed(self.choices):
            indices.append(combination % choice.size)
            combination = combination // choice.size
        return indices[::-1]

    def written_out(self) -> int:
        """The number of combinations of terms.

        Raises:
            ProductError: it is more than ``max_terms``.
        """
        self._refuse_cascade("terms to write out")
        if any(choice.inner for choice in self.choices):
            raise NestedError("all terms written out")
        if self.size > self.max_terms and len(self.choices) > 1:
            raise ProductError([choice.size for choice in self.choices], self.max_terms)
        return self.size
