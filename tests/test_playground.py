"""The playground without a browser: what it answers, what it refuses, what a question may cost, who may ask.

``test_playground_page.py`` uses the page in a real browser.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from corpus import CASES
from fuzz_mutation import NASTY, mutated, mutated_json
from playground_server import ended, exploding, started

import multiplexnet as mx
from multiplexnet.playground import pool
from multiplexnet.playground.pool import Limits, Worker
from multiplexnet.playground.questions import ANSWERS
from multiplexnet.playground.worker import answered

ROOT = Path(__file__).parents[1]
STATIC = ROOT / "src/multiplexnet/playground/static"
EXAMPLES = json.loads((STATIC / "examples.json").read_text(encoding="utf-8"))
ACTUATOR = EXAMPLES[0]["text"]
KIND_OF = {
    question: kind for kind, questions in ANSWERS.items() for question in questions
}


def ask(question: str, **fields: Any) -> Any:
    """The answer, in this process."""
    told = json.loads(
        answered(
            KIND_OF[question], json.dumps({"question": question, "fields": fields})
        )
    )
    assert "answer" in told, told
    return told["answer"]


def refusal(question: str, **fields: Any) -> Any:
    return json.loads(
        answered(
            KIND_OF[question], json.dumps({"question": question, "fields": fields})
        )
    )["error"]


def obeys(
    text: str, row: dict[str, str], inputs: dict[str, Fraction] | None = None
) -> bool:
    """The verdict on a row that the page was given as text, by the formula's own meaning in fractions."""
    from multiplexnet.language.formula import holds

    rules = mx.Rules(text)
    values = {v: Fraction(float(row[v.name])) for v in rules.outputs}
    values |= {v: (inputs or {})[v.name] for v in rules.inputs}
    inside = all(values[v] in v.domain.values for v in rules.outputs if v.is_discrete)  # type: ignore[union-attr]
    return inside and holds(rules.formula, values)


def same(a: mx.Rules, b: mx.Rules) -> bool:
    """Whether the rules are the same, wherever they stand in their texts."""
    return (a.outputs, a.inputs, a.formula) == (b.outputs, b.inputs, b.formula)


# --- the verdict -----------------------------------------------------------------------------------------------------


def test_a_verdict_tells_terms_blocks_ranges_and_dimensions() -> None:
    told = ask("verdict", text=ACTUATOR)
    (block,) = told["blocks"]
    assert [(term["text"], term["dimension"]) for term in block["terms"]] == [
        ("a == 0 and b >= 0 and b <= limit", 1),
        ("200 < a < 400 and a - b <= -2 and b <= limit", 2),
    ]
    assert told["sizes"] == [2]
    assert told["ranges"][0] == {
        "name": "a", "lower": "0", "lower_attained": True, "upper": "400", "upper_attained": False,
    }  # fmt: skip
    assert [(v["name"], v["role"], v["lower"]) for v in told["variables"]][2] == (
        "limit",
        "input",
        "250",
    )


def test_a_contradiction_is_its_smallest_set_of_rules() -> None:
    told = ask("verdict", text="x >= 3\ny >= 0\nx <= 2 - y")
    assert told["blocks"] is None
    assert [rule["line"] for rule in told["diagnosis"]["contradiction"]] == [1, 2, 3]
    assert [
        r["line"]
        for r in ask("verdict", text="x >= 3\ny >= 0\nx <= 2")["diagnosis"][
            "contradiction"
        ]
    ] == [1, 3]


def test_superfluous_rules_are_named() -> None:
    diagnosis = ask("verdict", text="x >= 3\nx >= 1; x < 1 or x >= 1")["diagnosis"]
    assert [rule["text"] for rule in diagnosis["implied"]] == ["x >= 1"]
    assert [rule["text"] for rule in diagnosis["always_true"]] == ["x < 1 or x >= 1"]


def test_an_error_has_its_line_and_column() -> None:
    told = refusal("verdict", text="x: real\nx >= limt")
    assert (told["kind"], told["line"], told["column"]) == ("syntax", 2, 6)
    assert "unknown name `limt`" in told["message"]


