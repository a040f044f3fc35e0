"""What an attack is made on: one layer, the rules it was built from, and the judge.

An attack is a function from a :class:`Subject` to findings. It accepts two things: an exception of the library's own,
or rows that obey the rules exactly. Whatever else happens, an exception of somebody else included, is a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from campaign.calls import Function, functions_of, with_values
from campaign.raws import extreme_values, raw_rows
from campaign.sentences import Sentence
from campaign.verdict import Judge
from multiplexnet.errors import MultiplexError
from multiplexnet.layer.multiplexer import Multiplexer

__all__ = ["Answer", "Attack", "Finding", "Given", "Subject", "combinations", "rows_of"]


@dataclass(frozen=True)
class Finding:
    """One check that was made.

    Args:
        check: its name.
        wrong: what is wrong, in words (nothing: an empty text).
        raw: the raw row that shows it, if one does.
        inputs: the inputs of that row.
        rows: how many rows were judged.
    """

    check: str
    wrong: str = ""
    raw: tuple[float, ...] | None = None
    inputs: tuple[float, ...] = ()
    rows: int = 0


def rows_of(
    sentence: Sentence, x: Tensor, given: Mapping[str, Tensor]
) -> NDArray[np.float64]:
    """Outputs and inputs as float64 rows in declared order, and what functions make of them."""
    outputs = dict(
        zip(
            (d.name for d in sentence.outputs),
            x.detach().double().unbind(-1),
            strict=True,
        )
    )
    columns = outputs | {name: value.double() for name, value in given.items()}
    rows = torch.stack([columns[d.name] for d in sentence.declared], -1).numpy()
    return with_values(sentence, rows, x.dtype)


def combinations(given: Mapping[str, Tensor]) -> Iterator[Tensor]:
    """For every combination of inputs, which rows have it."""
    table = torch.stack(list(given.values()), -1)
    for values in torch.unique(table, dim=0):
        yield (table == values).all(-1)


Given = dict[str, Tensor]
Answer = tuple[Tensor, Tensor, Given]
"""What was answered, to which rows, with which inputs."""


@dataclass(frozen=True)
class Subject:
    """One layer under attack, in ``eval()``."""

    sentence: Sentence
    mux: Multiplexer
    judge: Judge
    random: Random
    generator: torch.Generator

    @property
    def functions(self) -> dict[str, Function]:
        return functions_of(self.sentence)

    @property
    def options(self) -> dict[str, Any]:
        """How the layer was built, for building it once more."""
        mux = self.mux
        return {
            "max_terms": mux.max_terms,
            "dtype": mux.dtype,
            "boxes": mux.boxes,
            "precision": mux.precision,
            "functions": self.functions,
        }

    # --- what goes in -------------------------------------------------------------------------------------------------

    def raw(self, count: int) -> Tensor:
        """Raw rows, those at ±inf first."""
        raw = raw_rows(count, self.mux.in_features, self.mux.dtype, self.generator)
        sides = torch.randn(
            count // 3, self.mux.in_features, generator=self.generator
        ).sign()
        raw[: count // 3] = (sides * torch.inf).to(raw.dtype)
        return raw

    def outputs(self, count: int) -> Tensor:
        """Rows as some other network would give them: of every size, infinite ones among them."""
        return raw_rows(count, self.mux.out_features, self.mux.dtype, self.generator)

    def extreme_inputs(self, combinations: int, each: int) -> Given:
        """Inputs at the ends of the format and of their ranges; every combination for ``each`` rows."""
        found = {}
        for declared in self.sentence.inputs:
            values = extreme_values(declared, self.mux.dtype, self.random)
            if not values:
                return {}
            chosen = torch.tensor(
                self.random.choices(values, k=combinations), dtype=torch.float64
            )
            found[declared.name] = chosen.to(self.mux.dtype).repeat_interleave(each)
        return found

    # --- what comes out -----------------------------------------------------------------------------------------------

    def best(self, raw: Tensor, given: Given) -> Tensor:
        """What the layer answers, as one would deploy it."""
        answer: Tensor = self.mux(raw, **given).best()
        return answer

    def answers(
        self, ask: Callable[[Tensor, Given], Tensor], rows: Tensor, given: Given
    ) -> Iterator[Answer]:
        """The answers to all rows; if they are refused together, to the rows that are not refused by themselves."""
        try:
            yield ask(rows, given), rows, given
            return
        except MultiplexError:
            if not given:
                return
        parts = []
        for here in combinations(given):
            own = {name: column[here] for name, column in given.items()}
            try:
                parts.append((ask(rows[here], own), here))
            except MultiplexError:
                continue
        if parts:
            x = torch.cat([part for part, _ in parts])
            kept = torch.cat([here.nonzero().squeeze(-1) for _, here in parts])
            yield x, rows[kept], {name: column[kept] for name, column in given.items()}

    def answered(self, raw: Tensor, given: Given) -> Tensor:
        """Which rows are answered, each asked by itself."""
        return torch.tensor(
            [self._is_answered(raw, given, slice(k, k + 1)) for k in range(len(raw))]
        )

    def _is_answered(self, raw: Tensor, given: Given, row: slice) -> bool:
        try:
            self.best(raw[row], {name: column[row] for name, column in given.items()})
        except MultiplexError:
            return False
        return True

    def rows(self, x: Tensor, given: Mapping[str, Tensor]) -> NDArray[np.float64]:
        """What the judge reads."""
        return rows_of(self.sentence, x, given)

    def judged(
        self, check: str, x: Tensor, raw: Tensor | None, given: Given
    ) -> Finding:
        """The exact verdict on answers."""
        rows = self.rows(x, given)
        wrong = np.flatnonzero(~self.judge(rows))
        if not len(wrong):
            return Finding(check, rows=len(rows))
        first = int(wrong[0])
        told = f"{len(wrong)} of {len(rows)} rows break the rules; the first is {rows[first].tolist()}"
        own = None if raw is None else tuple(raw[first].double().tolist())
        return Finding(
            check,
            told,
            own,
            tuple(float(column[first]) for column in given.values()),
            len(rows),
        )


Attack = Callable[[Subject], Iterator[Finding]]
