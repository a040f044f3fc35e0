"""Memory changes hands: whatever torch does to a module's memory, the layer's tables stay those of its terms."""

from __future__ import annotations

import copy
import io
import json
import pickle
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim.swa_utils import AveragedModel

from multiplexnet.compiler.record import record_of_compiled, record_of_specification
from multiplexnet.compiler.terms import Block, Term
from multiplexnet.errors import DtypeError, InputError, RecordError, ShapeError
from multiplexnet.language.formula import Real, holds
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.learning.finite import FiniteTerms
from multiplexnet.rules import Rules
from multiplexnet.transforms.separable import PaperSeparable
from multiplexnet.transforms.tables import named_tables

FAULTS: dict[str, Any] = runpy.run_path(
    str(Path(__file__).parents[1] / "benchmarks" / "faults.py")
)
BY_NAME = {fault.name: fault for fault in FAULTS["FAULTS"]}

TEXTS = {
    "interval": "0.1 < x < 0.3",
    "boxes": "x: real; y: real\nx >= 2 or x <= -2.3; y <= 0.1",
    "polyhedron": "x: real; y: real\nx + y <= 1; x >= 0; y >= 0",
    "lattice": "x: real; y: real; z: real\nx + y + z == 1; x >= 0; y >= 0; z >= 0",
    "discrete": "n: int[0, 3]; on: bool; x: real\nimplies(on, x >= n)",
    "ends": "x: real; y: real; u: input[0, 10]\nx >= u; y <= 1",
    "guards": "x: real; y: real; u: input[0, 10]\nx == 0 and u <= 4 or x >= u and u >= 3; x + y <= u",
    "function": "x: real; y: real; h: function\ny >= h(x) + 1 or y <= h(x) - 1; 0 <= x <= 1",
    "nested": "on: bool[5]; x: real\nsum(on) >= 1\nx >= 0",
}
MORE: Mapping[str, dict[str, Any]] = {
    "function": {"functions": {"h": torch.sin}},
    "nested": {"max_terms": 18},
}


def build(name: str, **options: Any) -> Multiplexer:
    return Multiplexer(Rules(TEXTS[name]), **MORE.get(name, {}), **options)


@cache
def _built(name: str) -> Multiplexer:
    return build(name)


def layer(name: str) -> Multiplexer:
    return copy.deepcopy(_built(name))


def outputs(mux: nn.Module, name: str) -> Tensor:
    """The best rows for the same raw values and inputs in every call."""
    generator = torch.Generator().manual_seed(0)
    raw = 3 * torch.randn(60, _built(name).in_features, generator=generator)
    given = (
        {"u": 10 * torch.rand(60, generator=generator)}
        if "u: input" in TEXTS[name]
        else {}
    )
    x: Tensor = mux(raw, **given).best()
    _judge(Rules(TEXTS[name]), x, given)
    return x


def _judge(rules: Rules, x: Tensor, given: Mapping[str, Tensor]) -> None:
    """Every row, its floats read as fractions, satisfies the rules."""
    variables = (*rules.outputs, *rules.inputs)
    columns = torch.cat([x, *(column.unsqueeze(-1) for column in given.values())], -1)
    for row in columns.double().tolist():
        assert all(map(isfinite, row)), row
        point = {
            variable: Fraction(value)
            for variable, value in zip(variables, row, strict=True)
        }
        assert all(
            isinstance(v.domain, Real) or point[v] in v.domain.values for v in variables
        ), row
        functions = {
            "h": lambda a: Fraction(torch.sin(torch.tensor([float(a)])).item())
        }
        assert holds(rules.formula, point, functions), row


# --- ways in which memory changes hands -------------------------------------------------------------------------------


def _spoiled_heap() -> list[Tensor]:
    """Memory that was written to and given back, so that what is not written anew is garbage."""
    for size in (1, 2, 4, 8, 16, 64, 256, 1024):
        blocks = [
            torch.full((size,), torch.nan, dtype=torch.float64) for _ in range(50)
        ]
        del blocks
    return []


def emptied(mux: Multiplexer) -> nn.Module:
    _spoiled_heap()
    return mux.to_empty(device="cpu")


def emptied_and_loaded(mux: Multiplexer, **options: Any) -> nn.Module:
    state = mux.state_dict()
    emptied(mux)
    mux.load_state_dict(state, **options)
    return mux


