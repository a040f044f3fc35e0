"""Rules as SQL: a ``CHECK`` for each, and the query that finds the rows that break it.

What is unknown because a value is missing does not fail, here as there: that is SQL's own logic. ``CASE`` and ``max``
are written so that they are unknown where one of their parts is. Numbers are whole or decimal literals, never floats,
and nothing is divided; so the database calculates exactly as long as its columns are whole or ``DECIMAL``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from multiplexnet.arguments import refuse_unknown
from multiplexnet.errors import OptionError, SqlError
from multiplexnet.language.formula import (
    And,
    Apply,
    Atom,
    Bool,
    Category,
    Formula,
    Iff,
    Int,
    Ite,
    Linear,
    Max,
    Norm,
    Not,
    Or,
    Product,
    Real,
    Specification,
    Symbol,
    Unit,
    Variable,
    holds,
    variables,
)
from multiplexnet.language.parser.moments import moment_text
from multiplexnet.rules import Rules, rules_of
from multiplexnet.tables.matching import column_name

__all__ = ["DIALECTS", "Constraint", "Dialect", "Sql", "sql", "sql_of"]

MOST_DIGITS = 38
"""Digits of an exact number in the databases that are served."""
LONGEST_CHAIN = 100
"""How many conditions stand side by side before they are grouped: databases read a chain as deep as it is long."""


@dataclass(frozen=True)
class Dialect:
    """What databases write differently.

    Args:
        name: of the database.
        has_decimals: whether ``0.1`` is one tenth there; otherwise comparisons are written in whole numbers.
        adds_checks: whether a table that exists can be given a ``CHECK``.
        whole: what a column's whole part is written as.
        remainder: what is left of a column after dividing it by a whole number.
        has_cases: whether names that differ in upper and lower case alone are two names.
        truth_values: whether it has types for truth values and dates; otherwise they are 0 and 1, and texts.
        days: what the days since 1970-01-01 of a column are written as.
    """

    name: str
    has_decimals: bool
    adds_checks: bool
    whole: Callable[[str], str]
    remainder: Callable[[str, int], str]
    has_cases: bool
    truth_values: bool
    days: Callable[[str], str]


def _days(column: str) -> str:
    return f"({column} - DATE '1970-01-01')"


DIALECTS = {
    "duckdb": Dialect(
        "duckdb",
        has_decimals=True,
        adds_checks=False,
        whole=lambda x: f"FLOOR({x})",
        remainder=lambda x, size: f"FLOOR({x}) % {size}",
        has_cases=False,
        truth_values=True,
        days=_days,
    ),
    "postgres": Dialect(
        "postgres",
        has_decimals=True,
        adds_checks=True,
        whole=lambda x: f"FLOOR({x})",
        remainder=lambda x, size: f"CAST({x} AS NUMERIC) % {size}",
        has_cases=True,
        truth_values=True,
        days=_days,
    ),
    "sqlite": Dialect(
        "sqlite",
        has_decimals=False,
        adds_checks=False,
        whole=lambda x: f"CAST({x} AS INTEGER)",
        remainder=lambda x, size: f"CAST({x} AS INTEGER) % {size}",
        has_cases=False,
        truth_values=False,
        days=lambda x: f"CAST(julianday({x}) - 2440587.5 AS INTEGER)",
    ),
}


@dataclass(frozen=True)
class Constraint:
    """One thing that has to hold in every row.

    Args:
        name: of the constraint.
        text: what it says, in the words of the rules.
        condition: what has to hold, in SQL; where it is unknown, it does not fail.
        query: finds the rows that break it.
    """

    name: str
    text: str
    condition: str
    query: str


@dataclass(frozen=True)
class Sql:
    """Rules in SQL. ``str(sql)`` is a script.

    Args:
        table: the name of the table, quoted.
        dialect: of the database.
        columns: the names of the columns, in the order of declaration.
        constraints: cells that must not be missing, domains, assumptions about inputs, then rules, each in order.
    """

    table: str
    dialect: str
    columns: tuple[str, ...]
    constraints: tuple[Constraint, ...]

    @property
    def checks(self) -> str:
        """The ``CHECK`` constraints: statements, or lines for ``CREATE TABLE`` where a table cannot be given one."""
        lines = []
        adds = DIALECTS[self.dialect].adds_checks
        for one in self.constraints:
            check = f"CONSTRAINT {_quoted(one.name)} CHECK ({one.condition})"
            lines += [
                f"-- {_one_line(one.text)}",
                f"ALTER TABLE {self.table} ADD {check};" if adds else f"{check},",
            ]
        return "\n".join(lines)

    @property
    def queries(self) -> str:
        """One query for each constraint."""
        return "\n".join(
            f"-- {_one_line(one.text)}\n{one.query};" for one in self.constraints
        )

    def __str__(self) -> str:
        where = "" if DIALECTS[self.dialect].adds_checks else ", for CREATE TABLE"
        return (
            f"-- Constraints on {_one_line(self.table)} ({self.dialect}){where}\n{self.checks}\n\n"
            f"-- Rows that break each of them\n{self.queries}\n"
        )


def sql(
    rules: Rules | str | Sequence[str], table: str, *, dialect: str = "duckdb"
) -> Sql:
    """The rules as SQL for one table of a database.

    A column has the name of its variable; an element ``x[0]`` of a vector is ``x_0``, and ``w[1, 2]`` of a matrix
    ``w_1_2``. Categories are texts. A value that is missing makes what needs it unknown, and unknown does not fail;
    columns that were not declared with ``?`` must not be missing. Whole and ``DECIMAL`` columns are judged exactly, as
    ``check`` judges them; with ``DOUBLE`` columns the database calculates in floats.

    Args:
        rules: the rules, or their text.
        table: the name of the table; with its schema as in ``"shop.loans"``.
        dialect: ``"duckdb"``, ``"postgres"`` or ``"sqlite"``.

    Raises:
        SqlError: the rules call functions, or a number has more digits than databases have.
        OptionError: an argument of another kind.

    Example:
        >>> found = sql("low: real; high: real\\nlow <= 0.5*high", "prices")
        >>> found.constraints[-1].query
        'SELECT * FROM "prices" WHERE NOT ("low" - 0.5 * "high" <= 0)'
    """
    return sql_of(rules_of(rules).specification, table, dialect)


def sql_of(specification: Specification, table: str, dialect: str = "duckdb") -> Sql:
    """As :func:`sql`, for rules that have been read."""
    refuse_unknown("dialect", dialect, tuple(DIALECTS))
    if not isinstance(table, str) or not table.strip():
        raise OptionError("table", table, 'the name of a table, as in "loans"')
    if specification.functions:
        raise SqlError(
            f"the rules call {specification.functions[0]}(…), and a database does not know it: "
            "leave such rules out, or check them in Python with rules.satisfied(…)"
        )
    writer = _Writer(specification, DIALECTS[dialect])
    quoted = ".".join(map(_quoted, table.split(".")))
    return Sql(quoted, dialect, writer.columns(), tuple(writer.constraints(quoted)))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _text(label: str) -> str:
    escaped = label.replace("'", "''")
    return f"'{escaped}'"


# --- constraints ----------------------------------------------------------------------------------------------------


class _Writer:
    """Constraints of one specification in one dialect."""

    def __init__(self, specification: Specification, dialect: Dialect) -> None:
        self.specification = specification
        self.dialect = dialect
        self.flagged = {
            flag: variable for variable, flag in specification.flags.items()
        }

    def columns(self) -> tuple[str, ...]:
        """The names of the columns, which have to differ."""
        seen: dict[str, Variable] = {}
        own = [v for v in self.specification.variables if not v.is_flag]
        for variable in own:
            name = column_name(variable)
            key = name if self.dialect.has_cases else name.lower()
            if key in seen:
                raise SqlError(
                    f"`{seen[key].name}` and `{variable.name}` would be one column in {self.dialect.name}: "
                    "rename one of them"
                )
            seen[key] = variable
        return tuple(map(column_name, own))

    def constraints(self, table: str) -> list[Constraint]:
        found = []
        named = {v for formula in self._formulas() for v in variables(formula)}
        own = [
            v
            for v in self.specification.variables
            if not v.is_flag and (v in named or self._domain(v) is not None)
        ]
        for variable in own:
            if variable not in self.specification.flags:
                name = f"{column_name(variable)}_is_there"
                found.append(
                    (
                        name,
                        f"{variable.name} is not missing",
                        f"{self._column(variable)} IS NOT NULL",
                    )
                )
        for variable in own:
            if condition := self._domain(variable):
                found.append(
                    (
                        f"{column_name(variable)}_domain",
                        f"domain of {variable.name}",
                        condition,
                    )
                )
        assumed = [
            self.formula(rule.formula) for rule in self.specification.assumptions
        ]
        for k, (rule, condition) in enumerate(
            zip(self.specification.assumptions, assumed, strict=True), start=1
        ):
            found.append((f"assumption_{k}", f"assume {rule.text}", condition))
        plain = [
            Constraint(
                name, text, condition, f"SELECT * FROM {table} WHERE NOT ({condition})"
            )
            for name, text, condition in found
        ]
        judged = "".join(f" AND ({condition}) IS NOT FALSE" for condition in assumed)
        for k, rule in enumerate(self.specification.rules, start=1):
            condition = self.formula(rule.formula)
            query = f"SELECT * FROM {table} WHERE NOT ({condition}){judged}"
            plain.append(Constraint(f"rule_{k}", rule.text, condition, query))
        return plain

    def _formulas(self) -> Iterator[Formula]:
        for rule in (*self.specification.rules, *self.specification.assumptions):
            yield rule.formula

    def _column(self, variable: Variable) -> str:
        return _quoted(column_name(variable))

    def _domain(self, variable: Variable) -> str | None:
        column = self._column(variable)
        match variable.domain:
            case Int(lower, upper, unit):
                return self._whole(column, lower, upper, unit)
            case Bool():
                return None if self.dialect.truth_values else f"{column} IN (0, 1)"
            case Category(labels):
                return f"{column} IN ({', '.join(map(_text, labels))})"
            case Real(lower, upper):
                ends = []
                if lower is not None:
                    ends.append(self.formula(Atom(-Linear.of(variable) + lower, "<=")))
                if upper is not None:
                    ends.append(self.formula(Atom(Linear.of(variable) - upper, "<=")))
                return " AND ".join(ends) or None
        raise SqlError(
            f"{variable.name} is declared as {variable.domain}, which cannot be written in SQL: declare it as a number"
        )

    def _whole(self, column: str, lower: int, upper: int, unit: Unit) -> str:
        """Whole steps of a unit between two ends."""
        if unit.kind == "datetime":
            raise SqlError(
                f"{column} is a time: databases differ in how they keep it; declare it as a date"
            )
        if unit.kind == "date":
            ends = (self._date(lower), self._date(upper))
            return f"{column} BETWEEN {ends[0]} AND {ends[1]}"
        size = unit.size
        steps = column if size.denominator == 1 else f"{column} * {size.denominator}"
        whole = self.dialect.whole(steps)
        ends = (str(lower * size.numerator), str(upper * size.numerator))
        found = f"{steps} BETWEEN {ends[0]} AND {ends[1]} AND {steps} = {whole}"
        return (
            found
            if size.numerator == 1
            else f"{found} AND {self.dialect.remainder(steps, size.numerator)} = 0"
        )

    def _date(self, days: int) -> str:
        day = moment_text(days, "date")
        if day is None:
            raise SqlError(
                f"the day {days} after 1970-01-01 is not a date that can be written: give a range"
            )
        return f"DATE '{day}'" if self.dialect.truth_values else f"'{day}'"

    # --- formulas ---------------------------------------------------------------------------------------------------

    def formula(self, formula: Formula) -> str:
        """The formula in SQL's three-valued logic."""
        match formula:
            case Atom():
                return self._atom(formula)
            case Not(argument):
                return f"NOT ({self.formula(argument)})"
            case And(arguments):
                return self._joined(arguments, " AND ") or "TRUE"
            case Or(arguments):
                return self._joined(arguments, " OR ") or "FALSE"
            case Iff(left, right):
                return f"({self.formula(left)}) = ({self.formula(right)})"

    def _joined(self, arguments: Sequence[Formula], word: str) -> str:
        if len(arguments) == 1:
            return self.formula(arguments[0])
        parts = []
        for argument in arguments:
            text = self.formula(argument)
            is_simple = (
                isinstance(argument, Atom)
                and " AND " not in text
                and " OR " not in text
            )
            parts.append(text if is_simple else f"({text})")
        while len(parts) > LONGEST_CHAIN:
            groups = (
                parts[i : i + LONGEST_CHAIN]
                for i in range(0, len(parts), LONGEST_CHAIN)
            )
            parts = [f"({word.join(group)})" for group in groups]
        return word.join(parts)

    def _atom(self, atom: Atom) -> str:
        match atom.linear.summands:
            case ():
                return "TRUE" if holds(atom, {}) else "FALSE"
            case ((Variable() as variable, _),) if variable.is_flag:
                return self._missing(variable, atom)
            case ((Variable(domain=Bool() | Category()) as variable, _),):
                return self._finite(variable, atom)
            case (
                (Variable(domain=Category(labels)) as left, c),
                (Variable(domain=Category(others)) as right, d),
            ) if (
                labels == others
                and c == -d
                and not atom.linear.constant
                and atom.relation == "=="
            ):
                return f"{self._column(left)} = {self._column(right)}"
        return self._comparison(atom)

    def _missing(self, flag: Variable, atom: Atom) -> str:
        column = self._column(self.flagged[flag])
        allowed = [value for value in (0, 1) if holds(atom, {flag: Fraction(value)})]
        if len(allowed) != 1:
            return "TRUE" if allowed else "FALSE"
        return f"{column} IS NULL" if allowed == [1] else f"{column} IS NOT NULL"

    def _finite(self, variable: Variable, atom: Atom) -> str:
        """An atom over one truth value or category, by the values that it allows; unknown where it is missing."""
        column = self._column(variable)
        domain = variable.domain
        assert isinstance(domain, Bool | Category)
        allowed = [
            value for value in domain.values if holds(atom, {variable: Fraction(value)})
        ]
        if isinstance(domain, Category):
            if not allowed:
                return f"{column} <> {column}"
            chosen = [_text(domain.labels[value]) for value in allowed]
            return (
                f"{column} = {chosen[0]}"
                if len(chosen) == 1
                else f"{column} IN ({', '.join(chosen)})"
            )
        if len(allowed) != 1:
            return f"{column} {'=' if allowed else '<>'} {column}"
        if self.dialect.truth_values:
            return column if allowed == [1] else f"NOT {column}"
        return f"{column} = {allowed[0]}"

    # --- numbers ----------------------------------------------------------------------------------------------------

    def _comparison(self, atom: Atom) -> str:
        linear = self._writable(atom.linear)
        linear = linear * self._scale(linear)
        left = Linear(linear.summands)
        relation = {"==": "="}.get(atom.relation, atom.relation)
        return f"{self.linear(left)} {relation} {self.number(-linear.constant)}"

    def _writable(self, linear: Linear) -> Linear:
        """The same expression, fractions inside ``max`` and ``if`` moved to the factor in front of them."""
        total = Linear.number(linear.constant)
        for symbol, c in linear.summands:
            scale, inner = self._scaled(symbol)
            total = total + Linear.of(inner) * (c / scale)
        return total

    def _scaled(self, symbol: Symbol) -> tuple[Fraction, Symbol]:
        """A number, and the symbol times that number, whose own numbers can be written."""
        match symbol:
            case Max(arguments):
                own = [self._writable(argument) for argument in arguments]
                scale = lcm(*map(self._scale, own))
                return Fraction(scale), Max(tuple(argument * scale for argument in own))
            case Ite(condition, then, otherwise):
                first = self._writable(then)
                second = self._writable(otherwise)
                scale = lcm(self._scale(first), self._scale(second))
                return Fraction(scale), Ite(condition, first * scale, second * scale)
            case Variable():
                return symbol.unit.size, symbol
            case Product(known, other):
                return known.unit.size * other.unit.size, symbol
        return Fraction(1), symbol

    def _scale(self, linear: Linear) -> int:
        """What a comparison is multiplied with so that its numbers can be written."""
        denominators = [
            linear.constant.denominator,
            *(c.denominator for _, c in linear.summands),
        ]
        if self.dialect.has_decimals:
            denominators = [_without_twos_and_fives(d) for d in denominators]
        return lcm(*denominators)

    def linear(self, linear: Linear) -> str:
        """The expression, first summand without a plus."""
        parts: list[str] = []
        for symbol, c in linear.summands:
            size = abs(c)
            value = self._symbol(symbol)
            text = value if size == 1 else f"{self.number(size)} * {value}"
            if parts:
                parts.append(f"{'-' if c < 0 else '+'} {text}")
            else:
                parts.append(f"-{text}" if c < 0 else text)
        if linear.constant or not parts:
            sign = "- " if linear.constant < 0 else "+ "
            parts.append(
                (sign if parts else sign.strip("+ "))
                + self.number(abs(linear.constant))
            )
        return " ".join(parts)

    def number(self, number: Fraction) -> str:
        """The exact number, as a literal that is not a float."""
        places = 0
        while (number * 10**places).denominator != 1:
            places += 1
        digits = str(abs(number.numerator * 10**places // number.denominator)).rjust(
            places + 1, "0"
        )
        if len(digits) > MOST_DIGITS:
            raise SqlError(
                f"a number of {len(digits)} digits ({digits[:12]}…): databases calculate exactly with {MOST_DIGITS}; "
                "write rules with fewer"
            )
        sign = "-" if number < 0 else ""
        return (
            f"{sign}{digits[:-places]}.{digits[-places:]}"
            if places
            else f"{sign}{digits}"
        )

    def _symbol(self, symbol: Symbol) -> str:
        match symbol:
            case Variable():
                return self._variable(symbol)
            case Max(arguments):
                return self._max(arguments)
            case Ite(condition, then, otherwise):
                test = self.formula(condition)
                first = self._bracketed(then)
                second = self._bracketed(otherwise)
                return (
                    f"CASE WHEN {test} THEN {first} WHEN NOT ({test}) THEN {second} END"
                )
            case Product(known, other):
                return f"{self._variable(known)} * {self._symbol(other)}"
            case Norm():
                raise SqlError(
                    "the rules have a norm or a square, and databases round roots and squares: check the table with "
                    "`check`, which does not"
                )
            case Apply(function, _):
                raise SqlError(
                    f"the rules call {function}(…), and a database does not know it"
                )

    def _variable(self, variable: Variable) -> str:
        column = self._column(variable)
        if variable.unit.kind == "date":
            return self.dialect.days(column)
        if variable.is_flag:
            own = self._column(self.flagged[variable])
            return f"CASE WHEN {own} IS NULL THEN 1 ELSE 0 END"
        if isinstance(variable.domain, Bool) and self.dialect.truth_values:
            return f"CAST({column} AS INTEGER)"
        if isinstance(variable.domain, Category):
            cases = [
                f"WHEN {column} = {_text(label)} THEN {k}"
                for k, label in enumerate(variable.domain.labels)
            ]
            return f"CASE WHEN {column} IS NULL THEN NULL {' '.join(cases)} ELSE -1 END"
        return column

    def _max(self, arguments: Sequence[Linear]) -> str:
        """The largest; ``GREATEST`` passes over what is missing, this does not."""
        texts = [self._bracketed(argument) for argument in arguments]
        if len(arguments) == 2 and arguments[0] == -arguments[1]:
            return f"ABS({texts[0]})"
        cases = []
        for k, text in enumerate(texts):
            tests = [f"{text} >= {other}" for j, other in enumerate(texts) if j != k]
            cases.append(f"WHEN {' AND '.join(tests)} THEN {text}")
        return f"CASE {' '.join(cases)} END"

    def _bracketed(self, linear: Linear) -> str:
        text = self.linear(linear)
        return (
            text if len(linear.summands) + bool(linear.constant) == 1 else f"({text})"
        )


def _without_twos_and_fives(number: int) -> int:
    for prime in (2, 5):
        while number % prime == 0:
            number //= prime
    return number
