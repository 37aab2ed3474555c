"""What the scripts of workers that join begin with: what the script of worker 0 keeps.

Its scheduler, counts, model buffers and place in the data are those of a worker that has been there
all the time. Worker 0 is asked for them when the new processes are there, because it goes on
meanwhile; the new ones then compute the iterations since again, as a script does that goes on after
a loss (`real.node.script.repeating`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
import torch

from outpace.blocks.block import Block
from outpace.real.net.block_frames import head_of
from outpace.real.net.checkpoint_messages import CheckpointFailed, ScriptState
from outpace.real.net.membership_messages import TellKept
from outpace.real.net.messages import Plan
from outpace.record.totals import Totals
from outpace.sync.messages import worker_name

if TYPE_CHECKING:
    from outpace.real.coordinator.recovery.run_around import RunAround

_FIRST: Final = worker_name(0)


class JoiningScripts:
    """Asks worker 0 for what its script keeps, and sends it to workers that join.

    Worker 0 answers each request, at the beginning of an iteration. An answer that no worker waits
    for any more is taken and dropped: to refuse it would end worker 0.
    """

    def __init__(self, run: RunAround) -> None:
        self._listener, self._reports = run.listener, run.reports
        self._data: torch.Tensor | None = None
        # What to do with the answer; None: no worker waits for one.
        self._then: tuple[Callable[[], None], Callable[[str], None]] | None = None

    @property
    def is_awaited(self) -> bool:
        """True from `ask` to the answer, or to `forget`."""
        return self._then is not None

    def ask(self, then: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Ask worker 0. then: called when the answer is there; failed: with why there is none.

        If worker 0 has not answered an earlier request yet, that answer is taken.
        """
        self._then = then, failed
        if self._reports.takes_kept is None:
            self._reports.takes_kept = self._take
            self._listener.send(_FIRST, TellKept())

    def _take(self, message: ScriptState | CheckpointFailed, block: Block | None) -> None:
        """Take the answer of worker 0."""
        self._reports.takes_kept = None
        if self._then is None:
            return
        (then, failed), self._then = self._then, None
        if isinstance(message, CheckpointFailed):
            failed(message.why)
            return
        assert isinstance(block, torch.Tensor)
        self._data = block
        then()

    def first_is_lost(self) -> None:
        """The process of worker 0 is lost, so it does not answer."""
        self._reports.takes_kept = None

    def forget(self) -> None:
        """The workers have joined, or do not join. Worker 0 may still answer."""
        self._then = self._data = None

    def announced(self, plan: Plan, worker: int) -> Plan:
        """Return the plan for a worker that joins, which says what follows it."""
        assert self._data is not None
        return msgspec.structs.replace(plan, kept=[0] * worker + [self._data.numel()])

    def send(self, worker: int, first: int) -> None:
        """Send a worker that joins what its script begins with. first: its first iteration."""
        data = self._data
        assert data is not None
        head = head_of(data)
        state = ScriptState(0, 0, Totals(), is_complete=True, block=head, done=first, joins=True)
        self._listener.send(worker_name(worker), state, data)
