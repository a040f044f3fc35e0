"""Certificates: what a layer says of itself is proved by a second solver, and a changed number is found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import z3
from corpus import CASES, Case, by_name
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import meaning, proves
from strategies import VARIABLES, formulas, points
from typer.testing import CliRunner, Result

from multiplexnet.certificate import Certificate
from multiplexnet.certificate.check import checked
from multiplexnet.certificate.document import PARTS, hashes
from multiplexnet.certificate.formats import FORMATS as CHECKED
from multiplexnet.certificate.maps import part_from
from multiplexnet.certificate.margins import margins, solved
from multiplexnet.certificate.questions import Answer, Cvc5Writer
from multiplexnet.certificate.report import Report
from multiplexnet.compiler.record import RecordReader, variables_from
from multiplexnet.errors import (
    EqualityError,
    InputError,
    MultiplexError,
    RecordError,
    ThinTermError,
)
from multiplexnet.exact.formats import FORMATS
from multiplexnet.language.formula import (
    Apply,
    Atom,
    Formula,
    Linear,
    Variable,
    conjunction,
    holds,
)
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules
from multiplexnet.smt.questions import equivalent
from multiplexnet.tools.cli import app
from multiplexnet.transforms import PaperSeparable
from multiplexnet.transforms.base import precision_of
from multiplexnet.transforms.tables import named_tables

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "h": lambda x: x * x,
    "f": lambda x, y: x * y - 1,
}

Path_ = tuple[Any, ...]


def layer(text: str, **options: Any) -> Multiplexer:
    rules = Rules(text)
    return Multiplexer(
        rules,
        functions={name: FUNCTIONS[name] for name in rules.specification.functions},
        **options,
    )


def again(certificate: Certificate) -> Certificate:
    """The certificate as somebody else reads it."""
    return Certificate.from_json(certificate.to_json())


def complaints(report: Report) -> list[str]:
    return [f"{s.text}: {s.why}" for s in report.statements if not s.holds]


def certified(certificate: Certificate) -> bool:
    report = checked(again(certificate))
    assert report.certified or complaints(report)
    return report.certified


# --- what is issued is certified -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.satisfiable], ids=lambda case: case.name
)
def test_the_corpus_is_certified(case: Case) -> None:
    dtype = DTYPES[CASES.index(case) % 4]
    try:
        mux = layer(case.text, dtype=dtype)
    except (EqualityError, ThinTermError, InputError):
        return  # no layer, no certificate
    report = checked(again(mux.certificate))
    assert report.certified, complaints(report)


SMTLIB = """
(set-logic QF_UFLRA)
(set-info :inputs "limit[0, 100]")
(declare-const x Real) (declare-fun |y 2| () Real) (declare-const limit Real)
(define-fun twice ((a Real)) Real (* 2 a))
(assert (and (<= (twice x) limit) (or (>= |y 2| 3) (< |y 2| (- 1)))))
"""
COUNTED = "(declare-const n Int) (declare-const x Real) (assert (<= 0 n 9)) (assert (=> (> x 0) (>= n 3)))"


def _z3() -> Rules:
    x, y, n, on = z3.Real("x!1"), z3.Real("y"), z3.Int("n"), z3.Bool("on")
    parts = [
        z3.If(on, x + y <= 3, x >= 2),
        n >= 0,
        n <= 4,
        x <= n,
        y >= 0,
        z3.Or(y <= 1, y >= 5),
    ]
    return Rules.from_z3(parts, outputs=[y, x, n, on])


ORDERING = "ordering y_1 y_0\ny_1 - 2 y_0 >= 0\nneg y_0 > 0.5 or y_1 > 3"


@pytest.mark.parametrize(
    ("rules", "language"),
    [
        (lambda: Rules.from_smtlib(SMTLIB), "smtlib"),
        (lambda: Rules.from_smtlib(COUNTED), "smtlib"),
        (
            lambda: Rules.from_smtlib(
                "(declare-const x Real)(declare-const u Real)(assert (> x u))",
                inputs=["u"],
            ),
            "smtlib",
        ),
        (_z3, "smtlib"),
        (lambda: Rules.from_ordering(ORDERING), "ordering"),
        (lambda: Rules("x >= 2 or x <= -2  # far out"), "rules"),
    ],
)
def test_rules_from_everywhere(rules: Callable[[], Rules], language: str) -> None:
    given = rules()
    mux = Multiplexer(given)
    certificate = mux.certificate
    assert certificate.data["rules"]["language"] == language
    assert (
        certificate.data["rules"]["text"] == given.specification.text
        or not given.specification.text
    )
    assert certified(certificate)
    loaded = Multiplexer.from_state(mux.state_dict())
    assert loaded.certificate == certificate


def test_rules_with_inner_blocks() -> None:
    for most, text in (
        (
            20,
            "on: bool[6]; a: real[6]\nall((200 < a[i] < 400) if on[i] else a[i] == 0 for i in range(6))\nsum(on) <= 2",
        ),
        (36, 'c: {"r", "g", "b"}[6]\nall(c[i] != c[i + 1] for i in range(5))'),
    ):
        mux = layer(text, max_terms=most)
        assert mux.is_nested
        assert certified(mux.certificate)


def test_a_part_of_the_terms_is_sound_and_says_that_it_is_not_complete() -> None:
    rows = np.array([[-2.0], [5.0]])
    mux = layer("x: real\nx <= -1 or 1 <= x <= 2 or x >= 4", cover=rows)
    assert not mux.certificate.complete
    report = checked(again(mux.certificate))
    assert report.certified
    assert "as the certificate says, the terms do not contain every point" in "\n".join(
        s.text for s in report.statements
    )
    data = json.loads(mux.certificate.to_json())
    data["proved"]["complete"] = True
    assert complaints(checked(rehashed(data))) == [
        "complete: the terms contain every point that obeys the rules: it fails at a point"
    ]


def test_moved_equalities_are_said() -> None:
    mux = layer("x: real; y: real\n3*x == 1\nx + y == 0.7; y <= 5", equality="nearest")
    report = checked(again(mux.certificate))
    assert report.certified, complaints(report)
    assert report.moved == max(mux.moved.values())
    data = json.loads(mux.certificate.to_json())
    data["layer"]["equality"] = "exact"
    assert outcome(data) != "certified"


def test_the_boxes_of_the_paper() -> None:
    assert certified(layer("0 <= x <= 1 or x >= 3", boxes=PaperSeparable).certificate)


# --- the document ----------------------------------------------------------------------------------------------------


def test_a_certificate_is_a_document(tmp_path: Path) -> None:
    mux = layer("x: real; y: real\nx >= 2 or x <= -2; y <= 0.1", dtype=torch.float32)
    certificate = mux.certificate
    certificate.save(tmp_path / "c.json")
    read = Certificate.load(tmp_path / "c.json")
    assert (read, hash(read), read.sound, read.complete) == (
        certificate,
        hash(certificate),
        True,
        True,
    )
    assert (read.solver, read.checks) == (
        mux.compiled.proof.solver,
        mux.compiled.proof.checks,
    )
    assert repr(read).startswith("Certificate(sound and complete, float32, z3 ")
    assert mux.certificate is certificate
    assert mux.to(torch.float64).certificate.data["layer"]["dtype"] == "float64"


def test_tables_that_were_changed_have_no_certificate() -> None:
    for text in (
        "x >= 2 or x <= -2",
        "x: real; y: real\nx + y <= 1; x >= 0; y >= 0",
        "x: real; y: real\nx + y == 1; x >= 0",
    ):
        mux = layer(text)
        tables = dict(named_tables(mux))
        chosen = next(
            f"maps.0.{name}"
            for name in (
                "groups.0.transform.anchor",
                "groups.0.transform.origin",
                "separable.lower",
            )
            if f"maps.0.{name}" in tables
        )
        tables[chosen].view(-1)[0] += 2.0**-20
        with pytest.raises(
            RecordError,
            match=f"the table {chosen} of this layer is not the one that its terms give",
        ):
            mux.certificate  # noqa: B018
    with pytest.raises(RecordError, match="build the layer anew"):
        layer("x >= 2").to("meta").certificate  # noqa: B018


# --- tampering -------------------------------------------------------------------------------------------------------

EXAMPLES: dict[str, Callable[[], Multiplexer]] = {
    "boxes": lambda: layer(
        "x: real; y: real\nx >= 2 or x <= -2.3; 0 < y <= 0.1", dtype=torch.float16
    ),
    "polyhedra": lambda: layer(
        "x: real; y: real\nx >= 0; y >= 0; x + y < 1 or x - 2*y >= 3",
        dtype=torch.float32,
    ),
    "lattice": lambda: layer(
        "x: real[3]\nsum(x) == 1; x[0] >= 0; x[1] > 0; x[2] <= 1/3",
        dtype=torch.bfloat16,
    ),
    "cuts": lambda: layer(
        "x: real; y: real; z: real\nx + y == 1; z <= x or x >= 3", dtype=torch.float32
    ),
    "thin": lambda: layer(
        "x: real; y: real\nx >= 0; x <= 1; y - x >= 0; 1000*y - 1000*x <= 1",
        dtype=torch.float32,
    ),
    "discrete": lambda: layer(
        'n: int[0, 3]; on: bool; c: {"a", "b"}; x: real\nimplies(on, x >= n)\nimplies(c == "a", n == 2)'
    ),
    "inputs": lambda: layer(
        "x: real; y: real; u: input[0, 10]\nx == 0 and u <= 4 or x >= u and u >= 3; x + y <= u"
    ),
    "functions": lambda: layer(
        "x: real; y: real; h: function\ny >= h(x) + 1 or y <= h(x) - 1; 0 <= x <= 1"
    ),
    "nearest": lambda: layer(
        "x: real; y: real\n3*x == 1; x + y == 0.7", equality="nearest"
    ),
    "nested": lambda: layer("on: bool[5]; x: real\nsum(on) >= 1\nx >= 0", max_terms=18),
    "smtlib": lambda: Multiplexer(Rules.from_smtlib(COUNTED)),
    "cover": lambda: layer(
        "x <= -1 or 1 <= x <= 2 or x >= 4", cover=np.array([[-2.0], [5.0]])
    ),
}
HISTORY = [("proved", name) for name in ("solver", "questions", "covered", "version")]
"""Leaves that tell what happened once; nobody can check them, and nothing depends on them."""


@cache
def issued(name: str) -> str:
    return EXAMPLES[name]().certificate.to_json()


def leaves(data: Any, path: Path_ = ()) -> Iterator[Path_]:
    if isinstance(data, dict | list):
        items = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in items:
            yield from leaves(value, (*path, key))
    else:
        yield path


def at(data: Any, path: Path_) -> Any:
    for key in path:
        data = data[key]
    return data


def changed(data: Any, path: Path_, value: Any) -> Any:
    copy = deepcopy(data)
    at(copy, path[:-1])[path[-1]] = value
    return copy


def rehashed(data: Any) -> Certificate:
    """The document with hashes that fit again, as a forger would make them."""
    return Certificate({**data, "sha256": hashes(data)})


def outcome(data: Any, *, forged: bool = True) -> str:
    try:
        return (
            "certified"
            if checked(rehashed(data) if forged else Certificate(data)).certified
            else "refuted"
        )
    except MultiplexError:
        return "unreadable"


def others(value: Any) -> list[Any]:
    """Other values that a leaf could have."""
    if isinstance(value, bool):
        return [not value, int(value)]
    if isinstance(value, int):
        return [value + 1, value - 1, -value - 1, value + 1000, str(value)]
    if value is None:
        return ["0", "1", 0]
    try:
        number = Fraction(value)
    except ValueError:
        return [value + " ", value[:-1], value.upper() + "x", "", "0", None]
    near = [number + d for d in (Fraction(1, 2**60), Fraction(-1, 1000), 1, -1)]
    return [
        *map(str, [*near, number * 2, -number, number / 3]),
        None,
        "1e999999999",
        f"{number}/0",
    ]


@settings(max_examples=80)
@given(st.sampled_from(list(EXAMPLES)), st.data())
def test_a_changed_leaf_is_found(name: str, draw: st.DataObject) -> None:
    data = json.loads(issued(name))
    path = draw.draw(
        st.sampled_from([path for path in leaves(data) if path[0] != "sha256"])
    )
    old = at(data, path)
    value = draw.draw(
        st.sampled_from(
            [
                other
                for other in others(old)
                if other != old or type(other) is not type(old)
            ]
        )
    )
    tampered = changed(data, path, value)
    assert outcome(tampered, forged=False) != "certified"  # the hashes tell
    if outcome(tampered) == "certified":
        assert (
            path in HISTORY
            or same_rules(name, path, value)
            or same_terms(data, tampered)
        ), (
            path,
            old,
            value,
        )


def same_rules(name: str, path: Path_, value: Any) -> bool:
    """Whether another text of the rules says the same, by z3; the rules may also keep an integer in a wider range."""
    if name == "smtlib" and path[:2] == ("rules", "variables"):
        return bool(value > 9 if path[-1] == 2 else value < 0)
    if path != ("rules", "text"):
        return False
    if name == "smtlib":
        new, old = (
            Rules.from_smtlib(value),
            Rules.from_smtlib(json.loads(issued(name))["rules"]["text"]),
        )
    else:
        new, old = Rules(value), Rules(json.loads(issued(name))["rules"]["text"])
    return proves(meaning(new.specification) == meaning(old.specification))


def same_terms(data: Any, tampered: Any) -> bool:
    """Whether changed terms say the same, by z3: as ``2*x + y <= u`` does where x is 0."""
    if any(data[name] != tampered[name] for name in ("rules", "layer", "proved")):
        return False
    variables = variables_from(data["rules"]["variables"])
    before, after = (
        conjunction(
            block.formula
            for block in RecordReader(variables).blocks(own["blocks"], own["inner"])
        )
        for own in (data["terms"], tampered["terms"])
    )
    return equivalent(before, after, variables)


def test_what_happened_once_is_told_and_not_proved() -> None:
    data = json.loads(issued("boxes"))
    for path in HISTORY:
        value = {"questions": 10**6, "covered": "1/2"}.get(path[1], "another")
        assert outcome(changed(data, path, value)) == "certified"
        assert outcome(changed(data, path, value), forged=False) == "refuted"


TERM = ("terms", "blocks", 0, "terms")
PART = ("layer", "maps", 0, "terms", 0, "parts", 0)


@pytest.mark.parametrize(
    ("name", "path", "value", "said"),
    [
        (
            "boxes",
            (*TERM, 0, "rows", 0, 1, 0),
            "9/5",
            "every term over x implies the rules: term 0 does not",
        ),
        ("polyhedra", (*TERM, 0, "rows", 0, 0), "<", "the terms contain every point"),
        (
            "polyhedra",
            ("layer", "maps", 0, "terms", 1, "parts", 0, "anchor", 0),
            "7",
            "its anchor is not strictly inside: its slack in row",
        ),
        (
            "polyhedra",
            (*PART, "anchor", 0),
            "1/3",
            "its anchor is not a point of the format",
        ),
        (
            "polyhedra",
            (*PART, "room", 0),
            "1/2",
            "what is left of its slacks is not what the certificate says",
        ),
        (
            "polyhedra",
            ("layer", "bound", "unit"),
            "0",
            "the constants of the error bound are those of float32: not unit",
        ),
        (
            "polyhedra",
            ("layer", "dtype"),
            "bfloat16",
            "the constants of the error bound",
        ),
        (
            "boxes",
            ("layer", "maps", 1, "terms", 0, "parts", 0, "upper", 0),
            "819/4096",
            "its parts may leave it",
        ),
        (
            "boxes",
            ("layer", "maps", 1, "terms", 0, "parts", 0, "upper", 0),
            "1/16",
            "its parts leave out points of it",
        ),
        (
            "boxes",
            ("layer", "maps", 1, "terms", 0, "parts", 0, "upper", 0),
            "1/10",
            "is not a number of the format",
        ),
        ("lattice", (*PART, "basis", 0, 0, 1), "2", "term 0: "),
        ("lattice", (*PART, "origin", 0), "1/2", "term 0: "),
        ("discrete", (*PART, "upper", 1), f"1/{2**60}", "on is not the constant 0"),
        ("lattice", (*PART, "step"), "1/3", "its step is not a power of two"),
        (
            "cuts",
            ("layer", "maps", 0, "terms", 1, "parts", 0, "bound"),
            "1",
            "term 1: the part over x, y, z: its anchor is not strictly inside",
        ),
        (
            "discrete",
            ("rules", "variables", 0, 2, 1),
            -1,
            "the variables and functions are those that the rules declare",
        ),
        (
            "smtlib",
            ("rules", "text"),
            COUNTED.replace("9", "10"),
            "the rules keep every integer in its range: it fails at a point",
        ),
        (
            "inputs",
            ("rules", "variables", 2, 2, 2),
            "9",
            "the variables and functions are those that the rules declare",
        ),
    ],
)
def test_what_is_wrong_is_said(name: str, path: Path_, value: Any, said: str) -> None:
    found = complaints(
        checked(rehashed(changed(json.loads(issued(name)), path, value)))
    )
    assert any(said in text for text in found), found


def test_a_dropped_term_is_missed() -> None:
    data = json.loads(issued("boxes"))
    del data["terms"]["blocks"][0]["terms"][1], data["layer"]["maps"][0]["terms"][1]
    report = checked(rehashed(data))
    (failed,) = [s for s in report.statements if not s.holds]
    assert failed.text.startswith("complete")
    assert failed.point is not None
    x = failed.point["x"]
    assert x >= 2 or x <= Fraction(-23, 10)


def test_a_step_too_fine_is_found_even_with_margins_to_match() -> None:
    """The margins of a finer grid are larger; what gives it away is that the format does not hold its points."""
    data = json.loads(issued("lattice"))
    part = at(data, PART)
    part["step"] = str(Fraction(part["step"]) / 4)
    part["room"], part["slack"] = _margins(part)
    assert "may leave the format" in complaints(checked(rehashed(data)))[0]


def _margins(part: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What a forger would write for the margins of another lattice."""
    found: Any = part_from(
        part, RecordReader([Variable(f"x[{i}]", i) for i in range(3)])
    )
    rows = [
        (
            {v.index: row.linear.coefficient(v) * found.step for v in found.t},
            -row.linear.constant,
        )
        for row in [*found.rows, *found._cut_rows(), *found._bounds()]
    ]
    made = margins(
        rows,
        [c / found.step for c in found.anchor],
        CHECKED["float64"].unit,
        Fraction(1, 2),
    )
    return list(map(str, made.room)), list(map(str, made.slack))


