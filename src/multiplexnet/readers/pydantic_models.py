"""The JSON Schema of a pydantic model, with what pydantic leaves out of it: ends of dates, places of decimals."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from math import gcd, lcm
from typing import Any

from multiplexnet.errors import SourceError

__all__ = ["schema_of_model"]

ENDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}
MOMENT_ENDS = {
    "ge": "formatMinimum",
    "gt": "formatExclusiveMinimum",
    "le": "formatMaximum",
    "lt": "formatExclusiveMaximum",
}


def schema_of_model(model: Any) -> Any:
    """What the fields of a model are, all that rules can say of them.

    Raises:
        SourceError: it is not a model.
    """
    described = getattr(model, "model_json_schema", None)
    if not callable(described):
        raise SourceError(
            f"{model!r} has no model_json_schema(): give a class derived from pydantic.BaseModel (version 2)"
        )
    from pydantic.json_schema import GenerateJsonSchema

    class Whole(GenerateJsonSchema):
        """Pydantic's own description, but for dates and decimals."""

        def date_schema(self, schema: Any) -> dict[str, Any]:
            found = dict(super().date_schema(schema))
            for end, word in MOMENT_ENDS.items():
                if schema.get(end) is not None:
                    found[word] = schema[end].isoformat()
            if schema.get("now_op") is not None:
                found[schema["now_op"]] = True
            return found

        def decimal_schema(self, schema: Any) -> dict[str, Any]:
            return _decimal(schema)

    return described(schema_generator=Whole)


def _decimal(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A number with its exact ends; its places are a step, its digits before the point are ends."""
    found: dict[str, Any] = {"type": "number"}
    for end, word in ENDS.items():
        if schema.get(end) is not None:
            found[word] = Fraction(Decimal(str(schema[end])))
    steps = []
    if schema.get("multiple_of") is not None:
        steps.append(Fraction(Decimal(str(schema["multiple_of"]))))
    places = schema.get("decimal_places")
    digits = schema.get("max_digits")
    if places is not None:
        steps.append(Fraction(1, 10**places))
    if steps:
        found["multipleOf"] = _common_multiple(steps)
    if digits is None:
        return found
    if places is None:
        return {**found, "max_digits": digits}
    end = 10 ** max(digits - places, 0) - Fraction(1, 10**places)
    found["minimum"] = max(found.get("minimum", -end), -end)
    found["maximum"] = min(found.get("maximum", end), end)
    return found


def _common_multiple(steps: list[Fraction]) -> Fraction:
    """The smallest number that is a multiple of each."""
    over = lcm(*(step.numerator for step in steps))
    under = gcd(*(step.denominator for step in steps))
    return Fraction(over, under)
