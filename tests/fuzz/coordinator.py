"""The coordinator's handlers: they may only raise errors that end the run in an orderly way.

The coordinator is the one of real runs, with its kernel in virtual time and a listener without a
network. Its processes send any messages at any time, and are lost at any time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec
import torch
from tests.fuzz.messages import decoded, random_message
from tests.support.blocks_on_the_wire import announced, with_block
from tests.support.checkpoints import shard_state
from tests.support.fluentps import behind_barrier

from outpace.blocks.block import Phantom
from outpace.blocks.packing import DTYPES, PHANTOM
from outpace.config.reading import experiment_from
from outpace.engine.losses import rules_about_losses
from outpace.errors import OutpaceError
from outpace.kernel import WalkerError
from outpace.predict.interface import Wait
from outpace.predict.rules.baselines import Fixed
from outpace.real.background import do_now
from outpace.real.coordinator import coordinator as coordinator_module
from outpace.real.coordinator.coordinator import Coordinator
from outpace.real.coordinator.setting import Saving, Setting
from outpace.real.net.block_frames import head_in
from outpace.real.net.checkpoint_messages import (
    CheckpointPart,
    NotSaved,
    ScriptState,
    VersionReached,
)
from outpace.real.net.messages import (
    Compared,
    Fetch,
    JoinRun,
    ProcessDone,
    Ready,
    Snapshot,
    TrainingDone,
    WorkerReplaced,
)
from outpace.real.net.peer_messages import (
    AskStore,
    GroupBroken,
    TakePart,
)
from outpace.real.net.report_messages import ProcessFailed, RowsReport, ScriptLog
from outpace.real.net.transport import FIRST, Handlers
from outpace.real.process.launcher import answered
from outpace.record.checkpoints import Part
from outpace.record.checkpoints.shards import SUFFIX, shard_file
from outpace.record.event_log import EventLog
from outpace.record.totals import Totals
from outpace.record.trace import Trace
from outpace.support.version import __version__
from outpace.sync.checkpoint.workers import common_state, state_of_worker
from outpace.sync.membership.decide import Membership
from outpace.sync.membership.events import TrainingBegan
from outpace.sync.messages import SCHEDULER, Done, Leave, Pause, Pull, Rejoin, WireMessage

WORKERS, SERVERS, ELEMENTS = 3, 2, 4
SYNCS: Final[dict[str, dict[str, Any]]] = {
    "asp": {"sync": {"kind": "asp"}},
    "global barrier": {"sync": behind_barrier()},
    "cutoff": {"sync": {"kind": "cutoff", "model": "last-5", "decision": "count"}},
    "ssgd": {"sync": {"kind": "ssgd"}, "servers": 1},
    "hpsgd": {"sync": {"kind": "hpsgd", "start_together": True}, "servers": 1},
    "gossip": {"sync": {"kind": "gossip"}, "servers": 1},
    "script": {"sync": {"kind": "bsp"}, "task": {"kind": "script", "path": "train.py"}},
    "script asp": {"sync": {"kind": "asp"}, "task": {"kind": "script", "path": "train.py"}},
    "script hpsgd": {
        "sync": {"kind": "hpsgd"},
        "task": {"kind": "script", "path": "train.py"},
        "servers": 1,
    },
    "files": {"sync": {"kind": "ssgd"}, "task": {"kind": "script", "path": "-"}, "servers": 1},
    "models": {"sync": {"kind": "psgd"}, "task": {"kind": "script", "path": "-"}, "servers": 1},
}
HANDLED: Final = (
    *(JoinRun, Ready, RowsReport, RowsReport, ProcessDone, ProcessFailed, Compared),
    *(ScriptLog, Snapshot, Fetch, TrainingDone, WorkerReplaced, WorkerReplaced),
    *(CheckpointPart, CheckpointPart, NotSaved, NotSaved, VersionReached),
    ScriptState,
    *(Pull, Done, Leave, Pause, Rejoin),
    *(TakePart, TakePart, TakePart, GroupBroken),
    AskStore,
)
_MOST_BYTES: Final = 1 << 16  # of a block; larger ones are not made
_FILE_BYTES: Final = 10


_OF_CHECKPOINTS = CheckpointPart | NotSaved


class VirtualClock:
    """Takes the place of the real clock."""

    def __init__(self, origin: None = None) -> None:
        self.origin = self.now = self.first_ns = self.read_ns = self.after_ns = 0

    def __call__(self, due: int | None) -> int | None:
        self.now = self.now if due is None else due
        return due


class ThreadAtOnce:
    """Takes the place of the thread that writes files."""

    def __init__(self, _: Any) -> None:
        self.do = do_now


class SilentListener:
    """Takes the place of a listener with connections."""

    endpoint, unread = "tcp://127.0.0.1:1", False

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers
        self.shut_out: set[str] = set()
        self.when_refused: list[Callable[[str], None]] = []
        self.generations: dict[str, int] = {}

    @property
    def peers(self) -> list[str]:
        return []

    def send(self, name: str, message: WireMessage) -> None:
        assert decoded(msgspec.msgpack.encode(announced(message))), f"no receiver takes {message}"

    def refuse(self, name: str, reason: str) -> None:
        if name not in self.shut_out:
            self.shut_out.add(name)
            for call in self.when_refused:
                call(name)
            self.handlers.on_lost(name)

    def replace(self, name: str, generation: int) -> None:
        if generation <= self.generations.get(name, FIRST):
            raise ValueError(f"generation {generation}")
        self.generations[name] = generation
        self.shut_out.discard(name)

    def close(self, linger_s: float = 1.0) -> None:
        pass


class SilentTransport:
    """Takes the place of a transport."""

    def __init__(self, *_: Any) -> None:
        self.listeners: list[SilentListener] = []

    def listen(self, _: str, peers: Mapping[str, str], handlers: Handlers) -> SilentListener:
        self.listeners.append(SilentListener(handlers))
        return self.listeners[-1]

    def close(self) -> None:
        pass


class NoProcesses:
    """Takes the place of a launcher."""

    room_s = 0.0
    nodes: Mapping[str, str] = {}

    def __init__(self, *_: Any) -> None:
        pass

    def no_room(self, names: Sequence[str]) -> Future[str]:
        return answered("")

    def is_ending(self, name: str) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class NoFiles:
    """Takes the place of the folder of checkpoints."""

    folder = None

    def __init__(self) -> None:
        self.last, self._open = 0, 0

    def begin(self, number: int) -> Path:
        assert not self._open, "two checkpoints are open"
        self._open = number
        return Path("/nowhere")

    def complete(self, taken: Any, *_: Any) -> None:
        assert taken.number == self._open, "a checkpoint that is not open is complete"
        msgspec.json.encode(taken.totals)
        self.last, self._open = taken.number, 0

    def abandon(self, number: int, why: str = "") -> None:
        if number == self._open:
            self._open = 0


class FuzzedCoordinator:
    """A coordinator whose processes send any messages.

    Args:
        draw: source of random decisions.
        kind: kind of the run; None: any.

    Attributes:
        counts: numbers of messages, by their effect.
    """

    def __init__(self, draw: random.Random, kind: str | None = None) -> None:
        self._draw, self._kind = draw, kind
        self.counts: Counter[str] = Counter()
        self._renew()

    def step(self) -> None:
        """Cause one random event. Raises unexpected exceptions."""
        try:
            self._step()
        except OutpaceError as error:
            if isinstance(error, WalkerError) and not isinstance(error.error, OutpaceError):
                raise error.error from None
            self.counts["the run ended"] += 1
            self.close()
            self._renew()

    def hear(self, name: str, message: WireMessage) -> bool:
        """Give this message of a process to the coordinator; return False if it is refused."""
        self._hear(name, message, aimed=True)
        return name not in self._listener.shut_out

    def close(self) -> None:
        """End the run."""
        self._coordinator.close()

    # -- the run -------------------------------------------------------------------

    def _renew(self) -> None:
        """Bring a new run to the beginning of its training."""
        kind = self._draw.choice(list(SYNCS)) if self._kind is None else self._kind
        self._experiment = experiment = _EXPERIMENTS[kind]
        self._now = 0
        files = NoFiles()
        trace = Trace()
        rule = Fixed(Wait(count=2)) if kind == "cutoff" else None
        with (
            mock.patch.multiple(
                coordinator_module, ZeroMQTransport=SilentTransport, RealClock=VirtualClock
            ),
            mock.patch.object(coordinator_module, "BackgroundThread", ThreadAtOnce),
        ):
            self._coordinator = Coordinator(
                Setting(
                    experiment=experiment,
                    members=Membership(rules_about_losses(experiment, 120.0), [SCHEDULER]),
                    launcher=NoProcesses,
                    lease_s=10.0,
                    on_output=lambda *_: None,
                    events=EventLog(),
                    trace=trace,
                    evaluate=lambda *_: None,
                    log=lambda _: None,
                    rule=rule,
                    saving=Saving(files, files.complete),
                ),
                start_worker=lambda worker, generation: None,
            )
        parts = self._coordinator
        transport: Any = parts._transport
        self._listener, *store = transport.listeners
        self._store = store[0] if store else None
        self._names = [*parts.state.workers, *parts.state.servers]
        for name in self._names:
            parts.reports.take(name, _joining(name))
        parts.reports.make_plan(experiment, dict.fromkeys(parts.state.servers, ""))
        assert parts.checkpoints is not None
        parts.checkpoints.save_start()
        parts.state.members.take(TrainingBegan(), 0)
        parts._architecture.start()
        parts.snapshots.schedule(parts.kernel, 5.0, None, 0)
        parts.checkpoints.start()
        parts.kernel.spawn(self._forever(), "the run")

    async def _forever(self) -> None:
        while True:
            await self._coordinator.kernel.sleep(1e6)

    # -- what happens --------------------------------------------------------------

    def _step(self) -> None:
        draw, parts = self._draw, self._coordinator
        if self._listener.shut_out.issuperset(self._names):
            raise OutpaceError("nobody is left")
        match draw.randrange(16):
            case 0 | 1:
                self._now += draw.choice((1, 10**8, 10**9, 20 * 10**9, 70 * 10**9))
                parts.kernel.run(self._now)
            case 2:
                name = draw.choice(self._names)
                how = draw.choice(("was killed by SIGKILL", "ended with exit code 1"))
                what: list[Callable[[], Any]] = [
                    lambda: parts._losses.connection_lost(name),
                    lambda: parts._losses.process_ended(name, how),
                    lambda: parts.checkpoints and parts.checkpoints.save_now(),
                    lambda: self._coordinator.end("its time is over"),
                ]
                draw.choice(what)()
            case 3 | 4:
                self._save_all()
            case _:
                message = decoded(random_message(draw, HANDLED))
                self._hear(draw.choice(self._names), message)

    def _save_all(self) -> None:
        """Let all processes that are asked for a part of the checkpoint answer correctly."""
        checkpoints: Any = self._coordinator.checkpoints
        if checkpoints._open is None:
            checkpoints.save_now()
        for name in checkpoints._content.parts:
            if checkpoints._open is None:
                return
            self._hear(name, self._part_of(name, checkpoints._open.number), aimed=True)

    def _part_of(self, name: str, number: int) -> WireMessage:
        """Return the answer of a process that saves its part of a checkpoint."""
        part, place = CheckpointPart(number, 5, Totals()), int(name[-1])
        checkpoints: Any = self._coordinator.checkpoints
        content, clock = checkpoints._content, checkpoints._planner._target or 0
        part.iteration = part.clock = part.updates = clock
        if name.startswith("server"):
            marks = (clock,) * WORKERS
            state = shard_state(shard=place, clock=clock, watermarks=marks, parameters=Phantom(8))
            part.shard, _ = shard_file(state)
        elif self._experiment.peers is not None:
            state = state_of_worker(place, clock, {}, parameters=Phantom(8))
            part.own, _ = shard_file(state, name=content._own_file(name).removesuffix(SUFFIX))
            if name == checkpoints._open.common:
                state = common_state({place: clock}, clock, 0, Phantom(8), {})
                part.shard, _ = shard_file(state, name="common")
        records = {record.file for record in (part.shard, part.own) if record is not None}
        if not name.startswith("server"):
            records.add(f"{name}{SUFFIX}")  # state of a script, or the same
        part.parts = [Part(file, _FILE_BYTES, 0) for file in sorted(records)]
        return part

    def _hear(self, name: str, message: WireMessage | None, *, aimed: bool = False) -> None:
        draw = self._draw
        if message is None:
            self.counts["not a message"] += 1
            return
        if isinstance(message, JoinRun) and draw.random() < 0.9:
            message.outpace = __version__
        if isinstance(message, WorkerReplaced | _OF_CHECKPOINTS) and not aimed:
            self._aim(message)
        listener = self._listener
        if isinstance(message, AskStore) and self._store is not None and "worker" in name:
            listener = self._store
        if name in listener.shut_out:
            return
        head = head_in(message)
        if head is not None:
            if listener.handlers.expect(name, message) != (head.dtype, head.elements):
                self.counts["refused by the connection"] += 1
                return
            if head.dtype == PHANTOM or head.elements > _MOST_BYTES:
                return
            low, high = (0, 2) if head.dtype == "uint8" else (-1, 6)
            values = [draw.randint(low, high) for _ in range(min(head.elements, 64))]
            block = torch.zeros(head.elements, dtype=DTYPES[head.dtype])
            block[: len(values)] = torch.tensor(values, dtype=block.dtype)
            message = with_block(message, block)
        before = self._state()
        listener.handlers.on_message(name, message)
        if name in listener.shut_out:
            assert self._state() == before, f"a {type(message).__name__} was refused after changes"
            self.counts["refused by the coordinator"] += 1
        else:
            self.counts["taken by the coordinator"] += 1

    def _aim(self, message: Any) -> None:
        """Sometimes replace numbers in a message so that they match running operations."""
        draw, parts = self._draw, self._coordinator
        if draw.random() < 0.3:
            return
        if isinstance(message, WorkerReplaced):
            message.worker = draw.randrange(WORKERS)
            message.generation = parts.state.table.workers[message.worker].generation
        elif parts.checkpoints is not None and parts.checkpoints._open is not None:
            message.number = parts.checkpoints._open.number

    def _state(self) -> Any:
        """Return the state that a refused message must not change."""
        parts = self._coordinator
        checkpoints = parts.checkpoints
        assert checkpoints is not None
        present = checkpoints._open
        return (
            repr(sorted(parts.state.totals_of.items())),
            repr(parts.state.table),
            repr(vars(checkpoints._planner)),
            None if present is None else (present.number, sorted(present.parts)),
        )


def _joining(name: str) -> JoinRun:
    join = JoinRun(__version__, 1, endpoint="tcp://127.0.0.1:2")
    if name.startswith("worker"):
        join.layers, join.dtype, join.digest = [ELEMENTS], "float32", "d"
    return join


def _experiment(kind: str) -> Any:
    return experiment_from(
        {
            "task": {"kind": "quadratic", "eigenvalues": [1.0] * ELEMENTS},
            "workers": WORKERS,
            "servers": SERVERS,
            "stop": {"iterations": 100},
            "checkpoint": {"every_s": 20.0},
            **SYNCS[kind],
        },
        "the test",
    )


_EXPERIMENTS: Final = {kind: _experiment(kind) for kind in SYNCS}
