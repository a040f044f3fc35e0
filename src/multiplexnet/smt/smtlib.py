"""Rules in SMT-LIB 2.

z3 parses the terms. What it does not tell us is read from the text itself (:mod:`multiplexnet.smt.script`): the
order of the declarations, also of constants in no rule, and the line and text of every assertion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import z3

from multiplexnet.arguments import names_given
from multiplexnet.errors import RuleSyntaxError
from multiplexnet.language.formula import (
    Apply,
    Bool,
    Domain,
    Int,
    Real,
    Specification,
    Variable,
    ends,
    symbols,
)
from multiplexnet.smt.context import new_context
from multiplexnet.smt.encoder import Z3Encoder
from multiplexnet.smt.from_z3 import Constant, WrittenRule, specification
from multiplexnet.smt.script import Command, Script, Token, blank

__all__ = ["from_smtlib", "to_smtlib"]

# --- reading --------------------------------------------------------------------------------------------------------


def from_smtlib(text: str, *, inputs: str | Sequence[str] = ()) -> Specification:
    """The rules of an SMT-LIB 2 script: one for each ``assert``, with its line and text.

    Constants (``declare-const``, ``declare-fun`` without arguments) are outputs in order of declaration, functions of
    reals are opaque functions. Inputs are named by the option or in the script, where a range may follow the name::

        (set-info :inputs "limit[0, 100] load")

    Terms may be defined with ``define-fun`` and ``define-const``. Questions (``check-sat``, ``get-model`` …) are
    passed over; ``exit`` ends the script. With ``push``, ``pop`` or ``check-sat-assuming`` the script may ask one
    question, and the rules are what is asserted, and assumed, where it asks it (at the end, if it asks none).

    Args:
        text: the script.
        inputs: names of inputs besides those of ``:inputs``.

    Raises:
        RuleSyntaxError: with line and column, for what z3 does not understand and for what rules cannot say.

    Example:
        >>> spec = from_smtlib('''
        ...     (declare-const x Real) (declare-const n Int)
        ...     (assert (<= 0 n 9))
        ...     (assert (=> (> x 0) (>= n 3)))
        ... ''')
        >>> [(v.name, v.domain) for v in spec.outputs]
        [('x', Real(lower=None, upper=None)), ('n', Int(lower=0, upper=9))]
        >>> spec.rules[1].line, spec.rules[1].text
        (4, '(=> (> x 0) (>= n 3))')
    """
    script = Script(_at_its_question(Script(text)))
    found = _declarations(script)
    expressions = _parsed(script)
    if not found.asserts and not found.constants:
        raise RuleSyntaxError(
            "there are no rules: declare outputs and write at least one (assert …)"
        )
    if len(expressions) != len(found.asserts):
        raise RuleSyntaxError(
            f"z3 reads {len(expressions)} assertions where the text has {len(found.asserts)}"
        )
    written = [
        _written(script, *pair) for pair in zip(found.asserts, expressions, strict=True)
    ]
    given = {
        **found.inputs,
        **{
            name: Constant(name)
            for name in names_given("inputs", inputs)
            if name not in found.inputs
        },
    }
    for name in given:
        if name not in found.constants:
            raise RuleSyntaxError(
                f"the input {name} is not declared: add (declare-const {name} Real)"
            )
    outputs = [
        Constant(name, domain)
        for name, domain in found.constants.items()
        if name not in given
    ]
    known = [
        replace(constant, domain=found.constants[name])
        for name, constant in given.items()
    ]
    return replace(
        specification(written, outputs, known),
        functions=tuple(found.functions),
        text=text,
    )


def _written(script: Script, command: Command, expression: z3.BoolRef) -> WrittenRule:
    line, column = script.place(command.start)
    text = script.written(command.words[1].start, command.end - 1)
    return WrittenRule(expression, text, line, column, script.lines[line - 1])


@dataclass
class _Declarations:
    """What the commands of a script declare, and its assertions."""

    constants: dict[str, Domain] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    inputs: dict[str, Constant] = field(default_factory=dict)
    asserts: list[Command] = field(default_factory=list)


_DOMAINS: dict[str, Domain] = {"Real": Real(), "Int": Int(0, 0), "Bool": Bool()}
_TERMS = frozenset(
    {"declare-const", "declare-fun", "define-fun", "define-const", "assert"}
)
_QUESTIONS = frozenset(
    f"get-{what}"
    for what in (
        *(
            "assertions",
            "assignment",
            "info",
            "interpolant",
            "model",
            "objectives",
            "option",
            "proof",
        ),
        *("unsat-assumptions", "unsat-core", "value"),
    )
)
_PASSED_OVER = (
    frozenset({"set-logic", "set-option", "check-sat", "eval", "echo", "simplify"})
    | _QUESTIONS
)
_ADVICE = {
    "reset": "leave out what stands before it",
    "reset-assertions": "leave out the assertions before it",
    "define-fun-rec": "rules are linear and finite: write the cases out, or use define-fun",
    "define-funs-rec": "rules are linear and finite: write the cases out, or use define-fun",
    "maximize": "rules say what has to hold, not what is best: leave it out",
    "minimize": "rules say what has to hold, not what is best: leave it out",
    "assert-soft": "rules always hold: write (assert …), or leave it out",
}
_REAL_LOGIC = re.compile(
    r"(QF_)?(UF)?(LRA|NRA|RDL)"
)  # here z3 has to know that a number like 3 is a real


_SCOPES = frozenset({"push", "pop", "check-sat-assuming"})
_ASKING = frozenset({"check-sat", "check-sat-assuming"})
_ASSERTING = "(assert (and"
MOST_DIGITS = 4
"""Of the number of levels that one command opens or closes."""


def _at_its_question(script: Script) -> str:
    """The text as it stands where the script asks: what was popped is blank, what is assumed is asserted.

    Every place stays where it is. A script without scopes and assumptions is left alone.
    """
    commands = _before_exit(script)
    if not any(command.name in _SCOPES for command in commands):
        return script.text
    questions = [command for command in commands if command.name in _ASKING]
    if len(questions) > 1:
        raise script.error(
            f"the script asks {len(questions)} questions, and a layer keeps one set of rules: keep one of them, "
            "with what is asserted for it",
            questions[1].start,
        )
    scopes: list[list[Command]] = [[]]
    for command in commands:
        if command.name == "push":
            scopes += [[] for _ in range(_levels(script, command))]
        elif command.name == "pop":
            _pop(script, command, scopes)
        else:
            scopes[-1].append(command)
        if command.name in _ASKING:
            break
    kept = [command for scope in scopes for command in scope]
    return script.keeping(kept, _asserted)


def _before_exit(script: Script) -> list[Command]:
    names = [command.name for command in script.commands]
    return (
        script.commands[: names.index("exit")] if "exit" in names else script.commands
    )


def _levels(script: Script, command: Command) -> int:
    match command.words:
        case (_,):
            return 1
        case (_, Token(text)) if text.isdecimal():
            if len(text) > MOST_DIGITS:
                raise script.error(
                    f"{command.name} of more than {10**MOST_DIGITS - 1:,} levels",
                    command.start,
                )
            return int(text)
    raise script.error(
        f"{command.name} takes one number, as in ({command.name} 1)", command.start
    )


def _pop(script: Script, command: Command, scopes: list[list[Command]]) -> None:
    count = _levels(script, command)
    if count >= len(scopes):
        raise script.error(
            f"(pop {count}) where {len(scopes) - 1} levels are open: write a push for each",
            command.start,
        )
    del scopes[len(scopes) - count :]


def _asserted(script: Script, command: Command) -> str:
    """The command's text; assumptions as an assertion of the same length."""
    text = script.text[command.start : command.end]
    if command.name != "check-sat-assuming":
        return text
    match command.words:
        case (_, Token("("), Token(")")):
            return blank(text)
        case (_, Token("(", start), *_, Token(")")):
            head = start + 1 - command.start
            return _ASSERTING + blank(text[len(_ASSERTING) : head]) + text[head:]
    raise script.error(
        "expected a list of literals, as in (check-sat-assuming (p (not q)))",
        command.start,
    )