def as_fsdp(mux: Multiplexer) -> nn.Module:
    """Module by module, each with memory of its own and then asked to fill it."""
    model = nn.Sequential(mux.to("meta"))
    for module in model.modules():
        if [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
            module.to_empty(device="cpu", recurse=False)
            cast(Multiplexer, module).reset_parameters()
    return mux


def saved(mux: Multiplexer, **options: Any) -> Multiplexer:
    file = io.BytesIO()
    torch.save(mux, file)
    file.seek(0)
    loaded: Multiplexer = torch.load(file, weights_only=False, **options)
    return loaded


def averaged(mux: Multiplexer) -> nn.Module:
    average = AveragedModel(mux, use_buffers=True)
    for _ in range(3):
        average.update_parameters(mux)
    return average


class Called(nn.Module):
    """A layer that is called with buffers from elsewhere, all of them NaN or 1."""

    def __init__(self, mux: Multiplexer) -> None:
        super().__init__()
        self.mux = mux

    def forward(self, raw: Tensor, **inputs: Tensor) -> Any:
        others = {
            name: torch.full_like(
                buffer, torch.nan if buffer.is_floating_point() else 1
            )
            for name, buffer in self.mux.named_buffers()
        }
        return torch.func.functional_call(self.mux, others, (raw,), inputs)


def swapped(mux: Multiplexer) -> nn.Module:
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        return mux.double().float()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def written_to(mux: Multiplexer) -> nn.Module:
    """Every buffer gets other numbers in place, and is rounded to bfloat16, as mixed precision does to buffers."""
    for buffer in mux.buffers():
        buffer.fill_(7)
        buffer.data = buffer.to(torch.bfloat16)
    return mux


WAYS: dict[str, Callable[[Multiplexer], nn.Module]] = {
    "to_empty": emptied,
    "to_empty, load": emptied_and_loaded,
    "to_empty, load leniently": lambda mux: emptied_and_loaded(mux, strict=False),
    "to_empty, assign": lambda mux: emptied_and_loaded(mux, assign=True),
    "meta, to_empty": lambda mux: emptied(mux.to("meta")),
    "meta, to": lambda mux: mux.to("meta").to("cpu"),
    "meta, load": lambda mux: _loaded(mux.to("meta"), mux.state_dict()),
    "meta, assign": lambda mux: _loaded(mux.to("meta"), mux.state_dict(), assign=True),
    "meta, cast, to_empty": lambda mux: (
        mux.to("meta").double().to_empty(device="cpu").float()
    ),
    "one module at a time": as_fsdp,
    "deepcopy": copy.deepcopy,
    "pickle": lambda mux: pickle.loads(pickle.dumps(mux)),
    "save": saved,
    "save, load on meta, to_empty": lambda mux: emptied(
        saved(mux, map_location="meta")
    ),
    "share_memory": lambda mux: mux.share_memory(),
    "functional_call": Called,
    "AveragedModel": averaged,
    "swap_tensors": swapped,
    "buffers written to": written_to,
}


def _loaded(mux: Multiplexer, state: dict[str, Any], **options: Any) -> Multiplexer:
    mux.load_state_dict(state, **options)
    return mux


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TEXTS)
def test_the_same_bits_come_out(name: str, way: str) -> None:
    mux = layer(name)
    expected = outputs(mux, name)
    assert torch.equal(outputs(WAYS[way](mux), name), expected)


@pytest.mark.parametrize("name", TEXTS)
def test_a_layer_built_without_memory(name: str) -> None:
    """Under a default device of meta: it is there, and where memory comes from does not matter."""
    expected = outputs(_built(name), name)
    with torch.device("meta"):
        made = [build(name) for _ in range(4)]
    assert {mux.device.type for mux in made} == {"meta"}
    assert (
        made[0](
            torch.zeros(5, made[0].in_features, device="meta"), **_meta_inputs(name)
        )
        .best()
        .is_meta
    )
    made[1].load_state_dict(_built(name).state_dict(), assign=True)
    made[2].to("cpu")
    for mux in (made[0].to_empty(device="cpu"), made[1], made[2], as_fsdp(made[3])):
        assert torch.equal(outputs(mux, name), expected)


def _meta_inputs(name: str) -> dict[str, Tensor]:
    return {"u": torch.zeros(5, device="meta")} if "u: input" in TEXTS[name] else {}


def test_the_papers_map_too() -> None:
    with torch.device("meta"):
        mux = Multiplexer(Rules(TEXTS["boxes"]), boxes=PaperSeparable)
    mux.to_empty(device="cpu")
    outputs(mux, "boxes")


