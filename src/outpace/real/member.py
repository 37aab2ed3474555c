"""What servers and workers have in common: a kernel, and a line to the coordinator."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import torch
import zmq

import outpace
from outpace.errors import RunError
from outpace.kernel import Kernel, Mailbox, WalkerError
from outpace.messages import Block
from outpace.real.bodies import (
    BlockHead,
    Body,
    Failed,
    Finished,
    Go,
    Join,
    Notice,
    Refused,
    Rows,
    Stop,
)
from outpace.real.clock import RealClock
from outpace.real.sockets import Caller, Keys, Session
from outpace.real.wire import Expect
from outpace.recorder import Recorder
from outpace.trace import Rows as TraceRows
from outpace.trace import Table

COORDINATOR: Final = "coordinator"
REPORT_EVERY_S: Final = 0.25
_MOST_ROWS: Final = 1 << 16  # in one message
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")

BodyT = TypeVar("BodyT", bound=msgspec.Struct)


def expect_nothing(_: Body) -> None:
    """For connections on which no blocks come."""


@dataclass(frozen=True, slots=True)
class Link:
    """How a process of a run reaches the coordinator, and who it is."""

    name: str
    endpoint: str
    key: str  # the coordinator's public key; empty if insecure
    session: Session

    @property
    def keys(self) -> Keys | None:
        return self.session.keys


def boot_id() -> str:
    """The same in all processes that share a monotonic clock; empty if that is not known."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


class Member:
    """A process of a run. Subclasses drive the kernel."""

    def __init__(self, link: Link, expect: Expect = expect_nothing) -> None:
        self.name, self.session = link.name, link.session
        self.context: zmq.Context[Any] = zmq.Context()
        self.clock = RealClock()
        self.kernel = Kernel(self.clock)
        self.orders = Mailbox[Body](self.kernel, f"the coordinator's orders to {link.name}")
        self.recorder = Recorder(TraceRows(self._send_rows), self._updated)
        self.stopped: Stop | None = None  # by the coordinator
        self.closed = False
        self._rows = self.recorder._rows
        self._reported = b""
        self.coordinator = Caller(
            self.context, self.clock, link.session, name=link.name, peer=COORDINATOR,
            endpoint=link.endpoint, key=link.key, expect=expect, on_message=self._order,
            on_lost=self._coordinator_lost,
        )  # fmt: skip

    def join(self, **what: Any) -> None:
        """Tell the coordinator that this process is there."""
        self.coordinator.send(Join(outpace.__version__, os.getpid(), **what))

    async def order(self, kind: type[BodyT]) -> BodyT:
        """The coordinator's next order, which must be of this kind."""
        body = await self.orders.get()
        if not isinstance(body, kind):
            raise RunError(f"{self.name} expected a {kind.__name__} and got {body}")
        return body

    def start_clock(self, go: Go) -> None:
        """From now on the clock shows the time of the run."""
        if go.boot and go.boot == boot_id():
            self.clock.origin = go.origin
        else:  # another machine: right up to the time the message took
            self.clock.origin = time.monotonic_ns() - go.now
        self.kernel.now = 0
        self.kernel.catch_up()

    async def report(self) -> None:
        """Send the trace and the sums to the coordinator, now and then. A daemon."""
        while True:
            await self.kernel.sleep(REPORT_EVERY_S)
            self.flush()

    def flush(self) -> None:
        """Send what has gathered since the last time, if anything."""
        self._rows.flush()
        totals = msgspec.msgpack.encode(self.recorder.totals)
        if totals != self._reported:
            self._reported = totals
            self.coordinator.send(Rows(totals))

    def notice(self, text: str) -> None:
        """Have a person told; the run goes on."""
        self.coordinator.send(Notice(text))

    def drive(self) -> None:
        """Run the kernel to its end, then say so; what goes wrong is told as well."""
        try:
            self.kernel.run()
            self.finish()
        except BaseException as error:
            cause = error.error if isinstance(error, WalkerError) else error
            self.coordinator.send(Failed(type(cause).__name__, _words(cause)))
            if not isinstance(cause, Exception):
                raise
        finally:
            self.close()

    def finish(self) -> None:
        """The part in the run is done: send what is left."""
        self.flush()
        self.coordinator.send(Finished())

    def close(self) -> None:
        self.closed = True
        self.kernel.close()
        self.coordinator.close()
        self.context.term()  # waits until what was sent is delivered, or a second

    def _order(self, _: str, body: Body, block: Block | None) -> None:
        if isinstance(body, Refused):
            raise RunError(f"the coordinator refused {self.name}: {body.reason}")
        if isinstance(body, Stop):
            self.stopped = body
            self.kernel.stop()
        else:
            self.orders.put(body)

    def _coordinator_lost(self, _: str) -> None:
        raise RunError(f"{self.name} lost the coordinator")

    def _updated(self, shard: int, version: int) -> None:
        pass

    def _send_rows(self, table: Table) -> None:
        totals = msgspec.msgpack.encode(self.recorder.totals)
        for first in range(0, len(table), _MOST_ROWS):
            rows = torch.from_numpy(table[first : first + _MOST_ROWS].reshape(-1))
            self.coordinator.send(Rows(totals, BlockHead("int64", rows.numel())), rows)
        self._reported = totals


def report_failure(link: Link, error: Exception) -> None:
    """Tell the coordinator of a process that could not even be set up."""
    member = Member(link)
    member.coordinator.send(Failed(type(error).__name__, _words(error)))
    member.close()


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
