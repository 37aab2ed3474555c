"""Range checks of configuration values, with the key in the message.

The checks raise ValueError in `__post_init__`, so that the message for a value is the same whether
it comes from YAML, the command line or Python. Within `noted` the checks collect problems instead,
so that all problems of a configuration are reported at once.
"""

import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

LARGEST: Final = 1e9  # seconds, factors, rates: a larger value is a mistake


_problems: ContextVar[list[str] | None] = ContextVar("problems", default=None)


@contextmanager
def noted() -> Iterator[list[str]]:
    """Collect the messages that `require` would raise, in the order of the checks."""
    problems: list[str] = []
    token = _problems.set(problems)
    try:
        yield problems
    finally:
        _problems.reset(token)


def require(condition: bool, key: str, must: str, value: object) -> None:
    """Raise ValueError with the key unless the condition holds; within `noted`, note it."""
    if not condition:
        reject(f"{key} must be {must}, not {value}")


def reject(problem: str) -> None:
    """Raise ValueError with this problem; within `noted`, note it, so that others are found."""
    problems = _problems.get()
    if problems is None:
        raise ValueError(problem)
    problems.append(problem)


def require_number(key: str, value: object, *, whole: bool = False) -> None:
    """Raise TypeError with the key unless this is a number, or a whole one, or None."""
    kinds = (numbers.Integral if whole else numbers.Real), type(None)
    if isinstance(value, bool) or not isinstance(value, kinds):
        must = "a whole number" if whole else "a number"
        raise TypeError(f"{key} must be {must}, not {value!r}")


def positive(value: float) -> bool:
    """True if greater than zero, and at most LARGEST."""
    return 0 < value <= LARGEST


def not_negative(value: float) -> bool:
    """True if at least zero, and at most LARGEST."""
    return 0 <= value <= LARGEST