def test_other_rules_are_no_forgery_but_other_rules() -> None:
    """A certificate is about the rules in it; whether they are the reader's is another question, and can be asked."""
    certificate = layer("x >= 1").certificate
    assert checked(certificate).certified
    assert checked(certificate, rules=("rules", "x >= 1")).certified
    assert checked(certificate, rules=("rules", "2*x >= 2  # the same")).certified
    wider, narrower = (
        checked(certificate, rules=("rules", f"x >= {b}")) for b in (0, 2)
    )
    assert [text.split(":")[1] for text in complaints(wider)] == [" complete"]
    assert [text.split(":")[1] for text in complaints(narrower)] == [" sound"]
    assert not checked(certificate, rules=("rules", "y >= 1")).certified
    smtlib = "(declare-const x Real) (assert (>= x 1.0))"
    assert checked(certificate, rules=("smtlib", smtlib)).certified
    assert not checked(
        certificate, rules=("smtlib", smtlib.replace("x", "y"))
    ).certified


# --- the checker's own arithmetic ------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(formulas(depth=2), points())
def test_cvc5_reads_formulas_as_they_are_meant(
    formula: Formula, point: dict[Variable, Fraction]
) -> None:
    writer = Cvc5Writer(VARIABLES)
    here = [
        writer.formula(Atom(Linear.of(v) - value, "==")) for v, value in point.items()
    ]
    said, is_true = writer.formula(formula), holds(formula, point)
    assert writer.implied(here, said).proved == is_true
    denied = writer.implied(here, writer.negated(said))
    assert denied.proved == (not is_true)
    assert denied.point is None or denied.point == {
        v.name: value for v, value in point.items()
    }


