"""Rules as they were written, read once more: by the parser of the language, and SMT-LIB by cvc5's own parser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from multiplexnet.certificate.questions import Cvc5Writer, configured, cvc5
from multiplexnet.errors import RecordError, RuleSyntaxError
from multiplexnet.language.formula import (
    And,
    Bool,
    Formula,
    Int,
    Norm,
    Real,
    Specification,
    Variable,
    symbols,
    variables,
)
from multiplexnet.language.ordering import from_ordering
from multiplexnet.language.parser.parse import parse
from multiplexnet.language.text import formula_text
from multiplexnet.smt.script import Command, Script

__all__ = ["LANGUAGES", "Reading", "read"]

LANGUAGES = ("rules", "ordering", "smtlib")
DEEPEST = 2_000
"""How deeply an SMT-LIB text may be nested."""


@dataclass(frozen=True)
class Reading:
    """What a text says, for cvc5.

    Args:
        variables: outputs and inputs in order.
        functions: the names of opaque functions.
        rules: the conjuncts of all rules.
        ranged: integers whose domain is not declared (SMT-LIB has no domains) and must follow from the rules.
        writer: writes more formulas over the same variables.
        assumptions: what is assumed of inputs, as it was written; the writer's questions are asked for such inputs.
        assumed: the same for cvc5.
        curved: the conjuncts with norms about inputs alone, as text.
    """

    variables: tuple[Variable, ...]
    functions: tuple[str, ...]
    rules: tuple[Any, ...]
    ranged: tuple[Variable, ...]
    writer: Cvc5Writer
    assumptions: tuple[str, ...] = ()
    assumed: tuple[Any, ...] = ()
    curved: tuple[str, ...] = ()

    def mentioned(self, term: Any) -> frozenset[str]:
        """The names of the variables that occur in a term."""
        return frozenset(
            t.getSymbol()
            for t in _parts(term)
            if t.getKind() == self.writer.kind.CONSTANT
        )

    def has_norm(self, term: Any) -> bool:
        """Whether a norm occurs in a term."""
        return any(map(self.writer.is_norm, _parts(term)))

    @property
    def multiplies(self) -> bool:
        """Whether a rule multiplies variables."""
        return any(
            sum(not _is_number(factor) for factor in part) > 1
            for rule in self.rules
            for part in _parts(rule)
            if part.getKind() == self.writer.kind.MULT
        )


def read(language: str, text: str, variables: Sequence[Variable]) -> Reading:
    """The rules of a text.

    Args:
        language: one of ``LANGUAGES``.
        text: the rules.
        variables: what the text is said to declare. The parser of the language finds them by itself; SMT-LIB does not
            say which constants are inputs, unless by ``:inputs``, nor where integers lie.

    Raises:
        RuleSyntaxError: the text cannot be read.
        RecordError: it declares other variables.
    """
    if language == "smtlib":
        return _smtlib(text, variables)
    if language not in LANGUAGES:
        raise RecordError(
            f"rules in the language {language[:40]!r}: this program reads {', '.join(LANGUAGES)}"
        )
    return _specification(parse(text) if language == "rules" else from_ordering(text))


def _specification(found: Specification) -> Reading:
    writer = Cvc5Writer(found.variables)
    formulas = [*(rule.formula for rule in found.rules), *found.stand_ins]
    parts = [part for formula in formulas for part in _conjuncts(formula)]
    rules = list(map(writer.formula, parts))
    for assumption in found.assumptions:
        writer.take(assumption.formula)
    return Reading(
        found.variables,
        found.functions,
        tuple(rules),
        (),
        writer,
        tuple(rule.text for rule in found.assumptions),
        tuple(writer.formula(rule.formula) for rule in found.assumptions),
        tuple(formula_text(part) for part in parts if _is_curved_about_inputs(part)),
    )


def _is_curved_about_inputs(formula: Formula) -> bool:
    has_norm = any(isinstance(symbol, Norm) for symbol in symbols(formula))
    return has_norm and all(v.is_input for v in variables(formula))


def _conjuncts(formula: Formula) -> tuple[Formula, ...]:
    return formula.arguments if isinstance(formula, And) else (formula,)


# --- SMT-LIB --------------------------------------------------------------------------------------------------------

_DECLARATIONS = frozenset(
    {"declare-const", "declare-fun", "define-fun", "define-const"}
)
_PASSED_OVER = frozenset(
    {
        "set-logic",
        "set-option",
        "set-info",
        "check-sat",
        "get-model",
        "get-value",
        "get-info",
        "echo",
    }
)
_KINDS = (
    *(
        "CONSTANT",
        "CONST_BOOLEAN",
        "CONST_INTEGER",
        "CONST_RATIONAL",
        "AND",
        "OR",
        "NOT",
        "IMPLIES",
        "XOR",
        "EQUAL",
    ),
    *(
        "DISTINCT",
        "ITE",
        "LEQ",
        "LT",
        "GEQ",
        "GT",
        "ADD",
        "SUB",
        "MULT",
        "DIVISION",
        "NEG",
        "ABS",
        "TO_REAL",
        "APPLY_UF",
    ),
)
_REALS = re.compile(r"(QF_)?(UF)?(LRA|NRA|RDL)")
_INPUT = re.compile(
    r"(?P<name>\|[^|]*\||[^\s,|\[\]]+)\s*(?:\[(?P<lower>[^],|]*),(?P<upper>[^],|]*)\])?[\s,]*"
)
_END = re.compile(r"-?\d+(?:\.\d+|/\d+)?", re.ASCII)

Ends = tuple[Fraction | None, Fraction | None]


def _smtlib(text: str, variables: Sequence[Variable]) -> Reading:
    script = Script(text)
    commands = _commands(script)
    inputs = dict(pair for command in commands for pair in _inputs(script, command))
    names = [c.words[1].symbol for c in commands if _is_constant(c)]
    _compare(variables, names, inputs)
    try:
        manager, solver, known, rules = _parsed(script, commands)
    except RuntimeError as error:
        raise RuleSyntaxError(
            f"cvc5 cannot read the rules: {' '.join(str(error).split())}"
        ) from None
    found = tuple(
        v
        for v in variables
        if isinstance(v.domain, Int) and inputs.get(v.name) != _ends(v)
    )
    writer = Cvc5Writer(
        [v for v in variables if v not in found], known, manager, solver
    )
    for variable in variables:
        if known[variable.name].getSort() != writer.sort(variable):
            raise RecordError(f"{variable.name} is declared with another sort")
    functions = tuple(
        c.words[1].symbol
        for c in commands
        if c.name == "declare-fun" and not _is_constant(c)
    )
    return Reading(tuple(variables), functions, rules, found, writer)


def _parsed(
    script: Script, commands: Sequence[Command]
) -> tuple[Any, Any, dict[str, Any], tuple[Any, ...]]:
    """cvc5's terms for what the script declares and asserts, and the solver that knows its definitions."""
    module = cvc5()
    manager = module.TermManager()
    solver = module.Solver(manager)
    parser = module.InputParser(solver)
    symbols = parser.getSymbolManager()
    logics = [c.words[1].text for c in commands if c.name == "set-logic"]
    logic = next((name for name in logics if _REALS.fullmatch(name)), "ALL")
    declared = "\n".join(
        script.text[c.start : c.end] for c in commands if c.name in _DECLARATIONS
    )
    configured(solver)
    parser.setStringInput(
        module.InputLanguage.SMT_LIB_2_6, f"(set-logic {logic})\n{declared}", "rules"
    )
    while not (command := parser.nextCommand()).isNull():
        command.invoke(solver, symbols)
    known = {term.getSymbol(): term for term in symbols.getDeclaredTerms()}
    rules: list[Any] = []
    for command in (c for c in commands if c.name == "assert"):
        parser = module.InputParser(solver, symbols)
        parser.setStringInput(
            module.InputLanguage.SMT_LIB_2_6,
            script.text[command.words[1].start : command.end - 1],
            "rule",
        )
        term = parser.nextTerm()
        rules += list(term) if term.getKind() == module.Kind.AND else [term]
    for term in rules:
        _refuse_others(term, module.Kind)
    return manager, solver, known, tuple(rules)


