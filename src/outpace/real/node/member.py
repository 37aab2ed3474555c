"""A process of a run: a kernel, a recorder, and a connection to the coordinator."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
import torch

from outpace.errors import RunError
from outpace.kernel import Kernel, Mailbox, WalkerError
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Go, JoinRun, ProcessDone, Ready, Refused, StopRun
from outpace.real.net.report_messages import (
    MOST_ROWS,
    MOST_TIMES,
    Notice,
    ProcessFailed,
    RowsReport,
)
from outpace.real.net.transport import Handlers, Session, Transport
from outpace.real.net.wire import WireError
from outpace.real.node.timing import TimingRows
from outpace.real.zeromq.transport import ZeroMQTransport
from outpace.record.checkpoints.committed import Damaged
from outpace.record.recorder import Recorder
from outpace.record.tables import Table
from outpace.record.trace import TraceRows
from outpace.support.machine import boot_id, host_name, machine_id
from outpace.support.units import Time, nanoseconds
from outpace.support.version import __version__
from outpace.sync.messages import WireMessage

COORDINATOR: Final = "coordinator"
REPORT_EVERY_S: Final = 0.25
_LAST_MESSAGES_S: Final = 60.0  # seconds to deliver the last messages over a slow connection
_REACH_S: Final = 60.0  # seconds to reach the coordinator, which may be busy with its task
_LONGEST_TEXT: Final = 10_000

BodyT = TypeVar("BodyT", bound=msgspec.Struct)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CoordinatorLink:
    """The name of a process of a run, and its way to reach the coordinator.

    Attributes:
        key: the coordinator's public key.
        store: endpoint of the run's store, through which workers form groups; empty if there is
            none.
    """

    name: str
    endpoint: str
    key: str
    session: Session
    store: str = ""


class Member:
    """A process of a run; subclasses spawn the work in its kernel."""

    def __init__(self, link: CoordinatorLink) -> None:
        self.name = link.name
        self._generation, self._lease_s = link.session.generation, link.session.lease_s
        self.clock = RealClock()
        self.transport: Transport = ZeroMQTransport(
            link.name, link.session, self.clock, self.notice
        )
        self.kernel = Kernel(self.clock)
        self.orders = Mailbox[WireMessage](self.kernel, f"the coordinator's orders to {link.name}")
        self._rows = TraceRows(self._send_rows)
        self.recorder = Recorder(self._rows)
        self.timing = TimingRows(self.clock)
        self.stopped: StopRun | None = None  # set when the coordinator stops the run
        self.closed = self.has_started = False
        self._has_all_arrived = False
        self.is_done = False  # the process has sent everything, and its connections may end
        self._reported = b""
        self._linger_s = 1.0
        self.coordinator = self.transport.call(
            COORDINATOR,
            link.endpoint,
            link.key,
            Handlers(self._expected, self._order, self._coordinator_lost),
        )
        self.kernel.call_at(nanoseconds(_REACH_S), self._require_coordinator, link.endpoint)

    def join(self, **what: Any) -> None:
        """Tell the coordinator that this process is ready to take part."""
        message = JoinRun(__version__, os.getpid(), host=host_name(), machine=machine_id(), **what)
        self.coordinator.send(message)

    async def order(self, kind: type[BodyT]) -> BodyT:
        """Return the coordinator's next order, which must be of this kind."""
        message = await self.orders.get()
        if not isinstance(message, kind):
            raise RunError(f"{self.name} expected a {kind.__name__} and got {message}")
        return message

    def read_checkpoint(self, folder: Path, read: Callable[[Path], T]) -> T:
        """Return the result of `read` for the checkpoint with which this process continues.

        Args:
            folder: folder of the checkpoint.
            read: reads the checkpoint; raises OSError and Damaged.

        Raises:
            RunError: if the checkpoint cannot be read.
        """
        try:
            return read(folder)
        except (OSError, Damaged) as error:
            raise RunError(f"{self.name} cannot read its checkpoint: {error}") from error

    async def start_run(self) -> None:
        """Report that this process is ready; return when the run starts."""
        self.coordinator.send(Ready())
        while (go := await self.order(Go)).probe:
            await self.probe(go.probe)
            self.coordinator.send(Ready())
        if go.boot and go.boot == boot_id():
            self.clock.origin = go.origin
        else:  # on another machine this is late by the time that the message took
            self.clock.origin = time.monotonic_ns()
        self.kernel.set_time(self.clock.now)
        self.has_started = True
        self.kernel.spawn(self._report(), f"{self.name}'s report", daemon=True)

    async def probe(self, budget: Time) -> None:
        """Measure the network for at most `budget` ns. Only workers are asked to measure it."""

    async def _report(self) -> None:
        """Send the trace and the totals to the coordinator at regular intervals."""
        while True:
            await self.kernel.sleep(REPORT_EVERY_S)
            self.flush()

    def flush(self) -> None:
        """Send new rows of trace and times, and the totals if they have changed."""
        self._rows.flush()
        if self.has_started:  # otherwise the time of the run is not known
            self._send_rows(self.timing.take(), "timing")
        totals = msgspec.msgpack.encode(self.recorder.totals)
        if totals != self._reported:
            self._reported = totals
            self.coordinator.send(RowsReport(self.recorder.totals))

    def notice(self, text: str) -> None:
        """Let the coordinator print a line for the user; the run continues."""
        self.coordinator.send(Notice(in_short(text)))

    def warn(self, text: str) -> None:
        """Let the coordinator warn the user, once if several workers have the same warning."""
        self.coordinator.send(Notice(in_short(text), warns=True))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start the work of this process in its kernel."""
        self.program = self.kernel.spawn(work, self.name)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Work until the work is done or the coordinator stops the run; report the end.

        An error is also reported; then the process exits with code 1.
        """
        self.spawn(work)
        try:
            self.kernel.run()
            self.finish()
        except BaseException as error:
            cause = error.error if isinstance(error, WalkerError) else error
            self.tell_failure(cause)
            if not isinstance(cause, Exception):
                raise
            raise SystemExit(1) from None
        finally:
            self.close()

    def tell_failure(self, error: BaseException) -> None:
        """Send the remaining rows of the trace, and then the error, to the coordinator."""
        lost = error.peer if isinstance(error, Lost) else ""
        with contextlib.suppress(WireError):  # if the coordinator refuses this process
            self._end_times()
            self.flush()
            self.coordinator.send(ProcessFailed(type(error).__name__[:64], in_short(error), lost))

    def finish(self) -> None:
        """Send the remaining rows and totals, and report that this process is done."""
        self._end_times()
        self.flush()
        self.coordinator.send(ProcessDone())
        self._linger_s = _LAST_MESSAGES_S  # the run is incomplete without these messages
        self._await_arrival()

    def _await_arrival(self) -> None:
        """Wait until the coordinator has everything, or cannot be reached any more.

        If a TCP connection is closed while unread data has arrived, such as a heartbeat, it is
        reset, and the other side loses the data that it has not read yet.
        """
        self.is_done = True
        deadline = self.clock.now + nanoseconds(_LAST_MESSAGES_S)
        while not self._has_all_arrived and self.coordinator.up and self.clock.now < deadline:
            self.clock(deadline)

    def close(self) -> None:
        self.closed = True
        self.kernel.close()
        self.coordinator.close(self._linger_s)
        self.transport.close()

    def _expected(self, _: str, message: WireMessage) -> tuple[str, int] | None:
        """Return the dtype and elements of the block that may come with a message."""
        return None

    def _order(self, _: str, message: WireMessage) -> None:
        if isinstance(message, Refused):
            raise self.refused_by("the coordinator", message)
        if isinstance(message, StopRun):
            self.stopped = message
            self.kernel.stop()
        elif isinstance(message, ProcessDone):
            self._has_all_arrived = True
        else:
            self.orders.put(message)

    def refused_by(self, peer: str, message: Refused) -> RunError:
        """Return the error of a process that was refused or replaced."""
        if not message.replaced_by:
            return RunError(f"{peer} refused {self.name}: {message.reason}")
        return RunError(
            f"{self.name} was replaced while it stood still; this process "
            f"(generation {self._generation}) ends"
        )

    def _require_coordinator(self, endpoint: str) -> None:
        if not self.coordinator.up:
            raise RunError(
                f"{self.name}: no coordinator of this run answers at {endpoint}; "
                "has the run ended, or been killed?"
            )

    def _coordinator_lost(self, _: str) -> None:
        if self.is_done:
            return
        raise RunError(
            f"{self.name} lost the coordinator: it has ended, or this process was silent for "
            f"{self._lease_s:g} s and counts as lost"
        )

    @property
    def pushed(self) -> int:
        """Number of iterations up to the last one that was pushed to any server."""
        return 0

    def _end_times(self) -> None:
        """Add the rows of requests that will not be answered."""

    def _send_rows(self, rows: Table, table: Literal["trace", "timing"] = "trace") -> None:
        totals, most = self.recorder.totals, MOST_ROWS if table == "trace" else MOST_TIMES
        for first in range(0, len(rows), most):
            block = torch.from_numpy(rows[first : first + most].reshape(-1))
            self.coordinator.send(RowsReport(totals, block, table))
            self._reported = msgspec.msgpack.encode(totals)


class Lost(RunError):
    """Raised when the connection to a server is lost."""

    def __init__(self, name: str, peer: str) -> None:
        super().__init__(f"{name} lost the connection to {peer}")
        self.peer = peer


def report_failure(link: CoordinatorLink, error: Exception) -> None:
    """Report to the coordinator that a process could not be set up."""
    member = Member(link)
    member.tell_failure(error)
    member.close()


def in_short(what: object) -> str:
    """Return the text of an object as valid UTF-8, cut to the length allowed in a message."""
    text = str(what) or type(what).__name__
    return text[:_LONGEST_TEXT].encode("utf-8", "replace").decode()
