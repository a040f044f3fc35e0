r"""Densities on the rules' set: a base distribution, pushed through the maps of the terms and mixed over them.

Term k of a block makes x = h_k(z) of raw values z, so that a distribution p_k of z becomes one on the term, and logits
π mix the terms:

    p(x) = Σ_k π_k p_k(h_k⁻¹(x)) / |det ∂h_k(z)|,    summed over the terms that contain x.

Blocks are independent factors. Whether a term contains x is decided exactly
(:mod:`multiplexnet.verdicts.satisfaction`); outside
all of them the log-density is −inf.

**With respect to what.** A term has as many dimensions r as raw values that it reads: a constant and a discrete output
read none, equalities leave the d coordinates t of their lattice ``x = origin + basis t``. The density of such a term is
one with respect to dt, Lebesgue measure on the affine subspace in which a cell of its integer directions has volume 1:
for weights that sum to 1 that is dx_1 … dx_{n−1}, as for ``torch.distributions.Dirichlet``. With r = 0 it is a
probability. Where terms of different dimensions overlap, only those of the lowest count at a point: the others give the
lower-dimensional set no mass. A map reaches as far as its format does, which for equalities without bounds is some half
of the digits (:mod:`multiplexnet.geometry.lattice`): a density asked for beyond that means nothing.

**On a cascade.** Outputs that a cascade computes live on a grid, and every point of it has a probability: that of the
raw values that lead to it (:mod:`multiplexnet.learning.cascades`). Together with densities of other blocks ``log_prob``
is one with respect to the product of the counting measure on the grid and what is said above. A density on the grid's
cells is the probability over the product of ``mux.resolution``.

**At the boundary.** Maps are smooth, and their values are rounded to floats: a float x stands for its cell, the reals
that are rounded to it. A density can be infinite at the boundary of a term, where in bfloat16 many samples come to lie.
So the density of a float at the boundary is that at the middle of the part of its cell that lies inside, a quarter of
the spacing of the floats away from the boundary; everywhere else it is the density at x. Over the floats, each with the
length of its cell, this is the midpoint rule for an integral of 1.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, constraints

from multiplexnet.errors import CascadeError, DtypeError, ShapeError
from multiplexnet.language.formula import Rule, Specification
from multiplexnet.layer.branches import Branches, Choice
from multiplexnet.layer.checks import (
    refuse_no_layer,
    refuse_no_tensor,
    refuse_roomless,
    refuse_stuck,
)
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.learning.cascades import CascadeFactor
from multiplexnet.learning.marginals import Marginal, bases_of, marginals_of
from multiplexnet.transforms.run_time.parameters import Functions
from multiplexnet.transforms.term_maps import TermMaps
from multiplexnet.verdicts.numbers import numbers_of
from multiplexnet.verdicts.satisfaction import verdict, violations

__all__ = ["RulesConstraint", "RulesDistribution"]

ENTROPY_SAMPLES = 10_000
"""How many samples an entropy is estimated from, unless the caller says."""


class RulesDistribution(Distribution):
    """A distribution over the outputs that obey the rules.

    Args:
        mux: the compiled rules; their maps carry the density.
        base: the distribution of the raw values: anything with ``log_prob`` and ``rsample`` and one event dimension
            (a ``Distribution``, a zuko flow), or one per term in the order of ``mux.terms``. It lives on the D outputs
            (one per term: on those of its block), and every term takes the marginal over the raw values that it reads,
            which is known for ``Independent``, for univariate distributions side by side, ``Normal(zeros(D), 1)``,
            and for ``MultivariateNormal``. Any other base lives on exactly what each term reads: with an equality
            among three weights a flow on R² will do. Blocks draw independently of each other.
        logits: of the choice, ``(*batch, K)``: those of every block with more than one term side by side, in the
            order in which the layer reads them, then those of the options of cascades. ``None``: all terms are equally
            likely, and a cascade favours no output.
        inputs: values of the inputs of the rules, one for every row of the batch. Terms that they rule out get no mass.
        validate_args: as in ``torch.distributions``: NaN among the logits, and values outside ``support`` in
            ``log_prob``, raise ``ValueError``.

    ``log_prob`` is −inf for rows that do not obey, unless arguments are validated. It is as accurate as the dtype of
    the layer: take float64 where accuracy close to a bound matters. Gradients reach the parameters of the base, the
    logits, the inputs and x. ``entropy`` is estimated from samples. A sum over terms has no reparameterised sample
    (``has_rsample`` is false if there is a choice to be made): use :meth:`branches`, which reparameterises every term
    and leaves the choice to be summed.

    Raises:
        ShapeError: a base or logits that do not fit; the message says what would.
        InputError: inputs that are missing or leave no term; a base without ``log_prob`` or ``rsample``.

    Example:
        >>> from multiplexnet import Multiplexer, Rules
        >>> rules = Rules("a == 0 or 200 < a < 400")
        >>> base, logits = torch.distributions.Normal(torch.zeros(1), 1.0), torch.tensor([0.8, 0.2]).log()
        >>> p = RulesDistribution(Multiplexer(rules), base, logits)
        >>> p.log_prob(torch.tensor([[0.0], [300.0], [100.0]])).exp()             # a mass, a density, nothing
        tensor([0.8000, 0.0016, 0.0000])
        >>> bool(rules.satisfied(p.sample((1000,))).all())
        True
    """

    arg_constraints: dict[str, constraints.Constraint] = {  # noqa: RUF012 - torch's own convention
        "logits": constraints.real_vector
    }

    def __init__(
        self,
        mux: Multiplexer,
        base: Any,
        logits: Tensor | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        validate_args: bool = False,
    ) -> None:
        refuse_no_layer("mux", mux)
        self.mux = mux
        self.base = base
        self.logits = _uniform(mux) if logits is None else logits
        self.inputs = dict(inputs or {})
        known = mux.rules.scalar_inputs(self.inputs)
        shapes = [_shape_of(value, name) for name, value in known.items()]
        shape = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
        given = mux.input_columns(self.inputs, shape)
        blocks, options = _split(mux, self.logits)
        factors = tuple(_factors(mux, base, blocks, given))
        self._factors = _possible(mux, given, factors)
        self._cascades = tuple(_cascades(mux, base, options, given))
        every: list[_Factor | CascadeFactor] = [*self._factors, *self._cascades]
        for factor in every:
            shape = torch.broadcast_shapes(shape, *factor.batch_shapes())  # type: ignore[no-untyped-call]
        super().__init__(shape, Size([mux.out_features]), validate_args=validate_args)

    # --- density ----------------------------------------------------------------------------------------------------

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density of ``value``, ``(*sample, *batch, D)``, in the dtype of the layer; −inf where it disobeys."""
        x = self._checked(value)
        if self._validate_args:
            self._validate_sample(x)
        found = self._log_probs(x)
        return torch.stack([own.to(found[-1].dtype) for own in found]).sum(0)

    def _log_probs(self, x: Tensor) -> list[Tensor]:
        """The log-densities of the blocks, which are independent of each other."""
        whole = self.mux.computed(x)
        log_probs = [
            factor.log_prob(whole.index_select(-1, factor.columns))
            for factor in self._cascades
        ]
        if not self._factors:
            return log_probs
        sizes = [len(factor.maps) for factor in self._factors]
        inside = self._inside(x).split_with_sizes(sizes, -1)
        for factor, own in zip(self._factors, inside, strict=True):
            values = whole.index_select(-1, factor.columns)
            log_probs.append(factor.log_prob(values, own))
        return log_probs

    def entropy(self, samples: int = ENTROPY_SAMPLES) -> Tensor:
        """``−E log p(x)``, ``(*batch)``: exact for blocks of points, estimated from samples for all others.

        The estimate is the mean of ``−log_prob`` over fresh samples, drawn with torch's own generator: its standard
        error is their standard deviation over ``√samples``, with 10,000 of them some 0.01 to 0.05. Entropies of terms
        of several dimensions are relative to the measures that ``log_prob`` is. No gradients.

        Args:
            samples: how many, for every row of the batch.

        Raises:
            ShapeError: fewer than one.

        Example:
            >>> from multiplexnet import Multiplexer, Rules
            >>> base = torch.distributions.Normal(torch.zeros(1), 1.0)
            >>> RulesDistribution(Multiplexer(Rules("x in {1, 2, 4, 8}")), base).entropy().exp()
            tensor(4.)
        """
        if samples < 1:
            raise ShapeError(f"an entropy from {samples} samples; it needs 1 or more")
        with torch.no_grad():
            x = self.sample((samples,))
            found = self._log_probs(x)
            count = len(self._cascades)
            entropies = [-own.mean(0).to(found[-1].dtype) for own in found[:count]]
            for b, factor in enumerate(self._factors):
                entropy = -found[count + b].mean(0)
                if not factor.dimensions.any():
                    entropy = self._entropy_of_points(b, x[0])
                entropies.append(entropy.to(found[-1].dtype))
            return torch.stack(entropies).sum(0)

    def _entropy_of_points(self, block: int, x: Tensor) -> Tensor:
        """The entropy of a block whose terms are single points; ``x``, ``(*batch, D)``, has the other outputs."""
        factor = self._factors[block]
        weights, points = factor.points(self.batch_shape)
        start = self.mux.computed(x)
        whole = start.expand(len(points), *start.shape).index_copy(
            -1, factor.columns, points
        )
        log_probs = self._log_probs(self.mux.seen(whole))[
            len(self._cascades) + block
        ].movedim(0, -1)
        return -torch.where(weights > 0, weights * log_probs, 0.0).sum(-1)

    def _checked(self, x: Tensor) -> Tensor:
        refuse_no_tensor("value", x)
        if x.dim() == 0 or x.shape[-1] != self.mux.out_features:
            raise ShapeError(
                f"value has shape {tuple(x.shape)}; its last dimension must be the {self.mux.out_features} outputs"
            )
        if x.dtype != self.mux.dtype:
            raise DtypeError(
                f"value has dtype {x.dtype}; the layer works in {self.mux.dtype}"
            )
        batch = torch.broadcast_shapes(x.shape[:-1], self.batch_shape)  # type: ignore[no-untyped-call]
        return x.expand(*batch, x.shape[-1])

    def _inside(self, x: Tensor) -> Tensor:
        """Which terms contain x, exactly: ``(*batch, K)``, the terms of all blocks side by side."""
        specification = self.mux.rules.specification
        blocks = [block for block, _ in self.mux.term_parts()]
        terms = tuple(
            Rule(term.formula, "") for block in blocks for term in block.terms
        )
        each = Specification(specification.variables, terms, specification.functions)
        known = self.mux.rules.scalar_inputs(self.inputs)
        return violations(each, x, known, self.mux.functions or None) == 0

    @property
    def support(self) -> RulesConstraint:
        """The set that the terms cover, as a constraint whose verdict is exact."""
        return RulesConstraint(self.mux, self.inputs)

    # --- samples ----------------------------------------------------------------------------------------------------

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether there is no choice between terms, so that samples can be reparameterised."""
        return not self._cascades and all(
            len(factor.maps) == 1 for factor in self._factors
        )

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Values, ``(*sample, *batch, D)``: a term is drawn for every block, then a value of it. All obey, exactly."""
        with torch.no_grad():
            size = Size(sample_shape)
            drawn = [factor.sample(size, self.batch_shape) for factor in self._factors]
            computed = [
                factor.sample(size, self.batch_shape) for factor in self._cascades
            ]
            return self._at(drawn, computed, self._extended_shape(size)[:-1])

    def samples(self, count: int, *, chunk: int = 1 << 16) -> Iterator[Tensor]:
        """``count`` values one chunk after the other, ``(at most chunk, *batch, D)``: memory stays flat, however many.

        Raises:
            ShapeError: a chunk of no rows, or a count below zero.

        Example:
            >>> from multiplexnet import Multiplexer, Rules
            >>> base = torch.distributions.Normal(torch.zeros(1), 1.0)
            >>> p = RulesDistribution(Multiplexer(Rules("x >= 2 or x <= -2")), base)
            >>> [len(x) for x in p.samples(100_000, chunk=40_000)]
            [40000, 40000, 20000]
        """
        if count < 0 or chunk < 1:
            raise ShapeError(
                f"{count} samples in chunks of {chunk}: the count is 0 or more, a chunk 1 or more"
            )
        return (
            self.sample((min(chunk, count - start),))
            for start in range(0, count, chunk)
        )

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """As :meth:`sample`, with gradients to the base, if no block has a choice between terms.

        Raises:
            NotImplementedError: a choice cannot be reparameterised.
        """
        if not self.has_rsample:
            raise NotImplementedError(
                "the choice between terms has no reparameterised sample: use branches(), which draws from every term "
                "with gradients and keeps the log-probabilities of the choice, or sample()"
            )
        return self.branches(sample_shape).x.squeeze(-2)

    def branches(self, sample_shape: Sequence[int] = ()) -> Branches:
        """Reparameterised draws from all terms, and the choice among them, as the layer returns them.

        An expectation over the distribution is ``(b.log_probs.exp() * f(b.x)).sum(-1)`` on average, with gradients to
        the base and the logits. (Terms that inputs rule out are NaN in ``b.x`` and have to be left out of the sum.)

        Example:
            >>> from multiplexnet import Multiplexer, Rules
            >>> base = torch.distributions.Normal(torch.zeros(1, requires_grad=True), 1.0)
            >>> b = RulesDistribution(Multiplexer(Rules("x >= 2 or x <= -2")), base).branches((5,))
            >>> b.x.shape, b.log_probs.shape, b.x.requires_grad
            (torch.Size([5, 2, 1]), torch.Size([5, 2]), True)
        """
        if self._cascades:
            raise CascadeError("draws from all terms")
        size = Size(sample_shape)
        units = self.mux.units
        choices = []
        for factor in self._factors:
            choice = factor.all_terms(size, self.batch_shape)
            own = None if units is None else units.of(factor.columns)
            choices.append(replace(choice, units=own))
        shape = self._extended_shape(size)[:-1]
        return Branches(
            tuple(choices),
            shape,
            self.mux.max_terms,
            holes=self.mux.holes,
            units=units,
        )

    def _at(
        self,
        drawn: Sequence[tuple[Choice, Tensor]],
        computed: Sequence[Tensor],
        shape: Size,
    ) -> Tensor:
        """The values, ``(*shape, D)``, of one choice per block, the term that it takes in every row, and cascades."""
        choices = tuple(choice for choice, _ in drawn)
        parts = [choice.at(index) for choice, index in drawn] + list(computed)
        own = [factor.columns for factor in self._factors]
        columns = torch.cat([*own, *(factor.columns for factor in self._cascades)])
        branches = Branches(choices, shape, self.mux.max_terms, columns.argsort())
        return self.mux.seen(branches.ordered(parts))

    @property
    def mode(self) -> Tensor:
        """The image of the base's mode in the most probable term of every block, ``(*batch, D)``.

        A stand-in: the mode of a mixture has no closed form, and that of a push-forward is not the image of a mode.

        Raises:
            NotImplementedError: the base has no mode.
        """
        drawn = [factor.mode(self.batch_shape) for factor in self._factors]
        computed = [factor.mode(self.batch_shape) for factor in self._cascades]
        return self._at(drawn, computed, self.batch_shape)

    def expand(
        self, batch_shape: Sequence[int], _instance: Any = None
    ) -> RulesDistribution:
        """The same distribution for every row of a larger batch."""
        torch.empty(self.batch_shape).expand(
            Size(batch_shape)
        )  # refuses what does not fit
        new = copy.copy(self)
        new._batch_shape = Size(batch_shape)
        return new

    def __repr__(self) -> str:
        terms = " × ".join(str(len(factor.maps)) for factor in self._factors)
        parts = [f"terms={terms}"] if terms else []
        parts += [
            f"cascade of {factor.maps.in_values} outputs" for factor in self._cascades
        ]
        return f"RulesDistribution({self.mux.rules!r}, {', '.join(parts)}, batch_shape={tuple(self.batch_shape)})"


