"""Which outputs of terms are computed from a centre that inputs move, since nothing else serves sets so dense."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from multiplexnet.compiler.terms import Block, Term
from multiplexnet.errors import MultiplexError
from multiplexnet.exact.deadline import Deadline
from multiplexnet.geometry.parts import Parametric
from multiplexnet.geometry.split import parts_of
from multiplexnet.language.formula import Atom, Variable

__all__ = ["centred_outputs"]

FORM = "float32"
"""The format that is asked; which map a term gets hardly depends on it."""


def centred_outputs(
    blocks: Sequence[Block], deadline: Deadline
) -> Iterator[tuple[Variable, ...]]:
    """The outputs of every such part, once; as far as the time suffices.

    Example: a triangle is computed one output after another.
        >>> import multiplexnet as mx
        >>> from multiplexnet.exact.deadline import NEVER
        >>> rules = mx.Rules("u: input[0, 9]; x: real; y: real; x >= 0; y >= 0; x + y <= u")
        >>> list(centred_outputs(rules.compile().blocks, NEVER))
        []
    """
    found: dict[tuple[Variable, ...], None] = {}
    try:
        for block in blocks:
            for term in filter(_is_moved, block.terms):
                for part in parts_of(term, block.outputs, FORM, deadline):
                    if isinstance(part, Parametric) and part.reference:
                        own = sorted(part.outputs, key=lambda variable: variable.index)
                        found.setdefault(tuple(own))
    except MultiplexError:
        pass  # what is wrong with a term is said when a layer is built
    yield from found


def _is_moved(term: Term) -> bool:
    return any(map(_ties_outputs_to_inputs, term.rows))


def _ties_outputs_to_inputs(row: Atom) -> bool:
    named = [s for s, _ in row.linear.summands if isinstance(s, Variable)]
    inputs = sum(variable.is_input for variable in named)
    return bool(inputs) and len(named) - inputs > 1
