"""One contract for all transforms: exactly inside for any raw value, invertible, with determinant and gradients."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, lcm, nan
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from multiplexnet import Multiplexer, Rules
from multiplexnet.compiler.terms import Term
from multiplexnet.exact.formats import FORMATS as EXACT_FORMATS
from multiplexnet.geometry.parts import (
    Bound,
    Box,
    Lattice,
    OutputBounds,
    Parametric,
    Part,
    Polyhedron,
)
from multiplexnet.geometry.split import parts_of
from multiplexnet.language.formula import Apply, Atom, Linear, Relation, Variable
from multiplexnet.transforms import (
    DTYPES,
    Gauge,
    LatticeGauge,
    PaperSeparable,
    Separable,
    TermMaps,
    Transform,
)
from multiplexnet.transforms import gauge as gauge_module

Row = tuple[Sequence[float | Fraction | int], Relation, float | Fraction | int]


Number = Fraction | float


def exact(numbers: Sequence[Number]) -> tuple[Fraction, ...]:
    return tuple(Fraction(number) for number in numbers)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# --- the sets --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One term as rows ``(coefficients of outputs and then of inputs, relation, bound)``."""

    name: str
    rows: tuple[Row, ...]
    n: int
    inputs: int = 0
    dtypes: tuple[torch.dtype, ...] = DTYPES
    boxes: Callable[[Sequence[Box], torch.dtype], Transform] = Separable
    parametric: Parametric | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def outputs(self) -> tuple[Variable, ...]:
        return tuple(Variable(f"x[{j}]", j) for j in range(self.n))

    @property
    def input_variables(self) -> tuple[Variable, ...]:
        return tuple(
            Variable(f"u[{j}]", self.n + j, role="input") for j in range(self.inputs)
        )

    def parts(self, dtype: torch.dtype) -> tuple[Part, ...]:
        if self.parametric is not None:
            return (self.parametric,)
        atoms = [
            Atom(
                Linear.total(
                    dict(zip(self.outputs, exact(a), strict=True)), -Fraction(b)
                ),
                relation,
            )
            for a, relation, b in self.rows
        ]
        return parts_of(Term(tuple(atoms)), self.outputs, name_of(dtype))

    def maps(self, dtype: torch.dtype) -> TermMaps:
        return TermMaps(
            [self.parts(dtype)],
            self.outputs,
            dtype,
            inputs=self.input_variables,
            boxes=self.boxes,
        )

    def known(self, count: int, dtype: torch.dtype) -> Tensor | None:
        """Inputs that leave room: u in [6, 9], v = u + 3."""
        if not self.inputs:
            return None
        u = 6 + 3 * torch.rand(count, 1)
        return torch.cat([u, u + 3], -1)[:, : self.inputs].to(dtype)


def unit(n: int, j: int, value: int = 1) -> list[int]:
    return [value if i == j else 0 for i in range(n)]


def chain(n: int, gap: float | Fraction = 0) -> tuple[Row, ...]:
    return tuple(
        ([int(i == j) - int(i == j + 1) for i in range(n)], "<", -Fraction(gap))
        for j in range(n - 1)
    )


def polytope(n: int, m: int) -> tuple[Row, ...]:
    rng = np.random.default_rng(n)
    A = rng.integers(-9, 10, (m, n))
    bounded = [(unit(n, j, s), "<=", 20) for j in range(n) for s in (-1, 1)]
    return tuple((a.tolist(), "<", int(abs(a).sum()) + 3) for a in A) + tuple(bounded)


def diamond(centre: int, narrow: Number, wide: Number) -> tuple[Row, ...]:
    """``|x + y − centre| < narrow``, ``|x − y| < wide``."""
    sums: list[Row] = [([s, s], "<", s * centre + Fraction(narrow)) for s in (1, -1)]
    return (*sums, ([1, -1], "<", wide), ([-1, 1], "<", wide))


def simplex(n: int) -> tuple[Row, ...]:
    return (([1] * n, "==", 1), *((unit(n, j, -1), "<=", 0) for j in range(n)))


def between(
    lower: float | Fraction | None,
    upper: float | Fraction | None,
    relation: Relation = "<",
) -> tuple[Row, ...]:
    rows: list[Row] = []
    rows += [([-1], relation, -Fraction(lower))] if lower is not None else []
    rows += [([1], relation, Fraction(upper))] if upper is not None else []
    return tuple(rows)


ONE, ZERO = Fraction(1), Fraction(0)
WIDE = (torch.float64, torch.float32)
TENTH = Fraction(1, 10)


