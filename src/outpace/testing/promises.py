"""The error of a check: the broken promise, the input that shows it, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from outpace.support.user_code import brief


def require(holds: bool, promise: str, case: str, remedy: str) -> None:
    """Raise AssertionError unless the promise holds.

    This is not an `assert` statement, because `python -O` leaves those out.

    Args:
        promise: what must hold.
        case: the input of the check.
        remedy: what the author of the class should do.
    """
    if not holds:
        raise AssertionError(f"{promise}\n  case: {case}\n  to do: {remedy}")


@contextmanager
def no_error(promise: str, case: str, remedy: str) -> Iterator[None]:
    """Run the block; raise AssertionError, as `require` does, if the block raises another error."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        text = f"{promise}; it raised {brief(error)}\n  case: {case}\n  to do: {remedy}"
        raise AssertionError(text) from error