def test_many_terms_are_cut_for_the_page() -> None:
    told = ask("verdict", text="x: int[0, 255]\nx >= 0")
    assert told["blocks"][0]["hidden"] == 156
    assert len(told["blocks"][0]["terms"]) == 100


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["file"])
def test_the_code_to_copy_runs(
    example: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, code in ask("verdict", text=example["text"])["code"].items():
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(code, name, "exec"), names)
        assert same(names["rules"], mx.Rules(example["text"]))
    assert "nan" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        'c: {"a", "b"}\nc == "a" or c == "b"',
        'x: real  # \\ and """\nx > 0',
        "f: function; x: real\nx < f(1)",
        "y: real; rules: input[0, 1]; x: input[2]\ny >= rules + x[0]",
    ],
)
def test_odd_rules_survive_being_quoted(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, code in ask("verdict", text=text)["code"].items():
        names: dict[str, Any] = {}
        exec(compile(code, name, "exec"), names)
        assert same(names["rules"], mx.Rules(text))


# --- the picture -----------------------------------------------------------------------------------------------------


def test_a_picture_has_one_region_a_term() -> None:
    told = ask("picture", text=ACTUATOR, inputs={"limit": "300"})
    assert [region["label"] for region in told["regions"]] == ["0", "1"]
    line, triangle = told["regions"]
    assert sorted(line["points"]) == [[0, 0], [0, 300]]
    assert line["ends"] == ["closed", "closed"]
    corners = sorted([round(x), round(y)] for x, y in triangle["points"])
    assert corners == [[200, 202], [200, 300], [298, 300]]
    assert sorted(triangle["kinds"]) == ["closed", "closed", "open"]


def test_whether_a_term_has_points_is_decided_exactly() -> None:
    text = "x: real; y: real; limit: input[0, 9]\ny >= 0; 3 < x < limit"
    assert len(ask("picture", text=text, inputs={"limit": "3.0000002"})["regions"]) == 1
    assert ask("picture", text=text, inputs={"limit": "3"})["regions"] == []


def test_a_slice_takes_the_numbers_as_they_were_typed() -> None:
    text = "x: real[3]\nx[0] + x[1] + x[2] == 0.3; x[2] == 0.1 or x[2] == 1/3"
    (region,) = ask("picture", text=text, fixed={"x[2]": "0.1"})["regions"]
    assert all(abs(x + y - 0.2) < 1e-9 for x, y in region["points"])
    assert len(ask("picture", text=text, fixed={"x[2]": "1/3"})["regions"]) == 1
    assert ask("picture", text=text, fixed={"x[2]": "0.3333"})["regions"] == []


def test_a_fixed_output_of_another_block_can_leave_nothing() -> None:
    text = "x >= 0; y >= 0; z >= 1"
    assert ask("picture", text=text, fixed={"z": "1"})["empty"] is None
    told = ask("picture", text=text, fixed={"z": "0.5"})
    assert told["regions"] == []
    assert told["empty"] == "no output obeys the rules with z = 0.5"


def test_one_output_is_a_line_and_an_axis_can_be_chosen() -> None:
    told = ask("picture", text="x: real; y: real\nx >= 2 or x <= -2; y > 0", axes=["x"])
    assert told["axes"] == ["x"]
    assert [sorted(region["ends"]) for region in told["regions"]] == [
        ["closed", "frame"]
    ] * 2
    assert sorted(
        sorted(x for (x,) in region["points"])[0] < 0 for region in told["regions"]
    ) == [
        False,
        True,
    ]
    assert ask("picture", text="x < y", axes=["y", "x"])["axes"] == ["y", "x"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"axes": ["z"]}, "'z' is not an output of the rules"),
        ({"axes": ["a", "a"]}, "one axis or two different ones"),
        ({"inputs": {"limit": "5"}}, r"limit = 5: it is declared as \[250, 1000\]"),
        ({"inputs": {"limt": "300"}}, "'limt' is not an input"),
        ({"inputs": {"limit": "1e999999999"}}, "write a number such as"),
        ({"inputs": {"limit": "1e9999"}}, "write a number such as"),
        ({"inputs": {"limit": "1/0"}}, "nothing can be divided by 0"),
        ({"inputs": {"limit": 300}}, "limit has no value"),
        ({"frame": [0, 0, 0, 1]}, "frame: expected"),
        ({"frame": [0, 1]}, "frame: expected"),
        ({"dtype": "float8"}, "dtype: expected one of"),
        ({"axes": "ab"}, "axes: expected"),
        ({"fixed": []}, "fixed: expected"),
        ({"text": 3}, "text: expected str"),
        ({"text": "x" * 60_000}, "reads at most 50,000"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    fields: dict[str, Any], said: str
) -> None:
    told = refusal("picture", **{"text": ACTUATOR, **fields})
    assert told["kind"] == "refused"
    assert re.search(said, told["message"])


