"""Range checks of configuration values, with the key in the message.

They raise ValueError, in `__post_init__`: a value is refused in the same words whether
it came from YAML, the command line or Python. Within `noted` they go on instead, so
that a configuration can be told all that is wrong with it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

LARGEST: Final = 1e9  # seconds, factors, rates: what lies beyond is a slip of the pen


_problems: ContextVar[list[str] | None] = ContextVar("problems", default=None)


@contextmanager
def noted() -> Iterator[list[str]]:
    """Collect what `require` would raise, in the order of the checks."""
    problems: list[str] = []
    token = _problems.set(problems)
    try:
        yield problems
    finally:
        _problems.reset(token)


def require(condition: bool, key: str, must: str, value: object) -> None:
    """Raise ValueError, naming the key, unless the condition holds; within `noted`, note it."""
    if condition:
        return
    problem = f"{key} must be {must}, not {value}"
    problems = _problems.get()
    if problems is None:
        raise ValueError(problem)
    problems.append(problem)


def positive(value: float) -> bool:
    """Greater than zero, and at most LARGEST."""
    return 0 < value <= LARGEST


def not_negative(value: float) -> bool:
    """At least zero, and at most LARGEST."""
    return 0 <= value <= LARGEST