class RulesConstraint(constraints.Constraint):
    """The outputs that obey, as a constraint of ``torch.distributions``: ``check`` has no tolerance.

    Args:
        mux: the compiled rules; if they are not complete, the set is that of their terms.
        inputs: values of the inputs of the rules.

    Example:
        >>> from multiplexnet import Multiplexer, Rules
        >>> RulesConstraint(Multiplexer(Rules("0 < x < 1"))).check(torch.tensor([[0.5], [1.0]]))
        tensor([ True, False])
    """

    event_dim = 1

    def __init__(
        self, mux: Multiplexer, inputs: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        self._mux = mux
        self._inputs = dict(inputs or {})
        written = mux.rules.specification
        whole = mux.compiled.complete or bool(mux.cascades)
        self._specification = (
            written
            if whole
            else replace(written, rules=(Rule(mux.compiled.formula, ""),))
        )

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        """Whether all outputs are."""
        return all(variable.is_discrete for variable in self._mux.compiled.outputs)

    def check(self, value: Tensor) -> Tensor:
        """Whether each row of ``value``, ``(*batch, D)``, obeys, and lies on the grid of a cascade."""
        known = self._mux.rules.scalar_inputs(self._inputs)
        found = verdict(self._specification, value, known, self._mux.functions or None)
        given = self._mux.input_columns(self._inputs, found.shape)
        whole = self._mux.computed(value)
        for columns, maps in self._mux.cascade_parts():
            found = found & maps.contains(whole.index_select(-1, columns), given)
        return found

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self._inputs.items())
        return f"RulesConstraint({self._mux.rules!r}{given})"


