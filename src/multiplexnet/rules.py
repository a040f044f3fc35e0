"""``Rules``: what the user writes, and everything that can be asked of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from multiplexnet.errors import (
    InputError,
    OptionError,
    RuleSyntaxError,
    RuleTypeError,
    ShapeError,
    UnknownNameError,
    needing,
    opening,
)
from multiplexnet.exact.deadline import SECONDS, Deadline, Tell
from multiplexnet.language.budget import MAX_TERMS
from multiplexnet.language.formula import (
    Formula,
    Real,
    Specification,
    Variable,
    nearest_to_zero,
)
from multiplexnet.language.parser.values import did_you_mean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from multiplexnet.compiler.cover import DataRows
    from multiplexnet.compiler.explanation.diagnose import Explanation
    from multiplexnet.compiler.terms import Compiled

    Values = TypeVar("Values", Tensor, NDArray[Any])

__all__ = ["Rules", "rule_file", "rules_of"]

Functions = Mapping[str, Callable[..., Any]]


def _z3_for(what: str) -> AbstractContextManager[None]:
    return needing(
        "z3",
        what,
        "pip install z3-solver (saved layers load without it: Multiplexer.from_state)",
    )


def _refuse_no_text(text: object) -> None:
    """Raises ``RuleTypeError`` for what is not text, with advice for what is often meant."""
    if isinstance(text, str):
        return
    advice = 'give the rules, as in Rules("x >= 2")'
    if isinstance(text, bytes | bytearray):
        advice = "decode it first, as in Rules(data.decode())"
    elif isinstance(text, Path):
        advice = "read the file with Rules.load(path)"
    elif isinstance(text, Rules):
        advice = "these are Rules already"
    elif type(text).__module__.partition(".")[0] == "z3":
        advice = "read z3 expressions with Rules.from_z3(expression)"
    raise RuleTypeError(text, advice)


def rule_file(path: Path) -> tuple[str, str]:
    """The language of a rule file (``rules``, ``smtlib`` or ``ordering``) and its text.

    Raises:
        MissingFileError: there is no such file.
        OSError: as the system says.
        RuleSyntaxError: it is not text, or has an unknown ending.
    """
    languages = {".rules": "rules", ".smt2": "smtlib", ".txt": "rules"}
    if path.suffix not in languages:
        raise RuleSyntaxError(
            f"{path}: a rule file ends in {', '.join(languages)}, not in {path.suffix!r}; rename it"
        )
    try:
        with opening(path):
            text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise RuleSyntaxError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    if path.suffix == ".txt" and text.lstrip().startswith("ordering"):
        return "ordering", text
    return languages[path.suffix], text


def rules_of(given: Rules | str | Sequence[str]) -> Rules:
    """Rules as they are, or those that a text says.

    Raises:
        RuleSyntaxError: the text cannot be read.
        RuleTypeError: it is neither.

    Example:
        >>> rules_of("x >= 2") == Rules("x >= 2") == rules_of(Rules("x >= 2"))
        True
    """
    return given if isinstance(given, Rules) else Rules(given)


_PATH = re.compile(r"[^\s;#()<>=\"'`]+\.(rules|smt2|txt)")
"""What reads like the path of a rule file; rules have no dot before a letter."""


def _refuse_path(text: str) -> None:
    """Raises ``RuleSyntaxError`` for the path of a rule file in place of its text."""
    if _PATH.fullmatch(text.strip()):
        raise RuleSyntaxError(
            f"`{text.strip()}` reads like the path of a file, and rules are given as text: "
            f"mx.Rules.load({text.strip()!r}) reads a file"
        )


def _passed(name: str) -> str:
    """How an input is passed to a call."""
    return f"{name}=…" if name.isidentifier() else f"**{{{name!r}: …}}"


@dataclass(frozen=True)
class _DeclaredInput:
    """One input as it was declared: a number, a vector or a matrix.

    Args:
        name: as it was declared.
        members: its scalars.
        places: the index of each of them.
        shape: ``()`` of a number, ``(n,)`` of a vector, ``(n, m)`` of a matrix.
    """

    name: str
    members: tuple[Variable, ...]
    places: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]

    def elements(self, value: Any) -> list[Any]:
        """The values of its scalars, in order."""
        from multiplexnet.verdicts.numbers import numbers_of

        if not self.shape:
            return [value]
        if isinstance(value, list | tuple):
            value = numbers_of(value, self.name)
        found = tuple(getattr(value, "shape", ()))
        if found[-len(self.shape) :] != self.shape:
            raise ShapeError(self._other_shape(found))
        return [value[(..., *place)] for place in self.places]

    def _other_shape(self, found: tuple[int, ...]) -> str:
        if len(self.shape) == 1:
            return f"input {self.name} is a vector of {self.shape[0]}: its last dimension must be that"
        sizes = " × ".join(map(str, self.shape))
        return (
            f"input {self.name} is a matrix of {sizes}: its last dimensions must be these, "
            f"not those of the shape {found}"
        )


def _declared_inputs(specification: Specification) -> dict[str, _DeclaredInput]:
    """Every input by its declared name. Found once: while a graph is recorded, names cannot be taken apart."""
    groups: dict[str, list[Variable]] = {}
    for variable in specification.inputs:
        name = variable.name if variable.whole else variable.place[0]
        groups.setdefault(name, []).append(variable)
    found = {}
    for name, members in groups.items():
        places = tuple(() if member.whole else member.place[1] for member in members)
        shape = tuple(i + 1 for i in places[-1])
        found[name] = _DeclaredInput(name, tuple(members), places, shape)
    return found


class Rules:
    """Rules over a network's outputs, immutable.

    Args:
        text: one rule a line in Python's grammar, with declarations (``x: real[3]``, ``n: int[0, 9]``, ``on: bool``,
            ``colour: {"red", "green"}``, ``limit: input[0, 100]``, ``f: function``), or a list of such texts. Without
            any declaration every name is a real output. The text is parsed and never evaluated.

    Raises:
        RuleSyntaxError: the text cannot be read; the message names line and column and says what to do.
        RuleTypeError: what was given is not text.

    Example:
        >>> rules = Rules("x >= 2 or x <= -2")
        >>> [term.rows for term in rules.compile().blocks[0].terms] != []
        True
        >>> import numpy as np
        >>> rules.satisfied(np.array([[3.0], [0.0]]))
        array([ True, False])
    """

    _specification: Specification
    _declared: dict[str, _DeclaredInput]

    def __init__(self, text: str | Sequence[str]) -> None:
        from multiplexnet.language.parser.parse import parse, parse_all

        listed = isinstance(text, list | tuple)
        for entry in text if listed else [text]:
            _refuse_no_text(entry)
            _refuse_path(str(entry))
        self._take(parse_all(text) if listed else parse(str(text)))

    def _take(self, specification: Specification) -> None:
        vars(self)["_specification"] = specification
        vars(self)["_declared"] = _declared_inputs(specification)

    # --- other ways in ----------------------------------------------------------------------------------------------

    @classmethod
    def from_specification(cls, specification: Specification) -> Rules:
        """Rules that have been read already."""
        rules = cls.__new__(cls)
        rules._take(specification)
        return rules

    @classmethod
    def from_z3(
        cls, expression: Any, *, outputs: Any = None, inputs: Any = None
    ) -> Rules:
        """Rules from a z3 expression or a list of them; uninterpreted functions are opaque functions.

        Args:
            expression: Boolean z3 expressions over reals, Booleans and bounded integers.
            outputs: the outputs in order, as z3 constants or names; by default all constants that are no inputs.
            inputs: the inputs in order, or a mapping from input to its range ``(lower, upper)``.
        """
        with _z3_for("reading z3 expressions"):
            from multiplexnet.smt.from_z3 import from_z3

        return cls.from_specification(
            from_z3(
                expression, outputs=outputs, inputs=() if inputs is None else inputs
            )
        )

    @classmethod
    def from_smtlib(
        cls, text: str, *, inputs: str | Sequence[str] | None = None
    ) -> Rules:
        """Rules from an SMT-LIB 2 script: every ``assert`` is a rule.

        Example:
            >>> import numpy as np
            >>> rules = Rules.from_smtlib("(declare-const x Real) (assert (>= x 2.0))")
            >>> rules.satisfied(np.array([[2.0], [1.0]]))
            array([ True, False])
        """
        _refuse_no_text(text)
        with _z3_for("reading SMT-LIB"):
            from multiplexnet.smt.smtlib import from_smtlib

        return cls.from_specification(
            from_smtlib(text, inputs=() if inputs is None else inputs)
        )

    @classmethod
    def from_ordering(cls, text: str) -> Rules:
        """Rules in the text format of PiShield and DRL: a line ``ordering …``, then disjunctions of linear atoms."""
        from multiplexnet.language.ordering import from_ordering

        _refuse_no_text(text)
        return cls.from_specification(from_ordering(text))

    @classmethod
    def from_arrays(
        cls,
        A: Any = None,
        b: Any = None,
        *,
        C: Any = None,
        d: Any = None,
        names: Any = None,
    ) -> Rules:
        """Rules ``A x <= b`` and ``C x == d``, one rule a row, for matrices with thousands of entries.

        Args:
            A: inequalities, shape (M, D): numpy, ``scipy.sparse``, torch or nested lists. A float stands for the
                decimal that Python prints for it, as it does in a text (a bfloat16 for one of as few digits as are
                rounded to it); fractions and decimals are exact, and duplicates in a sparse array are added exactly.
            b: their right sides, shape (M,); a row with an infinite one says nothing and is left out.
            C: equalities, shape (E, D).
            d: their right sides, shape (E,).
            names: the names of the D outputs, or one name for a vector of them (default: the
                column names of a data frame, otherwise ``x``).

        Raises:
            SourceError: shapes that do not fit, numbers that are missing or not finite, names that no rule could say.

        Example:
            >>> import numpy as np
            >>> rules = Rules.from_arrays(np.array([[1.0, -0.5]]), [2], C=[[1, 1]], d=[3], names=["a", "b"])
            >>> print(rules)
            a: real
            b: real
            a - 0.5*b <= 2
            a + b == 3
        """
        from multiplexnet.readers.arrays import from_arrays

        return cls.from_specification(from_arrays(A, b, C, d, names))

    @classmethod
    def from_json_schema(cls, schema: Any, *, skip: str | Sequence[str] = ()) -> Rules:
        """Rules from the JSON Schema of one record: kinds, bounds, choices, and what may be missing.

        Args:
            schema: the schema, or the path of its file.
            skip: properties to leave out, such as names and other texts; or one.

        Raises:
            SourceError: the schema says what rules cannot say; everything of the kind is named.

        Example:
            >>> print(Rules.from_json_schema({
            ...     "properties": {
            ...         "age": {"type": "integer", "minimum": 0, "maximum": 120},
            ...         "income": {"type": "number", "minimum": 0},
            ...         "plan": {"enum": ["basic", "full"]},
            ...     },
            ...     "required": ["age", "plan"],
            ... }))
            age: int[0, 120]
            income: real?
            plan: {"basic", "full"}
            income >= 0
        """
        from multiplexnet.readers.json_schema import schema_in, text_of_schema

        return cls(text_of_schema(schema_in(schema), skip))

    @classmethod
    def from_pydantic(cls, model: Any, *, skip: str | Sequence[str] = ()) -> Rules:
        """Rules from the fields of a pydantic model, by its JSON Schema (see :meth:`from_json_schema`).

        Ends of dates and places of decimals, which pydantic leaves out of that, are read as well. Validators written
        in Python are not.

        Raises:
            SourceError: it is not a model, or says what rules cannot say.
        """
        from multiplexnet.readers.pydantic_models import schema_of_model

        return cls.from_json_schema(schema_of_model(model), skip=skip)

    @classmethod
    def load(cls, path: str | Path) -> Rules:
        """Rules from a file: ``.rules`` (text), ``.smt2`` (SMT-LIB), ``.txt`` (``ordering …`` or text).

        Raises:
            MissingFileError: there is no such file.
            IsADirectoryError, PermissionError: as the system says.
            RuleSyntaxError: the file is not text, has another ending, or its rules cannot be read.
        """
        if not isinstance(path, str | Path):
            raise RuleTypeError(path, "Rules.load takes the path of a rule file")
        language, text = rule_file(Path(path))
        readers: dict[str, Callable[[str], Rules]] = {
            "rules": cls,
            "smtlib": cls.from_smtlib,
            "ordering": cls.from_ordering,
        }
        return readers[language](text)

    # --- what was written -------------------------------------------------------------------------------------------

    @property
    def specification(self) -> Specification:
        """Variables, functions and rules as plain data."""
        return self._specification

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The outputs in declared order: the columns of a tensor of shape (*batch, D)."""
        return self._specification.columns

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """What has to be known at run time."""
        return self._specification.inputs

    @property
    def formula(self) -> Formula:
        """The conjunction of all rules."""
        return self._specification.formula

    def __getitem__(self, name: str) -> Variable:
        """The output or input of this name, as it was declared; ``x[0]`` is an element of a vector.

        Example:
            >>> Rules('"Loan Amount": real; `Loan Amount` >= 0')["Loan Amount"].index
            0
        """
        known = {variable.name: variable for variable in self._specification.variables}
        if not isinstance(name, str) or name not in known:
            raise UnknownNameError(
                str(name), did_you_mean(str(name), known), list(known)
            )
        return known[name]

    def __contains__(self, name: object) -> bool:
        return any(variable.name == name for variable in self._specification.variables)

    def __iter__(self) -> Iterator[Variable]:
        """The outputs and inputs in declared order."""
        return iter(self._specification.variables)

    @cached_property
    def _text(self) -> str:
        from multiplexnet.language.text import specification_text

        return self._specification.text.strip("\n") or specification_text(
            self._specification
        )

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        outputs = ", ".join(v.name for v in self.outputs[:6]) + (
            ", …" if len(self.outputs) > 6 else ""
        )
        return f"Rules({len(self._specification.rules)} rules over {outputs})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rules) and self._specification == other._specification

    def __hash__(self) -> int:
        return hash(self._specification)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"Rules cannot be changed: {name} is read-only; make new Rules"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(
            f"Rules cannot be changed: {name} is read-only; make new Rules"
        )

    def to_z3(self) -> Any:
        """The rules as one z3 expression in z3's main context, the domains of discrete outputs included."""
        with _z3_for("writing z3 expressions"):
            from multiplexnet.smt.encoder import specification_z3

        return specification_z3(self._specification)

    # --- questions --------------------------------------------------------------------------------------------------

    def satisfied(
        self, x: Values, /, *, functions: Functions | None = None, **inputs: Any
    ) -> Values:
        """Whether each row obeys, its floats read as exact numbers: no tolerance.

        Args:
            x: outputs, shape (*batch, D), floating point.
            functions: for every opaque function a callable.
            inputs: for every input its values, of shape (*batch) or a number.

        Returns:
            Booleans of shape (*batch).

        Example:
            >>> import numpy as np
            >>> rules = Rules("x: real; limit: input; 0 <= x <= limit")
            >>> rules.satisfied(np.array([[1.0], [-1e-300]]), limit=2)
            array([ True, False])
        """
        from multiplexnet.verdicts.satisfaction import verdict

        return verdict(self._specification, x, self.scalar_inputs(inputs), functions)

    def violation(
        self, x: Values, /, *, functions: Functions | None = None, **inputs: Any
    ) -> Values:
        """How far each row is from obeying each rule, zero where it obeys. Shape (*batch, number of rules).

        Example:
            >>> import numpy as np
            >>> Rules("x >= 0; x <= 2").violation(np.array([[1.0], [5.0]])).tolist()
            [[0.0, 0.0], [0.0, 3.0]]
        """
        from multiplexnet.verdicts.satisfaction import violations

        return violations(self._specification, x, self.scalar_inputs(inputs), functions)

    def allowed(self, **inputs: Any) -> NDArray[np.bool_]:
        """Whether the inputs of each row lie in their declared ranges and keep the assumptions, exactly.

        :meth:`satisfied` and :meth:`violation` judge the rules alone. A row that is not allowed is none of their
        business: a layer refuses it, and a table's report counts it as a broken assumption, not as a broken rule.

        Args:
            inputs: for every input its values, of shape (*batch) or a number.

        Example:
            >>> rules = Rules("low: input; high: input; x: real; assume low <= high; low <= x <= high")
            >>> rules.allowed(low=[0, 2], high=[1, 1])
            array([ True, False])
        """
        from multiplexnet.verdicts.satisfaction import allowed

        return allowed(self._specification, self.scalar_inputs(inputs))

    def scalar_inputs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs by the names of their scalars: a vector ``u`` of shape (*batch, n) becomes ``u[0]`` … ``u[n-1]``.

        A matrix has the shape (*batch, n, m). Inputs that have a unit come out in whole numbers of it.

        Raises:
            InputError: an input is missing or unknown.
            ShapeError: a vector of another length.
            DtypeError: a sparse, nested or quantized tensor.
        """
        from multiplexnet.verdicts.numbers import refuse_unlisted
        from multiplexnet.verdicts.units import counted_input

        scalars: dict[str, Any] = {}
        for name, declared in self._declared.items():
            if name not in given:
                raise InputError(
                    f"the rules need the input {name!r}: pass {_passed(name)}"
                )
            refuse_unlisted(name, given[name])
            values = declared.elements(counted_input(declared.members[0], given[name]))
            scalars |= zip(
                (member.name for member in declared.members), values, strict=True
            )
        self.refuse_unknown_inputs(given)
        return scalars

    @property
    def input_groups(self) -> dict[str, tuple[Variable, ...]]:
        """The inputs by the name under which they are passed: the elements of a vector together."""
        return {name: declared.members for name, declared in self._declared.items()}

    def refuse_unknown_inputs(self, given: Iterable[str]) -> None:
        """Raises ``InputError`` for a name that is not an input of the rules."""
        unknown = [name for name in given if name not in self._declared]
        if unknown:
            known = ", ".join(self._declared) or "none"
            hint = did_you_mean(unknown[0], self._declared)
            raise InputError(
                f"{unknown[0]!r} is not an input of the rules{hint} (they declare: {known})"
            )

    def compile(
        self,
        *,
        max_terms: int = MAX_TERMS,
        cover: Any = None,
        nested: bool = False,
        seconds: float | None = SECONDS,
        progress: Tell | None = None,
    ) -> Compiled:
        """The rules in disjunctive normal form: independent blocks of certified terms.

        Args:
            max_terms: the most terms that one block may have.
            cover: rows of data (array, tensor or table, a column for every output, then for every input): instead of
                all terms the fewest found that contain those rows that obey. Sound, and not complete.
            nested: whether a term may leave a part of its outputs to inner blocks, ``term.blocks``, where a block has
                too many plain terms; rules that are sparse or that count then often fit.
            seconds: how long it may take (``None``: no limit). The limit changes no result: in time, terms and their
                order are what they are without it.
            progress: called in every phase, with what is being done («finding the terms of a, b») and how many steps
                of it are done (here: terms).

        Raises:
            CompileTimeout: it took longer; says what took the time, how far it came and what to change.
            ContradictionError: no output obeys; names a smallest set of contradicting rules.
            TermBudgetExceeded: a block has more than ``max_terms`` terms.
        """
        with Deadline(seconds, progress) as deadline:
            return self.compiled_before(
                deadline, max_terms=max_terms, cover=cover, nested=nested
            )

    def compiled_before(
        self, deadline: Deadline, *, max_terms: int, cover: Any, nested: bool
    ) -> Compiled:
        """As :meth:`compile`, for one whose own work has to end at the same time."""
        with _z3_for("compiling rules"):
            from multiplexnet.compiler.compile import compile_rules

        rows = None if cover is None else self._rows(cover)
        return compile_rules(
            self._specification,
            max_terms=max_terms,
            cover=rows,
            nested=nested,
            deadline=deadline,
        )

    def explain(
        self,
        *,
        max_terms: int = MAX_TERMS,
        seconds: float | None = SECONDS,
        progress: Tell | None = None,
    ) -> Explanation:
        """Terms, ranges, and what is wrong or surprising: contradictions, superfluous rules, inputs without outputs.

        Arguments are those of :meth:`compile`. When the time is over, what was found until then is told.
        """
        with _z3_for("explaining rules"):
            from multiplexnet.compiler.explanation.diagnose import explain

        from multiplexnet.geometry.dense import centred_outputs

        with Deadline(seconds, progress) as deadline:
            found = explain(self._specification, max_terms=max_terms, deadline=deadline)
            if found.compiled is None:
                return found
            dense = centred_outputs(found.compiled.blocks, deadline)
            return replace(found, centred=tuple(dense))

    def _rows(self, table: Any) -> DataRows:
        """Data as exact columns; rows with missing values or outside a discrete domain are left out."""
        import numpy as np

        from multiplexnet.compiler.cover import DataRows
        from multiplexnet.verdicts.satisfaction import satisfied
        from multiplexnet.verdicts.units import has_unit, steps_of

        variables = (*self.outputs, *self.inputs)
        values = self._matrix(table, [v.name for v in variables])
        flags: dict[Variable, NDArray[np.float64]] = {}
        for i, variable in enumerate(variables):
            if has_unit(variable):
                values[:, i] = steps_of(values[:, i], variable, "float64")
            if variable in self._specification.flags:
                empty = np.isnan(values[:, i])
                instead = float(nearest_to_zero(variable.domain))
                values[:, i] = np.where(empty, instead, values[:, i])
                flag = self._specification.flags[variable]
                flags[flag] = empty.astype(np.float64)
        fits: NDArray[np.bool_] = np.asarray(np.isfinite(values).all(axis=1))
        for i, variable in enumerate(variables):
            if not isinstance(variable.domain, Real):
                own = values[:, i]
                fits &= own == np.rint(own)
                fits &= own >= variable.domain.values[0]
                fits &= own <= variable.domain.values[-1]
        columns = {v: values[fits, i].copy() for i, v in enumerate(variables)}
        columns |= {flag: marked[fits] for flag, marked in flags.items()}
        return DataRows(columns, satisfied)

    def _matrix(self, table: Any, names: Sequence[str]) -> NDArray[np.float64]:
        import numpy as np

        if hasattr(table, "columns"):  # a polars or pandas table: by name
            missing = [name for name in names if name not in list(table.columns)]
            if missing:
                raise ShapeError(
                    f"cover: the table has no column {', '.join(missing)}; it has {', '.join(table.columns)}"
                )
            return np.stack(
                [np.asarray(table[name], dtype=np.float64) for name in names], axis=1
            )
        values = (
            table.detach().cpu().double().numpy()
            if hasattr(table, "detach")
            else _as_matrix(table, names)
        )
        if values.ndim != 2 or values.shape[1] != len(names):
            raise ShapeError(
                f"cover: expected rows of shape (N, {len(names)}), one column for each of {', '.join(names)}; "
                f"found shape {tuple(values.shape)}"
            )
        return values


def _as_matrix(table: Any, names: Sequence[str]) -> NDArray[np.float64]:
    """Rows of data as numbers."""
    import numpy as np

    try:
        return np.asarray(table, np.float64)
    except (TypeError, ValueError):
        allowed = f"rows of numbers: an array, a tensor or a table, one column for each of {', '.join(names)}"
        raise OptionError("cover", table, allowed) from None