def test_a_model_is_built_without_memory_and_loaded() -> None:
    """The usual recipe: an empty model, then a state of a trained one."""

    def model() -> nn.Sequential:
        mux = build("polyhedron")
        return nn.Sequential(nn.Linear(3, mux.in_features), mux)

    trained, h = model(), torch.randn(50, 3)
    for assign in (False, True):
        with torch.device("meta"):
            other = model()
        if not assign:
            other.to_empty(device="cpu")
        other.load_state_dict(trained.state_dict(), assign=assign)
        assert torch.equal(other(h).best(), trained(h).best())


def test_a_layer_without_memory_refuses_real_rows() -> None:
    mux = layer("interval").to("meta")
    with pytest.raises(
        ShapeError, match=r"the layer on meta.*mux\.to\(\"cpu\"\) makes its tables"
    ):
        mux(torch.zeros(1, 1))
    with pytest.raises(ShapeError, match="x0 is on cpu and the layer on meta"):
        mux.repair(torch.zeros(1, 1))


def test_a_state_without_memory_is_refused() -> None:
    mux = layer("interval")
    state = {name: value.to("meta") for name, value in mux.state_dict().items()}
    with pytest.raises(RecordError, match="on the meta device"):
        mux.load_state_dict(state)
    outputs(mux, "interval")


def test_buffers_that_are_moved_one_by_one_take_the_tables_with_them() -> None:
    """As some wrappers do, past ``_apply``: the tables follow when the layer is used."""
    mux = layer("polyhedron")
    mux._buffers.update({key: torch.empty(0, device="meta") for key in mux._buffers})
    assert mux(torch.zeros(5, mux.in_features, device="meta")).best().is_meta
    mux._buffers.update({key: torch.empty(0) for key in mux._buffers})
    outputs(mux, "polyhedron")


def test_an_ensemble_whose_base_has_no_memory() -> None:
    """The usual recipe: stacked states, and a base on meta that is called with each of them."""
    nets = [nn.Sequential(nn.Linear(3, 2), layer("polyhedron")) for _ in range(2)]
    parameters, buffers = torch.func.stack_module_state(nets)
    base = copy.deepcopy(nets[0]).to("meta")
    h = torch.randn(5, 3)

    def call(p: Any, b: Any) -> Any:
        return torch.func.functional_call(base, (p, b), (h,)).best()

    x = torch.vmap(call)(parameters, buffers)
    for own, net in zip(x, nets, strict=True):
        assert torch.allclose(own, net(h).best())
        _judge(Rules(TEXTS["polyhedron"]), own.detach(), {})


def test_a_mode_without_numbers_is_refused() -> None:
    with (
        FakeTensorMode(),
        pytest.raises(DtypeError, match="FakeTensor, which holds no numbers"),
    ):
        build("interval")


def test_the_tables_are_no_state() -> None:
    """What torch's tools take for a module's memory holds no number that the layer reads."""
    for name in TEXTS:
        mux = layer(name)
        assert [parameter for parameter in mux.parameters() if parameter.numel()] == []
        assert [buffer for buffer in mux.buffers() if buffer.numel()] == []
        assert len(list(named_tables(mux))) > 5
        assert set(mux.state_dict()) == {"_extra_state"}


def test_shared_memory_is_shared() -> None:
    mux = layer("polyhedron")
    tables = [table for _, table in named_tables(mux)]
    assert not any(map(Tensor.is_shared, tables))
    mux.share_memory()
    assert all(map(Tensor.is_shared, tables))


def test_a_state_mends_what_was_written_over() -> None:
    """Loading a state leaves the right tables, whatever had happened to them before."""
    for name in TEXTS:
        mux = layer(name)
        expected = outputs(mux, name)
        for _, table in named_tables(mux):
            table.zero_()
        mux.load_state_dict(_built(name).state_dict())
        assert torch.equal(outputs(mux, name), expected)


def test_a_state_with_other_inner_blocks_is_taken_over() -> None:
    """The meaning of every logit is that of the saved layer, also of those of inner blocks."""
    mux = layer("nested")
    record = json.loads(bytes(mux.get_extra_state().tolist()))
    del record["sha256"]  # a changed record would not fit it
    changed = next(
        block for block in record["compiled"]["inner"] if len(block["terms"]) > 1
    )
    changed["terms"].reverse()
    state = torch.frombuffer(bytearray(json.dumps(record).encode()), dtype=torch.uint8)
    mux.load_state_dict({"_extra_state": state})
    assert torch.equal(
        outputs(mux, "nested"), outputs(Multiplexer.from_state(state), "nested")
    )
    assert not torch.equal(outputs(mux, "nested"), outputs(_built("nested"), "nested"))