# --- one block ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Factor:
    """The distribution of one block.

    Args:
        maps: of its terms.
        columns: its outputs among all D.
        given: the logits of the choice, ``(*batch, K)``; ``None`` for a single term.
        feasible: which terms the inputs leave, ``(*batch, K)``; ``None``: all.
        marginals: of the raw values; a term that reads none is in no marginal.
        dimensions: how many raw values each term reads, ``(K,)``.
        inputs: ``(*batch, I)``.
        functions: torch code of opaque functions.
    """

    maps: TermMaps
    columns: Tensor
    given: Tensor | None
    feasible: Tensor | None
    marginals: tuple[Marginal, ...]
    dimensions: Tensor
    inputs: Tensor | None
    functions: Functions

    def without(self, rows: Tensor) -> _Factor:
        """The factor with no term left in these rows."""
        kept = ~rows.unsqueeze(-1)
        if self.feasible is None:
            return replace(self, feasible=kept.expand(*rows.shape, len(self.maps)))
        return replace(self, feasible=self.feasible & kept)

    def batch_shapes(self) -> Iterator[Size]:
        yield from (
            table.shape[:-1]
            for table in (self.given, self.feasible)
            if table is not None
        )
        yield from (marginal.batch_shape for marginal in self.marginals)

    # --- density

    def log_prob(self, x: Tensor, inside: Tensor) -> Tensor:
        """The log-density of x, ``(*batch, D_b)``, given which terms contain it, ``(*batch, K)``."""
        choice = self._choice(x.shape[:-1])
        counted = self._counted(inside & ~choice.logits.isneginf())
        z, log_det = self._mapped_back(x, counted, choice)
        wide = torch.promote_types(
            choice.logits.dtype, log_det.dtype
        )  # a bfloat16 has two digits
        log_probs = torch.log_softmax(choice.logits.to(wide), -1)
        scores = (
            log_probs.to(log_det.dtype)
            + self._base_log_prob(z, log_det.dtype)
            - log_det
        )
        somewhere = counted.any(-1)
        # The log-sum-exp of nothing has a NaN for its gradient: rows outside all terms are left out of it.
        masked = scores.masked_fill(~counted, -torch.inf).masked_fill(
            ~somewhere.unsqueeze(-1), 0.0
        )
        return torch.logsumexp(masked, -1).masked_fill(~somewhere, -torch.inf)

    def _counted(self, possible: Tensor) -> Tensor:
        """The terms that give x mass: those of the lowest dimension among the possible ones that contain it."""
        beyond = self.columns.numel() + 1
        dimensions = torch.where(possible, self.dimensions, beyond)
        lowest = dimensions.amin(-1, keepdim=True)
        return possible & (self.dimensions == lowest)

    def _mapped_back(
        self, x: Tensor, counted: Tensor, choice: Choice
    ) -> tuple[Tensor, Tensor]:
        """The raw values ``(*batch, K, D_b)`` and log-determinants ``(*batch, K)``; 0 where a term does not count.

        Only points inside a term are mapped back: elsewhere the inverse is arbitrary, and its gradient may be NaN.
        """
        flat = _rows(counted)
        row, term = places = flat.nonzero(as_tuple=True)
        known = None if choice.inputs is None else _rows(choice.inputs)[row]
        z, log_det = self.maps.unrounded_and_log_det(
            _rows(x)[row], term, inputs=known, functions=self.functions
        )
        whole = z.new_zeros(*flat.shape, z.shape[-1]).index_put(places, z)
        log_dets = log_det.new_zeros(flat.shape).index_put(places, log_det)
        return whole.reshape(*counted.shape, z.shape[-1]), log_dets.reshape(
            counted.shape
        )

    def _base_log_prob(self, z: Tensor, dtype: torch.dtype) -> Tensor:
        """The log-densities of raw values ``(*batch, K, D_b)`` under the marginals of their terms, ``(*batch, K)``."""
        density = torch.zeros(z.shape[:-1], dtype=dtype, device=z.device)
        for marginal in self.marginals:
            own = z.index_select(-2, marginal.terms).index_select(-1, marginal.columns)
            found = marginal.log_prob(
                own.movedim(-2, 0).to(dtype), self.maps.dtype
            ).movedim(0, -1)
            density = density.index_copy(-1, marginal.terms, found.to(dtype))
        return density

    # --- samples

    def sample(self, sample_shape: Size, batch: Size) -> tuple[Choice, Tensor]:
        """A term of every row, and raw values for it."""
        choice = self._choice(sample_shape + batch)
        index = choice.sampled_index()
        return replace(
            choice, raw=self._raw(self._draws(sample_shape, batch), index)
        ), index

    def mode(self, batch: Size) -> tuple[Choice, Tensor]:
        """The most probable term of every row, and the mode of its marginal."""
        choice = self._choice(batch)
        index = choice.best_index()
        modes = [
            (marginal, self._placed(marginal, marginal.mode(batch)))
            for marginal in self.marginals
        ]
        return replace(choice, raw=self._raw(modes, index)), index

    def points(self, batch: Size) -> tuple[Tensor, Tensor]:
        """The probabilities ``(*batch, K)`` and values ``(K, *batch, D_b)`` of terms that read no raw values."""
        choice = self._choice(batch)
        every = self.maps(choice.raw, inputs=choice.inputs, functions=self.functions)
        return choice.log_probs.exp(), every.movedim(-2, 0)

    def all_terms(self, sample_shape: Size, batch: Size) -> Choice:
        """Raw values for all terms; those of the same marginal share them."""
        choice = self._choice(sample_shape + batch)
        draws = self._draws(sample_shape, batch)
        if len(draws) < 2:
            return replace(choice, raw=draws[0][1]) if draws else choice
        terms = torch.arange(len(self.maps), device=self.columns.device)
        every = terms.expand(*choice.raw.shape[:-1], -1)
        per_term = [(marginal, z.unsqueeze(-2)) for marginal, z in draws]
        return replace(choice, raw=self._raw(per_term, every), per_term=True)

    def _choice(self, batch: Size) -> Choice:
        """The choice among the terms for a batch, with raw values 0."""
        given = _expanded(self.given, batch)
        feasible = _expanded(self.feasible, batch)
        inputs = _expanded(self.inputs, batch)
        raw = self._zeros(batch)
        return Choice(
            self.maps, raw, given, self.columns, feasible, inputs, self.functions
        )

    def _draws(self, sample_shape: Size, batch: Size) -> list[tuple[Marginal, Tensor]]:
        return [
            (marginal, self._placed(marginal, marginal.rsample(sample_shape, batch)))
            for marginal in self.marginals
        ]

    def _placed(self, marginal: Marginal, z: Tensor) -> Tensor:
        """Values of a marginal among all raw values of the block; 0 where its terms read nothing."""
        raw = self._zeros(z.shape[:-1])
        return raw.index_copy(-1, marginal.columns, z.to(raw.dtype))

    def _raw(self, values: Sequence[tuple[Marginal, Tensor]], index: Tensor) -> Tensor:
        """For each row, or each row and term, the raw values of the marginal of that term."""
        raw = self._zeros(index.shape)
        for marginal, z in values:
            raw = torch.where(torch.isin(index, marginal.terms).unsqueeze(-1), z, raw)
        return raw

    def _zeros(self, batch: Size) -> Tensor:
        return torch.zeros(
            *batch,
            self.columns.numel(),
            dtype=self.maps.dtype,
            device=self.columns.device,
        )


