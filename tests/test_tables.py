"""Tables against fractions of their cells, and every way a table can be wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random

import polars as pl
import pytest

from multiplexnet.errors import TableError
from multiplexnet.language.formula import Bool, Category, Specification, Variable, holds
from multiplexnet.language.parse import parse
from multiplexnet.tables import check as checking
from multiplexnet.tables import files
from multiplexnet.tables.check import check_table
from multiplexnet.tables.decimals import BadCell, column

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
            ["0.1", "0.2", "0.3", "-0", "1e-30", "1e30", " 7 ", "+2", ".5", "5.", "1e-300"]
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
        dict(zip(rules.variables, map(Fraction, map(str.strip, r)), strict=True)) for r in cells
    ]
    for rule, found in zip(rules.rules, report.rules, strict=True):
        wrong = [k + 1 for k, p in enumerate(points) if not holds(rule.formula, p)]
        assert (found.violations, found.first_row) == (len(wrong), wrong[0] if wrong else None)
    first = [
        abs(p[rules.variables[0]] + p[rules.variables[1]] - p[rules.variables[2]]) for p in points
    ]
    assert report.rules[0].largest == max(first)


def test_chunks_do_not_matter(csv: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(1)
    path = csv("a,b,c\n" + "\n".join(",".join(_cell(random) for _ in "abc") for _ in range(100)))
    whole = check_table(SUM, path)
    monkeypatch.setattr(checking, "CHUNK", 7)
    seen: list[int] = []
    assert check_table(SUM, path, progress=seen.append) == whole
    assert seen[-1] == 100
    assert len(seen) > 10


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 22])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_blocks_of_bytes_do_not_matter(
    csv: Write, monkeypatch: pytest.MonkeyPatch, block: int, line_end: str
) -> None:
    """Quoted cells hold commas, quotes and line ends; blocks are cut between rows, wherever their ends fall."""
    random = Random(0)
    rows = [[random.choice(["1", "0.5", '"2"', '"-3"']) for _ in "ab"] for _ in range(50)]
    notes = [
        random.choice(["", "é", '"a, b"', '"one\ntwo"', '"she said ""no""\n\n"', '"""\n"""'])
        for _ in rows
    ]
    lines = [f"{a},{note},{b}" for (a, b), note in zip(rows, notes, strict=True)]
    path = csv(line_end.join(['a,"a ""note""\nof mine",b', *lines]))
    monkeypatch.setattr(files, "BLOCK", block)
    report = check_table(parse("a: real; b: real\na <= b"), path)
    broken = [Fraction(a.strip('"')) > Fraction(b.strip('"')) for a, b in rows]
    assert (report.rows, report.rules[0].violations) == (50, sum(broken))
    assert report.rules[0].first_row == broken.index(True) + 1
    assert report.ignored == ('a "note"\nof mine',)
    longest = max(frame.height for frame in files.table_in_file(path).frames([0]))
    assert longest <= 1 + block // 3, "a block of bytes is what is held"


def test_batches_of_parquet_do_not_matter(parquet: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    a = pl.Series(range(100))
    path = parquet(a=a, b=50 - a, c=pl.repeat(50, 100, eager=True))
    whole = check_table(SUM, path)
    assert [rule.violations for rule in whole.rules] == [0, 74]
    monkeypatch.setattr(files, "BATCH", 7)
    assert check_table(SUM, path) == whole
    assert [frame.height for frame in files.table_in_file(path).frames([2])] == [7] * 14 + [2]


def test_strict_comparisons_fail_by_nothing(csv: Write) -> None:
    report = check_table(parse("a < 1; a != 2\na != a + 1"), csv("a\n1\n2\n"))
    assert [r.largest for r in report.rules] == [1, 0, None]


# --- columns --------------------------------------------------------------------------------------------------------


def test_labels_truth_values_and_inputs(csv: Write) -> None:
    report = check_table(
        MIXED, csv("limit,colour,on,n\n5,red,true,3\n5,green,TRUE,3\n5, green ,0,5\n5,red,1,6\n")
    )
    assert [r.violations for r in report.rules] == [1, 1]
    assert [r.first_row for r in report.rules] == [4, 2]
    assert report.obeying == 2


def test_values_outside_their_domain(csv: Write) -> None:
    report = check_table(
        MIXED, csv("limit,colour,on,n\n5,blue,0,3\n5,red,2,3.5\n11,red,1,10\n5,red,1,1.0\n")
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
    assert counts(parse("x: real[2]\nx[0] <= x[1]"), csv(f"{header}\n1,2\n2,1\n")) == [1]


def test_other_columns_are_listed_and_unused_outputs_are_not_needed(csv: Write) -> None:
    report = check_table(parse("a: real; free: real\na >= 0"), csv("id,a,note\n1,2,\n2,3,x\n"))
    assert report.ignored == ("id", "note")
    assert [(v.name, name) for v, name in report.columns] == [("a", "a")]


def test_by_position(csv: Write) -> None:
    path = csv("label,p,q\nyes,1,2\nno,2,1\n")
    ordered = parse("y_1: real; y_0: real\ny_0 <= y_1")
    report = check_table(ordered, path, by_position=True, skip=["label"])
    assert {v.name: name for v, name in report.columns} == {"y_0": "p", "y_1": "q"}
    assert report.rules[0].violations == 1
    named = check_table(parse("u: real; v: real\nu <= v"), path, by_position=True, skip=["label"])
    assert {v.name: name for v, name in named.columns} == {"u": "p", "v": "q"}


def test_windows_line_ends_byte_order_mark_and_quotes(csv: Write) -> None:
    assert counts(SUM, csv(b'\xef\xbb\xbfa,b,c\r\n"0.1",0.2,0.3\r\n1,2,4\r\n')) == [1, 0]


def test_a_table_without_rows_obeys(csv: Write) -> None:
    report = check_table(SUM, csv("a,b,c\n"))
    assert (report.rows, report.all_obey) == (0, True)


# --- what can be wrong ----------------------------------------------------------------------------------------------

WRONG: list[tuple[str, str | bytes, str]] = [
    (
        "text",
        "a,b,c\n1,2,3\n1,x,3\n",
        r"t\.csv, row 2, column 'b': 'x' is not a number such as 12\.5 or 3e-4",
    ),
    ("misplaced sign", "a,b,c\n1,2,.-5\n", r"row 1, column 'c': '\.-5' is not a number"),
    ("comma decimals", 'a,b,c\n1,2,"3,5"\n', r"row 1, column 'c': '3,5' is not a number"),
    (
        "empty cell",
        "a,b,c\n1,2,3\n1,,3\n",
        r"row 2, column 'b': the cell is empty: fill it in or drop the row",
    ),
    ("blank cell", "a,b,c\n1,  ,3\n", r"row 1, column 'b': the cell is empty"),
    ("short row", "a,b,c\n1,2,3\n1,2\n", r"row 2, column 'c': the cell is empty"),
    ("nan", "a,b,c\nNaN,2,3\n", r"row 1, column 'a': 'NaN' is not a finite number"),
    ("infinity", "a,b,c\n1,2,-inf\n", r"row 1, column 'c': '-inf' is not a finite number"),
    ("too long", "a,b,c\n1,2,1e99999\n", r"row 1, column 'c': '1e99999' has more than 1000 digits"),
    ("empty file", "", r"t\.csv is empty: a header with column names is expected"),
    ("blank lines", "\n\n", r"t\.csv is empty"),
    ("doubled", "a,b,a\n1,2,3\n", r"the column name 'a' appears twice: rename one of them"),
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
    ("semicolons", "a;b;c\n1;2;3\n", r"Cells seem to be separated by ';': commas are expected"),
    (
        "long row",
        "a,b,c\n1,2,3\n1,2,3,4\n",
        r"t\.csv cannot be read: a row has more cells than the header has names",
    ),
    (
        "open quote",
        'a,b,c\n1,2,"3\n1,2,3\n',
        r"t\.csv cannot be read: line 2 opens a quote that is never closed",
    ),
    ("open quote in the header", 'a,b,"c\n1,2,3\n', r"t\.csv cannot be read: line 1 opens a quote"),
    ("carriage returns", "a,b,c\r1,2,3\r", r"t\.csv cannot be read: its header is not CSV"),
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


@pytest.mark.parametrize(("text", "message"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
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
    monkeypatch.setattr(files, "BLOCK", 64)
    monkeypatch.setattr(files, "LONGEST", 1 << 10)
    with pytest.raises(TableError, match=rf"t\.csv cannot be read: {message}"):
        check_table(SUM, csv(text))


def test_wrong_files(csv: Write, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"none\.csv: there is no such file"):
        check_table(SUM, tmp_path / "none.csv")
    with pytest.raises(TableError, match=r"is a directory: give a \.csv or \.parquet file"):
        check_table(SUM, tmp_path)
    with pytest.raises(TableError, match=r"t\.xlsx: only \.csv and \.parquet files can be checked"):
        check_table(SUM, csv("a,b,c\n", "t.xlsx"))
    with pytest.raises(TableError, match=r"t\.parquet cannot be read: "):
        check_table(SUM, csv("a,b,c\n1,2,3\n", "t.parquet"))
    with pytest.raises(TableError, match=r"t\.parquet is empty"):
        check_table(SUM, csv("", "t.parquet"))


def test_parquet_without_pyarrow(parquet: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(
        TableError, match=r"cannot be read without pyarrow: pip install 'multiplexnet\[cli\]'"
    ):
        check_table(SUM, parquet(a=pl.Series([1.0]), b=pl.Series([1.0]), c=pl.Series([2.0])))


def test_a_damaged_parquet_file(parquet: Write) -> None:
    path = parquet(a=pl.Series(range(1000)), b=pl.Series(range(1000)), c=pl.Series(range(1000)))
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
    with pytest.raises(
        TableError,
        match=r"row 1, column 'c': the column holds values of type Date: numbers are expected",
    ):
        check_table(SUM, parquet(a=one, b=one, c=pl.Series([date(2020, 1, 1)])))
    with pytest.raises(TableError, match=r"row 1, column 'c': nan is not a finite number"):
        check_table(SUM, parquet(a=one, b=one, c=pl.Series([float("nan")])))
    with pytest.raises(TableError, match=r"row 1, column 'c': the cell is empty"):
        check_table(SUM, parquet(a=one, b=one, c=pl.Series([None], dtype=pl.Float64)))


def test_wrong_options(csv: Write) -> None:
    path = csv("p,q\n1,2\n")
    with pytest.raises(TableError, match=r"there is no column 'pp' to skip \(did you mean 'p'\?\)"):
        check_table(SUM, path, skip=["pp"])
    with pytest.raises(
        TableError, match=r"has 2 columns, and by position the rules need 3 \(c would be the last\)"
    ):
        check_table(SUM, path, by_position=True)
    with pytest.raises(
        TableError,
        match=r"row 1, column 'w' \(read as a; --skip \(skip=…\) leaves a column out\): 'x' is not a number",
    ):
        check_table(SUM, csv("w,p,q,r\nx,1,2,3\n"), by_position=True)
    with pytest.raises(TableError, match=r"the rules call f\(…\), and a table has no functions"):
        check_table(parse("a: real; f: function\na <= f(a)"), path)


def test_truth_values_and_labels_that_are_none(csv: Write) -> None:
    on = Variable("on", 0, Bool())
    with pytest.raises(BadCell, match="'maybe' is not true, false, 1 or 0"):
        column(on, pl.Series(["true", "maybe"]))
    assert column(on, pl.Series([True, False])).near.tolist() == [1, 0]
    labels = Variable("k", 0, Category(("1", "2")))
    assert column(labels, pl.Series([2, 1, 3])).near.tolist() == [1, 0, -1]


def test_tables_need_neither_torch_nor_z3_nor_pyarrow_before_they_are_read() -> None:
    program = (
        "import sys, multiplexnet.tables.check\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'z3', 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
