"""What happens to the processes of a run in virtual time; of most runs nothing.

`simulation.faults` has the lives of runs with failures.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from msgspec import structs

from outpace.kernel import Kernel
from outpace.record.recovery import Recovery
from outpace.record.trace import Trace, TraceRows
from outpace.support.units import Time, seconds

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun

P = ParamSpec("P")
T = TypeVar("T")
Send = Callable[..., None]  # receiver, messages


class Process:
    """A process to which nothing happens.

    Attributes:
        stood: for so long it has stood still in all (ns), including what is still to come.
    """

    stood: Time = 0

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.name, self._kernel = name, kernel

    def receiving(
        self, receive: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return how its program receives messages, where `receive` takes them as they come."""
        return receive

    def sending(self, send: Send) -> Send:
        """Return how its program sends messages, where `send` does so at once."""
        return send

    def stretched(self, duration_s: float) -> float:
        """Return how long the computation takes that begins now, in seconds."""
        return duration_s

    async def begin(self, iteration: int) -> None:
        """Begin to compute an iteration, once it does not stand still."""

    async def awake(self) -> None:
        """Wait until it does not stand still."""

    def spend(self, duration: Time) -> Awaitable[None]:
        """Wait for so long (ns), and for as long as it stands still meanwhile."""
        return self._kernel.sleep(seconds(duration))


class Life:
    """The life of the processes of a run without failures.

    Attributes:
        rows: take the rows of the recorder.
        keeps_in_memory: True if checkpoints are taken without a folder, too.
        gone: workers that are lost and have not begun again.
        dropped: workers that are lost and never begin again.
    """

    keeps_in_memory = False
    gone: Collection[int] = ()
    dropped: Collection[int] = ()

    def __init__(self, run: VirtualRun, trace: Trace) -> None:
        self.kernel = run.kernel
        self.rows: TraceRows = trace
        self._recovery = Recovery() if run.resume is None else run.resume.recovery

    def process(self, name: str) -> Process:
        """Return another process of this name."""
        return Process(self.kernel, name)

    def spawn(self, name: str, program: Coroutine[Any, Any, None], *, daemon: bool = False) -> None:
        """Start the program of the last process of this name."""
        self.kernel.spawn(program, name, daemon=daemon)

    def begin(self) -> None:
        """Let failures happen from now on."""

    def end(self) -> None:
        """Note that the run has ended well."""

    def close(self) -> None:
        """Close programs, after the kernel, and hand the last rows on. Idempotent."""
        self.rows.flush()

    def recovery(self) -> Recovery:
        """Return what the run went through to survive failures."""
        return structs.replace(self._recovery)

    def costs(self) -> dict[str, Any]:
        """Return the costs of failures so far, for a checkpoint; {} if there are none."""
        return {}

    def summary(self) -> dict[str, Any]:
        """Return what summary.json says about failures."""
        return {}
