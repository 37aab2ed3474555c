"""A simulated cluster whose workers run programs written by the user.

    class Ping(outpace.Worker):
        async def run(self):
            for _ in range(3):
                self.send("pong", "ball", delay=0.1)
                await self.recv()

    simulator = outpace.Simulator(log=True)
    simulator.add_worker("ping", Ping)
    ...
    simulator.start()

Computations are real, time is virtual (Zhang et al., "A Hybrid Simulator", section 3): `execute`
runs a function and advances time by its duration; a message occupies its sender and its receiver
for its delay; a worker sends, receives and computes independently.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import torch

from outpace.cluster.network import NetworkLaw
from outpace.errors import ConfigError, did_you_mean
from outpace.kernel import Kernel, Walker
from outpace.simulation.network import network_of
from outpace.simulation.network.links import Node, Parcel, Transfer
from outpace.support.units import nanoseconds, seconds

T = TypeVar("T")
WorkerT = TypeVar("WorkerT", bound="Worker")

_LONGEST_TEXT: Final = 60  # largest number of characters of a message's data in the log


class Delivered(NamedTuple):
    """A message that has arrived, with its times in seconds since the start."""

    sender: str
    receiver: str
    requested: float  # when `send` was called
    started: float  # when both ends had become free
    arrived: float
    data: Any


class State(StrEnum):
    """States of a worker (Zhang et al., "A Hybrid Simulator", figure 6)."""

    INITIAL = "initial"  # its program has not begun
    RUNNING = "running"
    SLEEPING = "sleeping"  # in `sleep` or `execute`
    WAITING = "waiting"  # in `wait` or `recv`
    DONE = "done"  # its program has ended


class Worker:
    """A node of the simulated cluster.

        class Ping(outpace.Worker):
            async def run(self):
                self.send("pong", "ball", delay=0.1)
                await self.recv()

        class Pong(outpace.Worker):
            async def run(self):
                ball = await self.recv()
                self.send("ping", ball, delay=0.1)

    Subclasses define `run`; they need not call `super().__init__()`.

    Attributes:
        name: the name given to `Simulator.add_worker`.
        state: what the worker is doing.
    """

    name: str
    state: State = State.INITIAL
    _simulator: Simulator
    _node: Node

    async def run(self) -> Any:
        """Do this worker's work; `Simulator.results` keeps the return value.

        Raises:
            NotImplementedError: if the subclass does not define the method.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `async def run(self)`")

    @property
    def now(self) -> float:
        """Seconds of virtual time since the start."""
        return seconds(self._simulator.kernel.now)

    def send(self, to: str, data: Any = None, delay: float | None = None) -> None:
        """Queue data for another worker and return at once.

        The transfer starts when both ends are free and occupies both. Data without bytes that is
        sent without a delay waits only for earlier data to the same worker.

        Args:
            to: Name of the receiver.
            data: Any object. It is passed on, not copied.
            delay: Seconds that the transfer takes. By default they follow from the network of the
                simulator and the bytes of the tensors, arrays and bytes in `data`, including those
                in lists, tuples and dicts.

        Raises:
            ConfigError: if there is no such worker, if the delay is negative or not finite, or
                if a delay is given in a network with `fair` contention, where transfers share
                both ends.
        """
        self._simulator._send(self._node, to, data, delay)

    async def recv(self) -> Any:
        """Return the data of the next message; wait until there is one."""
        with self._blocked(State.WAITING):
            return (await self._node.mailbox.get()).content

    def recv_nowait(self, default: Any = None) -> Any:
        """Return the data of the next message if one has arrived, else `default`."""
        parcel = self._node.mailbox.get_nowait()
        return default if parcel is None else parcel.content

    async def execute(
        self, function: Callable[..., T], *args: Any, duration: float | None = None, **kwargs: Any
    ) -> T:
        """Return function(*args, **kwargs) after the virtual time that the call takes.

        Args:
            function: Called with the other arguments.
            duration: Seconds of virtual time; by default the time that the call took on this
                computer. A given duration makes runs repeatable. Then the function is called at the
                end of the duration, and not at all if a timeout interrupts the worker before.
        """
        if duration is not None:
            await self.sleep(duration)
            return function(*args, **kwargs)
        started = time.perf_counter()
        result = function(*args, **kwargs)
        await self.sleep(time.perf_counter() - started)
        return result

    async def sleep(self, duration: float) -> None:
        """Wait for `duration` seconds.

        Raises:
            ConfigError: if the duration is negative or not finite.
        """
        _require_time("sleep", self.name, duration)
        with self._blocked(State.SLEEPING):
            await self._simulator.kernel.sleep(duration)

    async def wait(self) -> Any:
        """Block until another worker calls `notify` for this one; return the value passed."""
        with self._blocked(State.WAITING):
            return await self._simulator.kernel.wait()

    def notify(self, to: str, value: Any = None) -> bool:
        """End the `wait` of another worker. Takes no virtual time.

        Args:
            to: Name of the worker.
            value: Any object, which its `wait` returns.

        Returns:
            False if that worker is not in `wait`; then nothing happens, and a later `wait` blocks.

        Raises:
            ConfigError: if there is no such worker.
        """
        return self._simulator._notify(self.name, to, value)

    @contextmanager
    def _blocked(self, state: State) -> Iterator[None]:
        self.state = state
        try:
            yield
        finally:
            self.state = State.RUNNING

    def timeout(self, duration: float) -> AbstractContextManager[None]:
        """Return a context manager that raises TimeoutError if its block waits longer.

            with self.timeout(2.0):
                data = await self.recv()

        Args:
            duration: Seconds.

        Raises:
            ConfigError: if the duration is negative or not finite.
        """
        _require_time("timeout", self.name, duration)
        return self._simulator.kernel.timeout(duration)


