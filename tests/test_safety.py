"""What strangers wrote: rules, tables, certificates and saved layers run no code, and end in our own exceptions."""

from __future__ import annotations

import io
import json
import pickle
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fuzz
import fuzz_readers
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from multiplexnet.certificate import Certificate
from multiplexnet.certificate.check import checked
from multiplexnet.certificate.document import PARTS, hashes
from multiplexnet.errors import MultiplexError, RecordError, RuleSyntaxError, TableError
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules
from multiplexnet.tables.check import check_table
from multiplexnet.tools.cli import app

MANY = 3_000
X = "(declare-const x Real)"


def exit_code(*arguments: object) -> int:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        result.exception
    )
    return result.exit_code


# --- nothing is run --------------------------------------------------------------------------------------------------

CODE = (
    '__import__("os").system("touch {mark}")',
    'open("{mark}", "w") or x > 1',
    'x >= (lambda: open("{mark}", "w"))()',
    'x >= [open("{mark}", "w") for _ in range(1)][0]',
    'x: open("{mark}", "w")\nx > 1',
    'x: real = open("{mark}", "w")',
    "x >= f\"{{open('{mark}', 'w')}}\"",
    '@open("{mark}", "w")\ndef f(): pass',
    "import os; os.system('touch {mark}')",
    'exec(\'open("{mark}", "w")\') > x',
    "().__class__.__base__.__subclasses__() > x",
    'c: {{"a", open("{mark}", "w")}}\nc == "a"',
)