def _parts(term: Any) -> Iterator[Any]:
    """The term and everything in it, each once."""
    stack = [term]
    seen = {term.getId()}
    while stack:
        part = stack.pop()
        yield part
        for child in part:
            if child.getId() not in seen:
                seen.add(child.getId())
                stack.append(child)


def _is_number(term: Any) -> bool:
    return bool(term.isRealValue() or term.isIntegerValue())


def _refuse_others(term: Any, kind: Any) -> None:
    """Raises ``RuleSyntaxError`` for what is not a part of linear arithmetic, quantifiers above all."""
    known = {getattr(kind, name) for name in _KINDS}
    for part in _parts(term):
        if part.getKind() not in known:
            raise RuleSyntaxError(
                f"the rules use {part.getKind()}, which rules do not know"
            )


def _commands(script: Script) -> list[Command]:
    found: list[Command] = []
    for command in script.commands:
        if command.name == "exit":
            break
        if command.name not in _DECLARATIONS | _PASSED_OVER | {"assert"}:
            raise script.error(
                f"the command {command.name} is not known here", command.start
            )
        if len(command.words) < 2:
            continue
        depth = deepest = 0
        for word in command.words:
            depth += (word.text == "(") - (word.text == ")")
            deepest = max(deepest, depth)
        if deepest > DEEPEST:
            raise script.error(f"nested deeper than {DEEPEST} levels", command.start)
        found.append(command)
    return found