def parametric(
    n: int, rows: Sequence[Row], steps: Sequence[OutputBounds]
) -> Parametric:
    inputs = len(rows[0][0]) - n
    case = Case("", (), n, inputs)
    return Parametric(
        case.outputs,
        case.input_variables,
        tuple(exact(a[:n]) for a, _, _ in rows),
        tuple(exact(a[n:]) for a, _, _ in rows),
        tuple(Fraction(b) for _, _, b in rows),
        tuple(relation == "<" for _, relation, _ in rows),
        tuple(steps),
        (),
    )


def bound(outputs: Sequence[int], inputs: Sequence[int], constant: int) -> Bound:
    return Bound(exact(outputs), exact(inputs), Fraction(constant), True)


def known_at_run_time() -> list[Case]:
    above: tuple[Row, ...] = (
        ([-3, 2], "<", -1),
        ([-1, 1], "<=", 0),
    )  # x > (2u + 1)/3, x ≥ u
    above_step = OutputBounds(
        (Bound((), (Fraction(2, 3),), Fraction(1, 3), True), bound((), (1,), 0)), ()
    )
    below: tuple[Row, ...] = (([10, -1], "<", 0),)
    below_step = OutputBounds((), (Bound((), (TENTH,), ZERO, True),))
    inside: tuple[Row, ...] = (([-1, 1, 0], "<", 0), ([1, 0, -1], "<=", 0))
    inside_step = OutputBounds((bound((), (1, 0), 0),), (bound((), (0, 1), 0),))
    pair: tuple[Row, ...] = (
        ([1, -1, 0], "<", -2),
        ([0, 1, -1], "<", 0),
        ([-1, 0, -1], "<=", 0),
    )
    pair_steps = (
        OutputBounds((bound((), (-1,), 0),), (bound((), (1,), -2),)),
        OutputBounds((bound((1,), (0,), 2),), (bound((0,), (1,), 0),)),
    )
    open_pair: tuple[Row, ...] = (([1, -1, 0], "<", -2), ([0, -1, 1], "<", 0))
    open_steps = (
        OutputBounds((), ()),
        OutputBounds((bound((1,), (0,), 2), bound((0,), (1,), 0)), ()),
    )
    box: tuple[Row, ...] = (
        ([-1, 0, 0, 1, 0], "<", 0),
        ([1, 0, 0, 0, -1], "<=", 0),
        ([0, -3, 0, 2, 0], "<", -1),
        ([0, 0, 10, 0, -1], "<", 0),
    )
    box_steps = (
        OutputBounds((bound((), (1, 0), 0),), (Bound((), (ZERO, ONE), ZERO, False),)),
        OutputBounds(
            (Bound((ZERO,), (Fraction(2, 3), ZERO), Fraction(1, 3), True),), ()
        ),
        OutputBounds((), (Bound((ZERO, ZERO), (ZERO, TENTH), ZERO, True),)),
    )
    return [
        Case("a box of inputs", box, 3, 2, parametric=parametric(3, box, box_steps)),
        Case(
            "above an input", above, 1, 1, parametric=parametric(1, above, [above_step])
        ),
        Case(
            "below an input", below, 1, 1, parametric=parametric(1, below, [below_step])
        ),
        Case(
            "between inputs",
            inside,
            1,
            2,
            parametric=parametric(1, inside, [inside_step]),
        ),
        Case(
            "a pair below an input",
            pair,
            2,
            1,
            parametric=parametric(2, pair, pair_steps),
        ),
        Case(
            "an open pair",
            open_pair,
            2,
            1,
            parametric=parametric(2, open_pair, open_steps),
        ),
    ]


