"""Code to copy: the rules in a layer, in a density, in a check. All of it runs as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multiplexnet import Rules
from multiplexnet.errors import DtypeError
from multiplexnet.playground.answers.values import amount, start
from multiplexnet.playground.library import Variable, refuse_indistinct

if TYPE_CHECKING:
    from multiplexnet.compiler.explanation.diagnose import Explanation

__all__ = ["needed_dtype", "snippets"]

ROWS = 8
USUAL = "float32"
WIDE = "float64"


def snippets(rules: Rules, explained: Explanation) -> dict[str, str]:
    """Three programs by name.

    Args:
        rules: as read.
        explained: what is known of them; it says which outputs have options, and whether float32 will do.
    """
    head = _head(rules)
    wide = needed_dtype(rules, explained) == WIDE
    chosen = any(max(cascade.options) > 1 for cascade in explained.cascades)
    return {
        "layer": head + _layer(rules, wide=wide, options=chosen),
        "density": head
        + _density(rules, wide=wide, options=chosen, flags=_flags(explained)),
        "check": head + _check(rules),
    }


def _flags(explained: Explanation) -> int:
    """How many outputs of cascades may be missing: whether they are is a value of its own there."""
    return sum(v.is_flag for cascade in explained.cascades for v in cascade.order)


def needed_dtype(rules: Rules, explained: Explanation) -> str:
    """float32, or float64 where float32 cannot tell the values of an output or input apart."""
    try:
        for variable in rules.specification.variables:
            refuse_indistinct(variable, USUAL)
    except DtypeError:
        return WIDE
    return (
        WIDE if any(cascade.form == WIDE for cascade in explained.cascades) else USUAL
    )


def _quoted(text: str) -> str:
    """The text as Python writes it, on lines of its own where that is possible."""
    plain = all(c.isprintable() or c == "\n" for c in text)
    if plain and '"""' not in text and "\\" not in text and not text.endswith('"'):
        return '"""\n' + text.strip("\n") + '\n"""'
    return repr(text)


def _head(rules: Rules) -> str:
    return (
        "import torch\nfrom torch import nn\n\nimport multiplexnet as mx\n\n"
        f"rules = mx.Rules({_quoted(str(rules))})\n{_functions(rules)}"
    )


def _functions(rules: Rules) -> str:
    names = rules.specification.functions
    if not names:
        return ""
    pairs = ", ".join(f'"{name}": code' for name in names)
    code = "code = lambda *arguments: sum(arguments)  # what your functions compute, in torch"
    return f"{code}\nfunctions = {{{pairs}}}\n"


def _built(rules: Rules, wide: bool) -> str:
    options = ["dtype=torch.float64"] if wide else []
    if rules.specification.functions:
        options.append("functions=functions")
    return f"mux = mx.Multiplexer({', '.join(['rules', *options])})\n"


def _layer(rules: Rules, *, wide: bool, options: bool) -> str:
    dtype = ", dtype=torch.float64" if wide else ""
    given, line = _inputs(rules, rows=ROWS, dtype=dtype)
    told = ", functions=functions" if rules.specification.functions else ""
    loss = "-branches.log_prob(data)" if options else "branches.loss(f)"
    return (
        f"{_built(rules, wide)}"
        f"head = nn.Linear(64, mux.in_features{dtype})  # raw values and the logits of the choice\n\n"
        f"h = torch.randn({ROWS}, 64{dtype})  # what your network computes\n"
        f"{line}"
        f"branches = mux(head(h){given})\n"
        f"x = branches.best()  # {loss} is the objective to train with\n"
        f"assert rules.satisfied(x{given}{told}).all()  # exactly, with no tolerance\n"
    )


def _density(rules: Rules, *, wide: bool, options: bool, flags: int) -> str:
    dtype = ", dtype=torch.float64" if wide else ""
    given, line = _inputs(rules, dtype=dtype)
    logits = ""
    if options:
        rest = f"mux.in_features - mux.out_features{f' - {flags}' if flags else ''}"
        logits = f", torch.zeros({rest}{dtype})"
    return (
        f"{_built(rules, wide)}{line}"
        f"base = torch.distributions.Normal(torch.zeros(mux.out_features{dtype}), 1.0)  # of the raw values\n"
        f"p = mx.RulesDistribution(mux, base{logits}{', inputs=inputs' if given else ''})\n"
        "x = p.sample((1000,))  # every row obeys the rules\n"
        "print(p.log_prob(x).mean())  # exact; -inf outside the rules\n"
    )


def _check(rules: Rules) -> str:
    given, line = _inputs(rules, dtype=", dtype=torch.float64")
    told = f"{given}, functions=functions" if rules.specification.functions else given
    names = ", ".join(v.name for v in rules.outputs[:8]) + (
        ", …" if len(rules.outputs) > 8 else ""
    )
    return (
        f"{line}"
        f"x = torch.zeros(1, {len(rules.outputs)}, dtype=torch.float64)  # rows of {names}\n"
        f"print(rules.satisfied(x{told}))  # row by row, exactly\n"
        f"print(rules.violation(x{told}))  # by how much, rule by rule\n"
        "# A whole file: save the rules as my.rules, then `multiplexnet check my.rules table.csv`\n"
    )


# --- inputs ---------------------------------------------------------------------------------------------------------


def _inputs(
    rules: Rules, *, rows: int | None = None, dtype: str = ""
) -> tuple[str, str]:
    """How inputs are passed, and the line that gives each a value in its range: one for every row, or one alone.

    They are members of a dictionary, so that no input can have the name of a variable of the program.
    """
    begun = start(rules)
    vectors: dict[str, list[Variable]] = {}
    for variable in rules.inputs:
        vectors.setdefault(variable.place[0], []).append(variable)
    if not vectors:
        return "", ""
    pairs = []
    for name, members in vectors.items():
        numbers = [repr(float(amount(v, begun[v]))) for v in members]
        shape = tuple(i + 1 for i in members[-1].place[1])
        pairs.append(f"{_key(name)}: {_value(numbers, shape, rows, dtype)}")
    return ", **inputs", f"inputs = {{{', '.join(pairs)}}}  # known at run time\n"


def _key(name: str) -> str:
    """A name as a string of Python, in double quotes if that is possible."""
    return f'"{name}"' if name.isidentifier() else repr(name)


def _value(
    numbers: list[str], shape: tuple[int, ...], rows: int | None, dtype: str
) -> str:
    if not shape:
        one = numbers[0]
        return (
            f"torch.tensor({one}{dtype})"
            if rows is None
            else f"torch.full(({rows},), {one}{dtype})"
        )
    value = f"torch.tensor([{', '.join(numbers)}]{dtype})"
    if len(shape) > 1:
        value += f".reshape{shape}"
    sizes = ", ".join(map(str, shape))
    return value if rows is None else f"{value}.expand({rows}, {sizes})"
