"""Mutation fuzzing of everything that reads what a stranger wrote: no crash, and no exception but our own.

    python -m benchmarks.fuzz --minutes 60 --seed 0

Seeds are what can be read: the rules of the corpus in the three languages, tables, certificates and saved layers made
from them. Each is changed at random (characters, words and lines dropped, doubled, swapped, replaced by what has hurt
parsers before; in JSON also single leaves and whole branches, in binary files bits and bytes) and given to its reader.
Whatever comes out but a result or a ``MultiplexError`` is a finding, and so is an input that takes longer than
``--slow`` seconds of processor time. The summary goes to ``benchmarks/results/fuzz.json``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import torch

import multiplexnet
from multiplexnet.certificate import Certificate
from multiplexnet.certificate.check import checked
from multiplexnet.certificate.document import PARTS, hashes
from multiplexnet.errors import MultiplexError
from multiplexnet.language.text import specification_text
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules
from multiplexnet.smt.smtlib import to_smtlib
from multiplexnet.tables.check import check_table

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "fuzz.json"

NASTY = (
    *(
        "1e999999999",
        "10**10**10",
        "1/0",
        "0x" + "f" * 999,
        "9" * 5000,
        "1e-400",
        "-0",
        "NaN",
        "Infinity",
        "null",
    ),
    *(
        "(" * 300,
        "[" * 300,
        "{" * 300,
        "not " * 300,
        "-" * 300,
        "abs(" * 99,
        '"',
        "'",
        '"""',
        "\\",
        "\\\n",
        "`",
        "#",
    ),
    *(
        "\0",
        "\ufeff",
        "\u202e",
        "\ud800",
        "٣",
        "ﬁ",
        "\r",
        "\t",
        "\v",
        "\x1b[2J",
        "é",
        "𝒙",
        "=cmd|' /C calc'!A0",
    ),
    *(
        "__import__('os').system('false')",
        "x.__class__",
        "lambda: 0",
        "exec",
        "f'{x}'",
        "import os",
        "x[99999999999]",
    ),
    *(
        "real[1000000000]",
        "int[0, 10000000000]",
        "range(1000000000)",
        "all(x for x in x)",
        "for i in range(9)",
        "**",
    ),
    *(
        "(assert",
        "(declare-fun f (Real) Real)",
        "(exit)",
        "(forall ((z Real)) (> z 0))",
        "|",
        ";",
        "ordering",
        "neg",
    ),
    *(
        "and",
        "or",
        "implies(",
        "==",
        "!=",
        "<",
        ">=",
        ":",
        ",",
        "%",
        "//",
        "step 0.1",
        "decimal(2)[0, 1]",
        'd"2024-01-01"',
        "date(",
        "[:, 1]",
        "axis=0",
        "@",
        "``",
        "input ",
        " is missing",
        "if",
        "else",
        "in",
        "?",
        "real?",
        "is missing",
        "is not missing",
        "True",
        "None",
        "...",
    ),
)


WORDS = (
    '"Loan Amount": real; `class`: {"a", "b"}\nimplies("class" == "a", 0 <= "Loan Amount" <= 3)',
    "price: decimal(2)[0, 9]?; x: real[0, 4] step 0.5; price <= 2.5 or price is missing; x != 1.5",
    's: input date["2024-01-01", "2024-12-31"]; e: date; 0 <= e - s <= 30 and year(e) == 2024; e != d"2024-08-03"',
    't: datetime["2024-01-01", "2024-12-31 23:59:59"]; t >= datetime("2024-08-03 14:30")',
    "w: real[2, 3]; c: input[0, 1][2, 3]; all(0 <= w <= c); all(sum(w, axis=0) <= 1); w[1, 2] <= sum(w[:, 0])",
    "x: real[3]; n: int[0, 30]; argmax(x) == 1; count(x > 0) <= 2; mean(x) <= 1; norm(x, 1) <= 3; is_sorted(x[:2])",
    "x: real[3]; n: int[0, 30]; n % 3 == 1; n // 4 <= 5; n == floor(x[0]); round(x[1]) >= 2; norm(x, inf) <= 10**2",
    "x: real[2]; y: real[2]; all(x + 2*y <= [1, 2]); dot([1, 2], x) <= 3; all([[1, 2], [3, 4]] @ x >= -y)",
)
"""Words that came later, each a seed."""


def _written_again(text: str) -> object:
    """Rules, and the text that is written of them, which has to be read as well."""
    rules = Rules(text)
    if not rules.specification.variables:
        return rules
    written = specification_text(rules.specification)
    try:
        return Rules(written)
    except MultiplexError as error:
        raise AssertionError(f"{written!r} cannot be read: {error}") from None


