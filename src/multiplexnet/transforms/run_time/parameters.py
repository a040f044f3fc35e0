"""The known values u of parametric parts: inputs, outputs computed before, opaque functions of both."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import Self

import torch
from torch import Tensor

from multiplexnet.language.formula import Apply, Linear, Symbol, Variable, symbols
from multiplexnet.transforms.tables import Tabled

__all__ = ["Functions", "Parameters", "linear_value"]

Functions = Mapping[str, Callable[..., Tensor]]
Columns = Callable[[Variable], Tensor]


def linear_value(
    linear: Linear, column: Columns, functions: Functions, dtype: torch.dtype
) -> Tensor:
    """The expression as a number of the dtype: a single symbol as it is, a sum in float64 and rounded once."""
    if len(linear.summands) == 1 and linear.summands[0][1] == 1 and not linear.constant:
        return symbol_value(linear.summands[0][0], column, functions, dtype)
    values = [
        symbol_value(symbol, column, functions, dtype).double()
        for symbol, _ in linear.summands
    ]
    if not values:
        return torch.tensor(float(linear.constant), dtype=dtype)
    parts = [
        _number(c, value) * value
        for (_, c), value in zip(linear.summands, values, strict=True)
    ]
    shape = torch.broadcast_shapes(*[value.shape for value in values])  # type: ignore[no-untyped-call]
    return sum(parts, _number(linear.constant, values[0])).reshape(shape).to(dtype)


def _number(value: Fraction, like: Tensor) -> Tensor:
    """A constant of the rules as a tensor ``(1,)``: ONNX's exporter takes 1.000001 for 1, unless it has an axis."""
    return torch.tensor([float(value)], dtype=torch.float64, device=like.device)


def symbol_value(
    symbol: Symbol, column: Columns, functions: Functions, dtype: torch.dtype
) -> Tensor:
    """The value of a variable or of an opaque function.

    Raises:
        ValueError: the function returns another shape than its arguments have.
    """
    if isinstance(symbol, Variable):
        return column(symbol)
    if not isinstance(symbol, Apply):
        raise TypeError(
            f"{type(symbol).__name__} should have been removed from the rules by now"
        )
    arguments = _broadcast(
        [linear_value(a, column, functions, dtype) for a in symbol.arguments]
    )
    return _applied(symbol.function, arguments, functions, dtype)


def _applied(
    name: str, arguments: Sequence[Tensor], functions: Functions, dtype: torch.dtype
) -> Tensor:
    value = functions[name](*arguments)
    if value.shape != arguments[0].shape:
        raise ValueError(
            f"the function {name!r} returned shape {tuple(value.shape)} for arguments of shape "
            f"{tuple(arguments[0].shape)}: it must work elementwise"
        )
    return value.to(dtype)


def _broadcast(values: Sequence[Tensor]) -> list[Tensor]:
    return list(torch.broadcast_tensors(*values))  # type: ignore[no-untyped-call]


def _one_call(
    parameters: Sequence[Sequence[Symbol]], outputs: Sequence[Variable]
) -> tuple[str, Tensor] | None:
    """The function f and the columns ``(T, n)`` of its arguments, if each part knows one f(x_i, x_j, …) of outputs.

    Such values differ only in what f reads: one call finds them all, where symbol by symbol each of up to T calls
    would be made for all T parts.
    """
    calls = [
        row[0] for row in parameters if len(row) == 1 and isinstance(row[0], Apply)
    ]
    if (
        len(calls) < len(parameters)
        or len({(call.function, len(call.arguments)) for call in calls}) > 1
    ):
        return None
    if not calls[0].arguments:
        return None
    plain = {Linear.of(variable): column for column, variable in enumerate(outputs)}
    if not all(argument in plain for call in calls for argument in call.arguments):
        return None
    return calls[0].function, torch.tensor(
        [[plain[argument] for argument in call.arguments] for call in calls]
    )