def _declarations(script: Script) -> _Declarations:
    found = _Declarations()
    for i, command in enumerate(script.commands):
        if command.name == "exit":
            del script.commands[i:]
            break
        if command.name == "assert":
            found.asserts.append(command)
        elif command.name.startswith("declare-"):
            _declare(script, command, found)
        elif command.name == "set-info":
            _read_info(script, command, found)
        elif command.name not in _TERMS | _PASSED_OVER:
            advice = _ADVICE.get(command.name, "write declarations and assertions only")
            raise script.error(
                f"the command {command.name} is not known here: {advice}", command.start
            )
    return found


def _declare(script: Script, command: Command, found: _Declarations) -> None:
    """Notes a constant or function. What is malformed is left to z3, which complains about it with its place."""
    match command.words:
        case (Token("declare-const"), name, sort, *rest) | (
            Token("declare-fun"),
            name,
            Token("("),
            Token(")"),
            sort,
            *rest,
        ):
            if sort.text not in _DOMAINS:
                shown = script.written(
                    sort.start, rest[-1].start + 1 if rest else command.end - 1
                )
                raise script.error(
                    f"{name.text} is of sort {shown}: rules know Real, Int and Bool only",
                    sort.start,
                )
            if name.symbol in found.constants:
                raise script.error(f"{name.text} is declared twice", name.start)
            found.constants[name.symbol] = _DOMAINS[sort.text]
        case (Token("declare-fun"), name, Token("("), *sorts, Token(")"), sort):
            for wrong in (s for s in (*sorts, sort) if s.text != "Real"):
                raise script.error(
                    f"the function {name.text} must take reals and give a real",
                    wrong.start,
                )
            found.functions.append(name.symbol)
        case (Token("declare-const" | "declare-fun"), *_):
            pass
        case _:
            raise script.error(
                f"{command.name} is not known here: rules know Real, Int and Bool only",
                command.start,
            )


