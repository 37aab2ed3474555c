"""The errors that a user can see. Each message names the error and its place, and says what to do.

The command line prints only the message and exits with `exit_code`: 2 if nothing was started
because the input was wrong, 1 if a run failed after it had started.
"""

import difflib
import re
from collections.abc import Iterable
from typing import Final

_ERRNO: Final = re.compile(r"\[[Ee]rrno \d+\] ")  # codes of errors of Python and of pyarrow
_CODEC: Final = re.compile(r"'utf-8' codec can't decode bytes? (\S+) in position (\S+): [a-z ]+")


def in_words(text: str) -> str:
    """Return a message without the codes of Python's errors in it."""
    return _CODEC.sub(r"it is not UTF-8 text (byte \1 at \2)", _ERRNO.sub("", text))


class OutpaceError(Exception):
    """Base class of all errors that Outpace raises on purpose."""

    exit_code = 2

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(in_words(a) if isinstance(a, str) else a for a in arguments))


class OutpaceWarning(RuntimeWarning):
    """A warning about a run, which continues."""


class ConfigError(OutpaceError):
    """The configuration, or a file or function that it names, is wrong. Nothing was started."""


class RunError(OutpaceError):
    """A run that had started failed."""

    exit_code = 1


class DivergenceError(RunError):
    """A gradient, loss or parameter became infinite or NaN."""


class PolicyError(RunError):
    """A policy or a user's condition raised an error or returned an invalid value."""


class ProtocolError(RunError):
    """A peer sent a message that the protocol forbids. The receiver is unchanged."""


def nearest(word: object, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to a mistyped one; None if none is similar."""
    return next(iter(difflib.get_close_matches(str(word), sorted(known), n=1, cutoff=0.6)), None)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` with the nearest known word, or a list of all known words."""
    names = sorted(known)
    near = nearest(word, names)
    return f" Did you mean {near!r}?" if near else f" Known: {', '.join(names)}." if names else ""
