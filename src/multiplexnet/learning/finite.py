"""Rules over finite domains, read through classifiers: every term is an assignment, scored by its labels.

When all outputs are discrete, the terms of the rules are exactly the assignments c_1 … c_K that obey. Given classifiers
q(y_n | x_n) for the outputs, a term has the score log q(c_k) = Σ_n log q(y_n = c_kn | x_n), and

* log Z = logsumexp_k log q(c_k) is the log-probability that independent labels obey (semantic loss: −log Z),
* log π_k = log q(c_k) − log Z is the choice among the terms that the experiment with MNIST uses,
* the *evidence ratio* compares the labels with what they are worth on their own, and needs no label to tell success.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, prod
from typing import cast

import torch
from torch import Tensor, nn

from multiplexnet.compiler.terms import Block
from multiplexnet.errors import DomainError, ShapeError
from multiplexnet.language.budget import MAX_TERMS
from multiplexnet.language.formula import Real, Variable
from multiplexnet.rules import Rules, rules_of
from multiplexnet.transforms.tables import Derived, in_memory

__all__ = ["EvidenceRatio", "FiniteTerms"]

LogProbs = Tensor | Sequence[Tensor]


class FiniteTerms(Derived):
    """The obeying assignments of rules over discrete outputs, block by block.

    Args:
        rules: all their outputs are discrete, and there are no inputs.
        max_terms: the most assignments one block may have.

    ``log_q`` below is a tensor ``(*batch, N, V)`` if all N outputs have V values (column n belongs to output n), or a
    list of N tensors ``(*batch, V_n)``; the values of a domain are in their order.

    Example:
        >>> terms = FiniteTerms(Rules("a: bool; b: bool; xor(a, b)"))
        >>> len(terms), terms.log_satisfaction(torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log()).exp()
        (2, tensor(0.5000))
    """

    dtype = torch.int64

    def __init__(
        self, rules: Rules | str | Sequence[str], *, max_terms: int = MAX_TERMS
    ) -> None:
        super().__init__()
        rules = discrete(rules_of(rules))
        self.rules = rules
        self.outputs = rules.outputs
        self.blocks = rules.compile(max_terms=max_terms).blocks
        self._make(self.dtype)
        self._settle(self.place.device)

    @in_memory
    def _make(self, dtype: torch.dtype) -> None:
        codes = [_codes(block) for block in self.blocks]
        self.hold({f"codes_{b}": own for b, own in enumerate(codes)})

    def codes(self, block: int) -> Tensor:
        """For each term of a block the position of each output's value in its domain, ``(K, N_b)``."""
        return cast(Tensor, getattr(self, f"codes_{block}"))

    def __len__(self) -> int:
        """The number of obeying assignments."""
        return prod(len(block.terms) for block in self.blocks)

    def scores(self, log_q: LogProbs) -> list[Tensor]:
        """For every block log q(c_k) = Σ_n log q(y_n = c_kn), ``(*batch, K_b)``: not normalised over the terms."""
        columns = self._columns(log_q)
        return [self._scores(b, columns) for b in range(len(self.blocks))]

    def _scores(self, block: int, columns: Sequence[Tensor]) -> Tensor:
        codes = self.codes(block)
        mine = [columns[self.outputs.index(v)] for v in self.blocks[block].outputs]
        return torch.stack(
            [q.index_select(-1, codes[:, n]) for n, q in enumerate(mine)]
        ).sum(0)

    def log_probs(self, log_q: LogProbs) -> list[Tensor]:
        """For every block log π_k, ``(*batch, K_b)``: the scores renormalised over the terms."""
        return [torch.log_softmax(scores, -1) for scores in self.scores(log_q)]

    def log_satisfaction(self, log_q: LogProbs) -> Tensor:
        """log Z, the log-probability that labels drawn independently obey, ``(*batch,)``."""
        return torch.stack(
            [torch.logsumexp(scores, -1) for scores in self.scores(log_q)]
        ).sum(0)

    def marginals(self, log_q: LogProbs) -> list[Tensor]:
        """log P(y_n = v | the rules hold) for every output, each ``(*batch, V_n)``; −inf for values that never obey."""
        found: dict[Variable, Tensor] = {}
        for b, log_pi in enumerate(self.log_probs(log_q)):
            for n, variable in enumerate(self.blocks[b].outputs):
                codes = self.codes(b)[:, n]
                values = [log_pi[..., codes == v] for v in range(_size(variable))]
                nothing = log_pi.new_full(log_pi.shape[:-1], -torch.inf)
                found[variable] = torch.stack(
                    [
                        torch.logsumexp(own, -1) if own.shape[-1] else nothing
                        for own in values
                    ],
                    -1,
                )
        return [found[variable] for variable in self.outputs]

    def _columns(self, log_q: LogProbs) -> Sequence[Tensor]:
        columns = list(log_q.unbind(-2)) if isinstance(log_q, Tensor) else list(log_q)
        if len(columns) != len(self.outputs):
            raise ShapeError(
                f"found log-probabilities of {len(columns)} outputs; the rules have {len(self.outputs)}"
            )
        for variable, column in zip(self.outputs, columns, strict=True):
            if column.shape[-1] != _size(variable):
                raise ShapeError(
                    f"{variable.name} has {_size(variable)} values; its log-probabilities have {column.shape[-1]}"
                )
        return columns