_INPUT = re.compile(
    r"(?P<name>\|[^|]*\||[^\s,|\[\]]+)\s*(?:\[(?P<lower>[^],|]*),(?P<upper>[^],|]*)\])?[\s,]*"
)


def _read_info(script: Script, command: Command, found: _Declarations) -> None:
    """``(set-info :inputs "a b[0, 1]")``; other attributes are passed over."""
    match command.words:
        case (_, Token(":inputs"), value):
            for name, lower, upper in _named_inputs(script, value):
                if lower is not None and upper is not None and lower > upper:
                    raise script.error(
                        f"the range of {name} is empty: {lower} is above {upper}",
                        value.start,
                    )
                found.inputs[name] = Constant(name, None, lower, upper)
        case (_, Token(":inputs"), *_):
            raise script.error(
                'expected one string of names, as in (set-info :inputs "limit[0, 100] load")',
                command.start,
            )


def _named_inputs(
    script: Script, value: Token
) -> Iterator[tuple[str, Fraction | None, Fraction | None]]:
    text = value.text.strip('"').strip()
    position = 0
    while position < len(text):
        match = _INPUT.match(text, position)
        try:
            if match is None:
                raise ValueError
            yield (
                match["name"].strip("|"),
                _bound(match["lower"]),
                _bound(match["upper"]),
            )
        except (ValueError, ZeroDivisionError):
            reason = f'expected names and ranges as in "limit[0, 100] |x[0]|", found `{text[position:]}`'
            raise script.error(reason, value.start) from None
        position = match.end()


_END = re.compile(
    r"[+-]?(?:\d+/\d+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)", re.ASCII
)


def _bound(text: str | None) -> Fraction | None:
    if text is None or not text.strip():
        return None
    if not _END.fullmatch(text.strip()):
        raise ValueError(text)
    return Fraction(text.strip())