@pytest.mark.parametrize("code", CODE)
def test_rules_are_never_run(code: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(RuleSyntaxError):
        Rules(code.format(mark=mark))
    file = tmp_path / "a.rules"
    file.write_text(code.format(mark=mark))
    assert exit_code("explain", file) == 2
    assert not mark.exists()


@pytest.mark.parametrize(
    "command",
    [
        '(set-option :regular-output-channel "{mark}")',
        '(set-option :diagnostic-output-channel "{mark}")',
    ],
)
def test_a_script_writes_no_file(command: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = f"{command.format(mark=mark)}{X}(assert (> x 1))(check-sat)(get-model)"
    mux = Multiplexer(Rules.from_smtlib(text))
    assert checked(mux.certificate).certified  # cvc5 reads it, too
    assert not mark.exists()


class Evil:
    """Unpickled, it would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('code was run')",)


def test_saved_layers_load_as_plain_weights(tmp_path: Path) -> None:
    mux = Multiplexer(Rules("x >= 2 or x <= -2"))
    torch.save(mux.state_dict(), tmp_path / "good.pt")
    loaded = Multiplexer.from_state(torch.load(tmp_path / "good.pt", weights_only=True))
    assert (loaded.terms, loaded.certificate) == (mux.terms, mux.certificate)
    torch.save({"_extra_state": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "evil.pt", weights_only=True)


# --- texts -----------------------------------------------------------------------------------------------------------

RULES = {
    "brackets": "(" * MANY + "x" + ")" * MANY + " > 1",
    "open brackets": "[" * MANY,
    "not": "not " * MANY + "x > 1",
    "minus": "-" * MANY + "x > 1",
    "calls": "abs(" * MANY + "x" + ")" * MANY + " > 1",
    "maxima": "max(1," * 99 + "x" + ")" * 99 + " > 1",
    "doubled": "abs(" * 90 + "x" + ")" * 90 + " > 1",
    "conditions": "(1 if x > " * MANY + "x" + " else 2)" * MANY + " > 1",
    "conjunction": " and ".join(["x > 1"] * MANY),
    "chain": " < ".join(f"x{i}" for i in range(MANY)),
    "sum": "x > " + "+".join(["x"] * MANY),
    "product": "x > " + "*".join(["9"] * MANY),
    "labels": "c: {" + ",".join(f'"{i}"' for i in range(MANY)) + '}\nc == "1"',
    "power": "x >= 10**10**10",
    "shift": "x >= 1 << 10000000000",
    "exponent": "x >= 1e999999999",
    "small exponent": "x >= 1e-999999999",
    "digits": "x >= " + "9" * 5_000,
    "decimals": "x >= 0." + "9" * 5_000,
    "hexadecimal": "x >= 0x" + "f" * 50_000,
    "imaginary": "x >= 1j",
    "giant vector": "x: real[1000000000]\nx[0] > 1",
    "giant index": "x[99999999999] > 1",
    "giant range": "all(x > i for i in range(1000000000))",
    "repeated label": '"a" * 1000000000 == x',
    "repeated list": "[x] * 1000000000 == x",
    "NUL": "x > 1\0",
    "surrogate": "x\ud800 > 1",
    "right to left": "x > 1 \u202e y",
    "quote": 'x > "abc',
    "quotes": '"' + '\\"' * MANY,
    "semicolons": ";" * MANY,
    "nothing": "",
}
SMTLIB = {
    "brackets": "(" * MANY,
    "closed": ")" * MANY,
    "not": f"{X}(assert {'(not ' * MANY}(> x 1){')' * MANY})",
    "conditions": f"{X}(assert (> {'(ite (> x 1) 1.0 ' * MANY}x{')' * MANY} 1))",
    "digits": f"{X}(assert (> x {'9' * 5000}))",
    "power": f"{X}(assert (> x (^ 10.0 10000000.0)))",
    "squares": f"{X}(assert (> x (let ((a0 99999.0)) "
    + "".join(f"(let ((a{i + 1} (* a{i} a{i}))) " for i in range(60))
    + "a60"
    + ")" * 62
    + ")",
    "range with an exponent": f'(set-info :inputs "x[0, 1e999999999]"){X}(assert (> x 1))',
    "range by zero": f'(set-info :inputs "x[0, 1/0]"){X}(assert (> x 1))',
    "quantifier": f"{X}(assert (forall ((y Real)) (> x y)))",
    "bits": "(declare-const b (_ BitVec 100000000))(assert (= b b))",
    "NUL": f"{X}\0(assert (> x 1))",
    "surrogate": "(declare-const |\ud800| Real)(assert (> |\ud800| 1))",
    "quote": '"' * 999,
    "another file": '(include "/etc/passwd")',
    "nothing": "",
}
ORDERING = {
    "exponent": "ordering y_0\ny_0 > 1e999999999",
    "digits": "ordering y_0\ny_0 > " + "9" * 5_000,
    "digits of an exponent": "ordering y_0\ny_0 > 1e" + "9" * 5_000,
    "sum": "ordering y_0\n" + " + ".join(["y_0"] * MANY) + " > 1",
    "neg": "ordering y_0\n" + "neg " * MANY + "y_0 > 1",
    "NUL": "ordering y_0\ny_0 > 1\0",
    "another digit": "ordering y_0\ny_0 > ١",
    "nothing": "",
}
TEXTS: list[tuple[Any, str, str]] = [
    *((Rules, name, text) for name, text in RULES.items()),
    *((Rules.from_smtlib, name, text) for name, text in SMTLIB.items()),
    *((Rules.from_ordering, name, text) for name, text in ORDERING.items()),
]
READ = {"maxima", "conjunction", "chain", "labels", "sum", "not"}
"""What is only long, and may be read as well."""


def test_names_that_are_no_text() -> None:
    """JSON can hold half of a surrogate pair: found by fuzzing, where it crashed who wrote it down."""
    mux = Multiplexer(Rules("0 <= x <= 1"))
    data = json.loads(mux.certificate.to_json())
    data["rules"]["variables"][0][0] = "\ud800x"
    data["sha256"] = hashes(data)
    with pytest.raises(RecordError, match="is not text"):
        checked(Certificate.from_json(json.dumps(data)))
    state = bytes(mux.get_extra_state().tolist()).replace(b'"x"', b'"\\ud800x"')
    state = state.replace(b'"sha256"', b'"none"')  # it would not fit
    with pytest.raises(RecordError, match="is not text"):
        Multiplexer.from_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


@pytest.mark.parametrize(
    ("read", "name", "text"), TEXTS, ids=[f"{r.__qualname__}-{n}" for r, n, _ in TEXTS]
)
def test_hostile_texts_are_refused_or_read(
    read: Callable[[str], Rules], name: str, text: str
) -> None:
    if name in READ:
        with suppress(RuleSyntaxError):
            read(text)
        return
    with pytest.raises(RuleSyntaxError):
        read(text)


@pytest.mark.parametrize("suffix", [".rules", ".smt2", ".txt"])
@pytest.mark.parametrize(
    "data",
    [
        b"x > 1\xff",
        b"\xff\xfex\x00>\x001\x00",
        b"\0" * 99,
        b"\x89PNG\r\n\x1a\n\0\0",
        b"",
        b"\xc0\xaf",
        b"PK\x03\x04",
    ],
)
def test_files_that_are_no_text(data: bytes, suffix: str, tmp_path: Path) -> None:
    path = (tmp_path / "file").with_suffix(suffix)
    path.write_bytes(data)
    with pytest.raises(RuleSyntaxError):
        Rules.load(path)
    assert exit_code("explain", path) == 2


def test_a_mark_before_utf8_is_no_harm(tmp_path: Path) -> None:
    for name, text in (
        ("a.rules", "x > 1"),
        ("b.txt", "ordering x\nx > 1"),
        ("c.smt2", f"{X}(assert (> x 1))"),
    ):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert [v.name for v in Rules.load(tmp_path / name).outputs] == ["x"]


# --- tables ----------------------------------------------------------------------------------------------------------

TABLES = {
    "formula": "x,y\n=cmd|' /C calc'!A0,1\n",
    "another formula": 'x,y\n"=HYPERLINK(""http://a"")",1\n',
    "open quote": 'x,y\n"1,2\n3,4\n',
    "quote inside": 'x,y\n1"2,3\n',
    "too few cells": "x,y\n1\n",
    "too many cells": "x,y\n1,2,3\n",
    "names twice": "x,x\n1,2\n",
    "no names": ",\n1,2\n",
    "empty": "",
    "lines": "\n\n\n",
    "digits": f"x,y\n{'9' * 5000},1\n",
    "exponent": "x,y\n1e999999999,1\n",
    "infinite": "x,y\ninf,nan\n",
    "NUL": "x,y\n1\0,2\n",
    "another digit": "x,y\n١,2\n",
    "escape": "x,y\n\x1b[2J,1\n",
    "wide": ",".join(f"c{i}" for i in range(MANY)) + "\n",
    "long cell": f"x,y\n{'a' * 300_000},1\n",
    "long name": f"{'a' * 300_000},y\n1,2\n",
}


BAD_CELLS = (
    *(
        "formula",
        "another formula",
        "too few cells",
        "digits",
        "exponent",
        "infinite",
        "NUL",
    ),
    *("another digit", "escape", "long cell"),
)
"""Tables that can be read but for single cells; those are counted."""


@pytest.mark.parametrize("name", TABLES)
def test_hostile_tables(name: str, tmp_path: Path) -> None:
    rules, path = Rules("x: real; y: real\nx >= y"), tmp_path / "t.csv"
    path.write_text(TABLES[name], encoding="utf-8", newline="")
    expected = 1 if name in BAD_CELLS else 2
    if name in BAD_CELLS:
        report = check_table(rules.specification, path)
        assert report.obeying == 0
        assert report.cells
        assert "\x1b" not in str(report)
    else:
        with pytest.raises(TableError):
            check_table(rules.specification, path)
    (tmp_path / "a.rules").write_text("x: real; y: real\nx >= y")
    assert exit_code("check", tmp_path / "a.rules", path) == expected


@pytest.mark.parametrize(
    "data",
    [b"", b"PAR1", b"PAR1" + b"\0" * 99 + b"PAR1", b"\xff" * 99, b"x,y\n1,\xff\n"],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_that_are_no_tables(data: bytes, suffix: str, tmp_path: Path) -> None:
    path = (tmp_path / "t").with_suffix(suffix)
    path.write_bytes(data)
    with pytest.raises(TableError):
        check_table(Rules("x: real; y: real\nx >= y").specification, path)


def test_a_table_cut_short(tmp_path: Path) -> None:
    whole = io.BytesIO()
    pl.DataFrame({"x": [1.0] * 999, "y": [0.0] * 999}).write_parquet(whole)
    path = tmp_path / "t.parquet"
    for size in (8, 50, 200, len(whole.getvalue()) - 1):
        path.write_bytes(whole.getvalue()[:size])
        with pytest.raises(TableError):
            check_table(Rules("x: real; y: real\nx >= y").specification, path)


# --- certificates and saved layers -----------------------------------------------------------------------------------


def certificate() -> str:
    return Multiplexer(
        Rules("x: real; y: real\nx + y <= 1; x >= 0; y >= 0")
    ).certificate.to_json()


TEXT = certificate()
DOCUMENTS = {
    "nothing": "",
    "null": "null",
    "a list": "[]",
    "a number": "1",
    "NaN": TEXT.replace('"version": 1', '"version": NaN'),
    "infinite": TEXT.replace('"questions": ', '"questions": 1e999'),
    "a float": TEXT.replace('"version": 1,', '"version": 1.0,'),
    "true": TEXT.replace('"version": 1,', '"version": true,'),
    "a name twice": TEXT.replace('"version": 1,', '"version": 1, "version": 1,'),
    "a number of digits": TEXT.replace('"questions": ', f'"questions": {"9" * 5000}'),
    "an exponent": TEXT.replace('"1/2"', '"1e999999999"').replace(
        '"0"', '"1e999999999"'
    ),
    "deep": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "closed": "[" * 900 + "]" * 900,
    "deep rows": TEXT.replace(
        '"terms": {', '"terms": {"more": ' + "[" * 150 + "]" * 150 + ", "
    ),
    "cut": TEXT[: len(TEXT) // 2],
    "twice": TEXT * 2,
    "NUL": TEXT.replace("{", "{\0", 1),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_hostile_certificates(name: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        checked(Certificate.from_json(DOCUMENTS[name]))
    (tmp_path / "c.json").write_text(DOCUMENTS[name])
    assert exit_code("certify", tmp_path / "c.json") == 2


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe{}",
        b"\xff" * 99,
        b"\x80abc",
        TEXT.encode("utf-16"),
        TEXT.encode("utf-32"),
    ],
)
def test_certificates_that_are_no_text(data: bytes) -> None:
    with pytest.raises(RecordError):
        Certificate.from_json(data)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["", "0", "1/0", "-1", "1e9", "x", "<=", "box", "9" * 999]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["rows", "kind", "terms", "a"]), inner, max_size=2
        )
    ),
    max_leaves=4,
)


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every place in nested data: what holds it, and its key there."""
    found, stack = [], [data]
    while stack:
        node = stack.pop()
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            found.append((node, key))
            if isinstance(value, dict | list):
                stack.append(value)
    return found


@settings(max_examples=100)
@given(st.integers(0), VALUES)
def test_anything_anywhere_in_a_certificate(where: int, value: Any) -> None:
    data = json.loads(TEXT)
    found = [place for name in PARTS for place in places(data[name])]
    parent, key = found[where % len(found)]
    parent[key] = value
    data["sha256"] = hashes(data)
    with suppress(MultiplexError):
        checked(Certificate(data))


STATE = json.loads(
    bytes(
        Multiplexer(Rules("x: real; on: bool\nx >= 2 and on or x <= -2"))
        .get_extra_state()
        .tolist()
    )
)
del STATE["sha256"]  # a changed record would not fit it


def from_record(record: Any) -> Multiplexer:
    data = record if isinstance(record, bytes) else json.dumps(record).encode()
    return Multiplexer.from_state(
        {"_extra_state": torch.frombuffer(bytearray(data), dtype=torch.uint8)}
    )


@settings(max_examples=100)
@given(st.integers(0), VALUES)
def test_anything_anywhere_in_a_saved_layer(where: int, value: Any) -> None:
    record = json.loads(json.dumps(STATE))
    found = places(record)
    parent, key = found[where % len(found)]
    parent[key] = value
    with suppress(MultiplexError):
        from_record(record)


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"[]",
        b"[" * 100_000,
        b"\xff" * 9,
        b'{"version": 1}',
        b"1e999999999",
        b"NaN",
    ],
)
def test_states_that_are_none(data: bytes) -> None:
    with pytest.raises(RecordError):
        from_record(data)
    for state in (
        data,
        None,
        {},
        torch.zeros(3),
        torch.zeros(2, 2, dtype=torch.uint8),
        {"_extra_state": "text"},
    ):
        with pytest.raises(RecordError):
            Multiplexer.from_state(state)


