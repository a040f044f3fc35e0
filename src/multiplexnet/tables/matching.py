"""Which column of a table each variable is read from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from unicodedata import normalize

from multiplexnet.errors import TableError
from multiplexnet.language.formula import Real, Specification, Variable, variables
from multiplexnet.tables.sources.table import Table

__all__ = ["column_name", "has_domain", "is_named", "matched"]


def has_domain(variable: Variable) -> bool:
    """Whether there are values that the variable must not have: it is discrete, or an input with a range."""
    domain = variable.domain
    return not isinstance(domain, Real) or (
        variable.is_input and (domain.lower, domain.upper) != (None, None)
    )


def is_named(variable: Variable, column: str) -> bool:
    """Whether the column has a name of the variable; one without quotes is read in its normal form, as in Python."""
    return bool({column, normalize("NFKC", column)} & set(_spellings(variable)))


def matched(
    specification: Specification,
    table: Table,
    *,
    by_position: bool | None,
    skip: Sequence[str],
) -> dict[Variable, str]:
    """The column of every variable that matters.

    Args:
        specification: the rules.
        table: the table.
        by_position: whether columns are taken in order; ``None``: they are not, and nobody can ask for it.
        skip: columns to leave out.

    Raises:
        TableError: a column is not there, or there are too few.
    """
    if unknown := [name for name in skip if name not in table.names]:
        raise TableError(
            f"{table.title}: there is no column {unknown[0]!r} to skip{_nearest_name(unknown[0], table.names)}"
        )
    names = [name for name in table.names if name not in skip]
    if (
        by_position
    ):  # all of them, so that text in a number column shows a column too many
        return _in_order(specification, names, table)
    mentioned = _mentioned(specification)
    found = {}
    missing = []
    declared = [v for v in specification.variables if not v.is_flag]
    own_names = {v.name for v in declared}
    normal = {normalize("NFKC", name): name for name in names}
    unusual = {plain: name for plain, name in normal.items() if plain != name}
    for variable in declared:
        if variable not in mentioned and not has_domain(variable):
            continue
        others = own_names - {variable.name}
        own = _spellings(variable)
        spellings = [name for name in own if name in names]
        spellings += [unusual[name] for name in own if name in unusual]
        free = [name for name in spellings if name not in others]
        if free:
            found[variable] = free[0]
        else:
            missing.append(variable.name)
    if skipped := [name for name in missing if name in skip]:
        raise TableError(
            f"{table.title}: the rules need the column {skipped[0]!r}, and it was skipped: leave out "
            f"--skip {skipped[0]} (skip=…), or the rules about it"
        )
    if missing:
        text = _missing(missing, names, table)
        advice = _advice(
            names, nothing_found=not found, has_options=by_position is not None
        )
        raise TableError(f"{text}{advice}")
    return found


def _mentioned(specification: Specification) -> set[Variable]:
    """The variables of the rules; those too of which only is said whether they are missing."""
    found = {*variables(specification.formula), *variables(specification.assumed)}
    return found | {v for v, flag in specification.flags.items() if flag in found}


def column_name(variable: Variable) -> str:
    """A name for the variable's column that needs no brackets: ``x_0`` is ``x[0]``, ``w_1_2`` is ``w[1, 2]``."""
    vector, place = variable.place
    return "_".join([vector, *map(str, place)])


def _spellings(variable: Variable) -> list[str]:
    vector, place = variable.place
    found = [variable.name]
    if place:
        found += [variable.name.replace(", ", ","), column_name(variable)]
    if len(place) == 1:
        found.append(f"{vector}{place[0]}")
    return list(dict.fromkeys(found))


def _in_order(
    specification: Specification, names: list[str], table: Table
) -> dict[Variable, str]:
    declared = [v for v in specification.variables if not v.is_flag]
    numbers = [re.search(r"(\d+)\]?$", v.name) for v in declared]
    positions = [int(n[1]) for n in numbers if n]
    if len(set(positions)) < len(declared):
        positions = list(range(len(declared)))
    last = max(positions, default=-1)
    if last >= len(names):
        variable = declared[positions.index(last)]
        raise TableError(
            f"{table.title} has {len(names)} columns, and by position the rules need {last + 1} "
            f"({variable.name} would be the last)"
        )
    return {v: names[p] for v, p in zip(declared, positions, strict=True)}


def _missing(missing: list[str], names: list[str], table: Table) -> str:
    one = len(missing) == 1
    listed = ", ".join(repr(name) + _nearest_name(name, names) for name in missing[:5])
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    return f"{table.title} has no column{'' if one else 's'} {listed}{more}. Its columns: {_some(names)}."


def _advice(names: list[str], *, nothing_found: bool, has_options: bool) -> str:
    """What to do about columns that are not there, with options only where there are some."""
    if len(names) == 1 and (separator := re.search(r"[;\t|]", names[0])):
        found = f" Cells seem to be separated by {separator[0]!r}: "
        if has_options:
            return f"{found}say so with --delimiter (delimiter=…)."
        return f"{found}write the table with commas, or as Parquet."
    if not nothing_found:
        return ""
    if has_options:
        return (
            " Rename them, or take them in order with --by-position (by_position=True)."
        )
    return " Rename them, in the table or in the rules."


def _nearest_name(name: str, names: Sequence[str]) -> str:
    same = [other for other in names if other.casefold() == name.casefold()]
    close = same or get_close_matches(name, names, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (
        f" and {len(names) - 12} more" if len(names) > 12 else ""
    )
