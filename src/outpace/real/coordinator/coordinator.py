"""The coordinator: who takes part, when it starts and ends, and what came of it.

It runs in the launcher's process, or in `outpace serve`. Phases: everybody joins; the
servers get the plan and are ready to take parameters; the workers get it, and worker 0
gives the servers theirs; everybody is ready; go. It ends when all workers have finished,
or when time is over or the target reached; the servers hand in the final parameters.

Whoever is lost before being done ends the run, with an error that says who. Nothing but
the training itself is waited for without a limit.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import torch

from outpace import errors
from outpace.blocks.block import Block, whole
from outpace.config.experiment import Experiment
from outpace.engine.servers import has_scheduler
from outpace.errors import ConfigError, DivergenceError, OutpaceError, RunError
from outpace.kernel import Kernel, Mailbox, TimedOut, WalkerError
from outpace.predict.interface import Rule
from outpace.real.collective.group import backend_for, host_store
from outpace.real.coordinator.membership import Membership
from outpace.real.coordinator.pairs import Pairs
from outpace.real.coordinator.peer_snapshots import PeerSnapshots
from outpace.real.coordinator.scheduler import (
    CutOffScheduler,
    Scheduler,
    SchedulerResources,
    ShardScheduler,
)
from outpace.real.coordinator.snapshots import Evaluate, Snapshots
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import (
    MOST_ROWS,
    BlockHead,
    Fetch,
    Go,
    JoinRun,
    ModelBuffers,
    Notice,
    Plan,
    ProcessDone,
    ProcessFailed,
    Ready,
    Snapshot,
    StopRun,
    TakeSnapshot,
    TraceReport,
    TrainingDone,
    WireMessage,
)
from outpace.real.net.session import Session
from outpace.real.net.sparse_log import Log
from outpace.real.net.transport import Transport
from outpace.real.net.wire import Expect, block_elements, head_of
from outpace.real.net.zeromq.transport import LOOPBACK, ZeroMQTransport
from outpace.real.node.member import COORDINATOR, boot_id
from outpace.record.recorder import Totals
from outpace.record.trace import SCHEMA, Trace
from outpace.support.units import Time, nanoseconds, seconds
from outpace.support.version import __version__
from outpace.sync.messages import SCHEDULER, server_name, worker_name

JOIN_S: Final = 120.0  # for the slowest process to start and make its task
WIND_DOWN_S: Final = 60.0  # for a worker to come to the end of its step
_LAST_WORDS_S: Final = 0.5  # for what a process said before it died to be read first
_LONGEST_LAST_WORDS_S: Final = 10.0  # where there is still something to be read
_LOOK_AGAIN_S: Final = 0.02
_ENDED, _SILENT, _MISSED = range(3)  # how directly it is known that a process is lost


class Coordinator:
    """One run's. `evaluate` is given consistent snapshots; it may call `end`.

    rule: by which it cuts iterations off, if it does.
    """

    def __init__(
        self,
        experiment: Experiment,
        session: Session,
        keys: dict[str, str],
        trace: Trace,
        evaluate: Evaluate,
        log: Log,
        join_s: float = JOIN_S,
        address: str = LOOPBACK,
        rule: Rule | None = None,
    ) -> None:
        self.clock = RealClock()
        self.kernel = Kernel(self.clock)
        self.experiment, self.session = experiment, session
        self.workers = [worker_name(worker) for worker in range(experiment.workers)]
        self.servers = [server_name(server) for server in range(experiment.servers_in_run)]
        self.joined: dict[str, JoinRun] = {}
        self.finished: set[str] = set()
        self.started = False
        self.when_started: list[Callable[[], None]] = []
        self.totals_of: dict[str, Totals] = {}
        self.when_lost: Callable[[str], None] = lambda name: None  # told if the run goes on
        peers = experiment.peers
        self.snapshots: Snapshots | PeerSnapshots
        if peers is None:
            self.snapshots = Snapshots(experiment.servers, self._ask_server, evaluate)
        else:
            averages = not peers.has_common
            self.snapshots = PeerSnapshots(experiment.workers, averages, self._ask_worker, evaluate)
        self._join_s = join_s
        self._keys, self._trace, self._log = keys, trace, log
        self._said = self._new_mailbox()
        self._heard: Counter[tuple[str, type[WireMessage]]] = Counter()
        self._slices: list[slice] = []  # the servers' parts of the parameters, once planned
        self.extras: Block | None = None  # worker 0's buffers, as it sent them last
        self._ending: str | None = None
        self.over = self._early = False
        self._left: set[str] = set()  # workers that have done their part
        self._awaiting_final: list[str] = []  # who has left and wants the parameters
        self._failed: set[str] = set()  # said so themselves
        self._lost_for: dict[str, tuple[int, RunError]] = {}  # name: how directly known, what
        self._transport: Transport = ZeroMQTransport(COORDINATOR, session, self.clock, log)
        self._address = address
        self._store: tuple[Any, int] | None = None
        try:
            if peers is not None:
                self._store = host_store(address)
            self.listener = self._transport.listen(
                address,
                {name: keys.get(name, "") for name in (*self.servers, *self.workers)},
                expected=self._expected,
                on_message=self._take,
                on_lost=self._lost,
            )
        except ConfigError:
            self._transport.close()
            raise
        self.membership: Membership | None = None
        if peers is not None:
            tell = self.listener.send
            if peers.exchanges:
                self.membership = Pairs(self.kernel, self.workers, experiment.seed, tell)
            else:
                self.membership = Membership(self.kernel, self.workers, peers.timeout_s, tell)
        place = SchedulerResources(experiment, self.kernel, self.clock, self.listener, trace)
        self._scheduler: Scheduler | None = None
        if rule is not None:
            self._scheduler = CutOffScheduler(place, rule)
        elif peers is None and has_scheduler(experiment):
            self._scheduler = ShardScheduler(place)
        if self._scheduler is not None:
            self.totals_of[SCHEDULER] = self._scheduler.recorder.totals

    @property
    def totals(self) -> Totals:
        """What happened so far, over all processes."""
        whole = Totals()
        for part in self.totals_of.values():
            whole.add(part)
        return whole

    # -- the phases ------------------------------------------------------------------

    def run(self) -> None:
        """All of it. Raises RunError or ConfigError naming who failed."""
        self._drive(self._conduct())

    def wind_down(self, limit_s: float) -> None:
        """End early but in order: stop the workers, take the parameters as they are."""
        if self.started and not self.over:
            self.kernel.close()
            self._said = self._new_mailbox()
            if self._scheduler is not None:
                self._scheduler.stop()
            self._early = True
            self._drive(self._end_in_order(limit_s))

    def end(self, reason: str) -> None:
        """Stop the workers: time is over, or the target reached."""
        if self._ending is None:
            self._ending = reason
            self._said.put((COORDINATOR, StopRun(reason)))  # from now on the wait has a limit
            for name in self.workers:
                if name not in self.finished:
                    self.listener.send(name, StopRun(reason, self._early))

    def close(self) -> None:
        self.kernel.close()
        if self._scheduler is not None:
            self._scheduler.close()
        self._store = None
        self._transport.close()

    def _new_mailbox(self) -> Mailbox[tuple[str, WireMessage]]:
        return Mailbox(self.kernel, "what members say")

    def _drive(self, phases: Any) -> None:
        self.kernel.catch_up()  # limits count from now
        self.kernel.spawn(phases, "the coordinator")
        try:
            with self.clock.interruptible():
                self.kernel.run()
        except WalkerError as error:
            raise error.error from None

    async def _conduct(self) -> None:
        everybody = self.servers + self.workers
        await self._all(everybody, JoinRun, "join", self._join_s)
        plan = self._plan()
        self._tell(self.servers, plan)
        await self._all(self.servers, Ready, "be ready for the parameters", self._join_s)
        self._tell(self.workers, plan)
        if self.joined[self.workers[0]].buffer_bytes:
            await self._all(self.workers[:1], ModelBuffers, "send its buffers", self._join_s)
            self._forward_extras()
        await self._all(self.workers, Ready, "be ready", self._join_s)
        await self._all(self.servers, Ready, "have the parameters", self._join_s, times=2)
        self.kernel.catch_up()
        self.clock.origin += self.kernel.now
        self.kernel.set_time(0)
        self.started = True
        if self._scheduler is not None:
            self._scheduler.start()
        self._tell(everybody, Go(self.clock.origin, boot_id()))
        for action in self.when_started:
            action()
        stop, evaluate = self.experiment.stop, self.experiment.evaluate
        if stop.virtual_time_s is not None:
            self.kernel.call_at(nanoseconds(stop.virtual_time_s), self._time_is_over)
        if evaluate.every_s is not None:
            self.kernel.spawn(self._read_every(evaluate.every_s), "evaluation", daemon=True)
        if evaluate.every_updates is not None:
            self.snapshots.ask_each(evaluate.every_updates)
        await self._finish(self.workers, WIND_DOWN_S, left=True)
        await self._hand_in(WIND_DOWN_S)
        self._ending = None  # what scripts do now is their own affair
        await self._finish(self.workers, 0.0)
        self.over = True

    async def _end_in_order(self, limit_s: float) -> None:
        self.end("the run ends early")
        with contextlib.suppress(RunError):  # a worker still in its step is left behind
            await self._finish(self.workers, limit_s)
        await self._hand_in(limit_s)
        self.over = True

    async def _hand_in(self, limit_s: float) -> None:
        """The servers give their parameters and what is left of the trace, and end."""
        self._ending = self._ending or "the workers have finished"
        self.snapshots.ask_for_last()
        since = self.kernel.now
        while self.servers and self.snapshots.final is None and not self._gone(self.servers):
            await self._next(limit_s, since, "hand in its parameters", self.servers)
        self._tell(self.servers, StopRun("the run is over"))
        await self._finish(self.servers, limit_s)
        self._give_final()

    def _give_final(self) -> None:
        """The parameters, to those who wait for them, if they are there."""
        final, at = self.snapshots.final, self.snapshots.final_at
        if final is not None and at is not None:
            for name in self._awaiting_final:
                self.listener.send(name, at, final[0])
            self._awaiting_final.clear()

    async def _finish(self, names: list[str], limit_s: float, left: bool = False) -> None:
        """Wait until they have finished, or `left`; the limit counts from when the run is to
        end."""
        since: Time | None = None
        while missing := [n for n in self._missing(names) if not (left and n in self._left)]:
            if since is None and self._ending is not None:
                since = self.kernel.now
            await self._next(limit_s, since, "finish", missing)

    def _missing(self, names: list[str]) -> list[str]:
        """Those to wait for. When the run ends early, not for those that are lost."""
        gone = self._failed.union(self._lost_for) if self._early else self._done_without
        return [name for name in names if name not in self.finished and name not in gone]

    def _gone(self, names: list[str]) -> bool:
        """Is one of these to be waited for no more?"""
        return self._missing(names) != names

    @property
    def _done_without(self) -> set[str]:
        """Those who are lost, without whom the run goes on."""
        return set() if self.membership is None else self.membership.lost

    async def _all(
        self, names: list[str], kind: type[WireMessage], what: str, limit_s: float, times: int = 1
    ) -> None:
        """Wait until each has said that, so many times."""
        since = self.kernel.now
        while missing := [name for name in names if self._heard[name, kind] < times]:
            await self._next(limit_s, since, what, missing)

    async def _next(
        self, limit_s: float, since: Time | None, what: str, missing: Iterable[str]
    ) -> tuple[str, WireMessage]:
        """What is said next; `since` None: without a limit."""
        if since is None:
            return await self._said.get()
        try:
            with self.kernel.timeout(max(0.0, limit_s - seconds(self.kernel.now - since))):
                return await self._said.get()
        except TimedOut:
            raise RunError(f"{', '.join(missing)} did not {what} within {limit_s:.0f} s") from None

    def _plan(self) -> Plan:
        """What everybody trains. Raises ConfigError if workers disagree."""
        first, *others = (self.joined[name] for name in self.workers)
        for name, join in zip(self.workers[1:], others, strict=True):
            if join.layout != first.layout or join.layers != first.layers:
                raise ConfigError(
                    f"{name} trains other parameters than worker-0: "
                    f"{_difference(join.layout, first.layout)}"
                )
            if join.digest != first.digest:
                self._log(f"{name} starts from other values than worker-0, whose values win")
        joins = [self.joined[name] for name in self.servers]
        store = "" if self._store is None else f"{self._address}:{self._store[1]}"
        self._slices = self.experiment.slices(first.layers)  # raises if too many servers share
        return Plan(
            [join.endpoint for join in joins],
            [self._keys[name] for name in self.servers] if self._keys else [],
            first.layers,
            [0, *(part.stop for part in self._slices)],
            first.dtype,
            first.digest,
            store,
            any(join.digest != first.digest for join in others),
            backend_for([join.gpu for join in (first, *others)]),
        )

    def _tell(self, names: list[str], message: WireMessage) -> None:
        for name in names:
            self.listener.send(name, message)

    def _forward_extras(self) -> None:
        assert self.extras is not None
        for name in self.workers[1:]:
            self.listener.send(name, ModelBuffers(head_of(self.extras)), self.extras)

    def _time_is_over(self, _: object) -> None:
        self.end("its time is over")

    async def _read_every(self, period_s: float) -> None:
        while True:
            await self.kernel.sleep(period_s)
            self.snapshots.ask_now()

    # -- what comes in -------------------------------------------------------------------

    def _expected(self, name: str) -> Expect:
        def expected(message: WireMessage) -> tuple[str, int] | None:
            head: BlockHead | None = getattr(message, "block", None)
            if isinstance(message, TraceReport) and head is not None:
                fits = head.elements <= MOST_ROWS * len(SCHEMA)
                return ("int64", head.elements) if fits else None
            if self.workers[0] not in self.joined:
                return None
            if isinstance(message, ModelBuffers) and name == self.workers[0]:
                return "uint8", self.joined[name].buffer_bytes
            if (
                isinstance(message, Snapshot)
                and self._slices
                and name == self._source(message.shard)
            ):
                return self._block_of(message.shard)
            return None

        return expected

    def _source(self, shard: int) -> str:
        """Who sends its parameters."""
        return server_name(shard) if self.servers else worker_name(shard)

    def _block_of(self, shard: int) -> tuple[str, int]:
        first = self.joined[self.workers[0]]
        return first.dtype, block_elements(first.dtype, self._slices[shard if self.servers else 0])

    def _ask_server(self, server: int, read: TakeSnapshot) -> None:
        self.listener.send(server_name(server), read)

    def _ask_worker(self, worker: int, read: TakeSnapshot) -> None:
        self.listener.send(worker_name(worker), read)

    def _take(self, name: str, message: WireMessage, block: Block | None) -> None:
        block = None if block is None else whole(block)
        if isinstance(message, TraceReport):
            self._add_rows(name, message, block)
        elif isinstance(message, Notice):
            self._log(f"{name}: {message.text}" if name not in message.text else message.text)
        elif isinstance(message, ProcessFailed):
            self._take_failure(name, message)
        elif self._takes_part(name, message, block):
            pass
        else:
            if isinstance(message, JoinRun):
                self._take_join(name, message)
            elif isinstance(message, TrainingDone):
                self._left.add(name)
            elif isinstance(message, ProcessDone):
                self.finished.add(name)
                self._lost_for.pop(name, None)
            elif isinstance(message, Snapshot):
                assert block is not None
                if isinstance(self.snapshots, PeerSnapshots) and not message.request:
                    self.snapshots.leave(message, block)
                else:
                    self.snapshots.add(message, block)
            elif isinstance(message, Fetch) and self.membership is not None:
                self._awaiting_final.append(name)
                self._give_final()
            elif isinstance(message, ModelBuffers):
                self.extras = block
            self._heard[name, type(message)] += 1
            self._said.put((name, message))

    def _takes_part(self, name: str, message: WireMessage, block: Block | None) -> bool:
        """Is it for those who decide for all?"""
        if self.membership is not None and self.membership.take(name, message):
            return True
        return self._scheduler is not None and self._scheduler.take(name, message, block)

    def _take_join(self, name: str, message: JoinRun) -> None:
        if name in self.joined:
            self.listener.refuse(name, "it joined twice")
        elif message.outpace != __version__:
            raise ConfigError(f"{name} runs Outpace {message.outpace}, the launcher {__version__}")
        else:
            self.joined[name] = message

    def _add_rows(self, name: str, message: TraceReport, block: Block | None) -> None:
        try:
            if block is not None:
                assert isinstance(block, torch.Tensor)
                table: np.ndarray[Any, Any] = block.numpy().reshape(-1, len(SCHEMA))
                self._trace.add(table)
        except ValueError as error:
            self.listener.refuse(name, f"its trace cannot be read: {error}")
            return
        self.totals_of[name] = message.totals

    def _take_failure(self, name: str, message: ProcessFailed) -> None:
        self._failed.add(name)
        if message.lost in self.servers:
            self._blame(message.lost, _MISSED, f"is lost: {name} lost the connection to it")
        elif self._early:
            self._said.put((name, message))
        else:
            raise _error(name, message)

    def _lost(self, name: str) -> None:
        lease = f"{self.session.lease_s:g} s"
        self._blame(name, _SILENT, f"is lost: its connection closed, or was silent for {lease}")

    def process_ended(self, name: str, how: str) -> None:
        """The launcher says so."""
        self._blame(name, _ENDED, f"{how} before it was done")

    def _blame(self, name: str, how: int, text: str) -> None:
        """It is lost. In a moment the run ends for it, unless it says itself what went wrong
        in a message still on its way, or somebody is known more directly to be lost."""
        known = self._lost_for.get(name)
        if name in self.finished | self._failed | self._done_without or (known and known[0] <= how):
            return
        self._lost_for[name] = how, RunError(f"{name} {text}")
        if self._early:
            self._said.put((name, ProcessFailed("RunError", text)))
        else:
            wait_s = _LAST_WORDS_S * (0.5 if how == _ENDED else 1.0)
            self.kernel.call_at(self.kernel.now + nanoseconds(wait_s), self._give_up)

    def _give_up(self, until: Time | None) -> None:
        # Whoever said meanwhile that it had finished, or why not, was only faster than its words.
        spoken = self.finished | self._failed | self._done_without
        lost = {name: known for name, known in self._lost_for.items() if name not in spoken}
        now = self.kernel.now
        until = now + nanoseconds(_LONGEST_LAST_WORDS_S) if until is None else until
        if lost and now < until and self._may_still_speak(lost):
            self.kernel.call_at(now + nanoseconds(_LOOK_AGAIN_S), self._give_up, until)
        elif lost and not self._go_on_without(lost):
            _, error = min(lost.values(), key=lambda known: known[0])
            raise error

    def _go_on_without(self, lost: dict[str, tuple[int, RunError]]) -> bool:
        """Where there are no servers the others can, if any remain."""
        membership, snapshots = self.membership, self.snapshots
        gone = self._done_without.union(lost)
        if not self.started or membership is None or gone.issuperset(self.workers):
            return False
        assert isinstance(snapshots, PeerSnapshots)
        for name, (_, error) in lost.items():
            self._log(f"{error}; the others go on without it")
            self.when_lost(name)
            membership.lose(name)
            snapshots.lose(self.workers.index(name))
            self._said.put((name, TrainingDone()))
        return True

    def _may_still_speak(self, lost: dict[str, tuple[int, RunError]]) -> bool:
        """Words that have come may be unread: this process may have had something to compute.

        What a connection brought is there when its end is known.
        """
        ended = {name for name, (how, _) in lost.items() if how == _ENDED}
        return self.listener.unread or not ended.isdisjoint(self.listener.peers)


def _error(name: str, failed: ProcessFailed) -> OutpaceError:
    kinds = {"ConfigError": ConfigError, "DivergenceError": DivergenceError}
    number = name.removeprefix("worker-")
    named = re.search(rf"\b(worker.{number}|{name})\b", failed.text) is not None
    kind = kinds.get(failed.kind, RunError)
    known = failed.kind in vars(errors)
    text = failed.text if known else f"{failed.kind}: {failed.text}"
    return kind(text if named else f"{name}: {text}")


def _difference(this: str, that: str) -> str:
    """Where two layouts begin to differ."""
    place = next((n for n, (a, b) in enumerate(zip(this, that, strict=False)) if a != b), 0)
    low = max(0, place - 60)
    return f"...{this[low : place + 60]!r} where that has {that[low : place + 60]!r}"