def test_functions_are_the_same_for_the_same_arguments() -> None:
    x, y = Variable("x", 0), Variable("y", 1)
    h = [Linear.of(Apply("h", (Linear.of(v),))) for v in (x, y)]
    writer = Cvc5Writer([x, y])
    same, values = (
        writer.formula(Atom(a - b, "==")) for a, b in ((Linear.of(x), Linear.of(y)), h)
    )
    assert writer.implied([same], values).proved
    assert not writer.implied([values], same).proved


@pytest.mark.parametrize("name", FORMATS)
def test_formats_agree(name: str) -> None:
    ours, theirs = CHECKED[name], FORMATS[name]
    precision = precision_of(getattr(torch, name))
    assert ours.bound["unit"] == Fraction(precision.unit)
    assert ours.bound["tiny"] == Fraction(precision.tiny)
    assert (
        (ours.largest, ours.tiny)
        == (theirs.max, theirs.tiny)
        == (Fraction(precision.largest), theirs.tiny)
    )
    random = np.random.default_rng(0)
    values = [
        Fraction(0),
        theirs.tiny,
        theirs.max,
        Fraction(1),
        Fraction(1, 3),
        theirs.tiny / 2,
        theirs.max * 2,
    ]
    values += [
        Fraction(float(v)) * Fraction(2) ** int(e)
        for v, e in zip(
            random.normal(size=200), random.integers(-30, 15, 200), strict=True
        )
    ]
    for value in values:
        assert ours.holds(value) == theirs.representable(value)
        near = theirs.rounded(value)
        for v in (near, -near):
            if abs(v) < theirs.max:
                assert (ours.after(v), ours.before(v)) == (
                    theirs.next_up(v),
                    theirs.next_down(v),
                )