def test_too_many_regions_are_refused() -> None:
    assert (
        "too many to be drawn"
        in refusal("picture", text="x: int[0, 300]; y: real\nx >= y")["message"]
    )


def test_rules_with_functions_have_a_verdict_and_no_picture() -> None:
    text = "f: function; x: real; y: real\nx >= f(y)"
    assert ask("verdict", text=text)["blocks"] is not None
    assert "functions" in refusal("picture", text=text)["message"]
    assert "functions={…}" in refusal("point", text=text)["message"]
    assert (
        "check the row in Python"
        in refusal("row", text=text, row={"x": "0", "y": "0"})["message"]
    )


# --- maps and samples ------------------------------------------------------------------------------------------------

DRAWABLE = [
    case.text
    for case in CASES
    if case.satisfiable
    and "function" not in case.text
    and "input" not in case.text
    and len(case.text) < 300
]


@pytest.mark.parametrize("text", DRAWABLE[::3])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_image_of_a_raw_point_obeys(text: str, dtype: str) -> None:
    size = len(mx.Rules(text).outputs)
    for raw in ([0.0] * size, [1e6] * size, [(-1) ** k * 2.5 * k for k in range(size)]):
        told = json.loads(
            answered(
                "layer",
                json.dumps(
                    {
                        "question": "point",
                        "fields": {"text": text, "raw": raw, "dtype": dtype},
                    }
                ),
            )
        )
        if "error" in told:
            assert (
                told["error"]["kind"] == "refused"
            )  # too thin for the dtype, or too many to be drawn
            continue
        for image in [*told["answer"]["images"], told["answer"]["best"]]:
            assert image["obeys"]
            assert obeys(text, image["row"])


def test_each_term_has_an_image_in_its_own_region() -> None:
    told = ask(
        "point", text="x: real; y: real\nx >= 2 or x <= -2\n0 <= y <= 1", raw=[0.5, -3]
    )
    positive = [image["at"][0] > 0 for image in told["images"]]
    assert [image["number"] for image in told["images"]] == [0, 1]
    assert sorted(positive) == [False, True]
    for image, is_positive in zip(told["images"], positive, strict=True):
        region = ask(
            "picture", text="x: real; y: real\nx >= 2 or x <= -2\n0 <= y <= 1"
        )["regions"][image["number"]]
        assert all((x > 0) == is_positive for x, _ in region["points"])


def test_a_term_that_an_input_rules_out_has_no_image() -> None:
    text = "x: real; u: input[0, 10]\n0 <= x <= 1 or 5 <= x <= u"
    assert len(ask("point", text=text, inputs={"u": "6"})["images"]) == 2
    assert len(ask("point", text=text, inputs={"u": "4"})["images"]) == 1


def test_grids_are_images_of_lines() -> None:
    told = ask("point", text="x < y or x > y + 1", grid=1)
    assert [grid["number"] for grid in told["grids"]] == [0, 1]
    for grid in told["grids"]:
        sides = {x < y for line in grid["lines"] for x, y in line}
        assert len(sides) == 1
    assert ask("point", text="x < y or x > y + 1")["grids"] == []
    assert all(
        len(line) == 1
        for line in ask("point", text="0 < x < 1", grid=1)["grids"][0]["lines"]
    )


def test_samples_of_a_fresh_layer_obey() -> None:
    told = ask(
        "samples", text=ACTUATOR, count=500, spread=40, seed=3, inputs={"limit": "250"}
    )
    assert told["obeying"] == told["count"] == 500
    limit = {"limit": Fraction(250)}
    assert all(
        obeys(ACTUATOR, {"a": repr(a), "b": repr(b)}, limit) for a, b in told["points"]
    )
    assert told == ask(
        "samples", text=ACTUATOR, count=500, spread=40, seed=3, inputs={"limit": "250"}
    )