def _expanded(table: Tensor | None, batch: Size) -> Tensor | None:
    return None if table is None else table.expand(*batch, -1)


def _rows(table: Tensor) -> Tensor:
    """The table with a single batch axis, whatever the number of its batch axes and rows."""
    rows = table.shape[:-1].numel()
    return table.reshape(rows, table.shape[-1])


def _factors(
    mux: Multiplexer, base: Any, logits: Tensor, inputs: Tensor | None
) -> Iterator[_Factor]:
    blocks = list(mux.term_parts())
    sizes = [len(maps) for _, maps in blocks]
    if not blocks:
        return
    shared = not isinstance(base, Sequence)
    each = zip(blocks, bases_of(base, sizes), _logits(logits, sizes), strict=True)
    for (block, maps), bases, given in each:
        own = [mux.compiled.outputs.index(variable) for variable in block.outputs]
        columns = torch.tensor(own, device=mux.device)
        feasible = (
            None if inputs is None else maps.feasible(inputs, functions=mux.functions)
        )
        reads = maps.reads(inputs=inputs, functions=mux.functions)
        places = columns if shared else torch.arange(len(own), device=mux.device)
        whole = mux.out_features if shared else len(own)
        marginals = tuple(marginals_of(bases, reads, places, whole))
        yield _Factor(
            maps,
            columns,
            given,
            feasible,
            marginals,
            reads.sum(-1),
            inputs,
            mux.functions,
        )