def test_numbers_in_a_saved_layer_cannot_explode() -> None:
    text = json.dumps(STATE)
    assert '"2"' in text
    for number in (
        "1e999999999",
        "1/0",
        "0x10",
        "1_000",
        " 1",
        "nan",
        "9" * 20_000,
        "1.5",
    ):
        with pytest.raises(RecordError):
            from_record(text.replace('"2"', f'"{number}"').encode())


def test_a_saved_layer_that_does_not_fit_together() -> None:
    changes: tuple[tuple[Callable[[Any], Any], str], ...] = (
        (lambda r: r["compiled"]["blocks"].pop(), "do not hold every output once"),
        (
            lambda r: r["compiled"]["blocks"][0]["outputs"].__setitem__(0, -1),
            "there is no variable -1",
        ),
        (
            lambda r: r["compiled"]["blocks"][0]["terms"][0]["fixed"].clear(),
            "does not fix each of its discrete outputs",
        ),
        (lambda r: r.__setitem__("dtype", "load"), "torch.load"),
        (
            lambda r: r["compiled"]["blocks"][0]["terms"].clear(),
            "a block without terms",
        ),
    )
    for change, said in changes:
        record = json.loads(json.dumps(STATE))
        change(record)
        with pytest.raises(RecordError, match=said):
            from_record(record)


# --- fuzzing ---------------------------------------------------------------------------------------------------------


def test_an_input_that_takes_for_ever_is_a_finding() -> None:
    def read(given: str) -> None:
        while True:
            pass

    target = fuzz_readers.Target("endless", ["x"], lambda given, dice: given, read)
    before = signal.signal(signal.SIGVTALRM, fuzz._give_up)
    found = fuzz.tried(target, random.Random(0), slow=0.02)
    signal.signal(signal.SIGVTALRM, before)
    assert found is not None
    assert found["error"] == "GivenUp: far too slow"


def test_some_hundred_mutations_find_nothing() -> None:
    """``make fuzz`` does the same for an hour."""
    summary = fuzz.fuzzed(600, seed=1, slow=60, most=900, every=40)
    assert summary["findings"] == []
    assert summary["runs"] == 900
    assert all(reader["runs"] > 5 for reader in summary["readers"].values())
