"""The errors a user may see. Each message says what was wrong, where, and what to do.

The command line prints the message alone and exits with `exit_code`: 2 where
nothing was started because the input was wrong, 1 where a run failed on its way.
"""

import difflib
from collections.abc import Iterable


class OutpaceError(Exception):
    """Base of everything Outpace raises on purpose."""

    exit_code = 2


class ConfigError(OutpaceError):
    """The configuration, or something it names, is wrong. Nothing was started."""


class RunError(OutpaceError):
    """A run that had started failed."""

    exit_code = 1


class DivergenceError(RunError):
    """Training left the finite numbers."""


class PolicyError(RunError):
    """A policy, or a condition of the user's, raised or answered nonsense."""


class ProtocolError(RunError):
    """A peer sent what the protocol forbids. The receiver is unchanged."""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """`" Did you mean 'x'?"` for the nearest known word, else what is known."""
    names = sorted(known)
    near = difflib.get_close_matches(str(word), names, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(names)}."
