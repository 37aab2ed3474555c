"""A simulated cluster by hand: workers whose programs one writes oneself.

    class Ping(outpace.Worker):
        async def run(self):
            for _ in range(3):
                self.send("pong", "ball", delay=0.1)
                await self.recv()

    simulator = outpace.Simulator(log=True)
    simulator.add_worker("ping", Ping)
    ...
    simulator.start()

Computations are real, time is virtual (Zhang et al., "A Hybrid Simulator", section 3):
`execute` runs a function and lets pass what it took; a message occupies its sender and its
receiver for its delay, and a worker sends, receives and computes independently.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import torch

from outpace.cluster import NetworkLaw
from outpace.errors import ConfigError, did_you_mean
from outpace.kernel import Kernel, Mailbox
from outpace.simulation.network import network_of
from outpace.simulation.network.links import Transfer
from outpace.support.units import nanoseconds, seconds

T = TypeVar("T")
WorkerT = TypeVar("WorkerT", bound="Worker")

_LONGEST_TEXT: Final = 60  # characters of a message's data in the log


class Delivered(NamedTuple):
    """A message that has arrived. Times in seconds since the start.

    requested: `send` was called. started: both ends were free. arrived: the data was there.
    """

    sender: str
    receiver: str
    requested: float
    started: float
    arrived: float
    data: Any


class Worker:
    """A node of the cluster. Subclasses write `run`; they need no `__init__` of this class."""

    name: str
    _simulator: Simulator
    _mailbox: Mailbox[Any]

    async def run(self) -> Any:
        """What this worker does; what it returns is in `Simulator.results`."""
        raise NotImplementedError(f"{type(self).__name__} must have `async def run(self)`")

    @property
    def now(self) -> float:
        """Seconds of virtual time since the start."""
        return seconds(self._simulator.kernel.now)

    def send(self, to: str, data: Any = None, delay: float | None = None) -> None:
        """Queue data for a worker; does not block. The data is handed over, not copied.

        Its transfer occupies both ends for `delay` seconds, and starts when both are free.
        Without `delay` it takes what its bytes take in the simulator's network: those of
        tensors, arrays, bytes, and of lists, tuples and dicts of them.

        Raises ConfigError if there is no such worker, the delay is no time, or there is one
        and the network is `fair`: there nobody has both ends to himself.
        """
        self._simulator._send(self.name, to, data, delay)

    async def recv(self) -> Any:
        """The next message's data, in the order of arrival; waits until there is one."""
        return await self._mailbox.get()

    def recv_nowait(self, default: Any = None) -> Any:
        """The next message's data if one is there, else `default`."""
        return self._mailbox.get_nowait() if len(self._mailbox) else default

    async def execute(
        self, function: Callable[..., T], *args: Any, duration: float | None = None, **kwargs: Any
    ) -> T:
        """Compute function(*args, **kwargs), and let the time pass that it took.

        With `duration` (seconds) it takes that long instead, so that the same run gives the
        same times on every machine; then it is computed at the end, and never if this
        worker is interrupted before.
        """
        if duration is not None:
            await self.sleep(duration)
            return function(*args, **kwargs)
        started = time.perf_counter()
        result = function(*args, **kwargs)
        await self.sleep(time.perf_counter() - started)
        return result

    async def sleep(self, duration: float) -> None:
        """Let so many seconds pass. Raises ConfigError if they are no time."""
        _require_time("sleep", self.name, duration)
        await self._simulator.kernel.sleep(duration)

    def timeout(self, duration: float) -> AbstractContextManager[None]:
        """`with self.timeout(2.0):` raises TimeoutError in a block that waits longer."""
        _require_time("timeout", self.name, duration)
        return self._simulator.kernel.timeout(duration)