def test_an_input_is_a_number_of_the_dtype_inside_its_range() -> None:
    text = "x: real; u: input[0, 0.1]\n0 <= x <= u"
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        told = ask("samples", text=text, count=50, inputs={"u": "0.1"}, dtype=dtype)
        assert told["obeying"] == 50


# --- the row ---------------------------------------------------------------------------------------------------------


def test_a_row_breaks_rules_by_so_much() -> None:
    told = ask(
        "row", text=ACTUATOR, row={"a": "200", "b": "0.1"}, inputs={"limit": "300"}
    )
    assert not told["obeys"]
    assert [
        (rule["line"], rule["obeyed"], rule["amount"]) for rule in told["rules"]
    ] == [
        (7, False, "on the boundary, which is excluded"),
        (8, False, "by 200"),
        (9, True, None),
    ]
    assert told["stored"]["b"].startswith("0.1000000000000000055511")


def test_a_row_is_judged_without_tolerance() -> None:
    text = "x + y == 0.3"
    assert not ask("row", text=text, row={"x": "0.1", "y": "0.2"})[
        "obeys"
    ]  # as floats they are not 3/10
    assert ask("row", text="x + y == 0.75", row={"x": "0.25", "y": "1/2"})["obeys"]


def test_repair_moves_a_row_into_the_rules_and_leaves_a_good_one() -> None:
    limit = {"limit": "300"}
    told = ask("repair", text=ACTUATOR, row={"a": "150", "b": "310"}, inputs=limit)
    assert told["obeys"]
    assert told["moved"]
    assert obeys(ACTUATOR, told["row"], {"limit": Fraction(300)})
    same = ask("repair", text=ACTUATOR, row=told["row"], inputs=limit)
    assert (same["moved"], same["row"]) == ([], told["row"])


def test_a_row_far_out_is_repaired() -> None:
    """Its distance is beyond float64, which once ended the worker: infinity is not JSON."""

    async def asked() -> dict[str, Any]:
        worker = Worker("layer", Limits())
        try:
            return await worker.ask(
                "repair",
                {"text": "x + y <= 2; x >= y", "row": {"x": "-1e300", "y": "1e300"}},
            )
        finally:
            await worker.stop()

    assert asyncio.run(asked())["answer"]["obeys"]


def test_an_answer_that_cannot_be_sent_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for answer, kind in (
        ({"far": float("inf")}, "unexpected"),
        ({"long": "x" * (9 << 20)}, "memory"),
    ):
        told: dict[str, Any] = dict(answer)
        monkeypatch.setitem(
            ANSWERS["verdict"], "verdict", partial(lambda told, asked: told, told)
        )
        assert refusal("verdict", text="x >= 1")["kind"] == kind


def test_a_row_needs_all_its_numbers_and_discrete_ones_in_their_domain() -> None:
    assert "b has no value" in refusal("row", text=ACTUATOR, row={"a": "1"})["message"]
    assert (
        "b = 1e400 is beyond float64"
        in refusal("row", text=ACTUATOR, row={"a": "1", "b": "1e400"})["message"]
    )
    told = ask("row", text="n: int[0, 3]; x: real\nx >= n", row={"n": "5", "x": "9"})
    assert not told["obeys"]
    assert told["outside"] == ["n = 5 is not one of the whole numbers 0, …, 3"]


def test_a_row_of_contradicting_or_exploding_rules_can_be_checked() -> None:
    assert not ask("row", text="x >= 1; x <= 0", row={"x": "3"})["obeys"]
    told = ask("row", text=exploding(), row={f"x[{i}]": "0" for i in range(12)})
    assert len(told["rules"]) == 41


# --- examples and files ----------------------------------------------------------------------------------------------


