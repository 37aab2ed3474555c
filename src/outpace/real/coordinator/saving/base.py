"""From the order to save the parts of a checkpoint to the complete one, with and without servers.

No process waits for a checkpoint. Each one that has a part takes its state between two steps of its
work and writes it beside it. `sync.checkpoint` says when.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from outpace.blocks.block import Block
from outpace.errors import ProtocolError
from outpace.real.coordinator.saving.open import Open, SavedRun, require_possible
from outpace.real.copying import FetchedFiles, Offer
from outpace.real.net.checkpoint_messages import (
    MOST_COPIES,
    MOST_KEPT,
    CheckpointPart,
    FilePiece,
    NotSaved,
    VersionReached,
)
from outpace.real.net.messages import Plan, TakeSnapshot
from outpace.real.node.member import REPORT_EVERY_S
from outpace.record.checkpoints import Taken
from outpace.record.totals import Totals
from outpace.support.units import nanoseconds
from outpace.sync.checkpoint.planner import CutPlanner, GiveUp, Order
from outpace.sync.messages import WireMessage

LONGEST_S: Final = 300.0  # for the slowest disk, after that of the first process
SCRIPTS: Final = 1 << 31  # the number of worker 0's script among servers
# What workers did before a part was saved has been reported by then.
REPORTED: Final = nanoseconds(1.2 * REPORT_EVERY_S)

Answer = CheckpointPart | NotSaved | VersionReached


class Checkpoints(ABC):
    """The checkpoints of a run.

    Args:
        names: the processes that save the parts; their numbers.
        planner: chooses when they do.
        who: these processes, in words.

    Attributes:
        unrepeatable: workers whose scripts begin anew when the run goes on; see `SavedPart`.
    """

    def __init__(
        self,
        run: SavedRun,
        names: Mapping[str, int],
        planner: CutPlanner,
        who: str,
    ) -> None:
        assert run.experiment.checkpoint is not None
        self._settings, self._totals_of = run.experiment.checkpoint, run.totals_of
        self._kernel, self._listener = run.kernel, run.listener
        self._keeper, self._complete = run.saving.keeper, run.saving.complete
        self._names, self._planner, self._who = names, planner, who
        self.unrepeatable: set[int] = set()
        self._copies = run.copies
        # The files of processes that do not see the folder.
        self._fetched = FetchedFiles(run.listener.send, run.beside)
        self._plan: Plan | None = None
        self._open: Open | None = None
        self._version = 0  # the last one that is known
        self._has_begun = self._is_due = self._stops = self._is_over = False
        # Called with the number of each checkpoint that is complete.
        self.when_complete: Callable[[int], None] = lambda number: None

    # -- workers -------------------------------------------------------------------

    @property
    def waiting(self) -> list[str]:
        """The workers that have finished and wait, because their models are saved."""
        return []

    def left(  # noqa: B027  # matters for scripts only
        self, name: str, *, ended: bool, pushed: int = 0
    ) -> None:
        """A worker takes no more part in the training.

        Args:
            ended: its script has come to its end.
            pushed: iterations up to the last one that it has pushed; 0: none, or it was lost.
        """

    def began(self, worker: int) -> None:  # noqa: B027
        """Another process has taken the place of a worker."""

    # -- when --------------------------------------------------------------------

    def prepare(self, plan: Plan, *, first: bool) -> None:
        """Take up the plan; before the order to start, which must follow at once.

        first: save the processes as they begin, so that there is always a checkpoint.
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
        """From now on save each part at once: the policy may be another than the configured."""
        self._planner.exact = False

    def stop(self) -> None:
        """The workers are told to stop, each where it is."""
        self._stops = True

    def end(self) -> None:
        """The training is over: complete the open checkpoint, or give it up."""
        self._is_over = True
        if self._open is not None and self._planner.is_open:
            self._give_up(self._open, self._planner.abandon())
        elif self._open is not None:
            self._finish(self._open)

    def close(self) -> None:
        """Remove what is not complete; the processes have ended, or are about to."""
        self._is_over = True
        if self._open is not None:
            self._fetched.give_up(self._open.number)
            self._keeper.abandon(self._open.number)
            self._open = None

    async def _every(self, period_s: float) -> None:
        while True:
            await self._kernel.sleep(period_s)
            self.save_now()

    def _await_version(self) -> None:
        """Have a process tell when it has the next version after which a checkpoint is due."""
        every = self._settings.every_updates
        if every is not None:
            self._tell(self._teller, TakeSnapshot(0, (self._version // every + 1) * every))

    # -- what is different with and without servers ----------------------------------

    @property
    def _teller(self) -> int:
        """The process that counts the versions."""
        return 0

    @abstractmethod
    def _target(self, clock: int) -> int:
        """Return the clock at which to take an exact checkpoint.

        clock: of a process, if one is known; else 0.
        """

    @abstractmethod
    def _files(self, present: Open, process: int) -> Collection[str]:
        """Return the names that the files of a process may have."""

    @abstractmethod
    def _require(self, present: Open, process: int, part: CheckpointPart) -> None:
        """Raise ProtocolError unless a process has saved what it was asked for."""

    @abstractmethod
    def _ask(self, order: Order, folder: Path) -> None:
        """Have a process save its part."""

    def _sees_folder(self, process: int) -> bool:
        """True if a process sees the folder of the run."""
        return not self._copies

    def _named(self, folder: Path, process: int) -> str:
        """Return what a process is told of the folder of a checkpoint."""
        return str(folder.absolute()) if self._sees_folder(process) else ""

    @abstractmethod
    def _taken(self, present: Open) -> Taken:
        """Return what is known of a checkpoint that has all its parts."""

    # -- messages of the processes -------------------------------------------------

    def expected(self, name: str, message: WireMessage) -> tuple[str, int] | None:
        """Return which block this process may send with this message."""
        if not isinstance(message, FilePiece):
            return None
        return self._fetched.expected(name, message)

    def take(self, name: str, message: WireMessage, block: Block | None = None) -> bool:
        """Handle a message of a process; False if it is not about checkpoints."""
        try:
            if isinstance(message, Answer):
                self._take(self._number(name, message), message)
            elif isinstance(message, FilePiece) and message.block is not None:
                self._fetched.take(name, message, block)
            else:
                return False
        except ProtocolError as error:
            self._listener.refuse(name, str(error))
        return True

    def _number(self, name: str, message: Answer) -> int:
        """Return the number of the part that an answer is about. Raises ProtocolError."""
        if name not in self._names:
            raise ProtocolError(f"only {self._who} save checkpoints")
        return self._names[name]

    def _take(self, process: int, message: Answer) -> None:
        if isinstance(message, VersionReached):
            self._version = message.version
            self._is_due = True
            self._begin_if_due(message.clock)
            return
        present = self._open
        if present is None or message.number < present.number:
            return  # it was given up
        if isinstance(message, NotSaved) and message.clock is not None:
            orders = self._planner.missed(message.number, process, message.clock)
            if not orders:
                return  # it is complete already, or all processes have left
            self._give_up(present, [each for each in orders if isinstance(each, GiveUp)])
            self._order([each for each in orders if isinstance(each, Order)])
        elif isinstance(message, NotSaved):
            self._fail(present, message.why)
        elif message.parts and not self._sees_folder(process):
            self._fetch(present, process, message)
        else:
            self._take_part(present, process, message)

    def _fetch(self, present: Open, process: int, message: CheckpointPart) -> None:
        """Have the files written that a process has announced; then take its part."""
        if not self._planner.awaits(message.number, process):
            raise ProtocolError("it has saved its part before, or was not asked to")
        names = [part.file for part in message.parts]
        if len(set(names)) < len(names) or not set(names) <= set(self._files(present, process)):
            raise ProtocolError(f"it announces the files {sorted(names)} for a checkpoint")
        most = MOST_KEPT + MOST_COPIES * 8 * sum(self._plan.layers if self._plan else ())
        if sum(part.bytes for part in message.parts) > most:
            raise ProtocolError(f"it announces files of more than {most:,} bytes")
        done = partial(self._has_fetched, present, process, message)
        offer = Offer(message.number, message.parts)
        self._fetched.add(self._name(process), offer, present.folder, done)
        self._watch(present)

    def _has_fetched(
        self, present: Open, process: int, message: CheckpointPart, error: OSError | None
    ) -> None:
        if error is not None:
            self._fail(present, str(error))
            return
        try:
            self._take_part(present, process, message)
        except ProtocolError as error:
            self._listener.refuse(self._name(process), str(error))

    def _take_part(self, present: Open, process: int, part: CheckpointPart) -> None:
        self._require(present, process, part)
        require_possible(part)
        if not {each.file for each in part.parts} <= set(self._files(present, process)):
            raise ProtocolError("it saved files that are not of its part")
        is_whole = self._planner.saved(part.number, process, part.clock)
        present.parts[process] = part
        if part.kept_at is not None and part.is_complete:
            self.unrepeatable.discard(process % SCRIPTS)
        elif part.kept_at is not None:
            self.unrepeatable.add(process % SCRIPTS)
        self._watch(present)
        if is_whole:
            self._has_all_parts(present)

    def _has_all_parts(self, present: Open) -> None:
        now, last = self._kernel.now, max(part.now for part in present.parts.values())
        self._kernel.call_at(
            now if present.at_start else max(now, last + REPORTED), self._finish, present
        )

    def _watch(self, present: Open) -> None:
        """A process has saved its part: the others do at the same clock, or at once."""
        if not present.is_watched:
            present.is_watched = True
            self._look_later(present)

    def _look_later(self, present: Open) -> None:
        limit = self._kernel.now + nanoseconds(LONGEST_S)
        self._kernel.call_at(limit, self._require_parts, present)

    def _require_parts(self, present: Open) -> None:
        """Give up a checkpoint that still lacks a part: a disk may not answer."""
        if self._open is not present or not self._planner.is_open:
            return
        if self._fetched.has_moved() or not (missing := self._missing(present)):
            self._look_later(present)
            return
        self._fail(present, f"{', '.join(missing)} did not save within {LONGEST_S:.0f} s")

    @abstractmethod
    def _missing(self, present: Open) -> list[str]:
        """Return the processes that ought to have saved their parts."""

    # -- from the order to the complete checkpoint -------------------------------------

    def _begin_if_due(self, clock: int = 0) -> None:
        """clock: of a process, if one is known."""
        if self._is_due and self._open is None and not self._is_over:
            self._is_due = False
            self._order(self._planner.begin(self._target(clock)))

    def _order(self, orders: Sequence[Order]) -> None:
        """Have the processes save their parts for a new checkpoint, if there are any."""
        if not orders:
            return
        number = orders[0].number
        try:
            folder = self._keeper.begin(number)
        except OSError as error:
            self._planner.abandon()
            self._keeper.abandon(number, str(error))
            self._await_version()
            return
        self._open = Open(number, folder, at_start=not self._has_begun)
        for order in orders:
            self._ask(order, folder)

    def _give_up(self, present: Open, orders: Sequence[GiveUp], why: str = "") -> None:
        for order in orders:
            self._tell(order.shard, NotSaved(order.number))
        self._fetched.give_up(present.number)
        self._keeper.abandon(present.number, why)
        self._open = None

    def _fail(self, present: Open, why: str) -> None:
        """Give up a checkpoint that cannot be taken. why: the problem, for the user."""
        self._give_up(present, self._planner.abandon(), why)
        self._await_version()

    def _begin_anew(self, present: Open, orders: Sequence[GiveUp]) -> None:
        """Give up a checkpoint that lacks what it cannot get any more, and take another one."""
        self._is_due = True
        self._give_up(present, orders)
        self._begin_if_due()

    def _finish(self, present: Open) -> None:
        """Complete a checkpoint that has all its parts."""
        if self._open is not present:  # the run has ended meanwhile
            return
        self._open = None
        taken, saved = self._taken(present), present.parts.items()
        times = {n % SCRIPTS: part.kept_at for n, part in saved if part.kept_at is not None}
        self._version = max(self._version, taken.updates)
        try:
            self._complete(taken, present.folder, times)
        except OSError as error:
            self._keeper.abandon(present.number, str(error))
        else:
            self.when_complete(present.number)
        if not self._is_over:
            self._await_version()
            self._begin_if_due()

    def _totals(self, present: Open) -> Totals:
        """Return the sums of the run at a checkpoint."""
        totals = Totals()
        for name, reported in self._totals_of.items():
            totals.add(self._sums(present, name, reported))
        return totals

    def _sums(self, present: Open, name: str, reported: Totals) -> Totals:
        """Return the sums of a process at a checkpoint. reported: what it has reported last."""
        number = self._names.get(name)
        part = None if number is None else present.parts.get(number)
        return reported if part is None else part.totals

    def _tell(self, process: int, message: WireMessage) -> None:
        self._listener.send(self._name(process), message)

    def _name(self, process: int) -> str:
        return next(name for name, number in self._names.items() if number == process)