class Parameters(Tabled):
    """The parameters of a group of parts.

    Args:
        parameters: the symbols of each part.
        inputs: all inputs; they fix the columns of the tensor of inputs.
        outputs: the outputs of the block; they fix the columns of x.
        dtype: of all values.
        number: groups with the same number know the same values.

    ``needs_x`` says whether outputs have to be computed before.
    """

    order: Tensor
    arguments: Tensor | None

    def __init__(
        self,
        parameters: Sequence[Sequence[Symbol]],
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        dtype: torch.dtype,
        number: int = 0,
    ) -> None:
        super().__init__()
        self.number = number
        self.symbols = tuple(dict.fromkeys(chain.from_iterable(parameters)))
        # By number: torch.compile cannot always look variables up.
        self.input_columns = {v.index: j for j, v in enumerate(inputs)}
        self.output_columns = {v.index: j for j, v in enumerate(outputs)}
        self.dtype = dtype
        used = {
            v
            for s in self.symbols
            for v in ([s] if isinstance(s, Variable) else symbols(s))
        }
        self.needs_x = not used.isdisjoint(outputs)
        """Whether outputs have to be computed before; known here, since a graph is not recorded through sets."""
        width = max(map(len, parameters))
        order = [
            [self.symbols.index(s) for s in row] + [0] * (width - len(row))
            for row in parameters
        ]
        call = _one_call(parameters, outputs)
        self.function = None if call is None else call[0]
        self.hold(
            {
                "order": torch.tensor(order),
                "arguments": None if call is None else call[1],
            }
        )

    def slice(self, first: int, last: int) -> Self:
        """The parameters of parts ``first`` to ``last`` alone."""
        part = copy.copy(self)
        part.hold(
            {
                "arguments": None,
                **{
                    name: table[first:last] for name, table in self.own_tables().items()
                },
            }
        )
        return part

    def forward(
        self,
        inputs: Tensor | None,
        x: Tensor | None,
        functions: Functions,
        entry: Tensor | None,
        members: Tensor,
    ) -> Tensor:
        """The parameters, ``(*batch, 1 or T, p)``, or with ``entry`` ``(*batch, p)``.

        Args:
            inputs: ``(*batch, number of inputs)``.
            x: ``(*batch, K, D)``, or ``(*batch, D)`` with ``entry``; ``None`` while nothing is computed.
            functions: the torch code of opaque functions by name.
            entry: the part for each batch row, if terms were chosen.
            members: the terms of the group.
        """

        if self.function is not None and self.arguments is not None:
            assert x is not None
            own, where = (
                (x.index_select(-2, members), self.arguments)
                if entry is None
                else (x, self.arguments[entry])
            )
            arguments = own.gather(
                -1, where.expand(*own.shape[:-1], where.shape[-1])
            ).unbind(-1)
            return _applied(self.function, arguments, functions, self.dtype).unsqueeze(
                -1
            )

        def column(variable: Variable) -> Tensor:
            if variable.index in self.output_columns:
                assert x is not None
                own = x[..., self.output_columns[variable.index]]
                return own if entry is not None else own.index_select(-1, members)
            assert inputs is not None
            own = inputs[..., self.input_columns[variable.index]]
            return own if entry is not None else own.unsqueeze(-1)

        values = [
            symbol_value(symbol, column, functions, self.dtype)
            for symbol in self.symbols
        ]
        table = torch.stack(_broadcast(values), -1)
        if len(self.symbols) == 1:
            return table.expand(*table.shape[:-1], self.order.shape[-1])
        if len(self.order) == 1:
            return table.index_select(-1, self.order[0])
        if entry is not None:
            return table.gather(-1, self.order[entry])
        count, width = self.order.shape
        table = table.expand(*table.shape[:-2], count, table.shape[-1])
        return table.gather(-1, self.order.expand(*table.shape[:-2], count, width))