BOXES = [
    Case("free", (), 2),
    Case("above", between(2, None), 1),
    Case("below", between(None, -2, "<="), 1),
    Case("unit interval", between(0, 1), 1),
    Case("decimal interval", between(TENTH, Fraction(7, 10)), 1),
    Case("closed interval", between(-3, 5, "<="), 1),
    Case("narrow interval", between(1, 1 + 2.0**-7, "<="), 1),
    Case("narrow, far away", between(10**6, 10**6 + 1, "<="), 1, dtypes=WIDE),
    Case("the whole of float16", between(-60000, 60000), 1),
    Case("wider than float32", between(Fraction(-(10**38) * 3), Fraction(10**38 * 3)), 1, dtypes=WIDE),
    Case("from the end of float16", between(65000, None), 1),
    Case("tiny numbers", between(0, Fraction(1, 10**6)), 1),
    Case("constant", (([1], "==", 3),), 1),
    Case("mixed", ((unit(5, 0), "<", 1), (unit(5, 0, -1), "<", 0), (unit(5, 1), "<", TENTH), (unit(5, 2, -1), "<=", 7),
                   (unit(5, 3), "==", 2)), 5),
]  # fmt: skip
POLYHEDRA = [
    Case("half-plane", (([1, -1], "<", -2),), 2),
    Case("x > y + 2, x < 5", (([-1, 1], "<", -2), ([1, 0], "<", 5)), 2),
    Case("chain", chain(6), 6),
    Case("chain with gaps", chain(4, TENTH), 4),
    Case("cone", (([-1, 1, 1], "<=", 0), ([0, -1, 0], "<=", 0), ([0, 0, -1], "<=", 0)), 3),
    Case("triangle", (([1, 1], "<=", 1), ([-1, 0], "<", 0), ([0, -1], "<", 0)), 2),
    Case("polytope 3", polytope(3, 9), 3),
    Case("polytope 10", polytope(10, 30), 10),
    Case("thirds", (([3, 1], "<", 1), ([-3, 1], "<", 1), ([1, -7], "<", TENTH)), 2),
    Case("thin wedge", (([-1, 1], "<", 0), ([1, Fraction(-101, 100)], "<", 0), ([0, -1], "<=", -1)), 2, dtypes=WIDE),
    Case("far away", diamond(2 * 10**6, 1, 1), 2, dtypes=WIDE),
    Case("narrow", diamond(0, TENTH**6, 1), 2),
    Case("narrow, away", diamond(3, TENTH**6, 1), 2, dtypes=WIDE[:1]),
    Case("scales apart", (([1, 1000000], "<", 10**6), ([-1, -1000000], "<", 10**6), ([1, -1000000], "<", 10**6),
                          ([-1, 1000000], "<", 10**6)), 2, dtypes=WIDE),
]  # fmt: skip
LATTICES = [
    Case("simplex 3", simplex(3), 3),
    Case("simplex 10", simplex(10), 10),
    Case("zero sum", (([1, 1, 1], "==", 0),), 3),
    Case("line", (([1, 1], "==", 1), ([-1, 0], "<", 0), ([0, -1], "<", 0)), 2),
    Case(
        "two equalities",
        (([1, 1, 1, 1], "==", 2), ([1, -1, 0, 0], "==", 0), ([-1, 0, 0, 0], "<=", 0)),
        4,
    ),
    Case("mean", (([1, 1, -2], "==", 0), ([1, 0, 0], "<", 3), ([0, -1, 0], "<", 4)), 3),
]
PARAMETRIC = known_at_run_time()
PAPER = [
    replace(case, name=f"paper: {case.name}", boxes=PaperSeparable) for case in BOXES
]
CASES = [*BOXES, *PAPER, *POLYHEDRA, *LATTICES, *PARAMETRIC]
EACH = [
    pytest.param(c, d, id=f"{c.name}-{name_of(d)}")
    for c in CASES
    for d in DTYPES
    if d in c.dtypes
]
SMOOTH = [
    c
    for c in CASES
    if c not in LATTICES
    and "constant" not in c.name
    and "mixed" not in c.name
    and "wider" not in c.name
]

# --- the exact verdict -----------------------------------------------------------------------------------------------


def broken(rows: Sequence[Row], values: Tensor) -> int:
    """How many rows of ``values``, read as rational numbers, break some row; integer arithmetic throughout."""
    system = []
    for a, relation, b in rows:
        numbers = [Fraction(c) for c in (*a, b)]
        scale = lcm(*(c.denominator for c in numbers))
        *left, right = (int(c * scale) for c in numbers)
        system.append((left, relation, right))
    return sum(
        _breaks(system, point)
        for point in values.detach().double().reshape(-1, values.shape[-1]).tolist()
    )


