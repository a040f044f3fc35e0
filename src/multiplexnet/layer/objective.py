"""The marginal objective of the paper: the choice of the term is summed out, exactly.

Eq. 9: L = Σ_k q(k) [ℓ_k − log p(k) + log q(k)], an upper bound on −log Σ_k p(k) e^{−ℓ_k}. The losses ℓ_k of a chunk of
terms are computed, and computed again when the gradient is taken, so that no ``(*batch, K, D)`` tensor ever exists. The
sum itself knows its gradient: with a_k = ℓ_k − log p(k) + log q(k) it is ∂L/∂ℓ_k = q(k), ∂L/∂log p(k) = −q(k) and
∂L/∂logit_k = q(k) (a_k − L).

Over several blocks the sum runs over all combinations of their terms; a loss that is itself a sum over outputs needs no
combinations, and any other may be estimated (:mod:`multiplexnet.learning.estimators`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from multiplexnet.errors import ShapeError
from multiplexnet.layer.combinations import Among, Combinations, Narrow, cut, held
from multiplexnet.transforms.base import (
    Differentiable,
    is_for_any_size,
    is_transformed,
    largest_seen,
    recorded,
)

if TYPE_CHECKING:
    from multiplexnet.layer.branches import Branches, Choice

__all__ = ["Prior", "evidence_loss", "marginal_loss"]

Prior = Tensor | Sequence[Tensor | None] | None
Loss = Callable[[Tensor], Tensor]
Reduction = Callable[[Tensor, Tensor, Tensor], Tensor]

CHUNK = 1 << 20
"""How many values of x are held at once."""

CACHED = 1 << 18
"""How many stay in the cache of a processor: combinations of terms, which cost little to form, come by so many."""

KEPT = 64
"""Values of a block that are so many chunks are kept, and others computed anew, for losses by output."""

WIDE = 16
"""So many chunks may be held besides the values of terms, to form combinations sooner."""

SHORT = 16
"""Rows of fewer terms are laid out term by term, if there are many."""

MANY = 2**10
"""So many rows are many."""

LONG = 2**12
"""For so many rows, of few outputs, a loss is asked term by term."""


def marginal_loss(
    branches: Branches,
    f: Loss,
    prior: Prior = None,
    estimator: Callable[[Branches, Loss], Tensor] | None = None,
) -> Tensor:
    """Σ_k q(k) [f(x_k) − log p(k) + log q(k)] for every row; see :meth:`Branches.loss`."""
    if estimator is None:
        return _reduced(branches, f, prior, _marginal)
    blocks = zip(branches.choices, _priors(branches, prior), strict=True)
    divergence = [
        _nested(choice, log_p, _marginal, _no_losses, {}) for choice, log_p in blocks
    ]
    return estimator(branches, lambda x: _summed(f(x), x)) + torch.stack(
        divergence
    ).sum(0)


def evidence_loss(branches: Branches, f: Loss, prior: Prior = None) -> Tensor:
    """−log Σ_k p(k) e^{−f(x_k)}, what the marginal loss bounds from above; see :meth:`Branches.evidence_loss`."""
    return _reduced(branches, f, prior, _evidence)


def _marginal(losses: Tensor, logits: Tensor, log_p: Tensor) -> Tensor:
    if any(map(_is_term_major, (losses, logits))) or _are_short_rows(logits):
        losses = _term_major(losses)
        logits = _term_major(logits)
    result: Tensor = recorded(_Marginal, losses, logits, log_p)
    return result


def _are_short_rows(logits: Tensor) -> bool:
    """Whether torch spends most of its time on the beginnings of rows: few terms, of many rows."""
    if is_for_any_size():
        return False
    count = logits.shape[-1]
    return 1 < count < SHORT and logits.numel() >= MANY * count


def _is_term_major(values: Tensor) -> bool:
    """Whether numbers ``(*batch, K)`` of terms are laid out in memory term by term."""
    if is_transformed():
        return False
    return values.movedim(-1, 0).is_contiguous() and not values.is_contiguous()


def _term_major(values: Tensor) -> Tensor:
    """Numbers ``(*batch, K)`` of terms, laid out in memory term by term: sums over terms are sums of long rows."""
    return values.movedim(-1, 0).contiguous().movedim(0, -1)


def _log_shares(logits: Tensor) -> Tensor:
    """``log_softmax`` over the terms, laid out as they are, or term by term where that is faster."""
    if _is_term_major(logits) or _are_short_rows(logits):
        by_term = logits.movedim(-1, 0).contiguous()
        return torch.log_softmax(by_term, 0).movedim(0, -1)
    return torch.log_softmax(logits, -1)


def _evidence(losses: Tensor, logits: Tensor, log_p: Tensor) -> Tensor:
    impossible = logits.isneginf()
    possible = (log_p - losses).masked_fill(impossible, -torch.inf)
    return -torch.logsumexp(possible, -1).masked_fill(impossible.all(-1), torch.nan)


def _reduced(branches: Branches, f: Loss, prior: Prior, reduction: Reduction) -> Tensor:
    """The reduction over all combinations of terms, or block by block if the loss is a sum over outputs."""
    nested = any(choice.inner for choice in branches.choices)
    if len(branches.choices) == 1 and not nested:
        (log_p,) = _priors(branches, prior)
        return reduction(term_losses(branches, f), branches.logits, log_p)
    with torch.no_grad():
        anywhere = branches.best().detach().unsqueeze(-2)
        is_additive = (
            f(anywhere).shape == anywhere.shape
        )  # one loss per output, not yet summed
    if not is_additive:
        logits = branches.joint([_own_log_probs(own) for own in branches.choices])
        return reduction(
            term_losses(branches, f), logits, _joint_prior(branches, prior)
        )
    blocks = zip(branches.choices, _priors(branches, prior), strict=True)
    own = partial(_block_losses, f, anywhere)
    done = dict[int, Tensor]()
    return torch.stack(
        [_nested(choice, p, reduction, own, done) for choice, p in blocks]
    ).sum(0)


def _nested(
    choice: Choice,
    log_p: Tensor,
    reduction: Reduction,
    own: Callable[[Choice], Tensor],
    done: dict[int, Tensor],
) -> Tensor:
    """The reduction over the terms of a choice; a term costs its ``own`` losses and what its inner choices cost.

    Inner choices have priors that make all plain terms alike. ``done`` holds those that several terms share.
    """
    if id(choice) not in done:
        losses = own(choice)
        for part in choice.inner:
            inner = _log_prior(None, part.choice)
            more = _nested(part.choice, inner, reduction, own, done)
            here = torch.arange(choice.size, device=losses.device) == part.term
            losses = losses + torch.where(here, more.unsqueeze(-1), 0.0)
        done[id(choice)] = reduction(losses, choice.logits, log_p)
    return done[id(choice)]


def _own_log_probs(choice: Choice) -> Tensor:
    if choice.given is None and choice.feasible is None:
        return choice.logits  # of a single term, 0
    return _log_shares(_term_major(choice.logits))


def _no_losses(choice: Choice) -> Tensor:
    return torch.zeros_like(choice.logits)


def _block_losses(f: Loss, rest: Tensor, choice: Choice) -> Tensor:
    """For each term of one block what its outputs cost, ``(*batch, K_b)``; the other outputs stay as in ``rest``.

    Outputs that a term leaves to inner choices do not count, and stay as in ``rest`` as well, where f is finite. The
    values of a long block are kept, so that only f is computed again when the gradient is taken.
    """
    among = Among.of(choice.columns, rest.shape[-1])
    counts = _counts(choice)
    counted = among.widened(counts.to(rest.dtype)) > 0  # elsewhere f may be infinite
    instead = rest.index_select(-1, choice.columns)
    others = rest.index_fill(-1, choice.columns, 0.0)
    is_long = choice.size * rest.numel() > CHUNK
    is_apart = not is_long and _are_told_apart(choice)
    is_held = choice.size * instead.numel() <= KEPT * CHUNK and (is_long or is_apart)
    kept = _apart(choice, instead) if is_held else []

    def own(start: int, stop: int) -> Tensor:
        if not is_held:
            return choice.terms(start, stop, instead)
        each = kept[start:stop]
        return torch.stack(each, -2) if len(each) > 1 else each[0].unsqueeze(-2)

    def chunk(start: int, stop: int) -> Tensor:
        values = own(start, stop)
        if choice.inner:
            values = torch.where(counts[start:stop], values, instead)
        found = f(among.widened(values) + others)
        return torch.where(counted[start:stop], found, 0.0).sum(-1)

    if is_apart:
        return _side_by_side([chunk(k, k + 1) for k in range(choice.size)])
    most = min(CACHED, CHUNK) if is_held else CHUNK
    return _chunked(chunk, choice.size, rest.numel(), most)


def _counts(choice: Choice) -> Tensor:
    """Which outputs of which terms are not left to inner choices, ``(K_b, D_b)``."""
    size = choice.size, choice.columns.numel()
    counts = torch.ones(size, dtype=torch.bool, device=choice.columns.device)
    for part in choice.inner:
        counts[part.term, part.places] = False
    return counts


class _Marginal(Differentiable):
    """``Σ_k q(k) a_k`` over the last axis; it keeps its arguments and nothing else. log p may have fewer axes."""

    @staticmethod
    def forward(losses: Tensor, logits: Tensor, log_p: Tensor) -> Tensor:
        q, a = _parts(losses, logits, log_p)
        return (q * a).sum(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        losses, logits, log_p = ctx.saved_tensors
        q, a = _parts(losses, logits, log_p)
        total = (q * a).sum(-1, keepdim=True)
        weight = q * grads[0].unsqueeze(-1)
        del q  # every (*batch, K) tensor counts
        surplus = weight * (a - total)
        return (
            weight,
            surplus,
            -weight.sum_to_size(log_p.shape) if ctx.needs_input_grad[2] else None,
        )


def _parts(losses: Tensor, logits: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    """q and a. Where q is 0 (a term that cannot be met, say) a is 0: nothing it would have cost must matter."""
    log_q = _log_shares(logits)
    q = log_q.exp()
    a = losses - log_p + log_q
    if _is_positive(q):  # which is found out sooner than the rest is done
        return q, a
    return q, a.masked_fill(q == 0, 0.0)


def _is_positive(q: Tensor) -> bool:
    """Whether all numbers are seen to be above 0; false where they cannot be looked at, or only at a price."""
    if not q.is_cpu or is_transformed():
        return False
    least = largest_seen(-q)
    return least is not None and least < 0


def _priors(branches: Branches, prior: Prior) -> list[Tensor]:
    """log p(k) of every block."""
    given: list[Tensor | None]
    if prior is None:
        given = [None] * len(branches.choices)
    elif isinstance(prior, Tensor):
        given = [prior]
    else:
        given = list(prior)
    if len(given) != len(branches.choices):
        raise ShapeError(
            f"prior: the rules have {len(branches.choices)} blocks; give the logits of each in a list"
        )
    return [
        _log_prior(p, choice) for choice, p in zip(branches.choices, given, strict=True)
    ]


def _joint_prior(branches: Branches, prior: Prior) -> Tensor:
    """log p(k) of every combination of terms: given as such, or the sum over the blocks."""
    if isinstance(prior, Tensor):
        return _given_prior(prior, branches.logits, branches.masked)
    return branches.joint(_priors(branches, prior))


def _log_prior(prior: Tensor | None, choice: Choice) -> Tensor:
    """log p(k) over the terms of a choice that can be met, of a shape that broadcasts to ``(*batch, K)``.

    Without a prior all terms are alike, and where they go on in inner choices all plain terms below.
    """
    logits = choice.logits
    masked = choice.feasible is not None
    if prior is None and choice.offset is None:
        possible = (
            (~logits.isneginf()).sum(-1, keepdim=True)
            if masked
            else logits.new_tensor([choice.size])
        )
        return -possible.clamp(min=1).to(logits.dtype).log()
    return _given_prior(choice.offset if prior is None else prior, logits, masked)  # type: ignore[arg-type]


def _given_prior(prior: Tensor, logits: Tensor, masked: bool) -> Tensor:
    """log p(k) for given logits of it, over the terms that can be met."""
    count = logits.shape[-1]
    if prior.shape[-1:] != (count,) or not _broadcasts(prior.shape, logits.shape):
        raise ShapeError(
            f"prior has shape {tuple(prior.shape)}; it must be the logits of the {count} terms, ({count},) or "
            f"{tuple(logits.shape)}"
        )
    return torch.log_softmax(
        prior.masked_fill(logits.isneginf(), -torch.inf) if masked else prior, -1
    )


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    short = len(shape) <= len(to)
    return short and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False)
    )


def term_losses(branches: Branches, f: Loss) -> Tensor:
    """The losses f(x_k) of all terms, ``(*batch, K)``, a chunk of terms at a time.

    A term that cannot be met has the loss of another one, which is finite and does not count.
    """
    stand_ins = [choice.stand_in() for choice in branches.choices]
    count = branches.written_out()
    width = sum(choice.columns.numel() for choice in branches.choices) * max(
        1, branches.batch.numel()
    )
    pairs = list(zip(branches.choices, stand_ins, strict=True))

    def losses(x: Tensor) -> Tensor:
        return _checked(_summed(f(x), x), branches, x.shape[-2])

    def of_one_block(start: int, stop: int) -> Tensor:
        ((choice, instead),) = pairs
        x = branches.ordered([choice.terms(start, stop, instead)])
        return losses(x.contiguous())

    is_short = count * width <= CHUNK
    if len(pairs) == 1 and is_short and _are_told_apart(pairs[0][0]):
        each = _apart(*pairs[0])
        found = [losses(branches.ordered([x]).unsqueeze(-2)) for x in each]
        return _side_by_side(found)
    if len(pairs) == 1:
        return _chunked(of_one_block, count, width, CHUNK)
    if is_short:
        values = [choice.terms(0, choice.size, instead) for choice, instead in pairs]
        return losses(branches.terms(0, count, values))
    combined = _combinations(pairs)

    def of_several(start: int, stop: int) -> Tensor:
        each = [combined.of(k) for k in range(start, stop)]
        x = torch.stack(each, -2) if len(each) > 1 else each[0].unsqueeze(-2)
        return losses(branches.whole(x))

    return _chunked(of_several, count, width, min(CACHED, CHUNK))


def _combinations(
    pairs: Sequence[tuple[Choice, Tensor | None]],
) -> Combinations:
    """The values of all combinations of terms of several blocks."""
    width = sum(choice.columns.numel() for choice, _ in pairs)
    sizes = [choice.size for choice, _ in pairs]
    wide = held(sizes, cut(sizes)) * width
    narrow = sum(choice.size * choice.columns.numel() for choice, _ in pairs)
    rows = pairs[0][0].raw[..., 0].numel()
    among = [Among.of(choice.columns, width) for choice, _ in pairs]
    own = zip(among, pairs, strict=True)
    if wide > 2 * narrow and wide * rows > WIDE * CHUNK:
        return Combinations([Narrow(_apart(*pair), places) for places, pair in own])
    blocks = [
        [
            places.widened(term)
            for values in _stepwise(*pair)
            for term in values.unbind(-2)
        ]
        for places, pair in own
    ]
    return Combinations.in_halves(blocks)


def _apart(choice: Choice, instead: Tensor | None) -> list[Tensor]:
    """The values of all terms of a block, each ``(*batch, D_b)`` and in one piece: they are read many times."""
    result: list[Tensor] = []
    for x in _stepwise(choice, instead):
        result += x.movedim(-2, 0).contiguous().unbind(0)
    return result


def _stepwise(choice: Choice, instead: Tensor | None) -> Iterator[Tensor]:
    """The values of all terms of a block, a few at a time, unless they share what is known of the inputs."""
    width = choice.columns.numel() * choice.raw[..., 0].numel()
    step = choice.size if choice.frames else max(1, 2 * CHUNK // max(1, width))
    for start in range(0, choice.size, step):
        yield choice.terms(start, min(start + step, choice.size), instead)


def _summed(losses: Tensor, x: Tensor) -> Tensor:
    return losses.sum(-1) if losses.shape == x.shape else losses


def _chunked(
    chunk: Callable[[int, int], Tensor], count: int, width: int, most: int
) -> Tensor:
    """``chunk(start, stop)`` of all terms side by side; several chunks are computed anew when the gradient is taken.

    Args:
        chunk: losses ``(*batch, stop − start)``.
        count: the number of terms.
        width: how many values one term has in the whole batch.
        most: how many values a chunk has, but for one of a single term.
    """
    step = max(1, most // max(1, width))
    if step >= count:
        return chunk(0, count)
    bounds = [(start, min(start + step, count)) for start in range(0, count, step)]
    parts = [
        _again(chunk, *bound) if torch.is_grad_enabled() else chunk(*bound)
        for bound in bounds
    ]
    if step > 1:
        return torch.cat(parts, -1)
    return _side_by_side(parts)


def _side_by_side(losses: Sequence[Tensor]) -> Tensor:
    """Losses of one term each, ``(*batch, 1)``, as those of all, laid out in memory term by term."""
    return torch.cat([own.movedim(-1, 0) for own in losses]).movedim(0, -1)


def _are_told_apart(choice: Choice) -> bool:
    """Whether a loss is asked for each term by itself: there are few, of many rows, of few outputs.

    ``(*batch, K, D)`` with ``(*batch, 1, D)`` is computed row by row, ``(*batch, 1, D)`` as one long row.
    """
    if is_for_any_size():
        return False
    rows = choice.raw[..., 0].numel()
    return 1 < choice.size < SHORT and choice.columns.numel() < SHORT and rows >= LONG


def _again(chunk: Callable[[int, int], Tensor], start: int, stop: int) -> Tensor:
    losses = checkpoint(chunk, start, stop, use_reentrant=False)
    if not isinstance(losses, Tensor):
        raise TypeError("a loss is a tensor")
    return losses


def _checked(losses: Tensor, branches: Branches, count: int) -> Tensor:
    expected = (*branches.batch, count)
    if tuple(losses.shape) != expected:
        raise ShapeError(
            f"the loss of {count} terms has shape {tuple(losses.shape)}, not {expected}: it must keep batch and terms "
            "and sum over the outputs, as (x - y.unsqueeze(-2)).square().sum(-1) does"
        )
    return losses
