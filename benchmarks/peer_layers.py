"""The peers, each as a torch module from raw values to outputs, built the way its own documentation says.

A peer says in words what it cannot express, and is not asked for it. What is particular to each:

* ``torch.distributions``: ``transform_to`` of a constraint, torch's own way from R^n onto a set.
* ``rayen`` (``method="RAYEN"``, no mapper: the network's last layer is ours). Its import of ``cdd`` needs headers that
  most machines lack and serves another method (``"Bar"``): an empty module stands in for it.
* ``pishield``: its text format, linear requirements, variables in their order. An input becomes a first variable that
  nothing corrects. ``qflra`` is measured where the installed release has it.
* ``cvxpylayers`` and ``qpth`` project onto the set: minimise |y - raw|² subject to its rows, in float64 as in their
  examples, with their default settings. ``cvxpylayers 1e-8`` has the tolerance that its documentation proposes for SCS.
"""

from __future__ import annotations

import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import torch
from peer_sets import All, Any_, Atom, Cone, Formula, Set
from torch import Tensor, nn
from torch.distributions import constraints, transform_to

from multiplexnet.layer.branches import Branches
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules

__all__ = ["PEERS", "Layer", "Peer"]


class Layer(nn.Module, ABC):
    """Raw values ``(B, in_features)``, and the input of the set if it has one, to outputs ``(B, D)``."""

    in_features: int
    is_marginal = False
    """Whether ``objective`` is a sum over branches."""

    @abstractmethod
    def forward(self, raw: Tensor, *limit: Tensor) -> Tensor:
        """The outputs."""

    def objective(self, raw: Tensor, weights: Tensor, *limit: Tensor) -> Tensor:
        """What is differentiated in training: a weighted sum of the outputs, one value per row."""
        x: Tensor = self(raw, *limit)
        return (x * weights).sum(-1)


class Peer(ABC):
    """A library that may have a layer for a set."""

    name: str
    package: str
    dtype: torch.dtype = torch.float32
    own_module = True  # otherwise its behaviour as a module is that of another one here

    @property
    def version(self) -> str:
        """Of the installed package."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return "not installed"

    def modules(self) -> None:
        """Imports what the layer needs, so that set-up time is that of the layer."""
        import_module(self.package)

    @abstractmethod
    def cannot(self, given: Set) -> str:
        """Why the set is beyond it; empty if it is not."""

    @abstractmethod
    def build(self, given: Set) -> Layer:
        """The layer of the set."""


def not_convex(given: Set) -> str:
    if given.whole:
        return "no whole numbers"
    return "" if given.is_convex else "no «or»: convex sets only"


def curved(given: Set) -> str:
    return "no curved sets" if given.cones else ""


# --- multiplexnet ---------------------------------------------------------------------------------------------------


class Multiplexed(Layer):
    """The best branch; in training all branches, marginalised."""

    def __init__(self, given: Set, dtype: torch.dtype) -> None:
        super().__init__()
        self.mux = Multiplexer(Rules(given.rules), dtype=dtype, seconds=None)
        self.in_features = self.mux.in_features
        self.is_marginal = not self.mux.cascades

    def forward(self, raw: Tensor, *limit: Tensor) -> Tensor:
        """The best branch."""
        return self._branches(raw, *limit).best()

    def objective(self, raw: Tensor, weights: Tensor, *limit: Tensor) -> Tensor:
        """Eq. 9 of the paper; without a choice, or one output after another, it is the weighted sum itself."""
        if not self.is_marginal or len(self.mux.terms) == len(self.mux.blocks):
            return super().objective(raw, weights, *limit)
        return self._branches(raw, *limit).loss(lambda x: x * weights.unsqueeze(-2))

    def _branches(self, raw: Tensor, *limit: Tensor) -> Branches:
        return cast(Branches, self.mux(raw, **({"limit": limit[0]} if limit else {})))


class MultiplexNet(Peer):
    """This library."""

    name = package = "multiplexnet"

    def cannot(self, given: Set) -> str:
        """Nothing here."""
        return ""

    def build(self, given: Set) -> Layer:
        """From the text of the rules."""
        return Multiplexed(given, self.dtype)


# --- torch.distributions --------------------------------------------------------------------------------------------


class Transformed(Layer):
    """``transform_to`` of a constraint, which may depend on the input."""

    def __init__(self, width: int, constraint: Callable[..., Any]) -> None:
        super().__init__()
        self.in_features = width
        self.constraint = constraint

    def forward(self, raw: Tensor, *limit: Tensor) -> Tensor:
        """The transform of torch's registry."""
        return cast(Tensor, transform_to(self.constraint(*limit))(raw))


def _interval() -> Any:
    return constraints.interval(-0.1, 3.3)  # type: ignore[no-untyped-call]


def _simplex() -> Any:
    return constraints.simplex


def _up_to(limit: Tensor) -> Any:
    return constraints.interval(0.0, limit.unsqueeze(-1))  # type: ignore[no-untyped-call]


