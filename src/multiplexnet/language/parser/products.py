"""Products with inputs and quotients by them: ``price * x``, ``x <= limit * y``, ``x / u``.

An input is known at run time, so a rule that multiplies it by an output is linear in the outputs. Products become
symbols of their own (:class:`~multiplexnet.language.formula.Product`). A quotient ``x / u`` is kept as a product with
the reciprocal of u until it is compared; then both sides are multiplied by u, whose range excludes 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from multiplexnet.language.formula import (
    Atom,
    Ite,
    Linear,
    Max,
    Product,
    Real,
    Relation,
    Symbol,
    Variable,
    ends,
    maximum,
    symbols,
)
from multiplexnet.language.parser.values import Refusal, total

__all__ = ["cleared", "product_of", "quotient_of"]


@dataclass(frozen=True)
class Reciprocal(Variable):
    """``1 / divisor``, until the comparison that it stands in is multiplied by the divisor."""

    divisor: Variable | None = None

    def __hash__(self) -> int:
        return hash((self.name, "reciprocal"))


def _is_known(linear: Linear) -> bool:
    """Whether the expression is a sum of inputs and numbers."""
    symbols = [symbol for symbol, _ in linear.summands]
    return all(isinstance(s, Variable) and s.is_input for s in symbols)


def product_of(left: Linear, right: Linear) -> Linear | None:
    """The product of two expressions of which one is a sum of inputs; ``None`` if neither is.

    Raises:
        Refusal: three variables would be multiplied, or an input of unknown sign and a maximum.
    """
    if not _is_known(left):
        left, right = right, left
    if any(
        isinstance(s, Product) for linear in (left, right) for s, _ in linear.summands
    ):
        raise Refusal(
            "a product of three variables: one input times one output is linear once inputs are known, more is not "
            "read; give the product of inputs as an input of its own"
        )
    if not _is_known(left):
        return None
    parts = [right * left.constant]
    for known, c in left.summands:
        assert isinstance(known, Variable)
        parts.append(_times(known, right) * c)
    return total(parts)


def _times(known: Variable, linear: Linear) -> Linear:
    """An input times an expression."""
    parts = [Linear.of(known) * linear.constant]
    parts += [_times_symbol(known, symbol) * c for symbol, c in linear.summands]
    return total(parts)


def _times_symbol(known: Variable, symbol: Symbol) -> Linear:
    match symbol:
        case Variable():
            if symbol.is_input and symbol.index < known.index:
                known, symbol = symbol, known
            return Linear.of(Product(known, symbol))
        case Ite(condition, then, otherwise):
            return Linear.of(
                Ite(condition, _times(known, then), _times(known, otherwise))
            )
        case Max(arguments):
            if _sign(known) > 0:
                return maximum(_times(known, argument) for argument in arguments)
            if _sign(known) < 0:
                return -maximum(-_times(known, argument) for argument in arguments)
            raise Refusal(
                f"`{known.name}` times a maximum or minimum: which one it is depends on the sign of `{known.name}`; "
                f"declare a range without a change of sign, as in `{known.name}: input[0, 100]`"
            )
        case Product():
            raise Refusal(
                f"`{known.name}` and a product beside a division, or inside of a maximum or condition: write the "
                "products out, each of one input and one output"
            )
    raise Refusal(
        "an input times a function: give the product as a function of its own"
    )


def _sign(known: Variable) -> int:
    """1 if the declared range of an input has no negative numbers, -1 if it has no positive ones, else 0."""
    lower, upper = ends(known.domain)
    if lower is not None and lower >= 0:
        return 1
    return -1 if upper is not None and upper <= 0 else 0


def quotient_of(left: Linear, divisor: Linear) -> Linear | None:
    """An expression divided by one input; ``None`` if the divisor is not an input.

    Raises:
        Refusal: the declared range of the input does not exclude 0.
    """
    match divisor.summands:
        case ((Variable(role="input") as known, c),) if not divisor.constant:
            return _times(_reciprocal(known), left) * (1 / c)
    return None


def _reciprocal(known: Variable) -> Variable:
    lower, upper = ends(known.domain)
    if lower is not None and lower > 0:
        inverse = (Fraction(0) if upper is None else 1 / upper, 1 / lower)
    elif upper is not None and upper < 0:
        inverse = (1 / upper, Fraction(0) if lower is None else 1 / lower)
    else:
        raise Refusal(
            f"division by the input `{known.name}`, which may be 0: declare a range that excludes it, as in "
            f"`{known.name}: input[0.1, 100]`"
        )
    return Reciprocal(
        f"1/{known.name}", known.index, Real(*inverse), "input", divisor=known
    )


def cleared(linear: Linear, relation: Relation) -> Linear:
    """The expression to compare with 0, multiplied by the input that it divides by, if there is one.

    Raises:
        Refusal: it divides by several inputs, or inside of a maximum, a condition or a function.
    """
    if all(type(symbol) is Variable for symbol, _ in linear.summands):
        return linear
    every = symbols(Atom(linear, relation))
    found = {s.divisor for s in every if isinstance(s, Reciprocal) and s.divisor}
    if not found:
        return linear
    if len(found) > 1:
        names = " and ".join(
            f"`{v.name}`" for v in sorted(found, key=lambda v: v.index)
        )
        raise Refusal(
            f"divisions by {names} in one comparison: multiply out all but one of them"
        )
    (divisor,) = found
    parts = [Linear.of(divisor) * linear.constant]
    parts += [_multiplied(symbol, divisor) * c for symbol, c in linear.summands]
    return total(parts) * (1 if _sign(divisor) > 0 else -1)


def _multiplied(symbol: Symbol, divisor: Variable) -> Linear:
    """A symbol times the input that is divided by."""
    match symbol:
        case Reciprocal():
            return Linear.number(1)
        case Product(known, other) if (
            isinstance(known, Reciprocal) and type(other) is Variable
        ):
            return Linear.of(other)
        case Product(other, known) if (
            isinstance(known, Reciprocal) and type(other) is Variable
        ):
            return Linear.of(other)
        case Variable():
            return _times_symbol(divisor, symbol)
    raise Refusal(
        f"a division by `{divisor.name}` beside a product, a maximum or a condition: multiply the comparison by "
        f"`{divisor.name}` yourself"
    )