def _is_constant(command: Command) -> bool:
    words = [word.text for word in command.words]
    return words[0] == "declare-const" or (
        words[0] == "declare-fun" and words[2:4] == ["(", ")"]
    )


def _inputs(script: Script, command: Command) -> Iterator[tuple[str, Ends]]:
    """Names and ranges of ``(set-info :inputs "…")``."""
    if command.name != "set-info" or command.words[1].text != ":inputs":
        return
    text = command.words[-1].text.strip('"').strip()
    position = 0
    while position < len(text):
        match = _INPUT.match(text, position)
        ends = (
            []
            if match is None
            else [(end or "").strip() for end in (match["lower"], match["upper"])]
        )
        if match is None or any(
            end and (len(end) > 1000 or not _END.fullmatch(end)) for end in ends
        ):
            raise script.error("expected names and ranges of inputs", command.start)
        lower, upper = (Fraction(end) if end else None for end in ends)
        yield match["name"].strip("|"), (lower, upper)
        position = match.end()


def _compare(
    variables: Sequence[Variable], names: Sequence[str], inputs: Mapping[str, Ends]
) -> None:
    said = {v.name for v in variables if v.is_input}
    if [v.name for v in variables if not v.is_input] != [
        name for name in names if name not in said
    ]:
        raise RecordError(
            "the variables of the certificate are not those that its rules declare"
        )
    if not said <= set(names) or not inputs.keys() <= said:
        raise RecordError(
            "the inputs of the certificate are not those that its rules declare"
        )
    for variable in variables:
        if isinstance(variable.domain, Real) and _ends(variable) != inputs.get(
            variable.name, (None, None)
        ):
            raise RecordError(
                f"the range of {variable.name} is not the one that the rules declare"
            )


def _ends(variable: Variable) -> Ends:
    match variable.domain:
        case Real(lower, upper):
            return lower, upper
        case Bool():
            return None, None
        case domain:
            return Fraction(domain.values.start), Fraction(domain.values.stop - 1)
