"""Layers of rules whose terms go on in inner blocks: the same promises, and the same sums."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest
import torch
from torch import Tensor

import multiplexnet as mx
from multiplexnet.compiler.circuit import kept_terms
from multiplexnet.compiler.equalities import beyond_terms
from multiplexnet.compiler.terms import Block, Compiled, Proof, Term, with_inner
from multiplexnet.language.formula import Atom, Linear, Variable
from multiplexnet.layer.branches import Choice
from multiplexnet.learning.estimators import ScoreFunction

RULES = mx.Rules(
    """
    on: bool; x: real; y: real; z: real
    implies(on, z >= 3)
    implies(not on, z == 0)
    x <= -1 or x >= 1
    implies(not on, y <= -2 or y >= 2)
    implies(on, 0 <= y <= 1)
    """
)


def at_least(variable: Variable, bound: int) -> Atom:
    return Atom(-Linear.of(variable) + bound, "<=")


def at_most(variable: Variable, bound: int) -> Atom:
    return Atom(Linear.of(variable) - bound, "<=")


@pytest.fixture
def compiled() -> Compiled:
    on, x, y, z = RULES.outputs
    inner_x = Block(
        (x,), (Term((at_most(x, -1),)), Term((at_least(x, 1),)))
    )  # shared by both terms
    inner_y = Block((y,), (Term((at_most(y, -2),)), Term((at_least(y, 2),))))
    zero = Atom(Linear.of(z), "==")
    off = Term((zero,), ((on, Fraction(0)),), (inner_x, inner_y))
    running = Term(
        (at_least(y, 0), at_most(y, 1), at_least(z, 3)),
        ((on, Fraction(1)),),
        (inner_x,),
    )
    block = Block((on, x, y, z), (off, running))
    return Compiled(RULES.outputs, (), (block,), Proof(True, True, "by hand", 0))


@pytest.fixture
def mux(compiled: Compiled) -> mx.Multiplexer:
    return mx.Multiplexer.from_compiled(RULES, compiled, dtype=torch.float64)


def test_every_choice_has_its_logits(mux: mx.Multiplexer) -> None:
    assert (
        mux.in_features == 4 + 2 + 2 + 2
    )  # values; off or running; both sides of x; both sides of y
    assert mux.is_nested


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4, 1e30, float("inf")])
def test_whatever_is_chosen_obeys(mux: mx.Multiplexer, scale: float) -> None:
    raw = (
        torch.sign(torch.randn(200, mux.in_features))
        if scale == float("inf")
        else torch.randn(200, mux.in_features)
    )
    branches = mux.eval()((raw * scale).double())
    assert RULES.satisfied(branches.best()).all()
    assert RULES.satisfied(branches.sample()).all()


def paths(
    choice: Choice, values: dict[int, Tensor]
) -> Iterator[tuple[dict[int, Tensor], Tensor]]:
    """Every way to choose, with the values (by column) and log q it has."""
    for k in range(choice.size):
        own = choice.terms(k, k + 1).squeeze(-2)
        settled = dict(zip(choice.columns.tolist(), own.unbind(-1), strict=True)) | {}
        found = [({**values, **settled}, choice.log_probs[..., k])]
        for part in (part for part in choice.inner if part.term == k):
            found = [
                (more, log_q + rest)
                for so_far, log_q in found
                for more, rest in paths(part.choice, so_far)
            ]
        yield from found


def test_probabilities_of_all_paths_sum_to_one(mux: mx.Multiplexer) -> None:
    branches = mux(torch.randn(5, mux.in_features).double())
    (choice,) = branches.choices
    total = torch.stack([log_q for _, log_q in paths(choice, {})]).logsumexp(0)
    assert torch.allclose(total, torch.zeros_like(total))


def test_a_sum_over_outputs_is_exact(mux: mx.Multiplexer) -> None:
    raw = torch.randn(5, mux.in_features).double().requires_grad_()
    branches = mux(raw)
    target = torch.tensor([0.0, 1.5, -2.5, 3.5]).double()
    loss = branches.loss(lambda x: (x - target).square())
    (choice,) = branches.choices
    log_p = -torch.tensor(6.0).double().log()  # four plain terms are off, two running
    expected = torch.zeros(5).double()
    for values, log_q in paths(choice, {}):
        x = torch.stack([values[j] for j in range(4)], -1)
        expected = expected + log_q.exp() * (
            (x - target).square().sum(-1) + log_q - log_p
        )
    assert torch.allclose(loss, expected)
    ours, theirs = (
        torch.autograd.grad(value.sum(), raw, retain_graph=True)[0]
        for value in (loss, expected)
    )
    assert torch.allclose(ours, theirs)


def test_the_score_function_is_unbiased(mux: mx.Multiplexer) -> None:
    raw = torch.randn(1, mux.in_features).double().requires_grad_()
    branches = mux(raw.expand(20_000, -1))
    target = torch.tensor([0.0, 1.5, -2.5, 3.5]).double()
    exact = branches.loss(lambda x: (x - target).square()).mean()
    estimate = branches.loss(
        lambda x: (x - target).square().sum(-1),
        estimator=ScoreFunction(3, generator=torch.Generator().manual_seed(0)),
    ).mean()
    ours, theirs = (
        torch.autograd.grad(value, raw, retain_graph=True)[0]
        for value in (exact, estimate)
    )
    assert torch.allclose(exact, estimate, rtol=0.02)
    assert torch.allclose(ours, theirs, atol=0.2, rtol=0.05)


def test_a_saved_layer_shares_what_was_shared(mux: mx.Multiplexer) -> None:
    again = mx.Multiplexer.from_state(mux.state_dict())
    raw = torch.randn(7, mux.in_features).double()
    assert again.in_features == mux.in_features
    assert torch.equal(again(raw).best(), mux(raw).best())


def test_what_needs_plain_terms_is_refused(mux: mx.Multiplexer) -> None:
    branches = mux(torch.zeros(mux.in_features).double())
    for ask in (
        lambda: branches.x,
        lambda: branches.loss(lambda x: x.sum(-1)),
        lambda: mux.repair(torch.zeros(4).double()),
    ):
        with pytest.raises(mx.MultiplexError, match="were decomposed"):
            ask()


@pytest.mark.parametrize(
    "text",
    ["on: bool[30]\nsum(on) <= 3", "on: bool[20]\nany(o for o in on)"],
)
def test_rules_with_too_many_plain_terms_become_layers_all_the_same(text: str) -> None:
    rules = mx.Rules(text)
    with pytest.raises(mx.TermBudgetExceeded):
        rules.compile(max_terms=500)
    mux = mx.Multiplexer(rules, max_terms=500).eval()
    assert mux.is_nested
    assert mux.certificate.sound
    assert mux.complete
    branches = mux(30 * torch.randn(50, mux.in_features))
    assert rules.satisfied(branches.best()).all()
    assert rules.satisfied(branches.sample()).all()


def test_inputs_are_covered_whatever_the_ways_through_the_blocks() -> None:
    """Whether every input leaves an output is asked of 2^30 ways through shared blocks, none of them written out."""
    rules = mx.Rules("on: bool[30]; u: input[1, 30]; sum(on) >= u")
    mux = mx.Multiplexer(rules, structure="terms").eval()
    u = torch.linspace(1, 30, 50)
    branches = mux(30 * torch.randn(50, mux.in_features), u=u)
    assert rules.satisfied(branches.best(), u=u).all()
    with pytest.raises(mx.InputError, match=r"for u = .* no output obeys"):
        mx.Multiplexer("on: bool[30]; u: input[1, 31]; sum(on) >= u", structure="terms")


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16]
)
def test_decomposed_rules_work_under_autocast(dtype: torch.dtype) -> None:
    rules = mx.Rules("p: bool[30]\nsum(p) <= 3")
    mux = mx.Multiplexer(rules, dtype=dtype).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        branches = mux(torch.randn(4, mux.in_features, dtype=dtype))
        best, sample = branches.best(), branches.sample()
    assert best.dtype is dtype
    assert rules.satisfied(best).all()
    assert rules.satisfied(sample).all()


def test_blocks_that_terms_share_are_walked_once() -> None:
    x = Variable("x", 0)
    block = Block((x,), (Term((Atom(Linear.of(x), "<="),)),))
    for _ in range(100):  # 2^100 ways lead to the innermost
        block = Block((x,), (Term((), blocks=(block,)), Term((), blocks=(block,))))
    assert len(with_inner([block])) == 101
    assert beyond_terms([block]) == frozenset()
    assert kept_terms([block]) == 201
