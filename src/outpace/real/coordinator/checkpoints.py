"""Takes checkpoints, from the orders to save parts to the complete one, with or without servers.

No process waits for a checkpoint. Each process with a part takes its state between two steps of its
work, and writes the state in parallel with its work. `sync.checkpoint.planner` decides when a part
is requested, and what follows when a part is missed or its process is lost. The saved data are
different with servers (`shards_and_scripts`) and without (`peer_models`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias

from outpace.blocks.block import whole_tensor
from outpace.errors import ProtocolError
from outpace.real.background import RunInBackground
from outpace.real.coordinator.open_checkpoint import (
    Mean,
    OpenCheckpoint,
    require_possible,
    workers_in,
)
from outpace.real.coordinator.peer_models import PeerModels
from outpace.real.coordinator.run_state import RunState
from outpace.real.coordinator.script_states import ScriptStates
from outpace.real.coordinator.shards_and_scripts import ShardsAndScripts
from outpace.real.net.block_frames import head_in
from outpace.real.net.checkpoint_messages import (
    MOST_REPORTED,
    CheckpointPart,
    NotSaved,
    ScriptState,
    TakeCheckpoint,
    VersionReached,
)
from outpace.real.net.messages import TakeSnapshot
from outpace.real.node.member import REPORT_EVERY_S
from outpace.record.totals import Totals
from outpace.support.units import nanoseconds
from outpace.sync.checkpoint.planner import (
    GiveUp,
    Order,
    PartState,
    Take,
    Whole,
)
from outpace.sync.messages import WireMessage

LONGEST_S: Final = 1800.0  # for two iterations of the slowest worker, and the slowest disk
# By then, workers have reported everything that they did before a part was saved.
REPORTED: Final = nanoseconds(1.2 * REPORT_EVERY_S)

Answer = CheckpointPart | NotSaved | VersionReached
Content: TypeAlias = ShardsAndScripts | PeerModels


class Checkpoints:
    """The checkpoints of a run.

    Args:
        content: the data that its processes save.
        beside: runs long jobs in a separate thread.
        kept: receives the states of scripts, for processes that replace others.

    Attributes:
        unrepeatable: workers whose scripts begin from their start when the run is resumed.
    """

    def __init__(
        self,
        run: RunState,
        content: Content,
        beside: RunInBackground,
        kept: ScriptStates,
    ) -> None:
        saving = run.setting.saving
        assert run.experiment.checkpoint is not None
        assert saving is not None
        self._run, self._content, self._beside = run, content, beside
        self._settings, self._kernel = run.experiment.checkpoint, run.kernel
        self._keeper, self._complete = saving.keeper, saving.complete
        self._planner, self._kept = content.planner, kept
        self._open: OpenCheckpoint | None = None
        self._version = 0 if run.resume is None else run.resume.updates  # the last known clock
        self._has_begun = self._is_over = False
        self.unrepeatable: set[int] = set()

    # -- when --------------------------------------------------------------------

    def save_start(self) -> None:
        """Save the processes at their beginning, directly before the order to start.

        So a run that has begun always has a checkpoint.
        """
        self._begin(at_start=True)

    def start(self) -> None:
        """Note that the time of the run has begun."""
        self._has_begun = True
        if self._settings.every_s is not None:
            self._kernel.spawn(self._every(self._settings.every_s), "checkpoints", daemon=True)
        else:
            self._await_version()

    def relax(self) -> None:
        """Save each part at once from now on, because the policy may have changed."""
        self._content.relax()

    def save_now(self) -> None:
        """Take a checkpoint now, or after the present one is complete."""
        if self._has_begun and not self._is_over:
            self._planner.is_due = True
            self._begin_if_due()

    def end(self) -> None:
        """Complete the open checkpoint, or give it up, because the training is over."""
        self._is_over = True
        if self._open is None:
            return
        if self._planner.is_open or self._content.mean(self._open) is not None:
            self._give_up(self._planner.abandon())
        else:
            self._finish(self._open)

    def close(self) -> None:
        """Remove an incomplete checkpoint; the processes have ended, or are about to."""
        self._is_over = True
        self._drop()

    async def _every(self, period_s: float) -> None:
        while True:
            await self._kernel.sleep(period_s)
            self.save_now()

    def _await_version(self) -> None:
        """Let a process report when it has the next version for which a checkpoint is due."""
        every = self._settings.every_updates
        if every is not None and self._content.may_save:
            version = (self._version // every + 1) * every
            self._run.listener.send(self._content.teller, TakeSnapshot(0, version))

    def _begin_if_due(self, clock: int = 0) -> None:
        """Begin a checkpoint if one is due. clock: clock of a process, if known."""
        if self._may_begin:
            self._content.when_possible(partial(self._begin_if_possible, clock))

    def _begin_if_possible(self, clock: int) -> None:
        if self._may_begin:
            self._begin(clock)

    @property
    def _may_begin(self) -> bool:
        is_free = self._open is None and not self._is_over
        return self._planner.is_due and is_free and self._content.may_save

    # -- processes that come and go ------------------------------------------------------

    @property
    def waiting(self) -> Sequence[str]:
        """The workers that have finished but wait because their models must be saved."""
        return self._content.waiting

    def left(self, name: str, *, lost: bool = False, ended: bool = False, pushed: int = 0) -> None:
        """Do not save a worker any more, because it has left the training.

        Args:
            lost: True: its process is lost; False: it has finished training.
            ended: True: its script has ended.
            pushed: iterations up to the last one that it has pushed; 0: none.
        """
        teller = self._content.teller
        self._follow(self._content.left(name, lost=lost, ended=ended, pushed=pushed))
        if self._has_begun and self._content.teller != teller:
            self._await_version()

    def began(self, name: str) -> None:
        """Ask the new process of a worker for the state of its script."""
        self._follow(self._planner.replace(name))

    # -- messages of the processes -------------------------------------------------

    def expected(self, name: str, message: WireMessage) -> tuple[str, int] | None:
        """Return dtype and elements of the block that may come with this message."""
        head = head_in(message)
        if isinstance(message, ScriptState) and head is not None and self._keeps_script(name):
            return ("uint8", head.elements) if head.elements <= MOST_REPORTED else None
        return None

    def _keeps_script(self, name: str) -> bool:
        """True if this worker, in a run with servers, has a script that is saved."""
        is_worker = bool(self._run.servers) and name in self._run.numbers
        return is_worker and name in self._content.parts

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a process; False if it is not about checkpoints."""
        try:
            if isinstance(message, Answer):
                if name not in self._content.parts:
                    raise ProtocolError("it has no part of a checkpoint")
                self._take(name, message)
            elif isinstance(message, ScriptState):
                self._take_script(name, message)
            else:
                return False
        except ProtocolError as error:
            self._run.listener.refuse(name, str(error))
        return True

    def _take_script(self, name: str, message: ScriptState) -> None:
        if not self._keeps_script(name):
            raise ProtocolError("only the workers of scripts send what scripts keep")
        state = whole_tensor(message.block)
        self._kept.sent(self._run.numbers[name], state, message.done)

    def _take(self, name: str, message: Answer) -> None:
        present = self._open
        if isinstance(message, VersionReached):
            if self._run.servers and name in self._run.numbers:
                raise ProtocolError("only servers count the updates")
            self._version = message.version
            self._planner.is_due = True
            self._begin_if_due(message.clock)
        elif present is None or message.number < present.number:
            pass  # the checkpoint was given up
        elif isinstance(message, CheckpointPart):
            self._take_part(present, name, message)
        elif message.clock is not None:
            self._follow(self._planner.missed(message.number, name, message.clock))
        else:
            self._planner.require_asked(message.number, name)
            self._fail(message.why)

    def _take_part(self, present: OpenCheckpoint, name: str, saved: CheckpointPart) -> None:
        self._content.require(present, name, saved)
        require_possible(saved)
        if not {part.file for part in saved.parts} <= set(self._content.files(present, name)):
            raise ProtocolError("it saved files that are not of its part")
        orders = self._planner.saved(saved.number, name, saved.clock)
        present.parts[name] = saved
        if saved.kept_at is not None:
            worker = self._run.numbers[name]
            if not saved.is_complete:
                self.unrepeatable.add(worker)
            else:
                self.unrepeatable.discard(worker)
                self._kept.saved(worker, saved.iteration)
        self._follow(orders)

    # -- from the order to the complete checkpoint -------------------------------------

    def _begin(self, clock: int = 0, *, at_start: bool = False) -> None:
        """Tell the processes to save their parts for a new checkpoint, if there are any.

        clock: clock of a process, if one is known.
        """
        planner = self._planner
        later = self._content.later(together=at_start or planner.is_exact_next)
        orders = planner.begin(0 if at_start else self._content.target(clock), later)
        if not orders:
            return
        try:
            folder = self._keeper.begin(planner.number)
        except OSError as error:
            planner.abandon()
            self._keeper.abandon(planner.number, str(error))
            self._await_version()
            return
        common = self._content.saves_common(at_start=at_start)
        self._open = OpenCheckpoint(planner.number, folder, at_start, later, common)
        due = self._kernel.now + nanoseconds(LONGEST_S)
        self._kernel.call_at(due, self._give_up_late, self._open)
        self._follow(orders)

    def _give_up_late(self, present: OpenCheckpoint) -> None:
        """Give up a checkpoint if parts are missing for too long: a disk may not answer."""
        if self._open is present and self._planner.is_open:
            states = {part: self._planner.state(part) for part in self._content.parts}
            missing = [part for part, state in states.items() if state is PartState.ASKED]
            self._fail(f"{', '.join(missing)} did not save within {LONGEST_S:.0f} s")

    def _follow(self, orders: Sequence[Order]) -> None:
        """Carry out the orders of the planner."""
        present = self._open
        for order in orders:
            match order:
                case Take():
                    assert present is not None
                    self._ask(present, order)
                case Whole():
                    assert present is not None
                    self._has_all_parts(present)
        if any(isinstance(order, GiveUp) for order in orders):
            self._give_up(orders)
            self._begin_if_due()

    def _ask(self, present: OpenCheckpoint, take: Take) -> None:
        folder = str(present.folder.absolute())
        clock = 0 if present.at_start else take.clock
        order = TakeCheckpoint(take.number, clock, folder, take.part == present.common)
        self._run.listener.send(take.part, order)

    def _give_up(self, orders: Sequence[Order], why: str = "") -> None:
        """Tell processes that the open checkpoint is given up. why: the problem, for the user."""
        for order in orders:
            if isinstance(order, GiveUp):
                self._run.listener.send(order.part, NotSaved(order.number))
        self._drop(why)

    def _drop(self, why: str = "") -> None:
        """Remove the files of the open checkpoint."""
        if self._open is not None:
            self._keeper.abandon(self._open.number, why)
            self._open = None

    def _fail(self, why: str) -> None:
        """Give up a checkpoint that cannot be taken. why: the problem, for the user."""
        self._give_up(self._planner.abandon(), why)
        self._await_version()

    def _has_all_parts(self, present: OpenCheckpoint) -> None:
        """Complete a checkpoint; take another one if it lacks the end of a script."""
        if self._content.lacks_end(present):
            self._planner.is_due = True
            self._drop()
            self._begin_if_due()
        elif (write := self._content.mean(present)) is not None:
            self._beside(write, partial(self._has_mean, present))
        else:
            now, last = self._kernel.now, max(part.now for part in present.parts.values())
            due = now if present.at_start else max(now, last + REPORTED)
            self._kernel.call_at(due, self._finish, present)

    def _has_mean(self, present: OpenCheckpoint, mean: Mean) -> None:
        if self._open is not present:
            return  # the checkpoint was given up
        if isinstance(mean, Exception):
            self._fail(str(mean))
            return
        present.mean = mean
        self._has_all_parts(present)

    def _finish(self, present: OpenCheckpoint) -> None:
        """Complete a checkpoint that has all its parts."""
        if self._open is not present:  # the run has ended in the meantime
            return
        self._open = None
        taken = self._content.taken(present, self._totals(present))
        scripts = workers_in(present, self._run.numbers)
        times = {n: part.kept_at for n, part in scripts.items() if part.kept_at is not None}
        self._version = max(self._version, taken.updates)
        try:
            self._complete(taken, times)
        except OSError as error:
            self._keeper.abandon(present.number, str(error))
        if not self._is_over:
            self._await_version()
            self._begin_if_due()

    def _totals(self, present: OpenCheckpoint) -> Totals:
        """Return the sums of the run at a checkpoint."""
        totals, numbers = Totals(), self._run.numbers
        for name, reported in self._run.totals_of.items():
            part = present.parts.get(name)
            # Workers that were asked before the servers continued until the servers were saved.
            is_older = name in numbers and present.later and name not in present.later
            totals.add(reported if part is None or is_older else part.totals)
        return totals
