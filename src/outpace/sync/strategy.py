"""The traits that every strategy has, with servers (`policy`) or without (`peers/strategy.py`).

Outpace asks a strategy only for these traits, never for its class, so a strategy in a user's file
is treated like a strategy of the library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Self

from outpace.blocks.narrowing import Wire
from outpace.support.checks import check_ranges


class Strategy:
    """The traits of a synchronization strategy."""

    __slots__ = ()

    has_servers: ClassVar[bool] = True
    exchanges: ClassVar[bool] = False  # workers average in pairs, not by all-reduces

    everywhere: ClassVar[str] = ""
    """Why all servers must follow this policy during the whole run; empty if they need not.

    Required of a policy that replaces a program or has a scheduler.
    """

    excludes: ClassVar[Mapping[str, str]] = {}
    """Configuration keys that this strategy refuses, in addition to its bases, with the reasons.

    A key is a field of `Experiment` or of a section, such as `conditions.pull`; `sync` means a
    list of policies. `{kind}` in a reason is replaced by the kind of the strategy.
    """

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def kind(self) -> str:
        """The name of the strategy in configurations."""
        return "python"

    @property
    def lockstep(self) -> bool:
        """True if every worker waits until an iteration is closed, so that all start together.

        Checkpoints of such a run are exact.
        """
        return False

    @property
    def has_stale_gradients(self) -> bool:
        """True if a gradient may change newer parameters than the ones it was computed at.

        By default, True unless the workers are in lockstep.
        """
        return not self.lockstep

    @property
    def wire(self) -> Wire:
        """Precision in which gradients and parameters are sent; the same for all servers."""
        return "full"

    def for_workers(self, workers: int) -> Self:
        """Return this strategy with numbers in place of shares of the workers."""
        return self

    def refused_keys(self, workers: int) -> dict[str, str]:
        """Return the keys that the class and its bases refuse, each with the reason.

        Args:
            workers: number of workers in the run.
        """
        found: dict[str, str] = {}
        for each in reversed(type(self).__mro__):
            found |= vars(each).get("excludes", {})
        return {key: why.replace("{kind}", self.kind) for key, why in found.items()}

    def problems(self, workers: int) -> Iterator[str]:
        """Yield the problems of this strategy in a run with `workers` workers, as `key: why`."""
        return iter(())

    def warnings(self) -> Iterator[str]:
        """Yield settings that are allowed but probably not meant, as `key: why`."""
        return iter(())