def _parsed(script: Script) -> list[z3.BoolRef]:
    """The assertions as z3 reads them."""
    logics = [
        c.words[1].text
        for c in script.commands
        if c.name == "set-logic" and len(c.words) > 1
    ]
    reals = any(_REAL_LOGIC.fullmatch(logic) for logic in logics)
    text = script.only(_TERMS | {"set-logic"} if reals else _TERMS)
    if "\0" in text:
        raise script.error("the text contains a null character", text.index("\0"))
    try:
        return list(z3.parse_smt2_string(text, ctx=new_context()))
    except (z3.Z3Exception, UnicodeError) as error:
        raise _rewritten(error, script) from None


_Z3_ERROR = re.compile(r'\(error "line (\d+) column (\d+): (.*?)"\)', re.DOTALL)


def _rewritten(error: Exception, script: Script) -> RuleSyntaxError:
    """z3's first complaint with its place and the line."""
    value = getattr(error, "value", str(error))
    message = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    match = _Z3_ERROR.search(message)
    if match is None:
        return RuleSyntaxError(f"z3 cannot read the text: {message.strip()}")
    line = min(int(match[1]), len(script.lines))
    source = script.lines[line - 1]
    column = int(match[2]) + (
        line > 1
    )  # z3 counts columns from 1 in the first line and from 0 in all others
    return RuleSyntaxError(
        " ".join(match[3].split()),
        line=line,
        column=min(column, len(source) + 1),
        source=source,
    )


# --- writing --------------------------------------------------------------------------------------------------------


def to_smtlib(specification: Specification) -> str:
    """The specification as an SMT-LIB 2 script that :func:`from_smtlib` reads with the same meaning.

    Categories become integers, and the range of an integer output becomes an assertion; the script has no other way
    to say them.

    Example:
        >>> print(to_smtlib(from_smtlib("(declare-const x Real) (assert (< x 1))")))
        (declare-const x Real)
        ; (< x 1)
        (assert (< x 1.0))
    """
    encoder = Z3Encoder()
    lines = [_info(specification.inputs, encoder)] if specification.inputs else []
    for variable in specification.variables:
        constant = encoder.constant(variable)
        lines.append(f"(declare-const {constant.sexpr()} {constant.sort().sexpr()})")
    lines += [
        f"(declare-fun {name} ({' '.join(['Real'] * n)}) Real)"
        for name, n in _arities(specification).items()
    ]
    lines += [
        _range(v, encoder)
        for v in specification.outputs
        if not isinstance(v.domain, Real | Bool)
    ]
    for rule in specification.rules:
        lines += [
            f"; {' '.join(rule.text.split())}",
            f"(assert {encoder.formula(rule.formula).sexpr()})",
        ]
    lines += [
        f"(assert {encoder.formula(own).sexpr()})" for own in specification.stand_ins
    ]
    return "\n".join(lines)


def _range(variable: Variable, encoder: Z3Encoder) -> str:
    lower, upper = ends(variable.domain)
    least = z3.IntVal(str(lower)).sexpr()
    most = z3.IntVal(str(upper)).sexpr()
    return f"(assert (<= {least} {encoder.constant(variable).sexpr()} {most}))"


def _info(inputs: Sequence[Variable], encoder: Z3Encoder) -> str:
    named = []
    for variable in inputs:
        named.append(encoder.constant(variable).sexpr() + _range_info(variable))
    return f'(set-info :inputs "{" ".join(named)}")'


def _range_info(variable: Variable) -> str:
    """``[0, 100]`` behind the name of an input; an end that is not there is left out."""
    lower, upper = ends(variable.domain)
    if isinstance(variable.domain, Bool) or (lower is None and upper is None):
        return ""
    least = "" if lower is None else str(lower)
    most = "" if upper is None else str(upper)
    return f"[{least}, {most}]"


def _arities(specification: Specification) -> dict[str, int]:
    """How many arguments each opaque function takes; one that no rule calls is not known and left out."""
    calls = (
        s
        for rule in specification.rules
        for s in symbols(rule.formula)
        if isinstance(s, Apply)
    )
    found = {call.function: len(call.arguments) for call in calls}
    return {name: found[name] for name in specification.functions if name in found}