def _breaks(
    system: Sequence[tuple[list[int], Relation, int]], point: Sequence[float]
) -> bool:
    if any(v != v or abs(v) == inf for v in point):
        return True
    ratios = [v.as_integer_ratio() for v in point]
    scale = max(d for _, d in ratios)
    integers = [n * (scale // d) for n, d in ratios]
    for a, relation, b in system:
        difference = (
            sum(c * v for c, v in zip(a, integers, strict=True) if c) - b * scale
        )
        if (
            difference > 0
            if relation == "<="
            else difference >= 0
            if relation == "<"
            else difference != 0
        ):
            return True
    return False


def raws(n: int, dtype: torch.dtype, *, count: int = 24) -> Tensor:
    """Raw values of every size: N(0, 1), N(0, 30), ±1e4, ±1e30, ±inf, subnormal, 0, and all of them mixed."""
    z = torch.randn(count, n, dtype=torch.float64)
    sign, tiny = z.sign(), torch.finfo(dtype).smallest_normal / 4
    scales = [
        z,
        30 * z,
        30 * torch.randn(2 * count, n),
        1e4 * sign,
        1e30 * sign,
        1e30 * z,
        inf * sign,
        tiny * sign,
        0 * z,
    ]
    pool = torch.cat(scales)
    mixed = torch.gather(pool, 0, torch.randint(len(pool), (2 * count, n)))
    return torch.cat([pool, mixed]).clamp(-inf, inf).to(dtype)


def checked(case: Case, x: Tensor, u: Tensor | None) -> int:
    return broken(
        case.rows,
        x if u is None else torch.cat([x, u.expand(*x.shape[:-1], u.shape[-1])], -1),
    )


# --- the contract ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "dtype"), EACH)
def test_lands_inside(case: Case, dtype: torch.dtype) -> None:
    raw, maps = raws(case.n, dtype), case.maps(dtype)
    u = case.known(len(raw), dtype)
    x = maps(raw, inputs=u)
    assert x.shape == (len(raw), 1, case.n)
    assert x.dtype == dtype
    assert checked(case, x.squeeze(-2), u) == 0
    chosen = maps(raw, torch.zeros(len(raw), dtype=torch.int64), inputs=u)
    assert torch.equal(chosen, x.squeeze(-2))
    feasible = maps.feasible(u)
    assert (
        feasible is None if u is None else feasible is not None and bool(feasible.all())
    )


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)], ids=str)
def test_any_batch_shape(case: Case, shape: tuple[int, ...]) -> None:
    maps, count = case.maps(torch.float32), int(np.prod(shape))
    raw = torch.randn(*shape, case.n)
    u = case.known(count, torch.float32)
    u = None if u is None else u.reshape(*shape, case.inputs)
    x = maps(raw, inputs=u)
    assert x.shape == (*shape, 1, case.n)
    assert maps(raw, torch.zeros(shape, dtype=torch.int64), inputs=u).shape == (
        *shape,
        case.n,
    )
    value, log_det = maps.forward_and_log_det(raw, inputs=u)
    assert torch.equal(value, x)
    assert log_det.shape == (*shape, 1)
    assert maps.inverse(x.squeeze(-2), inputs=u).shape == x.shape


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_inverts(case: Case) -> None:
    maps, raw = case.maps(torch.float64), torch.randn(50, case.n, dtype=torch.float64)
    u = case.known(50, torch.float64)
    x = maps(raw, inputs=u)
    back = maps.inverse(x.squeeze(-2), inputs=u).squeeze(-2)
    again = maps(back, inputs=u)
    scale = (
        x.abs().max()
        if "far" in case.name or "narrow" in case.name or "tiny" in case.name
        else 1.0
    )
    torch.testing.assert_close(again, x, rtol=1e-9, atol=1e-9 * float(scale))
    if not any(word in case.name for word in ("far", "narrow", "tiny", "end")):
        torch.testing.assert_close(back, raw, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_log_determinant_agrees_with_autograd(case: Case) -> None:
    maps, raw = case.maps(torch.float64), torch.randn(5, case.n, dtype=torch.float64)
    u = case.known(5, torch.float64)
    log_det = maps.forward_and_log_det(raw, inputs=u)[1].squeeze(-1)
    for i in range(len(raw)):
        own = None if u is None else u[i]
        J = torch.autograd.functional.jacobian(
            lambda z, own=own: maps(z, inputs=own).squeeze(-2), raw[i]
        )  # type: ignore[no-untyped-call]
        torch.testing.assert_close(
            log_det[i], torch.linalg.slogdet(J)[1], rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("case", LATTICES, ids=str)
def test_log_determinant_of_lattice_coordinates(case: Case) -> None:
    (part,) = case.parts(torch.float64)
    assert isinstance(part, Lattice)
    transform = LatticeGauge([part], torch.float64)
    basis = torch.tensor(part.basis, dtype=torch.float64)
    raw = torch.randn(case.n, dtype=torch.float64)
    J = torch.autograd.functional.jacobian(lambda z: transform(z[None])[0], raw)  # type: ignore[no-untyped-call]
    read = [j for j in range(case.n) if J[:, j].any()]
    assert len(read) == basis.shape[1]
    expected = torch.linalg.slogdet(torch.linalg.pinv(basis) @ J[:, read])[1]
    torch.testing.assert_close(
        transform.log_abs_det_jacobian(raw[None])[0], expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(("case", "dtype"), EACH)
def test_gradients_are_finite_and_do_not_die(case: Case, dtype: torch.dtype) -> None:
    maps = case.maps(dtype)
    extreme = raws(case.n, dtype).requires_grad_()
    x = maps(extreme, inputs=case.known(len(extreme), dtype))
    (gradient,) = torch.autograd.grad(x.double().mean(), extreme)
    assert gradient.isfinite().all()
    wide = (10 * torch.randn(200, case.n)).to(dtype).requires_grad_()
    x = maps(wide, inputs=case.known(200, dtype)).squeeze(-2)
    (gradient,) = torch.autograd.grad((x * torch.randn_like(x)).sum(), wide)
    is_point = "constant" in case.name
    too_small = dtype == torch.float16 and (
        "narrow" in case.name or "tiny" in case.name
    )  # for the gradient itself
    assert is_point or too_small or bool((gradient != 0).any(-1).all())


@pytest.mark.parametrize(
    "case", [c for c in SMOOTH if c.n <= 3 and "far" not in c.name], ids=str
)
def test_gradcheck(case: Case) -> None:
    maps = case.maps(torch.float64)
    raw = torch.randn(3, case.n, dtype=torch.float64, requires_grad=True)
    u = case.known(3, torch.float64)
    if u is not None:
        u.requires_grad_()
    scale = float(maps(raw, inputs=u).detach().abs().max().clamp(min=1))

    def values(raw: Tensor, *u: Tensor) -> Tensor:
        x: Tensor = maps(raw, inputs=u[0] if u else None)
        return x / scale

    arguments = (raw,) if u is None else (raw, u)
    assert torch.autograd.gradcheck(values, arguments)
    assert torch.autograd.gradgradcheck(values, arguments)


@pytest.mark.parametrize(
    "case",
    [
        c
        for c in CASES
        if c.name
        in ("mixed", "paper: mixed", "polytope 3", "simplex 3", "a pair below an input")
    ],
    ids=str,
)
def test_vmap_and_jacrev(case: Case) -> None:
    maps, raw = case.maps(torch.float64), torch.randn(4, case.n, dtype=torch.float64)
    u = case.known(4, torch.float64)
    arguments = (raw,) if u is None else (raw, u)

    def values(raw: Tensor, *u: Tensor) -> Tensor:
        x: Tensor = maps(raw, inputs=u[0] if u else None)
        return x

    assert torch.equal(torch.func.vmap(values)(*arguments), values(*arguments))
    jacobians = torch.func.vmap(torch.func.jacrev(values))(*arguments)
    jacobian: Any = torch.autograd.functional.jacobian
    one_by_one = [jacobian(values, tuple(a[i] for a in arguments))[0] for i in range(4)]
    torch.testing.assert_close(jacobians, torch.stack(one_by_one))


# --- many terms ------------------------------------------------------------------------------------------------------


def _many(dtype: torch.dtype) -> tuple[list[Case], TermMaps]:
    """Terms of every kind over three outputs."""
    cases = [
        Case("box", ((unit(3, 0), "<", 1), (unit(3, 1, -1), "<", TENTH)), 3),
        Case("half-space", (([1, -1, 1], "<", -2),), 3),
        Case("pair and constant", (([1, 0, -1], "<", 0), (unit(3, 1), "==", 4)), 3),
        Case("simplex", simplex(3), 3),
        Case("polytope", polytope(3, 9), 3),
        Case("free", (), 3),
        Case(
            "line and interval",
            (([1, 1, 0], "==", 1), (unit(3, 2), "<=", 1), (unit(3, 2, -1), "<=", 0)),
            3,
        ),
        Case("pair", (([0, 1, -1], "<", TENTH), ([0, 1, 1], "<", 7)), 3),
    ]
    return cases, TermMaps(
        [case.parts(dtype) for case in cases], cases[0].outputs, dtype
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_stacked_terms_land_inside_each(dtype: torch.dtype) -> None:
    cases, maps = _many(dtype)
    raw = raws(3, dtype)
    x = maps(raw)
    for k, case in enumerate(cases):
        assert broken(case.rows, x[:, k]) == 0
        chosen = maps(raw, torch.full((len(raw),), k))
        assert broken(case.rows, chosen) == 0
        torch.testing.assert_close(chosen[:24], x[:24, k])  # raws of ordinary size
    per_term = torch.stack([raws(3, dtype) for _ in cases], 1)
    own = maps(per_term, per_term=True)
    assert sum(broken(case.rows, own[:, k]) for k, case in enumerate(cases)) == 0


def test_a_slice_of_terms_is_that_slice() -> None:
    _, maps = _many(torch.float32)
    raw = torch.randn(7, 3)
    x, log_det = maps.forward_and_log_det(raw)
    for start, stop in [(0, 3), (2, 8), (5, 6), (3, 4), (0, 8)]:
        part = maps.terms(start, stop)
        own, own_det = part.forward_and_log_det(raw)
        torch.testing.assert_close(own, x[:, start:stop])
        torch.testing.assert_close(own_det, log_det[:, start:stop])
        torch.testing.assert_close(
            part.inverse(x[:, 5]), maps.inverse(x[:, 5])[:, start:stop]
        )


def test_chosen_terms_have_the_gradient_of_all() -> None:
    _, maps = _many(torch.float64)
    raw, index = (
        torch.randn(40, 3, dtype=torch.float64, requires_grad=True),
        torch.randint(8, (40,)),
    )
    (one,) = torch.autograd.grad(maps(raw, index).sum(), raw)
    (all_terms,) = torch.autograd.grad(maps(raw)[torch.arange(40), index].sum(), raw)
    torch.testing.assert_close(one, all_terms)


def test_an_opaque_function_of_an_output_bounds_the_next() -> None:
    x, y = Variable("x", 0), Variable("y", 1)
    f = Apply("f", (Linear.of(x),))
    step = OutputBounds((Bound((), (ONE,), ONE, True),), ())
    above = Parametric((y,), (f,), ((-ONE,),), ((ONE,),), (-ONE,), (True,), (step,), ())
    for dtype in DTYPES:
        maps = TermMaps(
            [[Box((x,), (-3 * ONE,), (3 * ONE,)), above]] * 2, [x, y], dtype
        )
        raw = raws(2, dtype)
        for index in (None, torch.ones(len(raw), dtype=torch.int64)):
            out = maps(raw, index, functions={"f": torch.exp}).reshape(-1, 2)
            values = torch.stack([out[:, 1], torch.exp(out[:, 0])], -1)
            assert broken([([-1, 1], "<", -1)], values) == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_an_infeasible_part_says_so_and_harms_no_gradient(dtype: torch.dtype) -> None:
    case = next(c for c in PARAMETRIC if c.name == "a pair below an input")
    maps, raw = case.maps(dtype), raws(2, dtype).requires_grad_()
    u = (
        torch.linspace(-3, 3, len(raw)).to(dtype).unsqueeze(-1).requires_grad_()
    )  # y < u, y > x + 2, x ≥ −u: u > 1
    feasible = maps.feasible(u)
    assert feasible is not None
    assert torch.equal(feasible.squeeze(-1), u.squeeze(-1) > 1)
    x = maps(raw, inputs=u)
    assert bool(x[~feasible].isnan().all())
    assert checked(case, x[feasible], u[feasible.squeeze(-1)]) == 0
    gradients = torch.autograd.grad(
        torch.where(feasible.unsqueeze(-1), x, 0).double().mean(), (raw, u)
    )
    assert all(bool(g.isfinite().all()) for g in gradients)


# --- NaN, dtypes, copies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "dtype"), EACH)
def test_nan_is_seen_in_training_and_safe_in_eval(
    case: Case, dtype: torch.dtype
) -> None:
    maps, raw = case.maps(dtype), torch.full((2, case.n), nan, dtype=dtype)
    u = case.known(2, dtype)
    x = maps(raw, inputs=u).squeeze(-2)
    assert "constant" in case.name or x.isnan().any(-1).all()
    assert checked(case, maps.eval()(raw, inputs=u).squeeze(-2), u) == 0


@pytest.mark.parametrize("case", [BOXES[-1], POLYHEDRA[3], LATTICES[0]], ids=str)
def test_casts_and_copies_keep_every_bit(case: Case) -> None:
    maps, raw = case.maps(torch.float32), raws(case.n, torch.float32)
    x = maps(raw)
    for other in (
        copy.deepcopy(maps),
        pickle.loads(pickle.dumps(maps)),
        copy.deepcopy(maps).half(),
        maps.to("cpu"),
    ):
        assert torch.equal(other(raw), x)
    assert not maps.state_dict()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, about torch
@pytest.mark.parametrize(
    ("case", "backend"),
    [
        (BOXES[-1], "aot_eager"),
        (POLYHEDRA[5], "inductor"),
        (LATTICES[0], "aot_eager"),
        (PARAMETRIC[3], "aot_eager"),
    ],
    ids=str,
)
def test_compiles_as_one_graph(case: Case, backend: str) -> None:
    maps, raw = case.maps(torch.float32), raws(case.n, torch.float32).requires_grad_()
    u = case.known(len(raw), torch.float32)
    compiled = torch.compile(
        lambda raw, u: maps(raw, inputs=u), fullgraph=True, backend=backend
    )
    x = compiled(raw, u)
    x.sum().backward()
    assert checked(case, x.squeeze(-2), u) == 0
    assert raw.grad is not None
    assert raw.grad.isfinite().all()


@pytest.mark.parametrize(
    "case", [BOXES[-1], PAPER[-1], POLYHEDRA[6], LATTICES[0], *PARAMETRIC[2:4]], ids=str
)
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_autocast_changes_nothing(case: Case, dtype: torch.dtype) -> None:
    maps, raw = case.maps(dtype), raws(case.n, dtype).requires_grad_()
    u = case.known(len(raw), dtype)
    x = maps(raw, inputs=u)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same = maps(raw, inputs=u)
        same.double().mean().backward()
    assert torch.equal(same, x)
    assert same.dtype == dtype
    assert raw.grad is not None
    assert raw.grad.isfinite().all()


# --- the checks have teeth -------------------------------------------------------------------------------------------


def _violations(parts: Part, rows: Sequence[Row], dtype: torch.dtype) -> int:
    n = len(rows[0][0])
    outputs = tuple(Variable(f"x[{j}]", j) for j in range(n))
    maps = TermMaps([[replace(parts, outputs=outputs)]], outputs, dtype)
    return broken(rows, maps((30 * torch.randn(2000, n)).to(dtype)))


def test_bounds_rounded_to_nearest_are_found_out() -> None:
    form, lower, upper = EXACT_FORMATS["float32"], Fraction(7, 10), Fraction(9, 10)
    rows = between(lower, upper)
    nearest = Box((), (form.rounded(lower),), (form.rounded(upper),))
    inward = Box((), (form.next_up(lower),), (form.next_down(upper),))
    assert _violations(nearest, rows, torch.float32) > 0
    assert _violations(inward, rows, torch.float32) == 0


def test_a_gauge_without_contraction_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = polytope(3, 9)
    (part,) = Case("", rows, 3).parts(torch.float32)
    assert _violations(part, rows, torch.float32) == 0
    honest = gauge_module.gauge_rows
    monkeypatch.setattr(gauge_module, "SAFETY", 0.0)
    monkeypatch.setattr(
        gauge_module,
        "gauge_rows",
        lambda *a, unit, tiny: honest(*a, unit=0.0, tiny=0.0),
    )
    assert _violations(part, rows, torch.float32) > 0


def test_a_lattice_without_its_grid_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = simplex(3)
    (part,) = Case("", rows, 3).parts(torch.float32)
    assert isinstance(part, Lattice)
    assert _violations(part, rows, torch.float32) == 0
    monkeypatch.setattr(torch, "round", lambda t: t)
    assert _violations(part, rows, torch.float32) > 0


def test_an_anchor_outside_is_refused() -> None:
    part = Polyhedron((), ((ONE, ONE),), (ONE,), (True,), (ONE, ONE))
    with pytest.raises(ValueError, match="strictly inside row 0"):
        Gauge([part], torch.float32)


# --- ends that are known values themselves ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "training"])
@pytest.mark.parametrize(
    "text",
    [
        "u: input[-9, 9]; v: input[-9, 9]; x: real[3]\nassume u <= v\nall(u <= e <= v for e in x)",
        "u: input[0, 10]; x: real[4]\nall(-1 <= e <= 10 for e in x)\nx[0] <= u; x[2] <= 8; x[2] <= u",
        "u: input[1, 4]; x: real[2]\n(0 <= x[0] <= u and x[1] == 0) or (u <= x[0] <= 5 and 0 <= x[1] <= u)",
    ],
)
def test_plain_ends_are_those_that_were_read(
    text: str, training: bool, dtype: torch.dtype
) -> None:
    """One row with a zero, or with ends that meet, has the ends of the whole batch read in float64."""
    rules = Rules(text)
    mux = Multiplexer(rules, dtype=dtype).train(training)
    count = 64
    raw = raws(mux.in_features, dtype)[:count]
    size = len(raw)
    given: dict[str, Any] = {
        name: torch.linspace(1.25 + i, 3.5 + i, size).to(dtype)
        for i, name in enumerate(v.name for v in rules.inputs)
    }
    other: dict[str, Any] = {name: u.clone() for name, u in given.items()}
    for u in other.values():
        u[-1] = 1.0 if "1, 4" in text else 0.0
    plain = mux(raw, **given).best()
    slow = mux(raw, **other).best()
    assert rules.satisfied(plain, **given).all()
    assert rules.satisfied(slow, **other).all()
    usual = raw[:-1].abs().amax(-1) < 1e3
    if training and dtype is not torch.float64:
        torch.testing.assert_close(
            plain[:-1][usual].float(),
            slow[:-1][usual].float(),
            rtol=2 * torch.finfo(dtype).eps,
            atol=16 * torch.finfo(dtype).eps,
        )
    else:
        assert torch.equal(plain[:-1], slow[:-1])


def test_plain_ends_pass_gradients_on() -> None:
    """The gradients of raw values and inputs in float32 are those of float64."""
    rules = Rules(
        "u: input[-9, 9]; v: input[-9, 9]; x: real\nassume u <= v\nu <= x <= v"
    )
    found = []
    for dtype in (torch.float32, torch.float64):
        mux = Multiplexer(rules, dtype=dtype)
        raw = torch.linspace(-3, 3, 7).to(dtype).unsqueeze(-1).requires_grad_()
        u = torch.linspace(-2, -1, 7).to(dtype).requires_grad_()
        v = torch.linspace(1, 5, 7).to(dtype).requires_grad_()
        x = mux(raw, u=u, v=v).best()
        found.append(torch.autograd.grad(x.square().sum(), [raw, u, v]))
    for single, double in zip(*found, strict=True):
        torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("columns", [129, 144, 150, 200, 1001])
def test_the_first_of_the_largest_columns_is_found_in_groups_too(columns: int) -> None:
    torch.manual_seed(columns)
    products = torch.randint(0, 3 * columns, (columns, 500)).double().mT
    products[0] = 1.0
    products[1, columns - 1] = 4.0 * columns
    products[2] = -torch.inf
    value, column = gauge_module.largest_column(products)
    expected, _ = products.max(-1)
    assert torch.equal(value, expected)
    first = (products == expected.unsqueeze(-1)).to(torch.uint8).argmax(-1)
    assert torch.equal(column, first)
    nothing = torch.full((1, columns), torch.nan, dtype=torch.float64)
    _, column = gauge_module.largest_column(nothing)
    assert 0 <= int(column) < columns


# --- rows that chose different terms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_brought_together_by_term_give_the_same(dtype: torch.dtype) -> None:
    """A few rows look up the matrices of their terms, many stand in the order of terms: so do their gradients."""
    rules = Rules(
        "x: real[3]\n(x[0] + x[1] <= 2 and x[1] + x[2] <= 3 and x[0] >= 0) or "
        "(x[0] - x[1] >= 5 and x[2] <= x[1] and x[0] + x[2] <= 90) or (x[0] + x[1] + x[2] == 40 and x[0] >= 1)"
    )
    mux = Multiplexer(rules, dtype=dtype)
    raw = torch.cat(
        [raws(mux.in_features - 3, dtype), torch.randn(288, 3).to(dtype)], 1
    )
    raw = raw.requires_grad_()
    every = mux(raw).best()
    apart = torch.cat([mux(part).best() for part in torch.split(raw, 16)])
    assert rules.satisfied(every.detach()).all()
    usual = raw.detach().abs().amax(-1) < 100
    near = 8 * torch.finfo(dtype).eps
    if dtype is torch.float64:
        assert torch.equal(every, apart)
    torch.testing.assert_close(every[usual], apart[usual], rtol=near, atol=near)
    gradients = [torch.autograd.grad(x[usual].sum(), raw)[0] for x in (every, apart)]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


def test_rare_parts_are_computed_in_the_rows_that_chose_them() -> None:
    """One term in eight has a polyhedron; the others are boxes."""
    rules = Rules(
        "x: real[2]\n"
        + " or ".join(
            f"({i} <= x[0] <= {i} + 0.5 and 0 <= x[1] <= 1)" for i in range(7)
        )
        + " or (x[0] + x[1] <= -5 and x[0] >= -50 and x[1] >= -50)"
    )
    mux = Multiplexer(rules, dtype=torch.float64)
    raw = torch.randn(200, mux.in_features, dtype=torch.float64).requires_grad_()
    every = mux(raw).best()
    apart = torch.stack([mux(row).best() for row in raw])
    assert rules.satisfied(every.detach()).all()
    assert (every[:, 0] < -1).any()
    assert (every[:, 0] >= 0).any()
    torch.testing.assert_close(every, apart, rtol=1e-14, atol=1e-14)
    gradients = [torch.autograd.grad(x.square().sum(), raw)[0] for x in (every, apart)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_a_graph_of_chosen_terms_takes_any_number_of_rows() -> None:
    """Rows are brought together by term where they can be looked at, which is not in a graph."""
    rules = Rules(
        "x: real[2]\n(x[0] + x[1] <= 2 and x[0] - x[1] <= 3) or (x[0] + x[1] >= 9 and x[0] - x[1] >= 5)"
    )
    mux = Multiplexer(rules).eval()

    class Best(torch.nn.Module):
        def forward(self, raw: Tensor) -> Tensor:
            x: Tensor = mux(raw).best()
            return x

    raw = torch.randn(200, mux.in_features)
    rows = {0: torch.export.Dim("rows")}
    graph = torch.export.export(Best(), (raw,), dynamic_shapes=(rows,)).module()
    many = torch.randn(333, mux.in_features)
    found = graph(many)
    assert rules.satisfied(found).all()
    torch.testing.assert_close(found, mux(many).best())