# --- mutation -------------------------------------------------------------------------------------------------------


def mutated(text: str, dice: random.Random) -> str:
    """The text with a few random changes."""
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        text = dice.choice(CHANGES)(text, dice)
    return text


def _span(text: str, dice: random.Random) -> tuple[int, int]:
    start = dice.randint(0, len(text))
    return start, min(len(text), start + dice.choice((0, 1, 1, 2, 5, 20)))


def _dropped(text: str, dice: random.Random) -> str:
    start, stop = _span(text, dice)
    return text[:start] + text[stop:]


def _doubled(text: str, dice: random.Random) -> str:
    start, stop = _span(text, dice)
    return text[:stop] + text[start:stop] * dice.choice((1, 2, 50)) + text[stop:]


def _nasty(text: str, dice: random.Random) -> str:
    start, stop = _span(text, dice)
    return text[:start] + dice.choice(NASTY) + text[stop:]


def _character(text: str, dice: random.Random) -> str:
    at = dice.randint(0, len(text))
    return (
        text[:at]
        + chr(dice.choice((dice.randint(0, 127), dice.randint(0, 0x10FFFF))))
        + text[at + 1 :]
    )


def _moved(text: str, dice: random.Random) -> str:
    start, stop = _span(text, dice)
    rest = text[:start] + text[stop:]
    at = dice.randint(0, len(rest))
    return rest[:at] + text[start:stop] + rest[at:]


def _lines(text: str, dice: random.Random) -> str:
    lines = text.split("\n")
    dice.shuffle(lines)
    return "\n".join(lines[: dice.randint(1, len(lines))])


CHANGES = (_dropped, _doubled, _nasty, _nasty, _character, _moved, _lines)


def mutated_json(data: Any, dice: random.Random) -> Any:
    """Plain data with some leaves and branches changed."""
    data = json.loads(json.dumps(data))
    for _ in range(dice.choice((1, 1, 2, 5))):
        parent, key = _place(data, dice)
        value = parent[key]
        kind = dice.randrange(6)
        if kind == 0:
            del parent[key]
        elif kind == 1 and isinstance(parent, list):
            parent.insert(key, value)
        elif kind == 2 and isinstance(value, int):
            parent[key] = dice.choice((value + 1, -value - 1, 10**20, True, str(value), None))
        elif kind == 3 and isinstance(value, str):
            parent[key] = mutated(value, dice)
        elif kind == 4:
            other, name = _place(data, dice)
            parent[key] = json.loads(json.dumps(other[name]))
        else:
            parent[key] = dice.choice(
                (None, True, -1, 2**70, "", "1/0", [], {}, [[]], "x", dice.choice(NASTY), [value])
            )
        if not data:
            break
    return data


def _place(data: Any, dice: random.Random) -> tuple[Any, Any]:
    """A random place in the data, and its key there; the deeper the likelier."""
    places: list[tuple[Any, Any]] = []
    stack = [data]
    while stack:
        node = stack.pop()
        for key, value in list(node.items()) if isinstance(node, dict) else list(enumerate(node)):
            places.append((node, key))
            if isinstance(value, dict | list):
                stack.append(value)
    return dice.choice(places) if places else ({"": None}, "")


# --- targets --------------------------------------------------------------------------------------------------------


@dataclass
class Target:
    """One reader and the texts that its inputs are made from.

    Args:
        name: of the reader.
        seeds: texts, or plain data.
        change: makes an input from a seed.
        read: gives an input to the reader.
        share: how often it comes up, against the others.
    """

    name: str
    seeds: Sequence[Any]
    change: Callable[[Any, random.Random], Any]
    read: Callable[[Any], object]
    share: int = 1
    runs: int = 0
    read_well: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0


def _forged(data: Any, dice: random.Random) -> Any:
    """A changed certificate, mostly with hashes that fit again."""
    data = mutated_json(data, dice)
    if dice.random() < 0.7 and isinstance(data, dict) and all(name in data for name in PARTS):
        data["sha256"] = hashes(data)
    return mutated(json.dumps(data), dice) if dice.random() < 0.3 else json.dumps(data)


def _read_certificate(text: str) -> object:
    return checked(Certificate.from_json(text.encode(errors="surrogatepass"))).certified


def _state(data: Any, dice: random.Random) -> bytes:
    text = (
        json.dumps(mutated_json(data, dice))
        if dice.random() < 0.8
        else mutated(json.dumps(data), dice)
    )
    return text.encode(errors="surrogatepass")