def _split(mux: Multiplexer, logits: Tensor) -> tuple[Tensor, list[Tensor | None]]:
    """The logits of the blocks, and of every cascade that has any."""
    options = [maps.in_logits for _, maps in mux.cascade_parts()]
    if not options:
        return logits, []
    terms = sum(_choices([len(maps) for _, maps in mux.term_parts()]))
    wanted = terms + sum(options)
    if logits.dim() == 0 or logits.shape[-1] != wanted:
        raise ShapeError(
            f"logits have shape {tuple(logits.shape)}; their last dimension must be {wanted}: {terms} of terms, then "
            f"{' + '.join(map(str, options))} of options"
        )
    blocks, *own = logits.split_with_sizes([terms, *options], -1)
    return blocks, [part if part.shape[-1] else None for part in own]


def _cascades(
    mux: Multiplexer, base: Any, logits: Sequence[Tensor | None], inputs: Tensor | None
) -> Iterator[CascadeFactor]:
    for (columns, maps), own in zip(mux.cascade_parts(), logits, strict=True):
        if inputs is not None and (known := maps.known(inputs)):
            refused = maps.refused(known).reshape(inputs.shape[:-1])
            refuse_stuck(
                refused, known, maps.cascade, mux.rules.specification, mux.dtype
            )
        yield CascadeFactor.of(maps, columns, base, mux.out_features, own, inputs)


