"""Saves the state of a script when the coordinator asks for it, and restores it.

The state is copied when the script begins the first forward pass of an iteration, as in virtual
time (`engine.scripts.saved_script`). A small state is written at once; another thread writes a
large state, and the next `optimizer.step()` reports it.

Between checkpoints the state is sent a few times a second, for a process that may replace this one
(`Pace`). That process begins with the state, and computes again the later iterations that the model
already contains; their gradients are dropped. Then scheduler, random numbers and place in the data
are the same as before, and the next batch belongs to the next iteration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import torch

from outpace.blocks.block import whole_tensor
from outpace.engine.resuming import kept_in
from outpace.engine.scripts.saved_script import SavedScript, random_states
from outpace.errors import RunError
from outpace.real.background import RunInBackground, do_now
from outpace.real.net.checkpoint_messages import (
    MOST_REPORTED,
    CheckpointPart,
    NotSaved,
    ScriptState,
    TakeCheckpoint,
)
from outpace.real.node.member import REPORT_EVERY_S
from outpace.real.node.saver import PartFiles, Saver
from outpace.real.node.worker import ServedWorker
from outpace.real.script.saving import NextForward, packed_state, size_of
from outpace.record.checkpoints.tensors import from_bytes, to_bytes
from outpace.record.checkpoints.trees import Unfit, tree_of
from outpace.support.place import HERE
from outpace.support.units import Time
from outpace.sync.checkpoint.cuts import WorkerCuts

_SHARE: Final = 0.01  # share of the script's time for the copies


class Pace:
    """Decides when a state is sent: as often as reports, if copies take at most 1 % of the time.

    A new process counts the iterations from a state to the one with which it continues. So a state
    is also sent after a worker has skipped iterations.

    Args:
        clock: a clock in seconds.

    Attributes:
        reports: True if states are sent at all; False if they are too large, or cannot be sent.
    """

    def __init__(self, *, reports: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.reports, self._clock = reports, clock
        self._next = 0.0

    def is_due(self, iteration: int, before: int | None) -> bool:
        """Return whether the state at the beginning of an iteration is sent.

        Args:
            before: the iteration that the script began last; None: it begins its first one.
        """
        is_next = before is not None and iteration == before + 1
        return self.reports and (not is_next or self._clock() >= self._next)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure a copy."""
        began = self._clock()
        yield
        now = self._clock()
        self._next = now + max(REPORT_EVERY_S, (now - began) / _SHARE)


_SMALL: Final = 1 << 20  # bytes; for a smaller file another thread does not pay