def _read_state(state: bytes) -> object:
    return Multiplexer.from_state(
        {"_extra_state": torch.frombuffer(bytearray(state or b" "), dtype=torch.uint8)}
    )


def _bytes(text: str, dice: random.Random) -> bytes:
    """A text as a file in which some bytes are wrong."""
    data = mutated(text, dice).encode(errors="surrogatepass")
    return data if dice.random() < 0.3 else _damaged(data, dice)


def _damaged(data: bytes, dice: random.Random) -> bytes:
    """Bytes changed, inserted and cut out, bits flipped."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 5))):
        at = dice.randint(0, len(changed))
        kind = dice.randrange(4)
        if kind == 0:
            del changed[at : at + dice.choice((1, 4, 100))]
        elif kind == 1:
            changed[at:at] = dice.randbytes(dice.choice((1, 1, 4, 8)))
        elif kind == 2:
            changed[at : at + 1] = dice.randbytes(1)
        elif at < len(changed):
            changed[at] ^= 1 << dice.randrange(8)
    return bytes(changed)


def _reader_of_files(folder: Path) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        suffix = (
            ".smt2" if b"(declare" in data else ".txt" if data.startswith(b"ordering") else ".rules"
        )
        path = (folder / "file").with_suffix(suffix)
        path.write_bytes(data)
        return Rules.load(path)

    return read


def _reader_of_tables(folder: Path, name: str) -> Callable[[bytes], object]:
    """Checks a table, prints the report, writes the rows that do not obey and reads them again."""
    specification = Rules(
        'x: real; n: int[0, 9]?; on: bool; c: {"a", "b"}?; u: input[0, 1]\nx >= n; implies(on, x > u); '
        "c is missing or n is not missing"
    ).specification
    written = folder / "written.parquet"

    def read(data: bytes) -> object:
        path = folder / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        report = check_table(specification, path, output=written, strips=True)
        str(report), report.to_json()
        if pl.read_parquet(written).height != report.rows - report.obeying:
            raise AssertionError("other rows were written than those that do not obey")
        return report

    return read


TABLES = (
    "x,n,on,c,u\n1.5,1,true,a,0.5\n2e3,2,0,b,1\n",
    'x,n,on,c,u\n"1.5", 1 ,TRUE,"a",0.5\n-1e-3,2,false,b,1e0\n+.5,0,1,a,0\n',
    "u;x;n\n1;2;3\n",
    "id,x,n,on,c,u\r\n1,12345678901234567890.5,9,1,b,0.1\r\n",
    "x;n;on;c;u\n1,5;;yes;;0.5\nNaN;n/a;T;a;1\n",
    "u\tx\tn\ton\tc\n1\t2\tnull\tno\tb\n\t-inf\t3\tf\tx\n",
)


def _arrow_files() -> list[bytes]:
    columns: dict[str, Any] = {
        "x": [1.5, None] * 20,
        "n": [1, 2] * 20,
        "on": [True, None] * 20,
        "c": ["a", None] * 20,
        "u": [0.5, 1.0] * 20,
    }
    frame = pl.DataFrame(columns)
    files = []
    for write in (frame.write_ipc, frame.write_ipc_stream):
        for compression in ("uncompressed", "zstd"):
            file = BytesIO()
            write(file, compression=compression, compat_level=pl.CompatLevel.oldest())
            files.append(file.getvalue())
    return files


def _parquet_files() -> list[bytes]:
    columns: dict[str, Any] = {
        "x": [1.5, 2e3] * 20,
        "n": [1, 2] * 20,
        "on": [True, False] * 20,
        "c": ["a", "b"] * 20,
    }
    usual = pl.DataFrame({**columns, "u": [0.5, 1.0] * 20})
    other = usual.with_columns(
        pl.col("x").cast(pl.Decimal(10, 2)), pl.col("n").cast(pl.UInt8), pl.col("on").cast(pl.Int64),
        pl.col("c").cast(pl.Categorical), pl.col("u").cast(pl.Float32), lists=pl.concat_list("n", "n"),
    )  # fmt: skip
    files = []
    for frame in (usual, other):
        for compressed in (True, False):
            frame.write_parquet(
                file := BytesIO(), compression="zstd" if compressed else "uncompressed"
            )
            files.append(file.getvalue())
    return files


def targets(folder: Path, every: int = 4) -> list[Target]:
    """All readers with their seeds; layers are built of one in ``every`` rules of the corpus."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from corpus import CASES

    texts = [case.text for case in CASES if len(case.text) < 2_000]
    small = [
        Rules(case.text)
        for case in CASES
        if case.satisfiable and len(case.text) < 120 and "function" not in case.text
    ]
    layers = []
    from_smtlib = [
        Rules.from_smtlib(to_smtlib(rules.specification)) for rules in small[:: 3 * every]
    ]
    for rules in [*small[::every], *from_smtlib]:
        try:
            layers.append(Multiplexer(rules))
        except MultiplexError:
            continue
    small_layers = [mux for mux in layers if len(mux.terms) <= 12]
    states = [json.loads(bytes(mux.get_extra_state().tolist())) for mux in small_layers]
    certificates = [json.loads(mux.certificate.to_json()) for mux in small_layers]
    ordering = [
        "ordering y_1 y_0 y_2\ny_1 - 2 y_0 >= 0\nneg y_2 > 0.5 or y_1 > 3",
        "ordering a\n# note\n2.5*a = 1e-3\n",
    ]
    scripts = [to_smtlib(rules.specification) for rules in small]
    return [
        Target("rules", texts, mutated, Rules, share=6),
        Target("words", list(WORDS), mutated, _written_again, share=6),
        Target("smtlib", scripts, mutated, Rules.from_smtlib, share=3),
        Target("ordering", ordering, mutated, Rules.from_ordering, share=2),
        Target("file", [*texts, *scripts, *ordering], _bytes, _reader_of_files(folder), share=2),
        Target("csv", TABLES, _bytes, _reader_of_tables(folder, "table.csv"), share=2),
        Target(
            "parquet",
            _parquet_files(),
            _damaged,
            _reader_of_tables(folder, "table.parquet"),
            share=2,
        ),
        Target("csv.gz", TABLES, _bytes, _reader_of_tables(folder, "table.csv.gz"), share=1),
        Target(
            "arrow", _arrow_files(), _damaged, _reader_of_tables(folder, "table.arrow"), share=2
        ),
        Target("certificate", certificates, _forged, _read_certificate, share=3),
        Target("state", states, _state, _read_state, share=3),
    ]


