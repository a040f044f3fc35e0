"""Tables against fractions of their cells, and every way a table can be wrong."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import multiplexnet as mx
from multiplexnet.errors import OptionError, TableError
from multiplexnet.language.formula import Bool, Category, Specification, Variable, holds
from multiplexnet.language.parser.parse import parse
from multiplexnet.reports.printing import plain_text
from multiplexnet.reports.tables import check_text
from multiplexnet.rules import Rules
from multiplexnet.tables import output as outputs
from multiplexnet.tables import work as checking
from multiplexnet.tables.cells import cells_of
from multiplexnet.tables.check import CheckOptions, check, check_table
from multiplexnet.tables.sources import columnar, files, separated
from multiplexnet.tables.strips import Strips

SUM = parse("a: real; b: real; c: real\na + b == c\na <= b")
MIXED = parse(
    'n: int[0, 9]; on: bool; colour: {"red", "green"}; limit: input[0, 10]\nn <= limit\nimplies(on, colour == "red")'
)

Write = Callable[..., Path]


@pytest.fixture
def csv(tmp_path: Path) -> Write:
    def write(text: str | bytes, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def parquet(tmp_path: Path) -> Write:
    def write(**columns: pl.Series) -> Path:
        path = tmp_path / "t.parquet"
        pl.DataFrame(columns).write_parquet(path)
        return path

    return write


def counts(specification: Specification, path: Path) -> list[int]:
    return [rule.violations for rule in check_table(specification, path).rules]


# --- exactness ------------------------------------------------------------------------------------------------------


def test_decimals_in_the_file_are_exact(csv: Write) -> None:
    path = csv(
        "a,b,c\n0.1,0.2,0.3\n0.1,0.2,0.30000000000000004\n1e-1,.2,3E-1\n1e20,1,100000000000000000001\n"
    )
    report = check_table(SUM, path)
    assert (report.rows, report.obeying) == (4, 2)
    assert report.rules[0].violations == 1
    assert report.rules[0].first_row == 2
    assert report.rules[0].largest == Fraction(4, 10**17)
    assert report.rules[1].first_row == 4
    assert report.rules[1].largest == 10**20 - 1
    assert report.rules[0].rule.line == 2


def test_doubles_in_parquet_are_the_doubles_they_are(parquet: Write) -> None:
    a, b, c = pl.Series([0.1, 0.5]), pl.Series([0.2, 0.5]), pl.Series([0.3, 1.0])
    assert counts(SUM, parquet(a=a, b=b, c=c)) == [1, 0]
    exact = [pl.Series([Decimal(str(v)) for v in s]) for s in (a, b, c)]
    assert counts(SUM, parquet(a=exact[0], b=exact[1], c=exact[2])) == [0, 0]


def test_integers_of_every_width(parquet: Write) -> None:
    big = 2**63 - 1
    path = parquet(
        a=pl.Series([1, big - 1], dtype=pl.Int64),
        b=pl.Series([2, 1], dtype=pl.UInt8),
        c=pl.Series([3, big], dtype=pl.UInt64),
    )
    assert counts(SUM, path) == [0, 1]


def _cell(random: Random) -> str:
    kinds: list[Callable[[], str]] = [
        lambda: str(random.randint(-3, 3)),
        lambda: repr(random.gauss(0, 1)),
        lambda: f"{random.gauss(0, 10):.2f}",
        lambda: f"{random.gauss(0, 1):.3e}",
        lambda: f"{random.randint(0, 10**25)}.{random.randint(0, 9)}",
        lambda: random.choice(
            [
                "0.1",
                "0.2",
                "0.3",
                "-0",
                "1e-30",
                "1e30",
                " 7 ",
                "+2",
                ".5",
                "5.",
                "1e-300",
            ]
        ),
    ]
    return random.choice(kinds)()


@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_fractions_of_the_cells(csv: Write, seed: int) -> None:
    random = Random(seed)
    rules = parse(
        "a: real; b: real; c: real\na + b == c\na <= b or c > 0.1\nabs(a - b) < 1 if c > 0 else max(a, b) <= 3"
    )
    cells = [[_cell(random) for _ in "abc"] for _ in range(150)]
    cells = [[r[0], r[0], r[2]] if random.random() < 0.3 else r for r in cells]
    report = check_table(rules, csv("a,b,c\n" + "\n".join(map(",".join, cells)) + "\n"))
    points = [
        dict(zip(rules.variables, map(Fraction, map(str.strip, r)), strict=True))
        for r in cells
    ]
    for rule, found in zip(rules.rules, report.rules, strict=True):
        wrong = [k + 1 for k, p in enumerate(points) if not holds(rule.formula, p)]
        assert (found.violations, found.first_row) == (
            len(wrong),
            wrong[0] if wrong else None,
        )
    first = [
        abs(p[rules.variables[0]] + p[rules.variables[1]] - p[rules.variables[2]])
        for p in points
    ]
    assert report.rules[0].largest == max(first)


def test_chunks_do_not_matter(csv: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(1)
    path = csv(
        "a,b,c\n"
        + "\n".join(",".join(_cell(random) for _ in "abc") for _ in range(100))
    )
    whole = check_table(SUM, path)
    monkeypatch.setattr(checking, "CHUNK", 7)
    seen: list[int] = []
    assert check_table(SUM, path, CheckOptions(progress=seen.append)) == whole
    assert seen[-1] == 100
    assert len(seen) > 10


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 22])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_blocks_of_bytes_do_not_matter(
    csv: Write, monkeypatch: pytest.MonkeyPatch, block: int, line_end: str
) -> None:
    """Quoted cells hold commas, quotes and line ends; blocks are cut between rows, wherever their ends fall."""
    random = Random(0)
    rows = [
        [random.choice(["1", "0.5", '"2"', '"-3"']) for _ in "ab"] for _ in range(50)
    ]
    notes = [
        random.choice(
            ["", "é", '"a, b"', '"one\ntwo"', '"she said ""no""\n\n"', '"""\n"""']
        )
        for _ in rows
    ]
    lines = [f"{a},{note},{b}" for (a, b), note in zip(rows, notes, strict=True)]
    path = csv(line_end.join(['a,"a ""note""\nof mine",b', *lines]))
    monkeypatch.setattr(separated, "BLOCK", block)
    report = check_table(parse("a: real; b: real\na <= b"), path)
    broken = [Fraction(a.strip('"')) > Fraction(b.strip('"')) for a, b in rows]
    assert (report.rows, report.rules[0].violations) == (50, sum(broken))
    assert report.rules[0].first_row == broken.index(True) + 1
    assert report.ignored == ('a "note"\nof mine',)
    longest = max(frame.height for frame in files.table_in_file(path).frames([0]))
    assert longest <= 1 + block // 3, "a block of bytes is what is held"


def test_batches_of_parquet_do_not_matter(
    parquet: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = pl.Series(range(100))
    path = parquet(a=a, b=50 - a, c=pl.repeat(50, 100, eager=True))
    whole = check_table(SUM, path)
    assert [rule.violations for rule in whole.rules] == [0, 74]
    monkeypatch.setattr(columnar, "BATCH", 7)
    assert check_table(SUM, path) == whole
    assert [frame.height for frame in files.table_in_file(path).frames([2])] == [
        7
    ] * 14 + [2]


def test_strict_comparisons_fail_by_nothing(csv: Write) -> None:
    report = check_table(parse("a < 1; a != 2\na != a + 1"), csv("a\n1\n2\n"))
    assert [r.largest for r in report.rules] == [1, 0, None]


# --- columns --------------------------------------------------------------------------------------------------------


def test_labels_truth_values_and_inputs(csv: Write) -> None:
    report = check_table(
        MIXED,
        csv(
            "limit,colour,on,n\n5,red,true,3\n5,green,TRUE,3\n5, green ,0,5\n5,red,1,6\n"
        ),
    )
    assert [r.violations for r in report.rules] == [1, 1]
    assert [r.first_row for r in report.rules] == [4, 2]
    assert report.obeying == 2


def test_values_outside_their_domain(csv: Write) -> None:
    report = check_table(
        MIXED,
        csv("limit,colour,on,n\n5,blue,0,3\n5,red,2,3.5\n11,red,1,10\n5,red,1,1.0\n"),
    )
    assert [(d.variable.name, d.violations, d.first_row) for d in report.domains] == [
        ("n", 2, 2),
        ("on", 1, 2),
        ("colour", 1, 1),
        ("limit", 1, 3),
    ]
    assert report.obeying == 1


@pytest.mark.parametrize("header", ["x[0],x[1]", "x_0,x_1", "x0,x1", " x0 , x1 "])
def test_elements_of_vectors(csv: Write, header: str) -> None:
    assert counts(parse("x: real[2]\nx[0] <= x[1]"), csv(f"{header}\n1,2\n2,1\n")) == [
        1
    ]


def test_other_columns_are_listed_and_unused_outputs_are_not_needed(csv: Write) -> None:
    report = check_table(
        parse("a: real; free: real\na >= 0"), csv("id,a,note\n1,2,\n2,3,x\n")
    )
    assert report.ignored == ("id", "note")
    assert [(v.name, name) for v, name in report.columns] == [("a", "a")]


def test_by_position(csv: Write) -> None:
    path = csv("label,p,q\nyes,1,2\nno,2,1\n")
    ordered = parse("y_1: real; y_0: real\ny_0 <= y_1")
    report = check_table(ordered, path, CheckOptions(by_position=True, skip=["label"]))
    assert {v.name: name for v, name in report.columns} == {"y_0": "p", "y_1": "q"}
    assert report.rules[0].violations == 1
    named = check_table(
        parse("u: real; v: real\nu <= v"),
        path,
        CheckOptions(by_position=True, skip=["label"]),
    )
    assert {v.name: name for v, name in named.columns} == {"u": "p", "v": "q"}


def test_windows_line_ends_byte_order_mark_and_quotes(csv: Write) -> None:
    assert counts(SUM, csv(b'\xef\xbb\xbfa,b,c\r\n"0.1",0.2,0.3\r\n1,2,4\r\n')) == [
        1,
        0,
    ]


def test_a_table_without_rows_obeys(csv: Write) -> None:
    report = check_table(SUM, csv("a,b,c\n"))
    assert (report.rows, report.all_obey) == (0, True)


# --- what can be wrong ----------------------------------------------------------------------------------------------

WRONG: list[tuple[str, str | bytes, str]] = [
    ("empty file", "", r"t\.csv is empty: a header with column names is expected"),
    ("blank lines", "\n\n", r"t\.csv is empty"),
    (
        "doubled",
        "a,b,a\n1,2,3\n",
        r"the column name 'a' appears twice: rename one of them",
    ),
    (
        "missing",
        "a,bb,c\n1,2,3\n",
        r"t\.csv has no column 'b' \(did you mean 'bb'\?\)\. Its columns: a, bb, c\.$",
    ),
    (
        "none found",
        "p,q,r\n1,2,3\n",
        r"no columns 'a', 'b', 'c'\. Its columns: p, q, r\. Rename them, or .*--by-position",
    ),
    (
        "long row",
        "a,b,c\n1,2,3\n1,2,3,4\n",
        r"t\.csv cannot be read: a row has more cells than the header has names",
    ),
    (
        "long row beside a carriage return",
        "a,b,c\n1,2,3\r4\n1,2,3,4\n",
        r"t\.csv cannot be read: a row has more cells than the header has names; put",
    ),
    (
        "open quote",
        'a,b,c\n1,2,"3\n1,2,3\n',
        r"t\.csv cannot be read: line 2 opens a quote that is never closed",
    ),
    (
        "open quote in the header",
        'a,b,"c\n1,2,3\n',
        r"t\.csv cannot be read: line 1 opens a quote",
    ),
    (
        "carriage returns",
        "a,b,c\r1,2,3\r",
        r"t\.csv cannot be read: its header is not CSV",
    ),
    (
        "latin-1",
        "a,b,c\n1,2,\xe9\n".encode("latin-1"),
        r"t\.csv cannot be read: it is not UTF-8 text; save it as UTF-8",
    ),
    (
        "latin-1 header",
        "a,b,\xe9\n1,2,3\n".encode("latin-1"),
        r"t\.csv cannot be read: it is not UTF-8 text",
    ),
]


@pytest.mark.parametrize(
    ("text", "message"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG]
)
def test_wrong_csv(csv: Write, text: str | bytes, message: str) -> None:
    with pytest.raises(TableError, match=message):
        check_table(SUM, csv(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a,b,c\n1,2,"3\n' + "1,2,3\n" * 500, "it opens a quote that is never closed"),
        ('a,b,"c\n' + "1,2,3\n" * 500, "it opens a quote that is never closed"),
        ("a,b,c\n" + "1" * 3000, "it has no line ends"),
    ],
)
def test_a_row_that_does_not_end(
    csv: Write, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    """It must not fill the memory."""
    monkeypatch.setattr(separated, "BLOCK", 64)
    monkeypatch.setattr(separated, "LONGEST", 1 << 10)
    with pytest.raises(TableError, match=rf"t\.csv cannot be read: {message}"):
        check_table(SUM, csv(text))


def test_wrong_files(csv: Write, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"none\.csv: there is no such file"):
        check_table(SUM, tmp_path / "none.csv")
    with pytest.raises(
        TableError,
        match=r"is a directory: give a file, or a pattern such as .*\*\.parquet",
    ):
        check_table(SUM, tmp_path)
    with pytest.raises(
        TableError, match=r"t\.xlsx: only \.csv, \.tsv .* files can be checked"
    ):
        check_table(SUM, csv("a,b,c\n", "t.xlsx"))
    with pytest.raises(TableError, match=r"t\.parquet cannot be read: "):
        check_table(SUM, csv("a,b,c\n1,2,3\n", "t.parquet"))
    with pytest.raises(TableError, match=r"t\.parquet is empty"):
        check_table(SUM, csv("", "t.parquet"))


def test_parquet_without_pyarrow(
    parquet: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(
        TableError,
        match=r"cannot be read without pyarrow: in a clone.*pip install -c constraints.txt '.\[cli\]'",
    ):
        check_table(
            SUM, parquet(a=pl.Series([1.0]), b=pl.Series([1.0]), c=pl.Series([2.0]))
        )


def test_a_damaged_parquet_file(parquet: Write) -> None:
    path = parquet(
        a=pl.Series(range(1000)), b=pl.Series(range(1000)), c=pl.Series(range(1000))
    )
    content = path.read_bytes()
    path.write_bytes(content[:40] + b"\x00" * 400 + content[440:])
    with pytest.raises(TableError, match=r"t\.parquet cannot be read: "):
        check_table(SUM, path)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(TableError, match=r"t\.parquet cannot be read: "):
        check_table(SUM, path)


def test_parquet_files_with_any_byte_wrong(tmp_path: Path) -> None:
    """They are read or refused; some of them end the process of readers that believe what a file says of itself."""
    random, path = Random(0), tmp_path / "t.parquet"
    pl.DataFrame({"a": [0.5, 1.5], "b": [1, 2], "c": ["1.5", "3.5"]}).write_parquet(
        path, compression="uncompressed"
    )
    content = path.read_bytes()
    refused = 0
    for at in range(len(content)):
        path.write_bytes(content[:at] + random.randbytes(1) + content[at + 1 :])
        try:
            check_table(SUM, path)
        except TableError:
            refused += 1
    assert 0 < refused < len(content)


def test_wrong_parquet_columns(parquet: Write) -> None:
    one = pl.Series([1.0])
    wrong: list[tuple[pl.Series, str]] = [
        (pl.Series([date(2020, 1, 1)]), "of type Date, not a number"),
        (pl.Series([float("nan")]), "NaN"),
        (pl.Series([None], dtype=pl.Float64), "missing"),
        (pl.Series([None], dtype=pl.Null), "missing"),
    ]
    for cells, reason in wrong:
        report = check_table(SUM, parquet(a=one, b=one, c=cells))
        assert [(c.variable.name, c.reason, c.first_row) for c in report.cells] == [
            ("c", reason, 1)
        ]
        assert (report.obeying, [r.violations for r in report.rules]) == (0, [0, 0])


def test_wrong_options(csv: Write) -> None:
    path = csv("p,q\n1,2\n")
    with pytest.raises(
        TableError, match=r"there is no column 'pp' to skip \(did you mean 'p'\?\)"
    ):
        check_table(SUM, path, CheckOptions(skip=["pp"]))
    with pytest.raises(
        TableError,
        match=r"has 2 columns, and by position the rules need 3 \(c would be the last\)",
    ):
        check_table(SUM, path, CheckOptions(by_position=True))
    with pytest.raises(
        OptionError, match=r"missing = 'skip'; it is \"error\", \"pass\" or \"fail\""
    ):
        check_table(SUM, path, CheckOptions(missing="skip"))  # type: ignore[arg-type]
    with pytest.raises(
        TableError, match=r"';;' cannot separate cells: give one character"
    ):
        files.table_in_file(path, ";;")
    with pytest.raises(
        TableError, match=r"the rules call f\(…\), and a table has no functions"
    ):
        check_table(parse("a: real; f: function\na <= f(a)"), path)


def test_truth_values_and_labels_that_are_none() -> None:
    on = Variable("on", 0, Bool())
    spelled = pl.Series(
        ["true", "FALSE", " Yes", "no", "1", "0", "t", "F", "maybe", "", "n/a"]
    )
    found = cells_of(on, spelled)
    assert found.column.near.tolist() == [1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0]
    assert _reasons(found.unread) == {"not a truth value": [8], "missing": [9, 10]}
    assert cells_of(on, pl.Series([True, False])).column.near.tolist() == [1, 0]
    labels = Variable("k", 0, Category(("1", "2")))
    assert cells_of(labels, pl.Series([2, 1, 3])).column.near.tolist() == [1, 0, -1]
    named = Variable("k", 0, Category(("NA", "EU")))
    assert cells_of(
        named, pl.Series(["NA", "", "null", "US"])
    ).column.near.tolist() == [
        0,
        0,
        0,
        -1,
    ]


# --- cells that cannot be read --------------------------------------------------------------------------------------


def _reasons(unread: Mapping[str, Any]) -> dict[str, list[int]]:
    return {reason: rows.tolist() for reason, rows in unread.items()}


UNREAD = [
    ("x", "not a number"),
    (".-5", "not a number"),
    ('"3,5"', "not a number"),
    ("", "missing"),
    ("  ", "missing"),
    ("N/A", "missing"),
    ("NaN", "NaN"),
    ("-inf", "infinite"),
    ("1e99999", "more than 1000 digits"),
]


def test_cells_are_counted_by_reason(
    csv: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them ends the run, and none of them breaks a rule: what they are said to be is what is wrong."""
    rows = [f"1,2,{cell}" for cell, _ in UNREAD] + ["1,2,3", "1,2,4", "2,1"]
    path = csv("a,b,c\n" + "\n".join(rows) + "\n")
    for chunk in (1 << 16, 2):
        monkeypatch.setattr(checking, "CHUNK", chunk)
        report = check_table(SUM, path)
        assert report.rows == len(UNREAD) + 3
        assert report.obeying == 1
        assert [(r.violations, r.first_row) for r in report.rules] == [(1, 11), (1, 12)]
        assert {c.reason: (c.cells, c.first_row) for c in report.cells} == {
            "not a number": (3, 1),
            "missing": (4, 4),
            "NaN": (1, 7),
            "infinite": (1, 8),
            "more than 1000 digits": (1, 9),
        }
    assert report.cells[0].variable.name == "c"
    assert [row.breaks for row in report.shown[:2]] == [("c: not a number",)] * 2


