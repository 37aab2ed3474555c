"""Has the servers of a run save their shards, and completes the checkpoints.

Nobody waits for a checkpoint. Each server takes the state of its shard between two messages and
writes it beside its work (`real.node.checkpoint_writer`). `sync.checkpoint` says when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from outpace.config.experiment import Experiment
from outpace.engine.resuming import CheckpointKeeper, ResumePoint
from outpace.engine.servers import is_exact, leaves_behind
from outpace.errors import ProtocolError
from outpace.kernel import Kernel
from outpace.real.net.checkpoint_messages import (
    CheckpointFailed,
    CheckpointMissed,
    CheckpointPart,
    GiveUpCheckpoint,
    TakeCheckpoint,
    TellVersion,
    VersionReached,
)
from outpace.real.net.messages import Plan
from outpace.real.net.transport import Listener
from outpace.real.node.checkpoint_writer import SavedShard
from outpace.real.node.member import REPORT_EVERY_S
from outpace.record.checkpoints import Taken
from outpace.record.totals import Totals
from outpace.support.units import nanoseconds
from outpace.sync.checkpoint.planner import CutPlanner, GiveUp, Order
from outpace.sync.messages import WireMessage, server_name

_LONGEST_S: Final = 300.0  # for the slowest disk, after that of the first server
_AHEAD: Final = 2  # clocks, so that no server is past the chosen one
# What workers did before a shard was saved has been reported by then.
_REPORTED: Final = nanoseconds(1.2 * REPORT_EVERY_S)


@dataclass(frozen=True, slots=True)
class Saving:
    """Where the checkpoints of a run go.

    complete: called with a checkpoint whose parts are on the disk, and their folder; it adds
        what the servers do not know. Raises OSError.
    """

    keeper: CheckpointKeeper
    complete: Callable[[Taken, Path], None]


@dataclass(eq=False)
class _Open:
    """A checkpoint that is being taken.

    at_start: before the time of the run began. parts: by server.
    """

    number: int
    folder: Path
    at_start: bool
    parts: dict[int, tuple[CheckpointPart, SavedShard]] = field(default_factory=dict)


class CheckpointsOfServers:
    """The checkpoints of a run with servers. `experiment.checkpoint` says when they are due.

    Args:
        totals_of: the sums that each process has reported.
        resume: where the run goes on; None: it begins.
    """

    def __init__(
        self,
        experiment: Experiment,
        kernel: Kernel,
        listener: Listener,
        saving: Saving,
        totals_of: Mapping[str, Totals],
        resume: ResumePoint | None = None,
    ) -> None:
        settings = experiment.checkpoint
        assert settings is not None
        self._settings, self._kernel, self._listener = settings, kernel, listener
        self._keeper, self._complete = saving.keeper, saving.complete
        self._totals_of = totals_of
        self._passes_over = leaves_behind(experiment)  # workers may pass over iterations
        self._others = [0] * experiment.workers  # iterations before its first that it did not do
        if resume is not None:
            done = resume.totals.iterations
            self._others = [n - done.get(worker, 0) for worker, n in enumerate(resume.first)]
        self._servers = {server_name(n): n for n in range(experiment.servers)}
        self._planner = CutPlanner(len(self._servers), is_exact(experiment), self._keeper.last)
        self._plan: Plan | None = None
        self._open: _Open | None = None
        self._version = 0  # the last one of server 0 that is known
        self._has_begun = self._is_due = self._is_over = False

    # -- when --------------------------------------------------------------------

    def prepare(self, plan: Plan, *, first: bool) -> None:
        """Take up the plan; before the order to start, which must follow at once.

        first: save the servers as they begin, so that there is always a checkpoint.
        """
        self._plan = plan
        if first:
            self._order(self._planner.begin(0))

    def start(self) -> None:
        """The time of the run has begun."""
        self._has_begun = True
        if self._settings.every_s is not None:
            self._kernel.spawn(self._every(self._settings.every_s), "checkpoints", daemon=True)
        else:
            self._await_version()

    def save_now(self) -> None:
        """Take a checkpoint now, or when the present one is complete."""
        if self._has_begun and not self._is_over:
            self._is_due = True
            self._begin_if_due()

    def relax(self) -> None:
        """From now on save each shard at once: its policy may be another than the configured."""
        self._planner.exact, self._passes_over = False, True

    def end(self) -> None:
        """The training is over: complete the open checkpoint, or give it up."""
        self._is_over = True
        if self._open is not None and self._planner.is_open:
            self._give_up(self._open, self._planner.abandon())
        elif self._open is not None:
            self._finish(self._open)

    def close(self) -> None:
        """Remove what is not complete; the servers have ended, or are about to."""
        self._is_over = True
        if self._open is not None:
            self._keeper.abandon(self._open.number)
            self._open = None

    async def _every(self, period_s: float) -> None:
        while True:
            await self._kernel.sleep(period_s)
            self.save_now()

    def _await_version(self) -> None:
        """Have server 0 tell when it has the next version after which a checkpoint is due."""
        every = self._settings.every_updates
        if every is not None:
            self._tell(0, TellVersion((self._version // every + 1) * every))

    # -- messages of servers -------------------------------------------------------

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a process; False if it is not about checkpoints."""
        kinds = CheckpointPart | CheckpointMissed | CheckpointFailed | VersionReached
        if not isinstance(message, kinds):
            return False
        server = self._servers.get(name)
        if server is None:
            self._listener.refuse(name, "only servers save checkpoints")
            return True
        try:
            self._take(server, message)
        except (ProtocolError, msgspec.DecodeError) as error:
            self._listener.refuse(name, str(error))
        return True

    def _take(
        self,
        server: int,
        message: CheckpointPart | CheckpointMissed | CheckpointFailed | VersionReached,
    ) -> None:
        if isinstance(message, VersionReached):
            self._version = message.version
            self._is_due = True
            self._begin_if_due(message.clock)
            return
        present = self._open
        if present is None or message.number < present.number:
            return  # it was given up
        if isinstance(message, CheckpointMissed):
            orders = self._planner.missed(message.number, server, message.clock)
            self._give_up(present, [each for each in orders if isinstance(each, GiveUp)])
            self._order([each for each in orders if isinstance(each, Order)])
        elif isinstance(message, CheckpointFailed):
            self._give_up(present, self._planner.abandon(), message.why)
            self._await_version()
        else:
            self._take_part(present, server, message)

    def _take_part(self, present: _Open, server: int, message: CheckpointPart) -> None:
        saved = msgspec.msgpack.decode(message.saved, type=SavedShard)
        if saved.record.shard != server or saved.part.file != saved.record.file:
            raise ProtocolError(f"it saved shard {saved.record.shard}")
        is_whole = self._planner.saved(message.number, server, saved.record.clock)
        present.parts[server] = message, saved
        now = self._kernel.now
        if len(present.parts) == 1:  # the others save at the same clock, or at once
            self._kernel.call_at(now + nanoseconds(_LONGEST_S), self._require_parts, present)
        if is_whole:
            last = max(part.now for part, _ in present.parts.values())
            self._kernel.call_at(
                now if present.at_start else max(now, last + _REPORTED), self._finish, present
            )

    def _require_parts(self, present: _Open) -> None:
        """Give up a checkpoint that still lacks a part: a disk may not answer."""
        if self._open is not present or not self._planner.is_open:
            return
        missing = [name for name, server in self._servers.items() if server not in present.parts]
        why = f"{', '.join(missing)} did not save within {_LONGEST_S:.0f} s"
        self._give_up(present, self._planner.abandon(), why)
        self._await_version()

    # -- from the order to the complete checkpoint -------------------------------------

    def _begin_if_due(self, clock: int = 0) -> None:
        """clock: of a server, if one is known."""
        if self._is_due and self._open is None and not self._is_over:
            self._is_due = False
            known = (totals.iterations.values() for totals in self._totals_of.values())
            clock = max(clock, *(max(each, default=0) for each in known), 0)
            self._order(self._planner.begin(clock + _AHEAD))

    def _order(self, orders: Sequence[Order]) -> None:
        """Have the servers save their shards for a new checkpoint."""
        number = orders[0].number
        try:
            folder = self._keeper.begin(number)
        except OSError as error:
            self._planner.abandon()
            self._keeper.abandon(number, str(error))
            self._await_version()
            return
        self._open = _Open(number, folder, at_start=not self._has_begun)
        for order in orders:
            self._tell(order.shard, TakeCheckpoint(number, order.clock, str(folder)))

    def _give_up(self, present: _Open, orders: Sequence[GiveUp], why: str = "") -> None:
        for order in orders:
            self._tell(order.shard, GiveUpCheckpoint(order.number))
        self._keeper.abandon(present.number, why)
        self._open = None

    def _finish(self, present: _Open) -> None:
        """Complete a checkpoint that has all its parts."""
        if self._open is not present:  # the run has ended meanwhile
            return
        self._open = None
        taken = self._taken(present)
        self._version = max(self._version, taken.updates)
        try:
            self._complete(taken, present.folder)
        except OSError as error:
            self._keeper.abandon(present.number, str(error))
        if not self._is_over:
            self._await_version()
            self._begin_if_due()

    def _taken(self, present: _Open) -> Taken:
        assert self._plan is not None
        parts = [present.parts[server] for server in range(len(self._servers))]
        records = tuple(saved.record for _, saved in parts)
        totals = Totals()
        for name, reported in self._totals_of.items():
            server = self._servers.get(name)
            totals.add(reported if server is None else parts[server][0].totals)
        for worker, others in enumerate(self._others):
            # What workers have reported may be a little older or newer than the checkpoint.
            most = 1 + max(record.watermarks[worker] for record in records) - others
            reported_count = totals.iterations.get(worker, 0)
            totals.iterations[worker] = min(reported_count, most) if self._passes_over else most
        return Taken(
            number=present.number,
            now=0 if present.at_start else max(part.now for part, _ in parts),
            updates=records[0].version,
            parts=tuple(saved.part for _, saved in parts),
            shards=records,
            totals=totals,
            bounds=tuple(self._plan.bounds),
            layers=tuple(self._plan.layers),
        )

    def _tell(self, server: int, message: WireMessage) -> None:
        self._listener.send(server_name(server), message)
