"""The error of a check: which promise is broken, by which input, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from outpace.support.user_code import brief


def require(holds: bool, promise: str, case: str, remedy: str) -> None:
    """Raise AssertionError unless the promise holds.

    Not an `assert` statement, which `python -O` leaves out.

    Args:
        promise: what must hold.
        case: the input of the check.
        remedy: what the author of the class should do.
    """
    if not holds:
        raise AssertionError(f"{promise}\n  case: {case}\n  to do: {remedy}")


@contextmanager
def no_error(promise: str, case: str, remedy: str) -> Iterator[None]:
    """Run the block, and raise AssertionError if it raises anything else; as `require`."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        text = f"{promise}; it raised {brief(error)}\n  case: {case}\n  to do: {remedy}"
        raise AssertionError(text) from error