def test_what_an_empty_cell_means(csv: Write) -> None:
    path = csv("a,b,c\n1,2,3\n,2,3\n5,2,\n5,,1\n")
    failing = check_table(SUM, path)
    assert (failing.obeying, [r.violations for r in failing.rules]) == (1, [0, 1])
    passing = check_table(SUM, path, CheckOptions(missing="pass"))
    assert (passing.obeying, [r.violations for r in passing.rules]) == (3, [0, 1])
    assert [c.fails for c in failing.cells] == [True] * 3
    assert [c.fails for c in passing.cells] == [False] * 3
    with pytest.raises(
        TableError, match=r"t\.csv, row 2, column 'a': the cell is empty; fill it in"
    ):
        check_table(SUM, path, CheckOptions(missing="error"))


def test_the_worst_is_found_beside_cells_without_a_value(csv: Write) -> None:
    rules = parse("a: real; b: real; c: real\na <= 1 and b <= 1 and c <= 1")
    report = check_table(
        rules, csv("a,b,c\n3,,0\n,7.5,x\n0,0,2\n,,0\n"), CheckOptions(missing="pass")
    )
    assert report.rules[0].violations == 3
    assert report.rules[0].largest == Fraction(13, 2)


def test_a_cell_that_cannot_be_read_is_not_outside_its_domain_too(csv: Write) -> None:
    report = check_table(parse("n: int[3, 9]\nn >= 3"), csv("n\nx\n2\n4\n"))
    assert [(d.violations, d.first_row) for d in report.domains] == [(1, 2)]
    assert (report.obeying, report.cells[0].cells) == (1, 1)


