"""Finite domains: terms scored by their labels against brute force, and labels learned from rules alone."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import inf, log

import pytest
import torch
from torch import Tensor, nn

from multiplexnet.errors import DomainError, ShapeError
from multiplexnet.language.formula import Variable, holds
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.learning.finite import EvidenceRatio, FiniteTerms
from multiplexnet.rules import Rules

DOUBLE = torch.float64
ADDITION = "y: int[0, 9][4]\ny[0] + y[1] == 10*y[2] + y[3]"
SMALL_ADDITION = "y: int[0, 3][4]\ny[0] + y[1] == 4*y[2] + y[3]"
TEXTS = [
    SMALL_ADDITION,
    "a: bool; b: bool; xor(a, b)",
    "a: bool; b: bool; c: bool; d: bool\na or b\nimplies(c, d)",  # two blocks
    'colour: {"red", "green", "blue"}; n: int[-1, 2]; on: bool\nimplies(colour == "red", n >= 1 and on)',
]


def values(variable: Variable) -> range:
    return variable.domain.values  # type: ignore[union-attr]


def obeying(rules: Rules) -> list[tuple[int, ...]]:
    """All assignments that obey, as positions in the domains."""
    domains = [values(v) for v in rules.outputs]
    points = [
        dict(zip(rules.outputs, map(Fraction, p), strict=True))
        for p in product(*domains)
    ]
    return [
        tuple(values(v).index(int(point[v])) for v in rules.outputs)
        for point in points
        if holds(rules.formula, point)
    ]


def random_log_q(rules: Rules, *batch: int) -> list[Tensor]:
    return [
        torch.randn(*batch, len(values(v)), dtype=DOUBLE).log_softmax(-1)
        for v in rules.outputs
    ]


def joint(log_q: list[Tensor], labels: tuple[int, ...]) -> Tensor:
    return torch.stack([q[..., v] for q, v in zip(log_q, labels, strict=True)]).sum(0)


def certain(labels: Tensor, size: int) -> Tensor:
    """Log-probabilities of a classifier that is sure of these labels."""
    return nn.functional.one_hot(labels, size).double().log()


# --- terms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_terms_are_the_obeying_assignments(text: str) -> None:
    rules = Rules(text)
    terms = FiniteTerms(rules)
    assert len(terms) == len(obeying(rules))
    places = [[rules.outputs.index(v) for v in block.outputs] for block in terms.blocks]
    found = set()
    for choice in product(*(range(len(block.terms)) for block in terms.blocks)):
        labels = [-1] * len(rules.outputs)
        for b, k in enumerate(choice):
            for place, code in zip(places[b], terms.codes(b)[k].tolist(), strict=True):
                labels[place] = code
        found.add(tuple(labels))
    assert found == set(obeying(rules))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("batch", [(), (5,), (2, 3), (0,)])
def test_satisfaction_and_marginals_against_all_assignments(
    text: str, batch: tuple[int, ...]
) -> None:
    rules = Rules(text)
    terms, log_q = FiniteTerms(rules), random_log_q(rules, *batch)
    weights = torch.stack([joint(log_q, labels) for labels in obeying(rules)], -1)
    torch.testing.assert_close(terms.log_satisfaction(log_q), weights.logsumexp(-1))
    posterior = weights.softmax(-1)
    for n, (variable, found) in enumerate(
        zip(rules.outputs, terms.marginals(log_q), strict=True)
    ):
        for v in range(len(values(variable))):
            mine = torch.tensor([labels[n] == v for labels in obeying(rules)])
            torch.testing.assert_close(
                found[..., v].exp(), posterior[..., mine].sum(-1)
            )


def test_log_probs_are_scores_renormalised_over_the_terms() -> None:
    rules = Rules(SMALL_ADDITION)
    terms, log_q = FiniteTerms(rules), random_log_q(rules, 6)
    (scores,), (log_pi,) = terms.scores(log_q), terms.log_probs(log_q)
    for k, labels in enumerate(terms.codes(0).tolist()):
        torch.testing.assert_close(scores[:, k], joint(log_q, tuple(labels)))
    torch.testing.assert_close(
        log_pi, scores - terms.log_satisfaction(log_q).unsqueeze(-1)
    )
    torch.testing.assert_close(log_pi.exp().sum(-1), torch.ones(6, dtype=DOUBLE))


def test_a_tensor_serves_when_all_domains_have_one_size() -> None:
    rules = Rules(SMALL_ADDITION)
    terms, log_q = FiniteTerms(rules), random_log_q(rules, 6)
    assert torch.equal(terms.scores(torch.stack(log_q, -2))[0], terms.scores(log_q)[0])


@pytest.mark.parametrize("text", TEXTS)
def test_labels_give_the_logits_of_the_layer(text: str) -> None:
    """log π_k = Σ_n log q(y_n = c_kn) over the terms, in the order in which the layer reads its logits."""
    rules = Rules(text)
    mux, terms, log_q = (
        Multiplexer(rules, dtype=DOUBLE),
        FiniteTerms(rules),
        random_log_q(rules, 5),
    )
    logits = [log_pi for log_pi in terms.log_probs(log_q) if log_pi.shape[-1] > 1]
    branches = mux(
        torch.cat([torch.zeros(5, len(rules.outputs), dtype=DOUBLE), *logits], -1)
    )
    lower = torch.tensor([values(v)[0] for v in rules.outputs], dtype=DOUBLE)
    labels = (branches.x - lower).long()
    direct = torch.stack(
        [q.gather(-1, labels[..., n]) for n, q in enumerate(log_q)]
    ).sum(0)
    torch.testing.assert_close(branches.log_probs, direct.log_softmax(-1))


def test_gradients_are_the_marginals() -> None:
    """∂ log Z / ∂ log q(y_n = v) = P(y_n = v | the rules hold), values that never obey included."""
    rules = Rules(SMALL_ADDITION)
    terms = FiniteTerms(rules)
    log_q = torch.stack(random_log_q(rules, 3), -2).requires_grad_()
    (gradient,) = torch.autograd.grad(terms.log_satisfaction(log_q).sum(), log_q)
    torch.testing.assert_close(
        gradient, torch.stack(terms.marginals(log_q.detach()), -2).exp()
    )
    finite = torch.stack(terms.marginals(log_q), -2)
    (second,) = torch.autograd.grad(finite[finite.isfinite()].sum(), log_q)
    assert second.isfinite().all()


def test_a_module_moves_with_its_codes() -> None:
    terms = FiniteTerms(Rules(SMALL_ADDITION))
    assert (
        set(terms.state_dict()) == set()
    )  # the codes follow from the rules: no state could make others of them
    assert terms.double().codes(0).dtype == torch.int64
    assert terms.to("meta").codes(0).is_meta


def test_refusals_of_terms() -> None:
    with pytest.raises(DomainError, match="output x is real"):
        FiniteTerms(Rules("x: real; a: bool; implies(a, x > 1)"))
    with pytest.raises(DomainError, match="depend on the input u"):
        FiniteTerms(Rules("a: bool; u: input[0, 1]\nimplies(a, u > 0.5)"))
    terms = FiniteTerms(Rules("a: bool; b: int[0, 2]\nimplies(a, b > 0)"))
    with pytest.raises(ShapeError, match="of 3 outputs; the rules have 2"):
        terms.scores(torch.zeros(3, 2))
    with pytest.raises(
        ShapeError, match="b has 3 values; its log-probabilities have 2"
    ):
        terms.scores(torch.zeros(2, 2))


# --- the evidence ratio ----------------------------------------------------------------------------------------------


def addition(rows: int, base: int = 10) -> Tensor:
    """Labels of natural quadruples: two addends, the tens and the units of their sum."""
    a, b = torch.randint(base, (2, rows))
    return torch.stack([a, b, (a + b) // base, (a + b) % base], -1)


def ratio_of(text: str, *marginal: str) -> EvidenceRatio:
    return EvidenceRatio(FiniteTerms(Rules(text)), marginal=marginal or None)


def test_the_value_by_its_definition() -> None:
    rules = Rules("a: bool; b: bool; c: int[0, 2]\niff(a, c >= 1) or b")
    log_q = random_log_q(rules, 7)
    shared = torch.cat(log_q[:2]).exp().mean(0)
    means = [shared, shared, log_q[2].exp().mean(0)]
    worth = [
        torch.stack(
            [(q.exp() / m)[:, v] for q, m, v in zip(log_q, means, k, strict=True)]
        )
        for k in obeying(rules)
    ]
    total = torch.stack([w.prod(0) for w in worth]).mean(0)
    torch.testing.assert_close(
        EvidenceRatio(FiniteTerms(rules))(log_q), -total.log().mean()
    )


@pytest.mark.parametrize("text", [ADDITION, SMALL_ADDITION, "a: bool; b: bool; a == b"])
def test_constant_and_collapsed_classifiers_are_worth_nothing(text: str) -> None:
    ratio = ratio_of(text)
    count, size = len(ratio.terms.outputs), len(values(ratio.terms.outputs[0]))
    constant = torch.randn(size, dtype=DOUBLE).log_softmax(-1).expand(8, count, size)
    assert float(ratio(constant)) == pytest.approx(0, abs=1e-9)
    collapsed = certain(torch.zeros(8, count, dtype=torch.int64), size)
    assert float(ratio(collapsed)) == pytest.approx(0, abs=1e-9)
    assert float(ratio.success(ratio(collapsed))) == pytest.approx(0, abs=1e-9)


def test_collapse_satisfies_the_rules_for_nothing() -> None:
    """0 + 0 = 00 has no semantic loss, and no evidence ratio either."""
    ratio = ratio_of(ADDITION)
    collapsed = certain(torch.zeros(8, 4, dtype=torch.int64), 10)
    assert ratio.terms.log_satisfaction(collapsed).tolist() == [0.0] * 8


def test_a_perfect_labelling_reaches_the_best() -> None:
    ratio = ratio_of(ADDITION, "y[0]", "y[1]", "y[3]")
    assert ratio.best == pytest.approx(-log(100))
    perfect = certain(ratio.terms.codes(0), 10)  # every term once
    assert float(ratio(perfect)) == pytest.approx(-log(100))
    assert float(ratio.success(ratio(perfect))) == pytest.approx(1)


@pytest.mark.parametrize(
    "text", [*TEXTS, "a: bool; b: bool; a == b", "a: bool; b: bool; a or b"]
)
def test_the_best_is_what_every_term_once_gives(text: str) -> None:
    rules = Rules(text)
    ratio = EvidenceRatio(FiniteTerms(rules))
    labels = torch.tensor(obeying(rules))
    perfect = [
        certain(labels[:, n], len(values(v))) for n, v in enumerate(rules.outputs)
    ]
    assert float(ratio(perfect)) == pytest.approx(ratio.best)


def test_equally_likely_terms_of_free_labels_reach_minus_log_of_their_number() -> None:
    for text, count in (
        ("a: bool; b: bool; a == b", 2),
        ("a: int[0, 6]; b: int[0, 6]; a == b", 7),
    ):
        assert ratio_of(text).best == pytest.approx(-log(count))


def test_a_wrong_name_is_worth_less() -> None:
    """Two labels exchanged everywhere: consistent clusters, and names that break the rule."""
    ratio = ratio_of(ADDITION, "y[0]", "y[1]", "y[3]")
    exchanged = torch.arange(10)
    exchanged[[2, 7]] = exchanged[[7, 2]]
    sure = certain(exchanged[ratio.terms.codes(0)], 10).exp() * 0.98 + 0.002
    assert float(ratio.success(ratio(sure.log()))) < 0.5


def test_rules_without_a_tie_say_nothing() -> None:
    ratio = ratio_of("a: bool; b: bool; True")
    assert ratio.best == pytest.approx(0)
    assert ratio.success(torch.tensor(-0.3)) == 0


def test_the_gradient_flows_through_the_mean() -> None:
    """Finite differences move p̄ with q, so that a p̄ without gradient would be told."""
    ratio = ratio_of(SMALL_ADDITION, "y[0]", "y[1]", "y[3]")
    logits = torch.randn(6, 4, 4, dtype=DOUBLE, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: ratio(z.log_softmax(-1)), (logits,))


def test_a_prior_counts() -> None:
    rules = Rules("a: bool; b: bool; a == b")
    terms = FiniteTerms(rules)
    labels = torch.tensor([[0, 0]] * 3 + [[1, 1]])
    prior = [torch.tensor([3 / 4, 1 / 4], dtype=DOUBLE).log()]
    loss = EvidenceRatio(terms)(certain(labels, 2), prior)
    entropy = (
        -(3 * log(3 / 4) + log(1 / 4)) / 4
    )  # mutual information of two equal labels
    assert float(loss) == pytest.approx(-entropy)


def test_classifiers_by_name() -> None:
    terms = FiniteTerms(Rules("a: int[0, 2]; b: int[0, 2]\na != b"))
    log_q = [torch.randn(5, 3, dtype=DOUBLE).log_softmax(-1) for _ in range(2)]
    apart = EvidenceRatio(terms, classifier=["left", "right"])(log_q)
    means = [q.exp().mean(0) for q in log_q]
    worth = [
        (log_q[0][:, i].exp() / means[0][i]) * (log_q[1][:, j].exp() / means[1][j])
        for i, j in obeying(terms.rules)
    ]
    torch.testing.assert_close(apart, -torch.stack(worth).mean(0).log().mean())
    assert apart != EvidenceRatio(terms)(log_q)


def test_refusals_of_the_ratio() -> None:
    terms = FiniteTerms(Rules("a: bool; b: int[0, 2]\nimplies(a, b > 0)"))
    with pytest.raises(
        ShapeError, match="classifier has 1 names; the rules have 2 outputs"
    ):
        EvidenceRatio(terms, classifier=["one"])
    with pytest.raises(
        DomainError, match="classifier 'one' is to label a and b, whose domains differ"
    ):
        EvidenceRatio(terms, classifier=["one", "one"])
    with pytest.raises(
        ShapeError, match=r"marginal: 'c' is not an output of the rules \(a, b\)"
    ):
        EvidenceRatio(terms, marginal=["c"])


# --- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_digits_are_learned_from_the_addition_rule_alone(seed: int) -> None:
    """One-hot «images» of digits, a linear classifier, no label: each digit finds its own name."""
    torch.manual_seed(seed)
    ratio = ratio_of(ADDITION, "y[0]", "y[1]", "y[3]")
    classifier = nn.Linear(10, 10, bias=False)
    nn.init.uniform_(classifier.weight, -0.1, 0.1)
    optimiser = torch.optim.Adam(classifier.parameters(), lr=0.1)
    losses = []
    for _ in range(120):
        images = nn.functional.one_hot(addition(256), 10).float()
        loss = ratio(classifier(images).log_softmax(-1))
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(loss.detach())
    meter = ratio.success(torch.stack(losses))
    assert float(meter[0]) < 0.1
    assert float(meter[-10:].mean()) > 0.95
    assert classifier.weight.argmax(0).tolist() == list(range(10))


def test_a_hidden_label_is_minus_infinity_and_no_error() -> None:
    terms = FiniteTerms(Rules("a: int[0, 2]; b: int[0, 2]\na + b == 4"))
    found = terms.marginals([torch.zeros(3).log_softmax(-1)] * 2)
    assert found[0].tolist() == [-inf, -inf, 0.0]