class EvidenceRatio(nn.Module):
    r"""Learning labels from rules alone: how much more likely the data are together than apart.

    L = − mean_b log Σ_k p(k) Π_n q(c_kn | x_n) / p̄(c_kn),   p̄(y) = mean of q(y | x) over the batch,

    which is −log p(x_1 … x_N) / Π p(x_n) under the mixture of terms with p(x | y) = q(y | x) p(x) / p(y). Gradients
    flow through p̄. A constant or collapsed classifier gives 0; a perfect labelling of equally likely terms gives
    :attr:`best`, which is −log 100 for the addition of two digits. −log Z alone, the semantic loss, is content with
    labels that collapse to one term.

    Whether the rules can tell the labels apart at all is what :func:`~multiplexnet.learning.symmetry.symmetries` says,
    and :func:`~multiplexnet.learning.shortcuts.shortcuts` which wrong labels obey as well.

    Args:
        terms: the obeying assignments.
        classifier: for every output a name; outputs of the same name share a classifier, and with it p̄ (default: all
            outputs with the same domain share one).
        marginal: names of the outputs whose batch means make p̄ (default: all that share the classifier). Leave out
            an output whose labels are not distributed as the classifier's labels are.

    Raises:
        ShapeError: names that do not fit the outputs.
        DomainError: outputs with different domains that are to share a classifier.

    Example:
        >>> ratio = EvidenceRatio(FiniteTerms(Rules("a: bool; b: bool; a == b")))
        >>> perfect = torch.eye(2).log().unsqueeze(1).expand(2, 2, 2)      # rows (a, b) = (0, 0) and (1, 1)
        >>> round(float(ratio(perfect)), 4), round(ratio.best, 4), round(float(ratio.success(ratio(perfect))), 2)
        (-0.6931, -0.6931, 1.0)
    """

    best: float
    """The loss of a perfect labelling of rows in which all terms are equally frequent."""

    def __init__(
        self,
        terms: FiniteTerms,
        *,
        classifier: Sequence[str] | None = None,
        marginal: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.terms = terms
        names = [variable.name for variable in terms.outputs]
        wanted = names if marginal is None else list(marginal)
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise ShapeError(
                f"marginal: {unknown[0]!r} is not an output of the rules ({', '.join(names)})"
            )
        groups = sharing(terms.outputs, classifier)
        reference = {
            m: [n for n in group if names[n] in wanted] or group
            for group in groups
            for m in group
        }
        self._reference = [reference[m] for m in range(len(names))]
        self.best = self._best()

    def _best(self) -> float:
        """−Σ_k p(k) log [p(k) / Π_n p̄(c_kn)], with p̄ as the labels of equally likely terms make it."""
        even = [torch.zeros(_size(v), dtype=torch.float64) for v in self.terms.outputs]
        share = [log_p.exp() for log_p in self.terms.marginals(even)]
        means = [
            torch.stack([share[n] for n in members]).mean(0).log()
            for members in self._reference
        ]
        return sum(
            float(scores.mean()) + log(len(scores))
            for scores in self.terms.scores(means)
        )

    def success(self, loss: Tensor) -> Tensor:
        """The loss between collapse (0) and a perfect labelling (1): a meter that needs no labels.

        Rules that say nothing of their outputs together have nothing to be learned from: always 0.
        """
        return loss / self.best if self.best < -1e-12 else torch.zeros_like(loss)

    def forward(
        self, log_q: LogProbs, log_prior: Sequence[Tensor] | None = None
    ) -> Tensor:
        """The loss of a batch, a scalar.

        Args:
            log_q: log-probabilities of the labels, ``(*batch, N, V)`` or N tensors ``(*batch, V_n)``.
            log_prior: log p(k) for every block, ``(K_b,)``; default uniform.
        """
        columns = self.terms._columns(log_q)
        flat = [column.reshape(-1, column.shape[-1]) for column in columns]
        means = [_log_mean([flat[m] for m in members]) for members in self._reference]
        scores = self.terms.scores(
            [_finite(q) - mean for q, mean in zip(flat, means, strict=True)]
        )
        priors = log_prior or [torch.full_like(s[0], -log(s.shape[-1])) for s in scores]
        ratios = [
            torch.logsumexp(s + p, -1) for s, p in zip(scores, priors, strict=True)
        ]
        return -torch.stack(ratios).sum(0).mean()


def discrete(rules: Rules) -> Rules:
    """The same rules, if all their outputs are discrete, none may be missing, and there are no inputs.

    Raises:
        DomainError: they are not.
    """
    continuous = [v.name for v in rules.outputs if isinstance(v.domain, Real)]
    if continuous:
        raise DomainError(
            f"output {continuous[0]} is real: terms are assignments only if all outputs are discrete"
        )
    if rules.specification.flags:
        name = next(v.name for v in rules.specification.flags)
        raise DomainError(
            f"output {name} may be missing: declare a category with a label for that, and no `?`"
        )
    if rules.inputs:
        raise DomainError(
            f"the rules depend on the input {rules.inputs[0].name}: their terms are no assignments"
        )
    return rules


def sharing(
    outputs: Sequence[Variable], classifier: Sequence[str] | None
) -> list[list[int]]:
    """The positions of outputs that share a classifier: those of one name, or by default of one domain.

    Raises:
        ShapeError: not one name for every output.
        DomainError: outputs of one name with different domains.
    """
    names = [v.domain for v in outputs] if classifier is None else list(classifier)
    if len(names) != len(outputs):
        raise ShapeError(
            f"classifier has {len(names)} names; the rules have {len(outputs)} outputs"
        )
    groups: dict[object, list[int]] = {}
    for n, (variable, name) in enumerate(zip(outputs, names, strict=True)):
        group = groups.setdefault(name, [])
        if group and outputs[group[0]].domain != variable.domain:
            raise DomainError(
                f"classifier {name!r} is to label {outputs[group[0]].name} and {variable.name}, whose domains differ"
            )
        group.append(n)
    return list(groups.values())


def _codes(block: Block) -> Tensor:
    rows = [
        [_values(variable).index(int(value)) for variable, value in term.fixed]
        for term in block.terms
    ]
    return torch.tensor(rows, dtype=torch.int64)


def _values(variable: Variable) -> range:
    if isinstance(variable.domain, Real):
        raise DomainError(f"output {variable.name} is real")
    return variable.domain.values


def _size(variable: Variable) -> int:
    return len(_values(variable))


def _log_mean(columns: Sequence[Tensor]) -> Tensor:
    """log of the mean probability over rows and columns, ``(V,)``."""
    stacked = torch.cat(list(columns))
    return _finite(torch.logsumexp(stacked, 0) - log(len(stacked)))


def _finite(log_probs: Tensor) -> Tensor:
    """Log-probabilities with a number in place of −inf, so that a label nobody gives has the ratio 0/0 = 1."""
    return log_probs.clamp(min=torch.finfo(log_probs.dtype).min / 64)