class Simulator:
    """A cluster in virtual time, made of `Worker`s.

    log: True prints a line for each message that arrives; a function is given the
    `Delivered`. network: latency and bandwidth of the connections; left out: none and
    infinite. tie_seed: shuffles what happens at equal times, for tests.
    """

    def __init__(
        self,
        log: bool | Callable[[Delivered], None] = False,
        *,
        network: NetworkLaw | None = None,
        tie_seed: int | None = None,
    ) -> None:
        self.kernel = Kernel(tie_seed=tie_seed)
        self.results: dict[str, Any] = {}  # what the workers' `run` returned, by name
        self._log = print_delivered if log is True else log or None
        took_note = None if self._log is None else self._delivered
        self._network = network_of(network or NetworkLaw(), self.kernel, took_note)
        self._workers: dict[str, Worker] = {}
        self._daemons: set[str] = set()
        self._started: set[str] = set()

    @property
    def now(self) -> float:
        """Seconds of virtual time since the start."""
        return seconds(self.kernel.now)

    @property
    def workers(self) -> Mapping[str, Worker]:
        """By name."""
        return self._workers

    def add_worker(
        self, name: str, kind: type[WorkerT], *args: Any, daemon: bool = False, **kwargs: Any
    ) -> WorkerT:
        """Make a worker, kind(*args, **kwargs), of that name. A daemon ends with the others.

        Raises ConfigError if the name is taken or `kind` is no Worker.
        """
        if name in self._workers:
            raise ConfigError(f"there already is a worker {name!r}")
        if not (isinstance(kind, type) and issubclass(kind, Worker)):
            raise ConfigError(f"worker {name!r}: {kind!r} is no subclass of outpace.Worker")
        worker = kind.__new__(kind)
        worker.name, worker._simulator = name, self
        worker._mailbox = self._network.add(name)
        worker.__init__(*args, **kwargs)  # type: ignore[misc]
        self._workers[name] = worker
        if daemon:
            self._daemons.add(name)
        return worker

    def start(self, until: float | None = None) -> float:
        """Run until all workers but the daemons are done, or for `until` seconds.

        Returns the virtual time in seconds. May be called again to go on. Raises
        DeadlockError if workers wait and nothing can happen, RunError if one raised, with
        its name and the time; the error itself is chained.
        """
        if until is not None:
            _require_time("start", "the simulator", until)
        for name, worker in self._workers.items():
            if name not in self._started:
                self._started.add(name)
                self.kernel.spawn(self._run(worker), name, daemon=name in self._daemons)
        self.kernel.run(None if until is None else nanoseconds(until))
        return self.now

    async def _run(self, worker: Worker) -> None:
        self.results[worker.name] = await worker.run()

    def _send(self, sender: str, to: str, data: Any, delay: float | None) -> None:
        if to not in self._workers:
            hint = did_you_mean(to, list(self._workers))
            raise ConfigError(f"worker {sender!r} sent to {to!r}, which is no worker.{hint}")
        if delay is None:
            self._network.send(sender, to, data, size_of(data))
            return
        _require_time("delay", sender, delay)
        self._network.send(sender, to, data, 0, nanoseconds(delay))

    def _delivered(self, transfer: Transfer) -> None:
        assert self._log is not None
        self._log(
            Delivered(
                transfer.sender.name,
                transfer.receiver.name,
                seconds(transfer.requested),
                seconds(transfer.started),
                seconds(transfer.delivered),
                transfer.message,
            )
        )


def print_delivered(message: Delivered) -> None:
    """A line on standard output."""
    text = repr(message.data)
    text = text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
    waited = message.started - message.requested
    queued = f", queued for {waited:.6f} s" if waited else ""
    print(  # noqa: T201
        f"{message.arrived:12.6f} s  {message.sender} → {message.receiver}  {text}"
        f"  (sent at {message.requested:.6f} s{queued})"
    )


def size_of(data: Any) -> int:
    """The bytes of tensors, arrays, bytes, and of what lists, tuples and dicts hold of them."""
    if isinstance(data, torch.Tensor | np.ndarray):
        return int(data.nbytes)
    if isinstance(data, bytes | bytearray | memoryview):
        return memoryview(data).nbytes
    if isinstance(data, Mapping):
        return sum(map(size_of, data.values()))
    if isinstance(data, list | tuple):
        return sum(map(size_of, data))
    return 0


def _require_time(what: str, who: str, duration: float) -> None:
    if not (isinstance(duration, int | float) and 0 <= duration < math.inf):
        raise ConfigError(f"{who}: {what} must be a number of seconds from 0, not {duration!r}")