# --- where tables are kept ------------------------------------------------------------------------------------------

TEXT = "a,b,c\n1,2,3\n1,2,4\n2,0.5,2.5\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", TEXT.replace(",", ";")),
        ("t.csv", TEXT.replace(",", "\t")),
        ("t.tsv", TEXT.replace(",", "\t")),
        ("t.csv", TEXT.replace(",", "|")),
        (
            "t.csv",
            TEXT.replace(",", ";")
            .replace("a;", '"a, quoted"; a ;')
            .replace("\n", "\n0;", 3),
        ),
        ("t.csv.gz", TEXT),
    ],
)
def test_separators_and_gzip_are_found(csv: Write, name: str, text: str) -> None:
    data = text.encode()
    path = csv(gzip.compress(data) if name.endswith(".gz") else data, name)
    assert counts(SUM, path) == [1, 1]


def test_a_separator_that_is_insisted_on(csv: Write) -> None:
    path = csv("a|x;b;c\n1;2;3\n")
    assert files.table_in_file(path, ";").names == ("a|x", "b", "c")
    with pytest.raises(
        TableError, match=r"separated by '[|;]': say so with --delimiter"
    ):
        check_table(SUM, files.table_in_file(path, ","))


def test_gzip_that_ends_early(csv: Write) -> None:
    whole = gzip.compress(TEXT.encode() * 500)
    with pytest.raises(TableError, match=r"t\.csv\.gz cannot be read"):
        check_table(SUM, csv(whole[: len(whole) // 2], "t.csv.gz"))


@pytest.mark.parametrize("suffix", [".arrow", ".feather"])
def test_arrow_files(tmp_path: Path, suffix: str) -> None:
    frame = pl.DataFrame(
        {"c": [3.0, 4.0, None], "note": ["", "é", None], "a": [1, 1, 1], "b": [2, 2, 2]}
    )
    path = tmp_path / f"t{suffix}"
    for write in (frame.write_ipc, frame.write_ipc_stream):
        write(path, compat_level=pl.CompatLevel.oldest())
        report = check_table(SUM, path)
        assert [r.violations for r in report.rules] == [1, 0]
        assert [(c.reason, c.first_row) for c in report.cells] == [("missing", 3)]
    content = path.read_bytes()
    path.write_bytes(content[:50])
    with pytest.raises(TableError, match=r"cannot be read"):
        check_table(SUM, path)
    random = Random(0)
    for at in range(0, len(content), 11):
        path.write_bytes(content[:at] + random.randbytes(1) + content[at + 1 :])
        with suppress(TableError):
            check_table(SUM, path)


def test_several_files_are_one_table(csv: Write, tmp_path: Path) -> None:
    csv(TEXT, "m1.csv")
    csv("c;note;b;a\n4;x;2;1\n3;y;2;1\n", "m2.csv")
    pl.DataFrame({"a": [1.0], "b": [2.0], "c": [9.0]}).write_parquet(
        tmp_path / "n.parquet"
    )
    rules = Rules.from_specification(SUM)
    report = check(rules, [tmp_path / "m?.csv", str(tmp_path / "n.parquet")])
    assert (report.rows, report.obeying) == (6, 2)
    assert [f.rows for f in report.files] == [3, 2, 1]
    assert [r.violations for r in report.rules] == [3, 1]
    places = [report.place(row.row) for row in report.shown]
    assert [(Path(file).name, row) for file, row in places] == [
        ("m1.csv", 2),
        ("m1.csv", 3),
        ("m2.csv", 1),
        ("n.parquet", 1),
    ]
    assert "m2.csv:1" in str(report)
    assert report.ignored == ("note",)
    with pytest.raises(TableError, match=r"q\*\.csv: no file fits this pattern"):
        check(rules, str(tmp_path / "q*.csv"))


# --- the rows that break something ----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_violating_rows_are_written(
    csv: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(checking, "CHUNK", 3)
    monkeypatch.setattr(outputs, "ENOUGH", 2)
    path = csv("breaks,c,b,a\nx,3,2,1\ny,4,2,1\n,3,1,2\nz,,1,2\n" + "w,8,1,2\n" * 5)
    target = tmp_path / f"bad{suffix}"
    report = check_table(SUM, path, CheckOptions(output=target, limit=1))
    written = (
        pl.read_csv(target, infer_schema=False)
        if suffix == ".csv"
        else pl.read_parquet(target)
    )
    assert written.columns == ["breaks", "c", "b", "a", "breaks_"]
    assert written.height == report.rows - report.obeying == 8
    assert written["breaks_"].to_list()[:3] == [
        "a + b == c",
        "a <= b",
        "a <= b; c: missing",
    ]
    assert written["breaks"].to_list()[:3] == ["y", None, "z"]
    assert len(report.shown) == 1
    with pytest.raises(
        TableError, match=r"is the table that is read: write the rows to another"
    ):
        check_table(SUM, path, CheckOptions(output=path))
    with pytest.raises(
        TableError, match=r"bad\.xlsx: violating rows are written as \.csv or"
    ):
        check_table(SUM, path, CheckOptions(output=tmp_path / "bad.xlsx"))
    with pytest.raises(TableError, match=r"bad\.csv cannot be written: No such file"):
        check_table(SUM, path, CheckOptions(output=tmp_path / "no" / "bad.csv"))
    good = csv("a,b,c\n1,2,3\n", "good.csv")
    assert check_table(SUM, good, CheckOptions(output=target)).all_obey
    again = pl.read_csv(target) if suffix == ".csv" else pl.read_parquet(target)
    assert (again.height, again.columns) == (0, ["a", "b", "c", "breaks"])


def test_strips_keep_every_violation() -> None:
    random = np.random.default_rng(0)
    shows = random.random(5000) < 0.1
    strips = Strips()
    for start in range(0, 5000, 37):
        strips.add("p", shows[start : start + 37], start)
    assert strips.width == 32
    assert strips.counts["p"].sum() == shows.sum()
    assert strips.counts["p"][3] == shows[96:128].sum()


def test_tables_need_neither_torch_nor_z3_nor_pyarrow_before_they_are_read() -> None:
    program = (
        "import sys, multiplexnet.tables.check\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'z3', 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_whole_numbers_beyond_float64_are_exact(csv: Write, parquet: Write) -> None:
    wide = parse("id: int[0, 10**18]; id >= 1")
    large = [2**53 + 1, 123456789012345679, 10**18, 10**18 + 1, -(2**53) - 1]
    within = [True, True, True, False, False]
    text = csv("id\n" + "\n".join(map(str, large)) + "\n")
    report = check_table(wide, text, CheckOptions(keep_rows=True))
    assert report.obeys is not None
    assert report.obeys.tolist() == within
    assert check_table(wide, parquet(id=pl.Series(large))).obeying == 3
    assert (
        check(Rules("id: int[0, 10**18]; id >= 1"), {"id": large}).obeys.tolist()  # type: ignore[union-attr]
        == within
    )
    narrow = parse("id: int[9007199254740990, 9007199254740999]; id >= 1")
    cells = [
        "9007199254740993",
        "9007199254740989",
        "9007199254740999",
        "9007199254741000",
    ]
    found = check_table(
        narrow, csv("id\n" + "\n".join(cells)), CheckOptions(keep_rows=True)
    )
    assert found.obeys is not None
    assert found.obeys.tolist() == [True, False, True, False]
    cents = parse("p: decimal(2)[0, 10**15]; p >= 0")
    cells = ["90071992547409.93", "90071992547409.935", "1e15", "1000000000000000.01"]
    found = check_table(
        cents, csv("p\n" + "\n".join(cells)), CheckOptions(keep_rows=True)
    )
    assert found.obeys is not None
    assert found.obeys.tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    "rows", ["1,2,a\n1,5,2,5,hello\n", '1,2,"a"\n1,5,2,\n', "1\n1,5,2,a"]
)
def test_cells_too_many_are_refused_whatever_is_read(
    csv: Write, tmp_path: Path, rows: str
) -> None:
    path = csv("x,y,note\n" + rows)
    target = tmp_path / "bad.csv"
    target.write_text("of an earlier run")
    for output in (None, target):
        with pytest.raises(
            TableError,
            match=r"more cells than the header has names \(row 2: [45] cells, 3",
        ):
            check_table(
                parse("x: real; y: real; x <= y"), path, CheckOptions(output=output)
            )
    assert target.read_text() == "of an earlier run"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.csv", "t.csv"]


def test_short_floats_stand_for_decimals_in_arrays_as_in_satisfied() -> None:
    cents = Rules("p: decimal(2)[0, 10]\np <= 9.99")
    for kind in (np.float32, np.dtype(">f4")):
        array = np.array([[0.1], [0.3], [9.99], [0.305]], dtype=kind)
        assert check(cents, array).obeys.tolist() == [True, True, True, False]  # type: ignore[union-attr]
        assert check(cents, {"p": array[:, 0]}).obeying == 3
    tenths = Rules("p: real[0, 1] step 0.1; p <= 0.9")
    half = np.array([[0.1], [0.3], [0.95]], dtype=np.float16)
    assert check(tenths, half).obeys.tolist() == tenths.satisfied(half).tolist()  # type: ignore[union-attr]
    assert check(tenths, half).obeying == 2


def test_what_is_said_of_columns_that_do_not_fit(csv: Write) -> None:
    rules = Rules("x <= y")
    for data, skip, message in (
        ({"X": [1], "y": [2]}, (), "no column 'x' \\(did you mean 'X'\\?\\)"),
        (
            {"x": [1], "y": [2]},
            ("x",),
            "the rules need the column 'x', and it was skipped",
        ),
        (csv("no database", "t.sqlite"), (), r"t\.sqlite is not a SQLite database"),
    ):
        with pytest.raises(TableError, match=message):
            check(rules, data, skip=skip)
    assert "with a point: 1.5, not 1,5" in str(check(rules, csv("x;y\n1,5;2,5\n")))
    zoned = pl.Series("t", [0], pl.Datetime("us", "Europe/Berlin")).to_frame()
    with pytest.raises(
        TableError, match=r"the column of t has times of a zone \(Europe/Berlin\)"
    ):
        check(Rules('t: datetime; t >= "1970-01-01"'), zoned)


@pytest.mark.parametrize(
    ("kind", "cell", "hint"),
    [
        ("real", "1,000.50", "a number is written alone: 1000.5"),
        ("real", "$5", "a number is written alone"),
        ("real", "12 %", "and 0.12, not 12%"),
        ("date", "03/08/2024", "a date is written as 2024-08-03"),
        ("datetime", "2024-01-01T00:00:00Z", "in whole seconds and without a zone"),
    ],
)
def test_a_cell_in_another_spelling_is_told_ours(
    kind: str, cell: str, hint: str
) -> None:
    rules = Rules(f"x: {kind}?; x is not missing")
    assert hint in str(check(rules, {"x": [cell]}))
    assert "written" not in str(check(rules, {"x": ["many"]}))


def test_brackets_in_names_are_shown() -> None:
    report = check(Rules('"P el [kW]": real; "P el [kW]" >= 1'), {"P el [kW]": [0]})
    assert str(report).count("P el [kW]") == 3  # the rule, twice, and the heading


def test_elements_of_matrices_and_of_quoted_vectors_are_found_by_their_names() -> None:
    rules = Rules(
        'w: real[2, 2]; "pay [EUR]": real[2]; x: real[2]; x_1: real\n'
        'w[1, 0] <= w[0, 1]; "pay [EUR]"[1] >= 1; x[1] + x_1 <= 5; w[0, 0] + w[1, 1] + x[0] <= 9; "pay [EUR]"[0] >= 0'
    )
    table = {
        "w_0_0": [1], "w[0,1]": [2], "w[1, 0]": [3], "w_1_1": [0],
        "pay [EUR]_0": [0], "pay [EUR][1]": [0], "x_0": [0], "x[1]": [2], "x_1": [4],
    }  # fmt: skip
    report = check(rules, table)
    assert list(report.counts.values()) == [1, 1, 1, 0, 0]
    del table["x[1]"]
    with pytest.raises(TableError, match=r"has no column 'x\[1\]'"):
        check(rules, table)  # x_1 is the column of another variable


@pytest.mark.parametrize("cell", ["1e2e9", "1e2exyz", "1e2e", "1e", "e2"])
def test_a_second_exponent_is_no_number(cell: str) -> None:
    report = check(Rules("x: real\nx == 100"), {"x": [cell]})
    assert report.all_obey is False


def test_lists_of_python_numbers_are_read_as_arrays_are() -> None:
    cents = Rules("x: decimal(2)[0, 9]\nx >= 0.1")
    for values in ([0.1, 1], [1, 0.1, 2], (0.29, 1)):
        report = check(cents, {"x": values})
        assert report.all_obey, values
    days = Rules('d: date\nd <= "2024-01-01"')
    listed = check(days, {"d": [19723, 19724]})
    assert listed.obeys is not None
    assert listed.obeys.tolist() == [True, False]


def test_whole_numbers_that_floats_do_not_hold_stay_exact_in_lists() -> None:
    rules = Rules("n: real\nn >= 9007199254740993")
    report = check(rules, {"n": [2**53 + 1, 0.5, 2**53]})
    assert report.obeys is not None
    assert report.obeys.tolist() == [True, False, False]


@pytest.mark.parametrize("name", ["bad.csv", "bad.parquet"])
def test_columns_that_a_format_cannot_hold_are_refused(
    tmp_path: Path, name: str
) -> None:
    nested = pa.array([{}, {}], type=pa.struct([]))
    table = pa.table({"x": [1.0, -2.0], "u": nested})
    with pytest.raises(TableError, match="violating rows: C"):
        mx.check("x >= 0", table, output=tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_column_name_with_a_zero_byte_is_refused_for_parquet(tmp_path: Path) -> None:
    table = pl.DataFrame({"x": [1.0, -2.0], "a\0b": [1, 2]})
    with pytest.raises(TableError, match="a column name with a zero byte"):
        mx.check("x >= 0", table, output=tmp_path / "bad.parquet")
    mx.check("x >= 0", table, output=tmp_path / "bad.csv")


def test_rows_that_break_long_rules_are_shown_on_a_line_each() -> None:
    """With the columns of these rules first; short rules stay as they are."""
    names = [f"column_{k:02}" for k in range(12)]
    table = {name: [f"a longer label {k % 3}" for k in range(9)] for name in names}
    declared = "; ".join(
        f'{name}: {{"a longer label 0", "a longer label 1", "a longer label 2"}}'
        for name in names
    )
    long = (
        f'implies({names[9]} == "a longer label 1", {names[11]} == "a longer label 2")'
    )
    found = check(
        Rules(f"{declared}; x: int[0, 9]\n{long}\nx <= 7"), {**table, "x": range(9)}
    )
    lines = plain_text(check_text(found)).splitlines()
    first = next(
        k for k, line in enumerate(lines) if "breaks" in line and "row" in line.split()
    )
    assert {"column_09", "column_11", "x"} <= set(lines[first].split())
    rows = lines[first + 1 : first + 5]
    assert [line.split()[0] for line in rows] == ["2", "5", "8", "9"]
    assert all(
        "line 2: implies(column_09 ==" in line and "…" in line for line in rows[:3]
    )
    assert "x <= 7" in rows[3]
    assert max(map(len, lines)) <= 120