def test_assignments_of_discrete_outputs_are_derived_as_well() -> None:
    rules = Rules("a: int[0, 3]; b: bool\nimplies(b, a >= 2)")
    log_q = [torch.randn(5, 4).log_softmax(-1), torch.randn(5, 2).log_softmax(-1)]
    expected = FiniteTerms(rules).log_satisfaction(log_q)
    with torch.device("meta"):
        unmade = FiniteTerms(rules)
    _spoiled_heap()
    for terms in (
        FiniteTerms(rules).to_empty(device="cpu"),
        unmade.to_empty(device="cpu"),
    ):
        assert torch.equal(terms.log_satisfaction(log_q), expected)


# --- every door asks the same questions -------------------------------------------------------------------------------

ABOUT_INPUTS = "u: input; x: real\nu >= 1; x >= u"


def _unasked(rules: Rules, **options: Any) -> Multiplexer:
    """A layer from a state that no constructor of ours would have let out."""
    record = json.loads(bytes(layer("interval").get_extra_state().tolist()))
    del record["sha256"]  # a changed record would not fit it
    record["specification"] = record_of_specification(rules.specification)
    record["compiled"] = record_of_compiled(rules.compile())
    state = torch.frombuffer(bytearray(json.dumps(record).encode()), dtype=torch.uint8)
    return Multiplexer.from_state(state, **options)


def test_compiled_rules_about_inputs_alone_are_refused_when_the_layer_is_built() -> (
    None
):
    rules = Rules(ABOUT_INPUTS)
    with pytest.raises(
        InputError, match="no output obeys the rules: declare narrower ranges"
    ) as expected:
        Multiplexer(rules)
    with pytest.raises(InputError) as found:
        Multiplexer.from_compiled(rules, rules.compile())
    assert str(found.value) == str(expected.value)


def test_a_row_that_breaks_a_rule_about_inputs_is_refused() -> None:
    mux = _unasked(Rules(ABOUT_INPUTS))
    raw = torch.zeros(3, 1)
    with pytest.raises(
        InputError, match=r"the rule `u >= 1` about inputs does not hold in rows 0, 2"
    ):
        mux(raw, u=torch.tensor([0.0, 1.0, 0.99]))
    with pytest.raises(
        InputError, match=r"the rule `u >= 1` about inputs does not hold in row 1"
    ):
        mux.repair(raw, u=torch.tensor([1.0, 0.5, 2.0]))
    assert mux(raw, u=torch.tensor([1.0, 2.0, 3.0])).best().shape == (3, 1)