def module_at(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_examples_are_those_of_the_gallery() -> None:
    gallery = module_at(ROOT / "playground/gallery.py")
    assert gallery.examples() == EXAMPLES, (
        "write them anew: python playground/gallery.py"
    )


def test_the_editor_is_one_file_with_its_licences_and_no_addresses() -> None:
    text = (STATIC / "codemirror.js").read_text(encoding="utf-8")
    assert len(text.encode()) < 600_000
    assert text.startswith("/*! CodeMirror, bundled by playground/build.js from")
    assert text.count("Permission is hereby granted, free of charge") >= 2
    assert set(re.findall(r"https?://[\w.]+", text)) <= {"http://www.w3.org"}
    assert not re.search(r"/(work|home|tmp|root|usr)/", text)
    wanted = json.loads((ROOT / "playground/package.json").read_text(encoding="utf-8"))[
        "dependencies"
    ]
    assert [
        name for name, version in wanted.items() if f"{name} {version}" not in text
    ] == []


def test_the_page_names_only_files_that_are_there() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert named
    assert [
        path for path in named if not (STATIC / path.removeprefix("/static/")).is_file()
    ] == []
    for script in STATIC.glob("*.js"):
        text = script.read_text(encoding="utf-8")
        if script.name != "codemirror.js":
            assert "innerHTML" not in text
            assert [
                p
                for p in re.findall(r'from "\./([^"]+)"', text)
                if not (STATIC / p).is_file()
            ] == []


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_in_both_themes(theme: int) -> None:
    blocks = re.findall(
        r":root[^{]*\{(.*?)\}",
        (STATIC / "style.css").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert len(blocks) == 2
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", blocks[theme]))
    words = (
        "text",
        "quiet",
        "good",
        "bad",
        "warn",
        "keyword",
        "type",
        "function",
        "number",
        "string",
        "comment",
    )
    for back in ("card", "sunken"):
        assert {
            word for word in words if contrast(colours[word], colours[back]) < 4.5
        } == set()
        assert {
            k for k in range(8) if contrast(colours[f"t{k}"], colours[back]) < 3
        } == set()
        assert contrast(colours["edge"], colours[back]) >= 3  # of fields and buttons
    assert contrast(colours["text"], colours["bad-back"]) >= 4.5
    assert contrast(colours["on-accent"], colours["accent"]) >= 4.5


# --- what a question may cost ----------------------------------------------------------------------------------------


def test_a_question_that_takes_too_long_is_ended_and_the_next_is_answered() -> None:
    async def asked() -> None:
        worker = Worker("verdict", Limits(seconds=2))
        worker.start()
        try:
            assert "answer" in await worker.ask("verdict", {"text": "x >= 1"})
            start = time.monotonic()
            told = await worker.ask("verdict", {"text": exploding()})
            assert time.monotonic() - start < 10
            assert told["error"]["kind"] == "time"
            assert "no answer within 2 seconds" in told["error"]["message"]
            assert "answer" in await worker.ask("verdict", {"text": "x >= 1"})
        finally:
            await worker.stop()

    asyncio.run(asked())


def test_a_process_that_does_not_get_ready_is_no_fault_of_the_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def asked() -> None:
        worker = Worker("verdict", Limits())
        try:
            monkeypatch.setattr(pool, "STARTING_SECONDS", 0.001)
            told = await worker.ask("verdict", {"text": "x >= 1"})
            assert told["error"]["kind"] == "starting"
            assert "not ready within 60 seconds" in told["error"]["message"]
        finally:
            await worker.stop()

    asyncio.run(asked())


def test_who_stops_waiting_ends_the_work() -> None:
    async def asked() -> None:
        worker = Worker("verdict", Limits(seconds=60))
        worker.start()
        try:
            await worker.ask("verdict", {"text": "x >= 1"})
            assert worker._starting is not None
            before = (await worker._starting).pid
            long = asyncio.create_task(worker.ask("verdict", {"text": exploding()}))
            await asyncio.sleep(0.5)
            long.cancel()
            with suppress(asyncio.CancelledError):
                await long
            assert "answer" in await worker.ask("verdict", {"text": "x >= 1"})
            assert worker._starting is not None
            assert (await worker._starting).pid != before
            assert not Path(f"/proc/{before}").exists()
        finally:
            await worker.stop()

    asyncio.run(asked())


def test_a_question_that_takes_too_much_memory_is_refused_and_the_worker_replaced() -> (
    None
):
    async def asked() -> list[dict[str, Any]]:
        worker = Worker("verdict", Limits(megabytes=4))
        worker.start()
        try:
            told = [
                await worker.ask(
                    "verdict", {"text": "x: real[60]; all(v >= 1 for v in x)"}
                )
                for _ in range(2)
            ]
            worker.limits = Limits(megabytes=512)
            await worker._replaced()
            return [
                *told,
                await worker.ask(
                    "verdict", {"text": "x: real[60]; all(v >= 1 for v in x)"}
                ),
            ]
        finally:
            await worker.stop()

    *refused, answer = asyncio.run(asked())
    for told in refused:
        assert told["error"]["kind"] == "memory"
        assert "memory" in told["error"]["message"]
    assert len(answer["answer"]["sizes"]) == 60


def test_only_so_many_questions_wait() -> None:
    async def asked() -> list[dict[str, Any]]:
        worker = Worker("verdict", Limits(waiting=2))
        worker.start()
        try:
            return await asyncio.gather(
                *(worker.ask("verdict", {"text": "x >= 1"}) for _ in range(4))
            )
        finally:
            await worker.stop()

    told = asyncio.run(asked())
    assert [answer.get("error", {}).get("kind") for answer in told] == [
        None,
        None,
        "busy",
        "busy",
    ]


def test_a_worker_ends_with_whoever_asks_it_even_in_mid_answer() -> None:
    command = [sys.executable, "-m", "multiplexnet.playground.worker", "verdict", "512"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert json.loads(worker.stdout.readline()) == {"ready": ["verdict"]}
        worker.stdin.write(
            json.dumps({"question": "verdict", "fields": {"text": exploding()}}) + "\n"
        )
        worker.stdin.flush()
        time.sleep(0.5)
        worker.stdin.close()
        assert worker.wait(20) == 0


def test_hostile_text_ends_in_an_answer_or_an_error() -> None:
    """What the fuzzer makes of rules and of the other fields, asked of workers with their limits."""
    dice = random.Random(5)
    texts = [case.text for case in CASES if len(case.text) < 400]
    fields = {
        "text": ACTUATOR, "axes": ["a", "b"], "inputs": {"limit": "300"}, "fixed": {}, "row": {"a": "1", "b": "2"},
        "raw": [0.5, -1], "grid": 1, "count": 20, "seed": 1, "spread": 10, "dtype": "float32", "frame": [0, 0, 1, 1],
    }  # fmt: skip
    questions: list[tuple[str, Any]] = []
    for _ in range(40):
        questions.append(("verdict", {"text": mutated(dice.choice(texts), dice)}))
        questions.append(
            (dice.choice(list(ANSWERS["layer"])), mutated_json(fields, dice))
        )
    for nasty in NASTY:
        questions.append(("verdict", {"text": f"x: real\nx >= {nasty}"}))
        questions.append(("row", {"text": "x >= 1", "row": {"x": nasty}}))

    async def asked() -> list[tuple[Any, dict[str, Any]]]:
        workers = {kind: Worker(kind, Limits(seconds=3)) for kind in ANSWERS}
        for worker in workers.values():
            worker.start()
        try:
            return [
                (each, await workers[KIND_OF[each[0]]].ask(*each)) for each in questions
            ]
        finally:
            for worker in workers.values():
                await worker.stop()

    told = asyncio.run(asked())
    kinds = {"syntax", "refused", "contradiction", "time", "memory"}
    wrong = [
        (asked, answer)
        for asked, answer in told
        if answer.get("error", {"kind": "time"})["kind"] not in kinds
    ]
    assert wrong == []
    assert sum("answer" in answer for _, answer in told) > 10
    assert sum("error" in answer for _, answer in told) > 50


# --- who may ask -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    process, port = started("--port", "0", "--seconds", "20")
    yield port
    ended(process)


def request(
    port: int,
    method: str,
    path: str,
    body: str | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(
            method, path, body, {"Content-Type": "application/json", **(headers or {})}
        )
        response = connection.getresponse()
        return (
            response.status,
            {k.lower(): v for k, v in response.getheaders()},
            response.read().decode(),
        )
    finally:
        connection.close()


QUESTION = json.dumps({"text": "x >= 2 or x <= -2"})


def test_the_page_and_its_files_are_served_with_careful_headers(port: int) -> None:
    for path in (
        "/",
        "/static/app.js",
        "/static/codemirror.js",
        "/static/examples.json",
    ):
        status, headers, body = request(port, "GET", path)
        assert status == 200
        assert body
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert request(port, "GET", "/static/../server.py")[0] == 404
    assert request(port, "GET", "/static/%2e%2e/server.py")[0] == 404


def test_a_question_is_answered(port: int) -> None:
    status, _, body = request(port, "POST", "/ask/verdict", QUESTION)
    assert status == 200
    assert json.loads(body)["answer"]["sizes"] == [2]
    here = {
        "Origin": f"http://localhost:{port}",
        "Host": f"localhost:{port}",
        "Sec-Fetch-Site": "same-origin",
    }
    assert request(port, "POST", "/ask/verdict", QUESTION, here)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": "127.0.0.1.evil.example:{port}"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_strangers_are_refused(port: int, headers: dict[str, str]) -> None:
    filled = {
        name: value.replace("{port}", str(port)) for name, value in headers.items()
    }
    status, _, body = request(port, "POST", "/ask/verdict", QUESTION, filled)
    assert status == 403
    assert "answer" not in body
    if "Host" in headers:
        assert request(port, "GET", "/", headers=filled)[0] == 403


def test_a_link_elsewhere_may_lead_to_the_page(port: int) -> None:
    assert request(port, "GET", "/", headers={"Sec-Fetch-Site": "cross-site"})[0] == 200


def test_two_hosts_or_none_are_refused(port: int) -> None:
    for hosts in ("", f"Host: 127.0.0.1:{port}\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(
                f"GET / HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n".encode()
            )
            assert connection.recv(100).split()[1] in (b"400", b"403")


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/ask/nothing", QUESTION, {}, 404),
        ("/ask/verdict", QUESTION, {"Content-Type": "text/plain"}, 415),
        ("/ask/verdict", "{", {}, 400),
        ("/ask/verdict", "[" * 100_000, {}, 400),
        ("/ask/verdict", json.dumps({"text": "x" * 500_000}), {}, 400),
        ("/ask/verdict", "\xff", {}, 400),
    ],
    ids=["question", "type", "json", "depth", "size", "bytes"],
)
def test_what_is_no_question_is_refused(
    port: int, path: str, body: str, headers: dict[str, str], status: int
) -> None:
    found, _, told = request(port, "POST", path, body, headers)
    assert found == status
    assert json.loads(told)["error"]["kind"] == "refused"


def test_fields_that_are_no_object_are_refused(port: int) -> None:
    for body in ("3", "[]", "null", '"x"'):
        assert (
            json.loads(request(port, "POST", "/ask/row", body)[2])["error"]["kind"]
            == "refused"
        )
    assert request(port, "GET", "/ask/verdict")[0] == 405


def test_it_listens_on_one_address_of_this_machine_alone(port: int) -> None:
    with (
        pytest.raises(OSError),
        socket.create_connection(("127.0.0.2", port), timeout=5),
    ):
        pass


def test_a_page_that_goes_away_ends_its_question(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        body = json.dumps({"text": exploding()})
        connection.sendall(
            f"POST /ask/verdict HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        time.sleep(0.3)
    start = time.monotonic()
    assert request(port, "POST", "/ask/verdict", QUESTION)[0] == 200
    assert time.monotonic() - start < 15, (
        "it waited for the question of the page that has gone"
    )


def test_a_port_that_is_taken_is_an_error_with_a_way_out(port: int) -> None:
    command = [
        sys.executable,
        "-m",
        "multiplexnet",
        "playground",
        "--no-browser",
        "--port",
        str(port),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert f"port {port} cannot be used" in run.stderr
    assert "--port" in run.stderr


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_its_libraries_the_command_says_what_to_install(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from multiplexnet.playground.command import app\napp(['playground'])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 2
    assert (
        f"the playground needs {missing}: in a clone of multiplexnet, pip install -c constraints.txt '.[playground]'"
        in run.stderr
    )


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_an_interrupt_ends_it_and_its_workers() -> None:
    process, port = started("--port", "0")
    assert request(port, "POST", "/ask/verdict", QUESTION)[0] == 200
    children = (
        Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    )
    assert len(children) == len(ANSWERS)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    patience = time.monotonic() + 20
    while any(_runs(int(child)) for child in children) and time.monotonic() < patience:
        time.sleep(0.1)
    assert not any(_runs(int(child)) for child in children)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return (
            "(python" in Path(f"/proc/{pid}/stat").read_text()
            and " Z " not in Path(f"/proc/{pid}/stat").read_text()
        )
    except (ProcessLookupError, FileNotFoundError):
        return False