class TorchDistributions(Peer):
    """Boxes and the simplex."""

    name = "torch.distributions"
    package = "torch"
    known: dict[str, Callable[..., Any]] = {  # noqa: RUF012
        "box 10": _interval, "simplex 10": _simplex, "bound from input": _up_to,
    }  # fmt: skip

    def cannot(self, given: Set) -> str:
        """What is not on the menu."""
        return (
            ""
            if given.name in self.known
            else not_convex(given)
            or curved(given)
            or "no transform for rows that couple outputs"
        )

    def build(self, given: Set) -> Layer:
        """From the registry."""
        return Transformed(given.width, self.known[given.name])


# --- RAYEN ----------------------------------------------------------------------------------------------------------


class Rays(Layer):
    """RAYEN's module without its mapper."""

    def __init__(self, given: Set) -> None:
        super().__init__()
        constraints_of = import_module("rayen.constraints")
        a, b = given.matrices("<= <")
        e, f = given.matrices("==")
        equalities = (e, f[:, None]) if len(e) else (None, None)
        linear = None
        if given.rows:
            linear = constraints_of.LinearConstraint(a, b[:, None], *equalities)
        cones = [
            constraints_of.SOCConstraint(m, s[:, None], c[:, None], np.array([[d]]))
            for m, s, c, d in given.curves()
            if c.any()
        ]
        balls = [  # |M x + s|² ≤ d², which it takes by its quadratic constraints alone
            constraints_of.ConvexQuadraticConstraint(
                2 * m.T @ m, 2 * m.T @ s[:, None], np.array([[s @ s - d * d]])
            )
            for m, s, c, d in given.curves()
            if not c.any()
        ]
        convex = constraints_of.ConvexConstraints(lc=linear, qcs=balls, socs=cones)
        self.module = import_module("rayen.constraint_module").ConstraintModule(
            convex, create_map=False
        )
        self.in_features = self.module.getDimAfterMap()

    def forward(self, raw: Tensor, *limit: Tensor) -> Tensor:
        """Without the column that RAYEN adds."""
        return cast(Tensor, self.module(raw)).squeeze(-1)


class Rayen(Peer):
    """Convex sets that are known at set-up."""

    name = package = "rayen"

    def modules(self) -> None:
        """With an empty module in the place of ``cdd``."""
        sys.modules.setdefault("cdd", ModuleType("cdd"))
        import_module("rayen.constraint_module")
        import_module("rayen.constraints")

    def cannot(self, given: Set) -> str:
        """Unions, whole numbers, inputs."""
        return not_convex(given) or (
            "bounds are fixed at set-up" if given.limits else ""
        )

    def build(self, given: Set) -> Layer:
        """From matrices."""
        return Rays(given)


# --- PiShield -------------------------------------------------------------------------------------------------------


class Shielded(Layer):
    """PiShield's layer; an input of the set is a first variable, cut off again."""

    def __init__(self, given: Set, kind: str) -> None:
        super().__init__()
        self.in_features = given.width
        self.shift = 1 if given.limits else 0
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "requirements.txt"
            path.write_text(requirements(given))
            build = import_module("pishield.shield_layer").build_shield_layer
            self.layer = build(
                given.width + self.shift, str(path), requirements_type=kind
            )

    def forward(self, raw: Tensor, *limit: Tensor) -> Tensor:
        """Corrected from variable to variable."""
        given = torch.cat([limit[0].unsqueeze(-1), raw], -1) if limit else raw
        return cast(Tensor, self.layer(given))[..., self.shift :]


def requirements(given: Set) -> str:
    """The set in PiShield's text format, one clause a line."""
    shift = 1 if given.limits else 0
    ordering = "ordering " + " ".join(f"y_{i}" for i in range(given.width + shift))
    return "\n".join(
        [ordering, *(_clause(part, shift) for part in clauses(given.formula))]
    )


def clauses(formula: Formula) -> list[Formula]:
    """The formula as a conjunction; a union of boxes by distribution."""
    if isinstance(formula, All):
        return [clause for part in formula.parts for clause in clauses(part)]
    if isinstance(formula, Any_) and any(
        isinstance(part, All) for part in formula.parts
    ):
        found: list[tuple[Formula, ...]] = [()]
        for part in formula.parts:
            found = [(*old, new) for old in found for new in clauses(part)]
        return [Any_(parts) for parts in found]
    return [formula]


def _clause(formula: Formula, shift: int) -> str:
    if isinstance(formula, Atom):
        if formula.relation == "==":
            below = Atom(formula.coefficients, "<=", formula.bound)
            above = _opposite(formula)
            return f"{_clause(below, shift)}\n{_clause(above, shift)}"
        terms = [(i + shift, -c) for i, c in formula.coefficients] + (
            [(0, formula.slope)] if formula.slope else []
        )
        left = " ".join(
            f"{'-' if c < 0 else '+'} {_digits(abs(c))}y_{i}" for i, c in terms
        )
        return (
            f"{left} {'>' if formula.relation == '<' else '>='} {float(-formula.bound)}"
        )
    assert not isinstance(formula, Cone)
    return " or ".join(_clause(part, shift) for part in formula.parts)


def _digits(value: Any) -> str:
    return "" if value == 1 else f"{float(value)}"