# --- running --------------------------------------------------------------------------------------------------------


def tried(target: Target, dice: random.Random, slow: float) -> dict[str, Any] | None:
    """One mutation; what is wrong with the reader, if something is."""
    given = target.change(dice.choice(target.seeds), dice)
    start = time.process_time()
    finding = None
    try:
        target.read(given)
        target.read_well += 1
    except MultiplexError as error:
        target.refused[type(error).__name__] += 1
        str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # what extensions raise in a panic is no Exception
        where = traceback.extract_tb(error.__traceback__)[-1]
        finding = {
            "error": f"{type(error).__name__}: {str(error)[:200]}",
            "where": f"{Path(where.filename).name}:{where.lineno}",
        }
    seconds = time.process_time() - start
    target.runs += 1
    target.slowest = max(target.slowest, seconds)
    if finding is None and seconds > slow:
        finding = {"error": f"{seconds:.1f} s", "where": "slow"}
    shown = given if isinstance(given, str) else bytes(given).decode(errors="replace")
    return None if finding is None else {"reader": target.name, **finding, "input": shown[:2000]}


def fuzzed(
    seconds: float, seed: int, slow: float, *, most: int | None = None, every: int = 4
) -> dict[str, Any]:
    """Fuzz for some seconds (or ``most`` runs) and give the summary."""
    dice = random.Random(seed)
    start = time.perf_counter()
    findings: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        all_targets = targets(Path(folder), every)
        weights = [target.share for target in all_targets]
        while time.perf_counter() - start < seconds and (
            most is None or sum(t.runs for t in all_targets) < most
        ):
            (target,) = dice.choices(all_targets, weights)
            found = tried(target, dice, slow)
            if (
                found is not None
                and (place := f"{found['reader']} {found['where']}") not in findings
            ):
                findings[place] = found
                print(f"{place}: {found['error']}", file=sys.stderr, flush=True)
    return {
        "command": f"python -m benchmarks.fuzz --minutes {seconds / 60:g} --seed {seed}",
        "multiplexnet": multiplexnet.__version__,
        "python": sys.version.split()[0],
        "seconds": round(time.perf_counter() - start),
        "runs": sum(target.runs for target in all_targets),
        "findings": list(findings.values()),
        "largest_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "readers": {
            target.name: {
                "seeds": len(target.seeds),
                "runs": target.runs,
                "read": target.read_well,
                "refused": dict(sorted(target.refused.items())),
                "slowest_seconds": round(target.slowest, 3),
            }
            for target in all_targets
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--slow", type=float, default=30.0, help="seconds of processor time that count as a finding"
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    summary = fuzzed(60 * options.minutes, options.seed, options.slow)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(f"{summary['runs']:,} runs, {len(summary['findings'])} findings: {options.output}")
    if summary["findings"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
