"""Cascades in recorded graphs: what onnxruntime, torch.compile, torch.export and vmap make of them, exactly."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from math import inf, nan
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import multiplexnet as mx

# What torch warns of in its own code.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning",
    "ignore:`torch.jit.:DeprecationWarning",
    "ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning",
)

SPLIT = "u: input[0, 40]; x: real[2]; z: real; all(0 <= k <= 20 for k in x); sum(x) == u; z >= 1 or z <= -1"
BANDS = (
    "u: input[0, 9]; v: input[0, 9]; a: real; b: real; 0 <= a <= 8; a == 0 or a >= 2; 0 <= b <= 8; "
    "a + b <= 0.7 * u + 0.3 * v"
)
WIDE = "u: input[0, 1e9]; n: int[0, 1000000007]; m: int[0, 1000000007]; n + m <= 1000000003; 3 * n >= m + u - 7"


class Best(nn.Module):
    """A layer whose most probable outputs are recorded."""

    def __init__(self, mux: mx.Multiplexer) -> None:
        super().__init__()
        self.mux = mux
        self.train(mux.training)

    def forward(self, raw: Tensor, **inputs: Tensor) -> Tensor:
        return self.mux(raw, **inputs).best()  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _calm() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch.compiler.reset()


def raws(rows: int, mux: mx.Multiplexer) -> Tensor:
    scales = torch.tensor([1.0, 10.0, 1e4, inf, nan], dtype=torch.float64).repeat(
        rows // 5
    )
    drawn = torch.randn(rows, mux.in_features, dtype=torch.float64)
    return (drawn * scales[:, None]).to(mux.dtype)


def through_onnx(
    model: Best, raw: Tensor, inputs: Mapping[str, Tensor], folder: Path
) -> Callable[[Tensor, Mapping[str, Tensor]], Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about torch
        program = torch.onnx.export(
            model, (raw,), kwargs=dict(inputs), dynamo=True, verbose=False
        )
    assert program is not None
    program.save(str(folder / "layer.onnx"))
    session = onnxruntime.InferenceSession(
        str(folder / "layer.onnx"), providers=["CPUExecutionProvider"]
    )
    wanted = {node.name for node in session.get_inputs()}

    def run(raw: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
        given = {"raw": raw, **inputs}
        (found,) = session.run(None, {name: given[name].numpy() for name in wanted})
        return torch.from_numpy(found)

    return run


def split_obeys(row: list[Fraction], given: list[Fraction]) -> bool:
    """``SPLIT`` in fractions, written once more."""
    x, y, z = row
    return 0 <= x <= 20 and 0 <= y <= 20 and x + y == given[0] and abs(z) >= 1


def bands_obey(row: list[Fraction], given: list[Fraction]) -> bool:
    a, b = row
    in_box = (a == 0 or 2 <= a <= 8) and 0 <= b <= 8
    return in_box and 10 * (a + b) <= 7 * given[0] + 3 * given[1]


@pytest.mark.parametrize(
    ("dtype", "text", "obeys"),
    [
        (torch.float64, BANDS, bands_obey),
        (torch.float32, SPLIT, split_obeys),
        (torch.float16, SPLIT, split_obeys),
    ],
)
def test_onnx_with_inputs_is_exact_and_nan_where_nothing_obeys(
    dtype: torch.dtype,
    text: str,
    obeys: Callable[[list[Fraction], list[Fraction]], bool],
    tmp_path: Path,
) -> None:
    rules = mx.Rules(text)
    mux = mx.Multiplexer(rules, structure="cascade", dtype=dtype).eval()
    rows = 200
    raw = raws(rows, mux)
    given = {v.name: (torch.rand(rows) * 8 + 1).to(dtype) for v in rules.inputs}
    given["u"][:3] = torch.tensor([-1.0, nan, inf])
    fine = {name: torch.ones(rows, dtype=dtype) for name in given}
    found = through_onnx(Best(mux), raw, fine, tmp_path)(raw, given)
    assert found.dtype == dtype
    assert found[:3].isnan().all()
    assert found[3:].isfinite().all()
    for i in range(3, rows):
        row = [Fraction(float(value)) for value in found[i]]
        assert obeys(row, [Fraction(float(column[i])) for column in given.values()]), i


def test_onnx_keeps_every_digit_of_large_whole_numbers(tmp_path: Path) -> None:
    mux = mx.Multiplexer(
        mx.Rules(WIDE), structure="cascade", dtype=torch.float64
    ).eval()
    raw = raws(100, mux)
    raw[50:] = inf  # as large as it can be: every constant is felt
    u = torch.randint(0, 10**9, (100,)).double()
    found = through_onnx(Best(mux), raw, {"u": u}, tmp_path)(raw, {"u": u})
    for (n, m), given in zip(found.tolist(), u.tolist(), strict=True):
        assert n + m <= 1000000003
        assert 3 * n >= m + given - 7
        assert n == int(n)
        assert m == int(m)
    assert found[50:].sum(-1).max() == 1000000003
