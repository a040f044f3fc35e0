"""The ordering format of PiShield and DRL: its rules, its errors, the published files."""

from __future__ import annotations

import os
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import proves

from multiplexnet.errors import RuleSyntaxError
from multiplexnet.language.formula import Atom, Formula, Linear, Not, Or, Variable
from multiplexnet.language.ordering import from_ordering
from multiplexnet.smt.questions import equivalent, satisfiable, to_z3
from multiplexnet.smt.smtlib import from_smtlib, to_smtlib

x, y = Linear.of(Variable("y_0", 0)), Linear.of(Variable("y_1", 1))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("y_1 - y_0 >= 0", Atom(x - y, "<=")),
        ("- y_1 > -30", Atom(y - 30, "<")),
        (
            "3y_1 + 2 * y_0 - 0.1 y_0 <= 0.5",
            Atom(x * Fraction(19, 10) + y * 3 - Fraction(1, 2), "<="),
        ),
        ("y_0 = 2", Atom(x - 2, "==")),
        ("y_0 == 2y_1", Atom(x - y * 2, "==")),
        ("neg y_0 = 2", Not(Atom(x - 2, "=="))),
        ("neg y_0 > 1 or y_1 >= .5e1", Or((Atom(x - 1, "<="), Atom(-y + 5, "<=")))),
        ("1 + 1 < y_0  # two", Atom(-x + 2, "<")),
    ],
)
def test_ordering_rules(rule: str, expected: Formula) -> None:
    [read] = from_ordering(f"# comment\n\nordering y_0 y_1\n\n{rule}\n").rules
    assert read.line == 5
    assert read.text == rule.partition("#")[0].strip()
    assert equivalent(read.formula, expected)


def test_outputs_come_by_number_or_as_listed() -> None:
    assert [v.name for v in from_ordering("ordering y_2 y_0 y_1\ny_0 > 0").outputs] == [
        "y_0",
        "y_1",
        "y_2",
    ]
    assert [v.name for v in from_ordering("ordering y_3 y_0 y_1\ny_0 > 0").outputs] == [
        "y_3",
        "y_0",
        "y_1",
    ]
    assert [v.name for v in from_ordering("ordering b a\na > 0").outputs] == ["b", "a"]
    assert [v.index for v in from_ordering("ordering b a\r\na > 0\r\n").outputs] == [
        0,
        1,
    ]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", None, "the text is empty: begin with a line such as `ordering y_0 y_1`"),
        ("# nothing\n", None, "the text is empty"),
        (
            "y_0 > 1",
            (1, 1),
            "expected `ordering` and the names of all outputs first, found `y_0`",
        ),
        ("ordering", (1, 1), "expected the names of the outputs after `ordering`"),
        ("ordering y_0 y_0\ny_0 > 1", (1, 14), "y_0 is listed twice"),
        ("ordering y_0 3", (1, 14), "expected the name of an output, found `3`"),
        ("ordering y_0 or", (1, 14), "expected the name of an output, found `or`"),
        (
            "ordering y_0\ny_0 >",
            (2, 6),
            "expected a number or an output, found the end of the line",
        ),
        (
            "ordering y_0\ny_0 + 1",
            (2, 8),
            "expected one of >= > <= < =, found the end of the line",
        ),
        (
            "ordering y_0\n\ny_0 > 1 and y_0 < 2",
            (3, 9),
            "there is no `and` in this format",
        ),
        ("ordering y_0\nnot y_0 > 1", (2, 1), "`not` is written `neg` in this format"),
        (
            "ordering y_0\ny_1 > 1",
            (2, 1),
            "unknown output `y_1` (did you mean `y_0`?): it is not in the `ordering` line",
        ),
        (
            "ordering y_0\ny_0 > 1 or",
            (2, 11),
            "expected a number or an output, found the end of the line",
        ),
        (
            "ordering y_0\nor y_0 > 1",
            (2, 1),
            "expected a number or an output, found `or`",
        ),
        (
            "ordering y_0\n2 neg y_0 > 1",
            (2, 3),
            "`neg` stands in front of a whole atom",
        ),
        (
            "ordering y_0\ny_0 > 1 > 0",
            (2, 9),
            "expected `or` or the end of the line, found `>`",
        ),
        (
            "ordering y_0\ny_0 y_0 > 1",
            (2, 5),
            "expected one of >= > <= < =, found `y_0`",
        ),
        ("ordering y_0\ny_0 ! 1", (2, 5), "unexpected character `!`"),
        ("ordering y_0\ny_0 > 1e999", (2, 7), "this number is out of range"),
        ("ordering y_0\ny_0 > " + "9" * 5000, (2, 7), "this number is out of range"),
    ],
)
def test_bad_ordering_text_is_refused_with_its_place(
    text: str, place: tuple[int, int] | None, message: str
) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        from_ordering(text)
    assert message in caught.value.reason
    assert (caught.value.line, caught.value.column) == (place or (None, None))


WORDS = [
    "ordering",
    "y_0",
    "y_1",
    "or",
    "neg",
    "2",
    "0.5",
    "1e3",
    "+",
    "-",
    "*",
    ">=",
    "<",
    "=",
    "\n",
    " ",
    "#",
    "é",
    "\t",
    "9e",
]


@given(
    st.one_of(
        st.text(max_size=40), st.lists(st.sampled_from(WORDS), max_size=20).map("".join)
    )
)
@settings(deadline=None)
def test_any_ordering_text_is_read_or_refused(text: str) -> None:
    for script in (text, f"ordering y_0 y_1\n{text}"):
        with suppress(RuleSyntaxError):
            from_ordering(script)


@pytest.mark.parametrize(
    ("name", "columns", "rules"),
    [("heloc", 23, 12), ("url", 39, 18), ("faults", 27, 4)],
    ids=["heloc", "url", "faults"],
)
def test_published_ordering_files(name: str, columns: int, rules: int) -> None:
    folder = os.environ.get("MULTIPLEXNET_DATA")
    if folder is None:
        pytest.skip(
            "set MULTIPLEXNET_DATA to a folder with tabular/*/constraints.txt to run this"
        )
    spec = from_ordering(
        (Path(folder) / "tabular" / name / "constraints.txt").read_text()
    )
    assert [v.name for v in spec.outputs] == [f"y_{i}" for i in range(columns)]
    assert len(spec.rules) == rules
    assert satisfiable(spec.formula, spec.variables) is not None
    again = from_smtlib(to_smtlib(spec))
    assert proves(to_z3(again.formula) == to_z3(spec.formula))