class Simulator:
    """A cluster of `Worker`s in virtual time.

        simulator = outpace.Simulator(log=True)
        simulator.add_worker("ping", Ping)  # see outpace.Worker
        simulator.add_worker("pong", Pong)
        simulator.start()

    Args:
        log: True prints a line for each message that arrives; a function is called with each
            `Delivered`.
        network: Latency and bandwidth of the connections; by default 0 and infinite.
        tie_seed: Shuffles the order of events at equal times, for tests.
    """

    def __init__(
        self,
        log: bool | Callable[[Delivered], None] = False,
        *,
        network: NetworkLaw | None = None,
        tie_seed: int | None = None,
    ) -> None:
        self.kernel = Kernel(tie_seed=tie_seed)
        self.results: dict[str, Any] = {}  # return values of the workers' `run`, by name
        self._log = print_delivered if log is True else log or None
        delivered = None if self._log is None else self._delivered
        law = network or NetworkLaw()
        self._shares_bandwidth = law.contention == "fair"
        self._network = network_of(law, self.kernel, delivered)
        self._workers: dict[str, Worker] = {}
        self._not_started: dict[str, bool] = {}  # by name; True for a daemon
        self._walkers: dict[str, Walker] = {}  # states of the workers that have started

    @property
    def now(self) -> float:
        """Seconds of virtual time since the start."""
        return seconds(self.kernel.now)

    @property
    def workers(self) -> Mapping[str, Worker]:
        """The workers by name."""
        return self._workers

    def add_worker(
        self, name: str, kind: type[WorkerT], *args: Any, daemon: bool = False, **kwargs: Any
    ) -> WorkerT:
        """Add a worker, kind(*args, **kwargs), and return it.

        Args:
            name: The name under which other workers send to it.
            kind: A subclass of `Worker`.
            daemon: True if the simulation need not wait for the worker's end.

        Raises:
            ConfigError: if the name is taken or `kind` is not a subclass of `Worker`.
        """
        if name in self._workers:
            raise ConfigError(f"there already is a worker {name!r}")
        if not (isinstance(kind, type) and issubclass(kind, Worker)):
            raise ConfigError(f"worker {name!r}: {kind!r} is not a subclass of outpace.Worker")
        worker = kind.__new__(kind)
        worker.name, worker._simulator = name, self
        worker._node = self._network.join(name)
        worker.__init__(*args, **kwargs)  # type: ignore[misc]
        self._workers[name], self._not_started[name] = worker, daemon
        return worker

    def start(self, until: float | None = None) -> float:
        """Run until all workers except daemons are done; may be called again to continue.

        Args:
            until: Virtual time in seconds at which to pause.

        Returns:
            The virtual time in seconds.

        Raises:
            DeadlockError: if workers wait and no event is left; the message names them.
            RunError: if a worker raised; the message names it and the time, and the worker's
                exception is chained.
            ConfigError: if `until` is negative or not finite.
        """
        if until is not None:
            _require_time("start", "the simulator", until)
        for name, daemon in self._not_started.items():
            body = self._run(self._workers[name])
            self._walkers[name] = self.kernel.spawn(body, name, daemon=daemon)
        self._not_started.clear()
        self.kernel.run(None if until is None else nanoseconds(until))
        return self.now

    async def _run(self, worker: Worker) -> None:
        worker.state = State.RUNNING
        try:
            self.results[worker.name] = await worker.run()
        finally:
            worker.state = State.DONE

    def _notify(self, sender: str, to: str, value: Any) -> bool:
        self._require_worker(to, f"worker {sender!r} notified")
        return to in self._walkers and self._walkers[to].notify(value)

    def _require_worker(self, name: str, did: str) -> None:
        if name not in self._workers:
            hint = did_you_mean(name, list(self._workers))
            raise ConfigError(f"{did} {name!r}, which does not exist.{hint}")

    def _send(self, sender: Node, to: str, data: Any, delay: float | None) -> None:
        self._require_worker(to, f"worker {sender.name!r} sent to")
        if delay is None:
            self._network.send(sender, to, Parcel(data, size_of(data)))
            return
        _require_time("delay", sender.name, delay)
        if self._shares_bandwidth:
            raise ConfigError(
                f"{sender.name}: a message with a given delay occupies both ends, and with "
                "contention: fair they are shared; send data of that many bytes, or use serialised"
            )
        self._network.send(sender, to, Parcel(data, 0), duration=nanoseconds(delay))

    def _delivered(self, transfer: Transfer) -> None:
        assert self._log is not None
        assert isinstance(transfer.message, Parcel)
        self._log(
            Delivered(
                transfer.sender.name,
                transfer.receiver.name,
                seconds(transfer.requested),
                seconds(transfer.started),
                seconds(transfer.delivered),
                transfer.message.content,
            )
        )


def print_delivered(message: Delivered) -> None:
    """Print a line about a message."""
    text = repr(message.data)
    text = text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
    waited = message.started - message.requested
    queued = f", queued for {waited:.6f} s" if waited else ""
    print(  # noqa: T201
        f"{message.arrived:12.6f} s  {message.sender} → {message.receiver}  {text}"
        f"  (sent at {message.requested:.6f} s{queued})"
    )


def size_of(data: Any) -> int:
    """Return the bytes of tensors, arrays and bytes, including those in lists, tuples and dicts."""
    if isinstance(data, torch.Tensor | np.ndarray):
        return int(data.nbytes)
    if isinstance(data, bytes | bytearray | memoryview):
        return memoryview(data).nbytes
    if isinstance(data, Mapping):
        return sum(map(size_of, data.values()))
    if isinstance(data, list | tuple):
        return sum(map(size_of, data))
    return 0


def _require_time(what: str, name: str, duration: float) -> None:
    if not (isinstance(duration, int | float) and 0 <= duration < math.inf):
        raise ConfigError(f"{name}: {what} must be a number of seconds from 0 on, not {duration!r}")
