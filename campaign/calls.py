"""The opaque functions that sentences may call: a few by name, so that a regression file can say which.

Every one computes element by element with operations that IEEE 754 fixes to the bit: whoever calls it, on however many
rows at once, gets the same numbers. For the judge these numbers are data. None is large, so that no layer has to refuse
a row because there is no number of the format where its bounds lead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from campaign.sentences import Sentence

__all__ = ["FUNCTIONS", "functions_of", "with_values"]

Function = Callable[..., Tensor]

FUNCTIONS: Mapping[str, Function] = {
    "ramp": lambda x: x.clamp(-2.0, 3.0),
    "bent": lambda x: torch.where(x > 0, x, -x / 3).clamp(max=8.0),
    "steps": lambda x: x.clamp(-8.0, 8.0).floor() / 7,
    "mean": lambda x, y: x.clamp(-9.0, 9.0) / 2 + y.clamp(-9.0, 9.0) / 2,
}


def functions_of(sentence: Sentence) -> dict[str, Function]:
    """The code of the functions that a sentence calls."""
    return {name: FUNCTIONS[name] for name in sentence.functions}


def with_values(
    sentence: Sentence, rows: NDArray[np.float64], dtype: torch.dtype
) -> NDArray[np.float64]:
    """Rows of all variables with the value of every call beside them, as the function gives it in the dtype."""
    own = torch.from_numpy(rows).to(dtype)
    place = {d.name: j for j, d in enumerate(sentence.declared)}
    values = [
        FUNCTIONS[str(call.value)](
            *(own[:, place[str(part.value)]] for part in call.parts)
        )
        .double()
        .numpy()
        for call in sentence.calls
    ]
    return np.column_stack([rows, *values])