@settings(max_examples=60)
@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_coordinates_of_a_lattice(n: int, d: int, draw: st.DataObject) -> None:
    small = st.integers(-3, 3).map(Fraction)
    basis = draw.draw(
        st.lists(st.lists(small, min_size=d, max_size=d), min_size=n, max_size=n)
    )
    origin = draw.draw(st.lists(small, min_size=n, max_size=n))
    t = draw.draw(st.lists(small, min_size=d, max_size=d))
    x = [
        o + sum(c * v for c, v in zip(row, t, strict=True))
        for o, row in zip(origin, basis, strict=True)
    ]
    rank = int(np.linalg.matrix_rank(np.array(basis, dtype=float)))
    sparse = [{j: c for j, c in enumerate(row) if c} for row in basis]
    if rank < d:
        with pytest.raises(ValueError, match="not independent"):
            solved(origin, sparse, d)
        return
    coordinates, zero = solved(origin, sparse, d)
    value = [
        sum((c * x[i] for i, c in affine[0].items()), affine[1])
        for affine in (*coordinates, *zero)
    ]
    assert value == [*t, *[0] * (n - d)]
    normals = np.array(
        [[float(affine[0].get(i, 0)) for i in range(n)] for affine in zero]
    ).reshape(n - d, n)
    assert np.linalg.matrix_rank(normals) == n - d


