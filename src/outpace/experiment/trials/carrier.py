"""The interface by which a pool has runs carried out, on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final, Protocol, TypeAlias

from outpace.experiment.trials.orders import Order
from outpace.experiment.trials.process import Said

KILLED: Final = "the process of the run "  # begin of the error if a process is killed


@dataclass(frozen=True, slots=True)
class Lost:
    """A run is lost with its node, and can begin again elsewhere. how: completes `KILLED`."""

    how: str


Told: TypeAlias = tuple[int, Said | Lost]  # the number of a run, and what is told about it


class Carrier(Protocol):
    """Carries runs out, each in a process that does one at a time.

    The last message about a run is an `End` or `Lost`. Its files are in its folder by then.
    """

    @property
    def most(self) -> int:
        """Most runs at a time, as far as that is known now."""

    @property
    def waited_for(self) -> Sequence[Connection]:
        """When one of these can be read, `take` has something to do; `expect` may say when else."""

    def expect(self, waiting: Sequence[bool]) -> float:
        """Runs with these needs are waiting, in this order.

        Args:
            waiting: for each run, True if it needs all cores of a machine.

        Returns:
            Seconds after which this is to be called again, if nothing happens until then; infinite:
            it need not be.
        """

    def has_room(self, all_cores: bool) -> bool:
        """True if `begin` may be called. all_cores: the run needs those of a machine."""

    def begin(self, run: int, order: Order, all_cores: bool) -> None:
        """Begin a run. run: its number, by which `take` and `stop` name it."""

    def stop(self, run: int, reason: str) -> None:
        """Tell the process of this run to end it, if it is under way."""

    def take(self, ready: Iterable[object]) -> Iterable[Told]:
        """Return what has been told.

        Args:
            ready: those of `waited_for` that can be read.

        Raises:
            RunError: there is no room for any run, and none is expected.
        """

    def close(self) -> None:
        """Interrupt all runs, wait until their folders are complete, and end all processes.

        Nothing happens if it has been called before.
        """