def _opposite(given: Atom) -> Atom:
    return Atom(tuple((i, -c) for i, c in given.coefficients), "<=", -given.bound)


class PiShield(Peer):
    """Linear requirements."""

    name = "pishield"
    package = "pishield"
    kind = "linear"

    def modules(self) -> None:
        """The builder."""
        import_module("pishield.shield_layer")

    def cannot(self, given: Set) -> str:
        """Whole numbers; the union of boxes. It accepts the rule file with «or», which is therefore measured."""
        if given.name == "heloc rules":
            return ""
        return not_convex(given) or curved(given)

    def build(self, given: Set) -> Layer:
        """From a text file."""
        return Shielded(given, self.kind)


class PiShieldQflra(PiShield):
    """Clauses of linear atoms."""

    name = "pishield qflra"
    kind = "qflra"

    def cannot(self, given: Set) -> str:
        """All, if the release lacks the mode."""
        try:
            import_module("pishield.qflra_requirements")
        except ImportError:
            return f"not in release {self.version}"
        return "no whole numbers" if given.whole else curved(given)


# --- solvers --------------------------------------------------------------------------------------------------------


class Projected(Layer):
    """A convex program of cvxpylayers."""

    def __init__(self, given: Set, settings: dict[str, Any]) -> None:
        super().__init__()
        cp = import_module("cvxpy")
        layers = import_module("cvxpylayers.torch")
        y = cp.Variable(given.width)
        raw = cp.Parameter(given.width)
        parameters, (a, b), (e, f) = [raw], given.matrices("<= <"), given.matrices("==")
        if given.limits:
            limit = cp.Parameter(1)
            parameters.append(limit)
            rows = [a @ y <= b + given.slopes()[:, None] @ limit]
        else:
            rows = [a @ y <= b]
        rows = rows if given.rows else []
        rows += [e @ y == f] if len(e) else []
        rows += [cp.norm(m @ y + s) <= c @ y + d for m, s, c, d in given.curves()]
        problem = cp.Problem(cp.Minimize(cp.sum_squares(y - raw)), rows)
        self.layer = layers.CvxpyLayer(
            problem, parameters=parameters, variables=[y], solver_args=settings
        )
        self.in_features = given.width

    def forward(self, raw: Tensor, *limit: Tensor) -> Tensor:
        """The solution."""
        (x,) = self.layer(raw, *(value.unsqueeze(-1) for value in limit))
        return cast(Tensor, x)


class CvxpyLayers(Peer):
    """Convex programs with parameters."""

    name = package = "cvxpylayers"
    dtype = torch.float64
    settings: dict[str, Any] = {}  # noqa: RUF012

    def modules(self) -> None:
        """Two of them."""
        import_module("cvxpy")
        import_module("cvxpylayers.torch")

    def cannot(self, given: Set) -> str:
        """Unions and whole numbers."""
        return not_convex(given)

    def build(self, given: Set) -> Layer:
        """With the default solver."""
        return Projected(given, self.settings)


class CvxpyLayersTight(CvxpyLayers):
    """The same with a tolerance of 1e-8."""

    name = "cvxpylayers 1e-8"
    own_module = False
    settings = {"eps": 1e-8, "max_iters": 10000, "acceleration_lookback": 0}  # noqa: RUF012


class Quadratic(Layer):
    """A quadratic program of qpth."""

    slopes: Tensor | None

    def __init__(self, given: Set) -> None:
        super().__init__()
        for name, value in zip(
            "abef", [*given.matrices("<= <"), *given.matrices("==")], strict=True
        ):
            self.register_buffer(name, torch.from_numpy(value))
        self.register_buffer(
            "slopes", torch.from_numpy(given.slopes()) if given.limits else None
        )
        self.register_buffer("eye", torch.eye(given.width, dtype=torch.float64))
        self.solve = import_module("qpth.qp").QPFunction(verbose=-1)
        self.in_features = given.width

    def forward(self, raw: Tensor, *limit: Tensor) -> Tensor:
        """The solution."""
        h = cast(Tensor, self.b)
        if limit and self.slopes is not None:
            h = h + self.slopes * limit[0].unsqueeze(-1)
        e = cast(Tensor, self.e)
        equalities = (e, self.f) if len(e) else (raw.new_empty(0), raw.new_empty(0))
        return cast(Tensor, self.solve(self.eye, -raw, self.a, h, *equalities))


class Qpth(Peer):
    """Quadratic programs, batched."""

    name = package = "qpth"
    dtype = torch.float64

    def modules(self) -> None:
        """The function."""
        import_module("qpth.qp")

    def cannot(self, given: Set) -> str:
        """Unions, whole numbers, cones."""
        return not_convex(given) or curved(given)

    def build(self, given: Set) -> Layer:
        """With the default settings."""
        return Quadratic(given)


PEERS: tuple[Peer, ...] = (
    MultiplexNet(),
    TorchDistributions(),
    Rayen(),
    PiShield(),
    PiShieldQflra(),
    CvxpyLayers(),
    CvxpyLayersTight(),
    Qpth(),
)