# --- the command -----------------------------------------------------------------------------------------------------


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def files(tmp_path: Path) -> Path:
    mux = layer(by_name("paper_eight_boxes").text)
    mux.certificate.save(tmp_path / "good.json")
    data = json.loads(mux.certificate.to_json())
    wider = data["terms"]["blocks"][0]["terms"][0]["rows"][0][1]
    wider[0] = str(Fraction(wider[0]) - 1)
    (tmp_path / "stale.json").write_text(json.dumps(data))
    rehashed(data).save(tmp_path / "forged.json")
    (tmp_path / "own.rules").write_text(by_name("paper_eight_boxes").text)
    (tmp_path / "other.rules").write_text("x: real; y: real\nx <= 1")
    return tmp_path


def test_exit_codes(files: Path) -> None:
    good = run("certify", files / "good.json")
    assert (good.exit_code, "\ncertified: 6 statements\n" in good.stdout) == (
        0,
        True,
    ), good.output
    assert (
        run("certify", files / "good.json", "--rules", files / "own.rules").exit_code
        == 0
    )
    other = run("certify", files / "good.json", "--rules", files / "other.rules")
    assert other.exit_code == 1
    assert (
        "FAILS   the rules given: sound: every term over x, y implies the rules"
        in other.stdout
    )
    for name in ("stale", "forged"):
        result = run("certify", files / f"{name}.json")
        assert result.exit_code == 1
        assert "NOT certified" in result.stdout
        assert ("FAILS   the hashes" in result.stdout) == (name == "stale")
    for path in (files / "none.json", files, files / "own.rules"):
        assert run("certify", path).exit_code == 2
    assert (
        run("certify", files / "good.json", "--rules", files / "none.rules").exit_code
        == 2
    )
    assert (
        run("certify", files / "good.json", "--rules", files / "good.json").exit_code
        == 2
    )