def _possible(
    mux: Multiplexer, given: Tensor | None, factors: tuple[_Factor, ...]
) -> tuple[_Factor, ...]:
    """The factors, once every row is known to have terms; without terms in rows of which that cannot be known."""
    if given is None or not factors:
        return factors
    lost = refuse_roomless(
        given, [factor.feasible for factor in factors], mux.compiled.inputs, mux.dtype
    )
    return (
        factors if lost is None else tuple(factor.without(lost) for factor in factors)
    )


def _choices(sizes: Sequence[int]) -> list[int]:
    """For every block how many logits it has; with a single term there is nothing to choose."""
    return [size if size > 1 else 0 for size in sizes]


def _uniform(mux: Multiplexer) -> Tensor:
    """Logits with which all terms of a block are equally likely."""
    sizes = [len(maps) for _, maps in mux.term_parts()]
    options = sum(maps.in_logits for _, maps in mux.cascade_parts())
    return torch.zeros(
        sum(_choices(sizes)) + options, dtype=mux.dtype, device=mux.device
    )


def _logits(logits: Tensor, sizes: Sequence[int]) -> list[Tensor | None]:
    """For every block the logits of its choice, if there is one."""
    wanted = _choices(sizes)
    if logits.dim() == 0 or logits.shape[-1] != sum(wanted):
        of = " + ".join(str(size) for size in wanted if size) or "there is no choice"
        raise ShapeError(
            f"logits have shape {tuple(logits.shape)}; their last dimension must be {sum(wanted)} ({of})"
        )
    pieces = logits.split_with_sizes(wanted, -1)
    return [
        piece if size > 1 else None for size, piece in zip(sizes, pieces, strict=True)
    ]


def _shape_of(value: Any, name: str) -> tuple[int, ...]:
    """The shape of what was given for an input: a tensor, or numbers of any kind."""
    return (
        tuple(value.shape)
        if isinstance(value, Tensor)
        else numbers_of(value, name).shape
    )