def test_a_rule_about_inputs_in_a_graph_gives_no_number() -> None:
    class Best(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mux = _unasked(Rules(ABOUT_INPUTS))

        def forward(self, raw: Tensor, u: Tensor) -> Any:
            return self.mux(raw, u=u).choices[0].feasible

    compiled = torch.compile(Best(), fullgraph=True, backend="aot_eager")
    assert compiled(torch.zeros(3, 1), torch.tensor([0.0, 1.0, 2.0])).squeeze(
        -1
    ).tolist() == [
        False,
        True,
        True,
    ]


def test_functions_of_inputs_alone_are_looked_at() -> None:
    """No solver knows what a function will say: the value itself is asked, whichever the door."""
    rules = Rules("u: input; x: real; f: function\nf(u) >= 1; x >= u")
    functions = {"f": lambda u: u - 1}
    for mux in (
        Multiplexer(rules, functions=functions),
        Multiplexer.from_compiled(rules, rules.compile(), functions=functions),
        Multiplexer.from_state(
            Multiplexer(rules, functions=functions).state_dict(), functions=functions
        ),
    ):
        raw = torch.zeros(2, 1)
        with pytest.raises(
            InputError,
            match=r"the rule `f\(u\) >= 1` about inputs does not hold in row 1",
        ):
            mux(raw, u=torch.tensor([2.0, 1.5]))
        x = mux(raw, u=torch.tensor([2.0, 3.0])).best()
        assert rules.satisfied(x, functions=functions, u=torch.tensor([2.0, 3.0])).all()


def test_several_rules_about_inputs() -> None:
    rules = Rules("u: input; v: input; x: real\nu >= 1 or v <= 3\nu <= 2 * v\nx >= u")
    mux, raw = _unasked(rules), torch.zeros(1, 1)
    for u, v, broken in (
        (0.0, 4.0, "u >= 1 or v <= 3"),
        (5.0, 1.0, r"u <= 2 \* v"),
        (0.0, 9.0, "u >= 1 or v <= 3"),
    ):
        with pytest.raises(
            InputError, match=f"the rule `{broken}` about inputs does not hold in row 0"
        ):
            mux(raw, u=torch.tensor([u]), v=torch.tensor([v]))
    for u, v in (
        (1.0, 4.0),
        (0.5, 3.0),
        (2.0, 1.5),
        (3.0, 1.5),
    ):  # the last one exactly at the end
        x = mux(raw, u=torch.tensor([u]), v=torch.tensor([v])).best()
        _judge(rules, x, {"u": torch.tensor([u]), "v": torch.tensor([v])})


def test_rules_about_inputs_that_go_on_in_inner_blocks_are_refused() -> None:
    rules = Rules("u: input[0, 1]; x: real\nx >= u")
    compiled = rules.compile()
    row = compiled.blocks[0].terms[0].rows[:1]
    wrong = Block((), (Term((), blocks=(Block((), (Term(row),)),)),))
    with pytest.raises(
        InputError, match="the rules about inputs alone have too many terms"
    ):
        Multiplexer.from_compiled(
            rules, replace(compiled, blocks=(*compiled.blocks, wrong))
        )


def test_compiled_terms_of_other_rules_are_refused() -> None:
    rules, others = Rules("x >= 2"), Rules("x >= 1")
    with pytest.raises(RecordError, match="these terms were compiled from other rules"):
        Multiplexer.from_compiled(rules, others.compile())
    with pytest.raises(RecordError, match="these terms were compiled from other rules"):
        Multiplexer.from_compiled(rules, Rules("x: real; y: real\nx >= 2").compile())
    Multiplexer.from_compiled(rules, Rules("x >= 2").compile())


def test_an_unknown_way_with_equalities_is_refused_at_every_door() -> None:
    rules = Rules("x >= 2")
    doors: tuple[Any, ...] = (
        Multiplexer,
        lambda r, **options: Multiplexer.from_compiled(r, r.compile(), **options),
    )
    for make in doors:
        with pytest.raises(
            ValueError, match=r'equality = .almost.; it is "exact" or "nearest"'
        ):
            make(rules, equality="almost")


SAVED = """
import sys
import torch
sys.modules["z3"] = None
from multiplexnet.errors import InputError
from multiplexnet.layer.multiplexer import Multiplexer
mux = Multiplexer.from_state(torch.load(sys.argv[1], weights_only=True))
mux.to_empty(device="cpu")
mux.certificate
x = mux(torch.zeros(2, mux.in_features), u=torch.tensor([1.0, 7.0])).best()
assert bool(mux.rules.satisfied(x, u=torch.tensor([1.0, 7.0])).all())
try:
    mux(torch.zeros(1, mux.in_features), u=torch.zeros(1))
except InputError as error:
    assert "the rule `u >= 1` about inputs does not hold" in str(error), error
else:
    raise SystemExit("it was not refused")
"""


def test_a_saved_layer_asks_without_z3(tmp_path: Path) -> None:
    torch.save(_unasked(Rules(ABOUT_INPUTS)).state_dict(), tmp_path / "state.pt")
    run = subprocess.run(
        [sys.executable, "-c", SAVED, str(tmp_path / "state.pt")],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


# --- the certificate looks at the tables every time -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["boxes", "polyhedron", "lattice", "ends", "guards", "function"]
)
def test_every_table_that_changes_after_the_certificate_was_read_is_seen(
    name: str,
) -> None:
    mux = layer(name)
    before = mux.certificate
    assert mux.certificate is before  # the document is written once
    for changed, table in named_tables(mux):
        if not table.numel() or changed.endswith(
            ("whiten", "unwhiten", "coordinates", "log_det")
        ):
            continue
        flat, kept = table.view(-1), table.clone()
        flat[-1] = ~flat[-1] if table.dtype is torch.bool else 7 if flat[-1] != 7 else 8
        with pytest.raises(
            RecordError,
            match=f"the table {changed} of this layer is not the one that its terms give",
        ):
            mux.certificate  # noqa: B018
        table.copy_(kept)
        assert mux.certificate is before


def test_a_table_that_was_replaced_is_seen() -> None:
    mux = layer("interval")
    mux.certificate  # noqa: B018
    mux.maps[0].separable.lower = torch.tensor([[-5.0]])  # type: ignore[union-attr]
    with pytest.raises(RecordError, match=r"the table maps\.0\.separable\.lower"):
        mux.certificate  # noqa: B018


def test_maps_that_were_replaced_or_told_otherwise_are_seen() -> None:
    mux = layer("interval")
    mux.certificate  # noqa: B018
    mux.maps[0] = Multiplexer(Rules("0.2 < x < 0.9")).maps[0]
    with pytest.raises(
        RecordError, match="of this layer is not the one that its terms give"
    ):
        mux.certificate  # noqa: B018
    mux = layer("boxes")
    mux.certificate  # noqa: B018
    separable: Any = mux.maps[0].separable
    separable.kinds = separable.kinds._replace(half=False)
    with pytest.raises(RecordError, match=r"maps\.0\.separable\.kinds"):
        mux.certificate  # noqa: B018


def test_arbitrary_tables_may_hold_any_number_but_must_hold_one() -> None:
    mux = layer("polyhedron")
    before = mux.certificate
    whiten: Tensor = mux.maps[0].groups[0].transform.whiten  # type: ignore[union-attr, index]
    whiten *= 1 + 2.0**-20
    assert mux.certificate == before
    outputs(mux, "polyhedron")
    whiten[0, 0, 0] = torch.inf
    with pytest.raises(RecordError, match="whiten of this layer"):
        mux.certificate  # noqa: B018


def test_a_layer_without_memory_has_no_certificate_until_it_has() -> None:
    mux = layer("interval")
    before = mux.certificate
    with pytest.raises(
        RecordError, match=r"is on the meta device.*build the layer anew"
    ):
        mux.to("meta").certificate  # noqa: B018
    assert mux.to_empty(device="cpu").certificate == before


def test_a_rule_about_inputs_is_judged_by_the_number_that_was_given() -> None:
    """A tenth obeys `u <= 1/10`, though the float32 above it, which stands for it, does not."""
    rules = Rules("x: real; u: input\nu <= 1/10; x >= u")
    saved = _unasked(rules)
    raw = torch.zeros(1, saved.in_features)
    x = saved(raw, u=Fraction(1, 10)).best()
    assert rules.satisfied(x, u=Fraction(1, 10)).all()
    with pytest.raises(
        InputError, match=r"the rule `u <= 1/10` about inputs does not hold"
    ):
        saved(raw, u=0.1)  # a float64 number a little above
    with pytest.raises(
        InputError, match=r"the rule `u <= 1/10` about inputs does not hold"
    ):
        saved(raw, u=torch.tensor([0.1]))


# --- planted faults ---------------------------------------------------------------------------------------------------


def _round_trip() -> None:
    outputs(emptied(layer("interval").to("meta")), "interval")


def _about_inputs() -> None:
    with pytest.raises(InputError):
        _unasked(Rules(ABOUT_INPUTS))(torch.zeros(1, 1), u=torch.zeros(1))


def _changed_in_place() -> None:
    mux = layer("interval")
    mux.certificate  # noqa: B018
    mux.maps[0].separable.lower.fill_(-5)  # type: ignore[union-attr, operator]
    with pytest.raises(RecordError):
        mux.certificate  # noqa: B018


@pytest.mark.parametrize(
    ("name", "scenario"),
    [
        ("tables as state", lambda: outputs(emptied(layer("interval")), "interval")),
        ("tables made anew", _round_trip),
        ("rules about inputs", _about_inputs),
        ("tables looked at", _changed_in_place),
    ],
)
def test_who_takes_a_safeguard_away_is_noticed(
    name: str, scenario: Callable[[], None]
) -> None:
    scenario()
    _built.cache_clear()
    try:
        with (
            FAULTS["planted"](BY_NAME[name]),
            pytest.raises((AssertionError, pytest.fail.Exception)),
        ):
            scenario()
    finally:
        _built.cache_clear()


@pytest.mark.parametrize("setting", ["counted", "started", "in_turn"])
def test_a_state_brings_its_own_settings(setting: str) -> None:
    rules = Rules("u: input[0, 1]; x: real; y: real; x >= u; y >= x; x + y <= 5")
    mux = Multiplexer(rules, structure="terms")
    record = json.loads(bytes(mux.get_extra_state().tolist()))
    del record["sha256"]  # a changed record would not fit it
    state = torch.tensor(
        list(json.dumps({**record, setting: False}).encode()), dtype=torch.uint8
    )
    mux.load_state_dict({"_extra_state": state})
    again = json.loads(bytes(mux.get_extra_state().tolist()))
    assert again[setting] is False