def test_what_cvc5_does_not_decide_is_open_and_no_failure(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    implied = Cvc5Writer.implied

    def only_few(writer: Cvc5Writer, premises: Any, conclusion: Any) -> Answer:
        answer = implied(writer, premises, conclusion)
        return answer if writer.questions < 2 else Answer(False)

    monkeypatch.setattr(Cvc5Writer, "implied", only_few)
    report = checked(Certificate.load(files / "good.json"))
    layer = [s for s in report.statements if "layer computes" in s.text]
    assert [s.verdict for s in layer] == ["open"] * len(layer) != []
    assert report.is_open
    assert not report.certified


def test_as_json(files: Path) -> None:
    answer = json.loads(run("certify", files / "forged.json", "--json").stdout)
    assert answer["certified"] is False
    assert answer["questions"] == 4
    failed = [s for s in answer["statements"] if not s["holds"]]
    assert failed[0]["statement"] == "sound: every term over x, y implies the rules"
    assert {
        name: Fraction(value) for name, value in failed[0]["point"].items()
    }.keys() == {
        "x",
        "y",
    }
    assert "error" in json.loads(run("certify", files / "own.rules", "--json").stdout)


def test_without_the_compiler(files: Path) -> None:
    """Neither z3 nor torch nor the compiler is even loaded, also for a cascade beside terms."""
    cascade = "x: real[2]; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) <= 150; z: real; z >= 2 or z <= 1"
    layer(cascade, structure="cascade").certificate.save(files / "cascade.json")
    code = (
        "import sys; sys.argv = ['multiplexnet', 'certify', sys.argv[1]]\n"
        "from multiplexnet.__main__ import main\n"
        "try: main()\nexcept SystemExit as end: assert end.code == 0\n"
        "used = [n for n in sys.modules if n.partition('.')[0] in ('z3', 'torch', 'numpy', 'scipy')]\n"
        "used += [n for n in sys.modules if n.startswith(('multiplexnet.compiler.compile', "
        "'multiplexnet.compiler.proof', "
        "'multiplexnet.smt.encoder', 'multiplexnet.geometry', 'multiplexnet.transforms', "
        "'multiplexnet.compiler.cascade', 'multiplexnet.layer.multiplexer'))]\n"
        "assert not used, used"
    )
    for name in ("good.json", "cascade.json"):
        done = subprocess.run(
            [sys.executable, "-c", code, files / name], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_without_cvc5_it_says_what_to_install(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cvc5", None)
    result = run("certify", files / "good.json")
    assert result.exit_code == 2
    assert (
        result.stderr
        == "error: checking a certificate needs cvc5: in a clone of multiplexnet, "
        "pip install -c constraints.txt '.[certify]'\n"
    )


def test_every_part_has_its_hash() -> None:
    data = json.loads(issued("boxes"))
    assert data["sha256"] == hashes(data)
    assert set(data["sha256"]) == {*PARTS, "document"}
    reordered = {
        name: dict(reversed(data[name].items())) if name in PARTS else data[name]
        for name in reversed(data)
    }
    assert outcome(reordered, forged=False) == "certified"