class ScriptSaver(Saver):
    """The state of a worker's script, and the requests to save it.

    Args:
        is_paused: returns True during forward passes of this process that are not part of the
            training.
        reports: True if the state is also sent between checkpoints.

    Attributes:
        repeats_left: number of iterations that the script computes again, from the present one on.
    """

    _process: ServedWorker
    _cuts: WorkerCuts

    def __init__(
        self,
        process: ServedWorker,
        kept: SavedScript,
        is_paused: Callable[[], bool],
        *,
        reports: bool,
    ) -> None:
        super().__init__(process, WorkerCuts(self._take, self._miss, or_later=True))
        self._kept = kept
        self._forward, self._next_forward = NextForward(is_paused), NextForward(is_paused)
        self.repeats_left = 0
        self._logs = False  # True if the values that the script logs in them are not known yet
        self._since: Time = 0  # they are being computed
        self._is_last = False  # the last repeated iteration is being computed
        self._due: TakeCheckpoint | None = None  # requests for which the state is copied next
        self._pace = Pace(reports=reports)
        self._began: int | None = None  # the iteration that the script has begun last

    # -- iterations that are computed again ----------------------------------------------

    def restore(self) -> None:
        """Restore the script's state at a checkpoint, if it continues from one.

        Raises:
            ConfigError: if the script keeps other objects now.
            RunError: if the state cannot be read.
        """
        found, self._process.kept = self._process.kept, None
        if found is None:
            return
        try:
            tree = tree_of(from_bytes(whole_tensor(found.block)))
        except OSError as error:
            raise RunError(f"{self._process.name}: what its script kept: {error}") from error
        others = self._process.redivided
        self._kept.restore(tree if others is None else others.of(self._process.worker, tree))
        if (iteration := tree.get("iteration")) is not None:
            self.repeats_left, self._since = max(0, found.done - iteration), self._process.now
            self._logs = found.logs

    def repeat(self) -> bool:
        """Handle the end of a repeated iteration; return False if it is not one."""
        if not self.repeats_left:
            self._end_repeating()
            return False
        process, since = self._process, self._since
        self._since = process.now
        process.not_computing(since, self._since)
        self.repeats_left -= 1
        if not self.repeats_left:
            assert process.first_iteration is not None
            self.begins(process.first_iteration)
            # Actions of the script after its step, such as logging its loss, belong to that
            # iteration.
            self._is_last = True
            self._next_forward.call(self._end_repeating)
        return True

    @property
    def is_repeating(self) -> bool:
        """True while the script repeats iterations whose gradients are already in the model.

        The last repeated iteration ends with the next forward pass, or with the next step.
        """
        return self.repeats_left > 0 or self._is_last

    @property
    def repeated_to_log(self) -> int | None:
        """The repeated iteration, if the values that the script logs in it are needed."""
        first = self._process.first_iteration
        if not self._logs or first is None:
            return None
        return first - max(1, self.repeats_left)

    def _end_repeating(self) -> None:
        self._is_last = False
        self._next_forward.forget()

    # -- requests --------------------------------------------------------------------

    def _take(self, number: int) -> None:
        self._due = self._order

    def begins(self, iteration: int) -> None:
        """Note that the script begins an iteration, with new parameters."""
        if self.repeats_left:
            HERE.data.note = HERE.data.generators = None
            return
        if self._began is None and (first := self._process.first_iteration) is not None:
            self._began = first - 1  # by the previous process
            self._cuts.pass_over(self._began)
        self._cuts.pass_by(iteration)
        reports = self._pace.is_due(iteration, self._began) and self._kept.is_complete
        self._began = iteration
        is_copied = self._due is not None or reports
        # Noted only in this iteration, because it takes 0.05 ms, twice.
        HERE.data.note = random_states if is_copied else None
        HERE.data.generators = None
        HERE.data.steps()
        self._forward.forget()
        if is_copied:
            self._forward.call(partial(self._copy, reports))

    def _copy(self, reports: bool) -> None:
        """Copy the state at the first forward pass of the iteration.

        reports: True: the copy is sent between checkpoints.
        """
        order, self._due = self._due, None
        if order is not self._order:  # the checkpoint was given up
            order = None
        if order is not None:
            self._order = None
        elif not reports:
            return
        process, is_complete = self._process, self._kept.is_complete
        assert self._began is not None
        try:
            with self._pace.measured():
                state = self._kept.state()
                if is_complete:  # otherwise nothing can be computed again from here
                    state["iteration"] = self._began
                copy = packed_state(state, process.name)
        except Unfit as error:
            self._pace.reports = False
            if order is not None:
                self._send(NotSaved.because(order.number, error))
            return
        size = size_of(copy)
        if size > MOST_REPORTED // 2:  # the rest is room for the format
            self._pace.reports = False
        process.flush()  # earlier logged values belong to the checkpoint
        if self._pace.reports and is_complete:
            beside: RunInBackground = do_now if size <= _SMALL else self._thread.do
            beside(partial(to_bytes, copy), partial(self._report, self._began))
        if order is not None:
            totals, now = process.recorder.totals.copy(), process.now
            part = CheckpointPart(
                order.number, now, totals, self._began, is_complete=is_complete, kept_at=now
            )
            write = partial(_add_kept, kept_in(process.worker), copy)
            self._write(part, order.folder, write, at_once=size <= _SMALL)

    def _report(self, iteration: int, data: torch.Tensor) -> None:
        self._send(ScriptState(data, iteration))

    def end(self) -> None:
        """Finish the state that is being prepared, if there is one, and prepare no other."""
        self._due = None
        self._forward.forget()
        self._thread.settle()


def _add_kept(
    name: str, kept: dict[str, torch.Tensor], _: CheckpointPart, files: PartFiles
) -> None:
    files.add(name, kept)
