"""Ranges of configuration values: constraints in the types of the fields of a dataclass.

A dataclass with constrained fields calls `check_ranges` in `__post_init__`, so that the message for
a value is the same whether it comes from YAML, the command line or Python.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable
from functools import cache
from reprlib import repr as short
from typing import Annotated, Any, Final, Literal, TypeAlias

import pydantic

LARGEST: Final = 1e9  # upper limit of seconds, factors and rates: a larger value is a mistake
KINDS: Final = pydantic.Field(discriminator="kind")  # for a union of dataclasses with `kind`

Positive: TypeAlias = Annotated[float, pydantic.Field(gt=0, le=LARGEST)]
NotNegative: TypeAlias = Annotated[float, pydantic.Field(ge=0, le=LARGEST)]
Period: TypeAlias = Annotated[float, pydantic.Field(ge=1e-6, le=LARGEST)]  # seconds
Probability: TypeAlias = Annotated[float, pydantic.Field(ge=0, le=1)]
Decay: TypeAlias = Annotated[float, pydantic.Field(ge=0, lt=1)]  # decay of an average; momentum
Percent: TypeAlias = Annotated[float, pydantic.Field(gt=0, le=100)]
Share: TypeAlias = Annotated[float, pydantic.Field(gt=0, le=1)]
Bandwidth: TypeAlias = Annotated[float, pydantic.Field(ge=1, le=1e18)]  # bytes per second
Number: TypeAlias = Annotated[int, pydantic.Field(ge=0)]  # number of a worker or a server
Count: TypeAlias = Annotated[int, pydantic.Field(ge=1)]
Iterations: TypeAlias = Annotated[int, pydantic.Field(ge=0, lt=2**31)]
Steps: TypeAlias = Annotated[int, pydantic.Field(ge=1, lt=2**31)]
NotEmpty: TypeAlias = Annotated[str, pydantic.Field(min_length=1)]

_CHOICE: Final = pydantic.Discriminator  # for sections: each section checks itself
_BOUNDS: Final = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_TYPES: Final = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "dataclass_type": "a mapping",
}


def check_ranges(section: Any) -> None:
    """Check the fields of a dataclass whose types have constraints; for its `__post_init__`.

    Raises:
        ValueError: with a line for each field that is out of range.
    """
    problems: list[tuple[str, Any]] = []
    for name, field in _constrained(section.__class__).items():
        value = getattr(section, name)
        try:
            # A number of NumPy is accepted, text that looks like a number is not.
            field.validate_python(value, strict=not hasattr(value, "dtype"))
        except pydantic.ValidationError as error:
            for each in error.errors(include_url=False):
                place = "".join(f"[{step}]" for step in each["loc"] if isinstance(step, int))
                problems.append((f"{name}{place}", each))
    if problems:
        raise ValueError("\n".join(wrong_values(problems)))


def wrong_values(problems: Iterable[tuple[str, Any]]) -> list[str]:
    """Return a line for each key with a wrong value, from the keys and pydantic's errors.

    A list with a wrong entry has no separate line.
    """
    errors: dict[str, list[Any]] = {}
    for key, error in problems:
        errors.setdefault(key, []).append(error)
    return [
        f"{key} must be {' or '.join(dict.fromkeys(map(_expected, found)))}, "
        f"not {short(found[0]['input'])}"
        for key, found in errors.items()
        if not any(other.startswith(f"{key}[") for other in errors)
    ]


def _expected(error: Any) -> str:
    if error["type"] in _TYPES:
        return _TYPES[error["type"]]
    context = error.get("ctx", {})
    for bound, words in _BOUNDS.items():
        if bound in context:
            return f"{words} {context[bound]:,.10g}"
    if "min_length" in context:
        return f"a list of at least {context['min_length']}"
    return str(context.get("expected", error["msg"]))


def require(condition: bool, key: str, must: str, value: object) -> None:
    """Raise ValueError with the key unless the condition holds."""
    if not condition:
        raise ValueError(f"{key} must be {must}, not {value}")


@cache
def _constrained(section: type) -> dict[str, pydantic.TypeAdapter[Any]]:
    """Return a checker of each field of a dataclass whose type has constraints or choices.

    Fields that a user's class adds to a class of Outpace are not checked: their types may have
    names that only a type checker knows.
    """
    classes = (each for each in section.__mro__ if each.__module__.startswith("outpace."))
    hints = typing.get_type_hints(next(classes, section), include_extras=True)
    names = [entry.name for entry in dataclasses.fields(section) if entry.name != "kind"]
    return {
        name: pydantic.TypeAdapter(hints[name])
        for name in names
        if name in hints and _has_limits(hints[name])
    }


def _has_limits(hint: Any) -> bool:
    """True if a type has constraints or choices, or contains types that have them."""
    if typing.get_origin(hint) is Annotated:
        return not any(each is KINDS or isinstance(each, _CHOICE) for each in hint.__metadata__)
    if typing.get_origin(hint) is Literal:
        return True
    return any(map(_has_limits, typing.get_args(hint)))
