"""Code to copy: the rules in a layer, in a density, in a check. All of it runs as it is."""

from __future__ import annotations

from multiplexnet import Rules
from multiplexnet.playground.answers.values import middle
from multiplexnet.playground.library import Variable

__all__ = ["snippets"]

ROWS = 8


def snippets(rules: Rules) -> dict[str, str]:
    """Three programs by name."""
    head = _head(rules)
    return {
        "layer": head + _layer(rules),
        "density": head + _density(rules),
        "check": head + _check(rules),
    }


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


def _built(rules: Rules) -> str:
    return f"mux = mx.Multiplexer(rules{', functions=functions' if rules.specification.functions else ''})\n"


def _layer(rules: Rules) -> str:
    given, line = _inputs(rules, rows=ROWS)
    told = ", functions=functions" if rules.specification.functions else ""
    return (
        f"{_built(rules)}"
        "head = nn.Linear(64, mux.in_features)  # raw values and the logits of the choice\n\n"
        f"h = torch.randn({ROWS}, 64)  # what your network computes\n"
        f"{line}"
        f"branches = mux(head(h){given})\n"
        "x = branches.best()  # branches.loss(f) is the objective to train with\n"
        f"assert rules.satisfied(x{given}{told}).all()  # exactly, with no tolerance\n"
    )


def _density(rules: Rules) -> str:
    given, line = _inputs(rules)
    return (
        f"{_built(rules)}{line}"
        "base = torch.distributions.Normal(torch.zeros(mux.out_features), 1.0)  # of the raw values; a flow will do\n"
        f"p = mx.RulesDistribution(mux, base{', inputs=inputs' if given else ''})\n"
        "x = p.sample((1000,))  # every row obeys the rules\n"
        "print(p.log_prob(x).mean())  # exact; -inf outside the rules\n"
    )


def _check(rules: Rules) -> str:
    given, line = _inputs(rules, dtype=", dtype=torch.float64")
    told = f"{given}, functions=functions" if rules.specification.functions else given
    names = ", ".join(v.name for v in rules.outputs[:8]) + (", …" if len(rules.outputs) > 8 else "")
    return (
        f"{line}"
        f"x = torch.zeros(1, {len(rules.outputs)}, dtype=torch.float64)  # rows of {names}\n"
        f"print(rules.satisfied(x{told}))  # row by row, exactly\n"
        f"print(rules.violation(x{told}))  # by how much, rule by rule\n"
        "# A whole file: save the rules as my.rules, then `multiplexnet check my.rules table.csv`\n"
    )


# --- inputs ---------------------------------------------------------------------------------------------------------


def _inputs(rules: Rules, *, rows: int | None = None, dtype: str = "") -> tuple[str, str]:
    """How inputs are passed, and the line that gives each a value in its range: one for every row, or one alone.

    They are members of a dictionary, so that no input can have the name of a variable of the program.
    """
    vectors: dict[str, list[Variable]] = {}
    for variable in rules.inputs:
        vectors.setdefault(variable.place[0], []).append(variable)
    if not vectors:
        return "", ""
    pairs = [f'"{name}": {_value(name, members, rows, dtype)}' for name, members in vectors.items()]
    return ", **inputs", f"inputs = {{{', '.join(pairs)}}}  # known at run time\n"


def _value(name: str, members: list[Variable], rows: int | None, dtype: str) -> str:
    numbers = [repr(float(middle(v))) for v in members]
    if members[0].name == name:
        return (
            f"torch.tensor({numbers[0]}{dtype})"
            if rows is None
            else f"torch.full(({rows},), {numbers[0]}{dtype})"
        )
    vector = f"torch.tensor([{', '.join(numbers)}]{dtype})"
    return vector if rows is None else f"{vector}.expand({rows}, {len(members)})"
