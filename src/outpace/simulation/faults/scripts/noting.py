"""Scripts in virtual time whose states are noted, so that lost processes can be replaced alone.

A new process begins with a state that its script was noted in, and computes the iterations from
there on again, as far as the model has them; their gradients are dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from outpace.blocks.block import Block
from outpace.simulation.faults.scripts.computing import FailingScriptComputing, FailingScripts
from outpace.simulation.faults.scripts.noted_states import Noted, NotedStates
from outpace.simulation.scripts.messages import Computes
from outpace.simulation.scripts.nodes import ScriptLeft
from outpace.support.units import Time, seconds


class NotedScripts(FailingScripts):
    """A run of scripts whose states are noted.

    Attributes:
        noted: the states.
    """

    def _set_up_notes(self, first: Sequence[Noted], *, is_noted: bool) -> None:
        """Note the states of scripts, if wanted. first: those with which the run begins."""
        self.noted, self._is_noted = NotedStates(first), is_noted
        self._computed_again: dict[int, int] = {}  # by worker: the iteration that it is in now
        self._logs = Counter[int]()  # by worker: how often its script has logged
        self._known_logs = Counter[int]()  # of a new process, that the one before it has logged

    def wants_note(self, worker: int) -> bool:
        """True if the states of this worker's script are noted."""
        return self._is_noted and worker not in self.noted.anew

    @property
    def _may_drop_notes(self) -> bool:
        """True if no checkpoint needs all the states."""
        return True

    def note(self, worker: int, iteration: int, file: Path, now: Time) -> None:
        """A script has written its state, at the beginning of an iteration."""
        logged = self._logs[worker] - self._known_logs[worker]  # by this process
        computed = self.totals.iterations.get(worker, 0)
        noted = Noted(iteration, file, logged=logged, computed=computed)
        self.noted.add(worker, noted, now, may_drop=self._may_drop_notes)

    def logged(self, worker: int, values: Mapping[str, float]) -> None:
        if self._known_logs[worker]:
            self._known_logs[worker] -= 1
            return
        self._logs[worker] += 1
        super().logged(worker, values)

    def logged_ahead(self, worker: int) -> int:
        return self._known_logs[worker]

    def _finished_of(self, worker: int) -> int:
        return self._computed_again.get(worker, super()._finished_of(worker))

    def computes_again(self, worker: int, iteration: int | None) -> None:
        """A new process computes this iteration again; None: it goes on."""
        if iteration is None:
            self._computed_again.pop(worker, None)
        else:
            self._computed_again[worker] = iteration

    def close(self) -> None:
        super().close()
        self.noted.close()


class NotedComputing(FailingScriptComputing):
    """The part of the context of a script's worker that may be a new process.

    Attributes:
        again: iterations that it computes again before it goes on; their gradients are dropped.
    """

    _failing: NotedScripts
    again = range(0)

    async def _begin(self, parameters: Sequence[Block], iteration: int) -> Computes:
        again, self.again = self.again, range(0)
        if again:
            await self._repeat(parameters, again)
        run, now, file = self._failing, self._kernel.now, None
        if run.wants_note(self.worker):
            file = self.process.note = run.noted.begins(self.worker, iteration, now)
        self._process.computing = iteration, now
        found = await super()._begin(parameters, iteration)
        if found.begins_anew:
            run.noted.anew.add(self.worker)
        if file is not None and found.noted:
            run.note(self.worker, iteration, file, now)
        return found

    async def _repeat(self, parameters: Sequence[Block], again: range) -> None:
        """Compute iterations again whose gradients are in the model."""
        process, run = self.process, self._failing
        # The state for a checkpoint must not be behind what the model has.
        save, process.save = process.save, None
        for iteration in again:
            run.computes_again(self.worker, iteration)
            found = await process.go(parameters, iteration)
            if found is None:
                raise ScriptLeft
            if found.evaluated:
                await self._spend(seconds(next(self.evaluations)))
            await self._spend(self._duration_s(iteration))
            if await process.finish_step() is None:
                raise ScriptLeft
        run.computes_again(self.worker, None)
        process.save = process.save or save
