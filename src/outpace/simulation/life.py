"""The life of a run's processes in virtual time, here without failures.

`simulation.faults` has the lives with failures.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from outpace.kernel import Kernel

if TYPE_CHECKING:
    from outpace.simulation.faults.held_rows import CheckpointInMemory
    from outpace.simulation.virtual import VirtualRun
    from outpace.sync.checkpoint.state import ShardState

P = ParamSpec("P")
T = TypeVar("T")
Send = Callable[..., None]  # receiver, messages


class Process:
    """A process that never fails and is never stopped."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.name, self._kernel = name, kernel

    def receiving(
        self, receive: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return a function that wraps `receive`; its program receives messages with it."""
        return receive

    def begin(self, iteration: int) -> None:
        """Note that the process begins to compute an iteration."""


class Life:
    """The life of the processes of a run without failures.

    Attributes:
        keeps_in_memory: True if checkpoints are also taken without a folder.
        is_down: True while all processes are about to begin again.
        gone: workers that are lost and have not begun again.
    """

    keeps_in_memory = is_down = False
    gone: Collection[int] = ()

    def __init__(self, run: VirtualRun) -> None:
        self.kernel = run.kernel
        self.events = run.events

    def process(self, name: str) -> Process:
        """Return a new process of this name."""
        return Process(self.kernel, name)

    def spawn(self, name: str, program: Coroutine[Any, Any, None], *, daemon: bool = False) -> None:
        """Start the program of the last process of this name."""
        self.kernel.spawn(program, name, daemon=daemon)

    def begin(self) -> None:
        """Let failures happen from now on."""

    def end(self) -> None:
        """Note that the run has ended without an error."""

    def close(self) -> None:
        """Close programs, after the kernel. Idempotent."""

    # -- checkpoints ---------------------------------------------------------------

    def kept(
        self, number: int, states: Sequence[ShardState], own: Sequence[ShardState] = ()
    ) -> CheckpointInMemory | None:
        """Return the present state of the run as the checkpoint of this number.

        Args:
            states: states of the servers; without servers, of the model that all workers have.
            own: without servers, the state of each worker's own model and optimizer.
        """
        return None

    def keep(self, kept: CheckpointInMemory) -> None:
        """Use this checkpoint from now on if all processes must begin again."""

    # ------------------------------------------------------------------------------

    def costs(self) -> dict[str, Any]:
        """Return the costs of failures so far, for a checkpoint; {} if there are none."""
        return {}

    def summary(self) -> dict[str, Any]:
        """Return the part of summary.json about failures."""
        return {}
