"""What new users write that is nearly right: the message says what to write instead, and points at the place."""

from __future__ import annotations

import pytest

from multiplexnet import Rules
from multiplexnet.errors import RuleSyntaxError

X = "x: real\n"
N = "n: int[0, 9]?\n"
V = "x: real[3]\n"
C = 'c: {"a", "b"}; on: bool\n'
D = "d: date\n"
U = "u: input; x: real\n"

MISSES = [  # (declarations, what was written, column, what the message says)
    (X, "x\u00a0<= 3", 2, "a blank of another kind (U+00A0): type a blank"),
    (X, "lambda: real", 1, "`lambda` is a word of Python: if it is a name, quote it"),
    (X, "lambda: real?", 1, "`lambda` is a word of Python: if it is a name, quote it"),
    (X, "lambda <= x", 1, "`lambda` is a word of Python: if it is a name, quote it"),
    (X, "3x <= 4", 1, "`3x`: write the product with its sign, `3*x`"),
    (
        X,
        "x => 3",
        3,
        "`=>` is not part of the language: write `implies(p, q)`, or `>=`",
    ),
    (X, "x =< 3", 3, "write `<=`"),
    (X, "x = 3", 1, "write `==` for equality"),
    (X, "x <> 3", 3, "write `!=`"),
    (X, "x ≤ 3", 3, "write `<=`"),
    (X, "x^2 <= 3", 1, "powers are not linear"),
    (X, "x <= 1 && x >= 0", 8, "write `and`"),
    (X, "x <= 1 & x >= 0", 6, "`&`: write `and`"),
    (X, "if x > 1 then x > 2", 1, "write `implies(p, q)`"),
    (X, "x between 0 and 1", 3, "write a range as a rule, as in `0 <= x <= 1`"),
    (X, "x <= 50%", 8, "50 % is `0.5`"),
    (X, "x <= $5", 6, "write the number alone"),
    (X, "x <= 3 and", 11, "it ends behind `and`; write what follows"),
    (X, "x <= 1,5", 1, "a comma between rules"),
    (X, "X <= 3", 1, "did you mean `x`? upper and lower case differ"),
    (
        "x: real[9999]\n",
        "argmin(x) == 3",
        1,
        "the largest or smallest of 9,999 numbers, each compared with every other: at most 500",
    ),
    (X, "sqrt(x) <= 3", 1, "`sqrt`: rules are linear, and this is curved"),
    (X, "x <= true", 6, "`true`: write `True`"),
    (X, "x.mean <= 3", 1, 'if it is a name, quote it, as in `"x.mean" >= 0`'),
    (X, "y: real, z: real", 8, "declare one name at a time"),
    (X, "real y", 1, "`real y`: the name stands first, as in `y: real`"),
    (X, "let y: real", 1, "`let y`: the name stands first"),
    (
        X,
        "Loan Amount: real",
        1,
        '`Loan Amount`: a name with blanks is quoted, as in `"Loan',
    ),
    (X, "Loan Amount <= 3", 1, "a name with blanks is quoted"),
    (X, "loan.amount: real", 1, "`loan.amount` is not a plain name: quote it"),
    (X, "loan-amount: real", 1, "`loan-amount` is not a plain name: quote it"),
    (X, "y: float", 4, "did you mean `real`?"),
    (X, "y: boolean", 4, "did you mean `bool`?"),
    (X, "y: int", 4, "write both ends, as in `int[0, 9]`"),
    (X, "y: real[0..1]", 10, "`..` is not part of the language"),
    (
        X,
        "y: real[0, 10] step 3",
        9,
        "10 is not a multiple of 3: both ends have to be; write 9 or 12",
    ),
    (X, "y: decimal(2)[0, 0.005]", 15, "write 0 or 0.01"),
    (
        X,
        "y: ?int[0, 9]",
        4,
        "write it behind the type of an output that may be missing",
    ),
    (
        N,
        "n == None",
        6,
        "`None` is not a number, label or truth value; write `x is missing`",
    ),
    (N, "n is null", 1, "`null`: write `x is missing`"),
    (N, "isnull(n)", 1, "`isnull`: write `x is missing`"),
    (N, "n in 1..3", 7, "`n in range(1, 4)` for 1, 2, 3"),
    (V, "x >= 0", 1, "write `all(…)` or `any(…)` around it"),
    (V, "exists(x >= 0)", 1, "`exists`: write `any("),
    (V, "every(x >= 0)", 1, "`every`: write `all("),
    (V, "avg(x) <= 3", 1, "write `mean(x)`"),
    (V, "sorted(x) == x", 1, "write `is_sorted(x)`"),
    (V, "sum(x > 1) <= 2", 5, "write `count(p for …)` to count"),
    (V, "norm(x) >= 3", 1, "is not convex"),
    (V, "x[3] <= 3", 1, "`x` has the elements 0 to 2"),
    (
        "w: real[2, 3]\n",
        "w <= 3",
        1,
        "a matrix of 2 by 3 where a truth value is needed",
    ),
    (C, "c == a", 6, '`a` is a label of `c`: write it in quotes, `"a"`'),
    (C, 'c <= "b"', 1, "labels have no order"),
    (C, "on is true", 1, "`true`: write `True`, or the truth value alone"),
    (D, "d >= 2024-08-03", 6, '`2024-08-03`: write a date as `date("2024-08-03")`'),
    (D, "d >= 2024-10-11", 6, '`2024-10-11`: write a date as `date("2024-08-03")`'),
    (D, 'd >= "03.08.2024"', 1, 'as in "2024-08-03"'),
    (D, "month(d) == 3", 1, "only `year(d)` is known"),
    (
        X,
        "x >= 1 if x > 0",
        8,
        "`if` is not part of the language: write `implies(p, q)`",
    ),
    (
        X,
        "x == 1: x >= 0",
        1,
        "`x == 1:` is not part of the language: write `implies(p, q)`",
    ),
    (X, "x <= 5 kg", 8, "`kg`: write the number alone; a unit belongs to the name"),
    (X, "y: real // metres", 4, "comments begin with `#`"),
    (
        X,
        "y: optional real",
        3,
        "`optional` is not part of the language: write `?` behind the type",
    ),
    (X, "y: text", 4, "`text`: of texts only labels are declared"),
    (X, "y: str", 4, 'as in `{"red", "green"}`; a column of other texts is left out'),
    (X, 'y: ["a", "b"]', 4, 'labels stand in braces, as in `{"red", "green"}`'),
    (X, 'y: "a" | "b"', 4, 'labels stand in braces, as in `{"red", "green"}`'),
    (X, "y: category", 4, 'did you mean `{"red", "green"}`?'),
    (
        X,
        "y: int >= 0",
        4,
        "write a range in brackets, as in `n: int[0, 9]`, or as a rule",
    ),
    (X, "y: real step 0.5 [1, 6]", 14, "the range stands before `step`"),
    (
        X,
        "x == round(x, 2)",
        6,
        "to two decimals `100*v == round(100*x)` with `v: decimal(2)",
    ),
    (N, "coalesce(n, 0) <= 3", 1, "write `(x if x is not missing else 0)`"),
    (D, "d - d <= days(30)", 10, "a difference of dates is a number of days"),
    (D, "d - d <= hours(3)", 10, "a difference of times is a number of seconds"),
    (D, "d <= today()", 6, "declare it as an input, as in `today: input date`"),
    (U, "assume: u >= 0", 1, "write it without the colon"),
    (U, "assume x <= u", 8, "`x` is an output, and `assume` speaks of inputs alone"),
    (U, "x / u <= 3", 1, "declare a range that excludes it"),
]


@pytest.mark.parametrize(
    ("declared", "written", "column", "said"), MISSES, ids=[m[1] for m in MISSES]
)
def test_a_near_miss_is_told_what_to_write(
    declared: str, written: str, column: int, said: str
) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        Rules(declared + written)
    assert said in caught.value.reason
    assert (caught.value.line, caught.value.column) == (2, column)


def test_what_looks_like_a_near_miss_and_is_right() -> None:
    rules = Rules(
        'x: real; "2024-10-11": real; n: int[0, 99]\n'
        'x <= 2024 - 10 - 11; "2024-10-11" >= 1; n % 10 == 3; n//2 <= 9; x >= 1e3 or x <= 3'
    )
    assert len(rules.specification.rules) == 5
