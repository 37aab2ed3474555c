"""Scripts with servers in virtual time whose workers and servers fail.

A process of a script that is lost is replaced by a real one, which runs the script from its
beginning, with what the script keeps, as in real runs. Starting it takes no virtual time beside
`faults.recovery`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.engine.scripts.anew import REMEDY, LostSince, begin_anew, unrepeated
from outpace.engine.scripts.redividing import redivided, script_files
from outpace.engine.servers import AbortableProgram
from outpace.simulation.faults.processes import FailingNode, Process, computed
from outpace.simulation.faults.run import FailingSimulation
from outpace.simulation.faults.saving import Kept
from outpace.simulation.faults.scripts.noted_states import Noted
from outpace.simulation.faults.scripts.noting import NotedComputing, NotedScripts
from outpace.simulation.scripts.nodes import ScriptWorkerNode
from outpace.simulation.scripts.with_servers import ScriptSimulation
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.checkpoint.state import lacking
from outpace.sync.membership import Removed, Start
from outpace.sync.messages import Message
from outpace.sync.programs.context import SendPart, Stopped
from outpace.tasks import Workload


class FailingScriptSimulation(NotedScripts, FailingSimulation, ScriptSimulation):
    """A run of a script with servers and failures. Implements `Engine`."""

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        first = [Noted(0, None)] * experiment.workers
        self._had_ended = frozenset[int]()  # workers, at the last checkpoint
        if self.resume is not None:
            self._had_ended = frozenset(self.resume.checkpoint.index.ended)
            files, others = script_files(self.resume), redivided(self.resume)
            first = [Noted(n, files.get(w), others) for w, n in enumerate(self.resume.first)]
        self._set_up_notes(first, is_noted=experiment.checkpoint is not None)
        self._again: dict[int, range] = {}  # iterations that a new process computes again
        self._leaving: set[int] = set()  # of these, which are not run again
        self._back: Mapping[int, Noted] = {}  # by worker: where all processes begin again
        self._lost_since = LostSince()
        super()._set_up(experiment, workload)

    # -- the programs of workers -------------------------------------------------------

    def _failing_node(
        self,
        worker: int,
        servers: Sequence[str],
        process: Process,
    ) -> FailingNode:
        found = FailingScript(self, worker, servers, self._first[worker], process)
        found._failing = self
        return found

    async def _run_program(self, train: AbortableProgram, me: FailingNode) -> None:
        assert isinstance(me, FailingScript)
        if me.worker in self._leaving:
            self._leaving.remove(me.worker)
            self._leave(me, me)
            return
        me.again = self._again.pop(me.worker, range(0))
        await self._run_script(train, me, me)

    @property
    def _may_drop_notes(self) -> bool:
        return not self.is_taking_checkpoint

    # -- lost processes ----------------------------------------------------------------

    def _lose_worker(self, worker: int, how: str) -> None:
        if worker not in self.noted.anew:
            self._losses.keeps(worker, self.noted.newest(worker).iteration)
        super()._lose_worker(worker, how)

    def begin(self, start: Start) -> None:
        worker = start.worker
        noted = self.noted.newest(worker)
        self._replace({worker: noted}, {worker: self._losses.done(worker)})
        if worker in self.noted.anew:
            self.warned(f"{begin_anew([worker], 'that the servers have')}: {REMEDY}")
        else:
            self._known_logs[worker] = self._logs[worker] - noted.logged
        super().begin(start)

    def removed(self, removed: Removed) -> None:
        super().removed(removed)
        self._script_processes[removed.worker].kill()
        self.left(removed.worker)

    def checkpoint_written(self, taken: Time, still: Time = 0) -> None:
        super().checkpoint_written(taken, still)
        assert self._kept_saving is not None
        assert self._kept_saving.last is not None
        kept = self._kept_saving.last
        self.noted.checkpoint(kept.first)
        self._had_ended = frozenset(self._finished - lacking(kept.states, self._last))

    def _take_back(self, kept: Kept) -> None:
        lost = unrepeated(self.noted.anew, kept.totals.iterations, self.totals.iterations)
        workers = set(range(self.experiment.workers)) - self._had_ended
        back = {n: self.noted.go_back(n, kept.first[n]) for n in sorted(workers)}
        rows = self._rows_until(kept.metrics, back)
        super()._take_back(kept)
        self._count_computed(back, kept.first)
        self.metrics.take_up(rows)
        self._recovery.updates_lost += self._lost_since.then(kept.number, lost)
        self._back = back
        self._known_logs.clear()

    def _count_computed(self, back: Mapping[int, Noted], first: Sequence[int]) -> None:
        """Count the iterations from which a script goes on, though they ended after the checkpoint.

        An iteration that was cut off is over for the servers while a script still computes it.
        """
        done = self.totals.iterations
        for worker, noted in back.items():
            if noted.computed is not None and worker not in self.noted.anew:
                before = noted.computed + first[worker] - noted.iteration
                done[worker] = max(done.get(worker, 0), before)
        self._done = sum(done.values())

    def _rows_until(self, kept: pa.Table, back: Mapping[int, Noted]) -> pa.Table:
        """Return the metrics with what each script had logged when it was noted.

        Args:
            kept: the metrics of the checkpoint, where those of scripts that begin anew end.
            back: by worker, where its script goes on.
        """
        rows = self.metrics.kept()
        workers = rows["worker"].to_pylist()
        most, earlier = Counter(workers), Counter(kept["worker"].to_pylist())
        for worker, noted in back.items():
            logged = self._logs[worker] - noted.logged
            keeps_nothing = worker in self.noted.anew
            most[worker] = earlier[worker] if keeps_nothing else most[worker] - logged
            self._logs[worker] = noted.logged
        inside = []
        for worker in workers:
            most[worker] -= 1
            inside.append(most[worker] >= 0)
        return rows.filter(pa.array(inside, pa.bool_()))

    def _anew(self) -> int:
        return len(self.noted.anew)

    def _begin_again(self, kept: Kept) -> None:
        back = self._back
        self._replace(back, {worker: kept.first[worker] for worker in back})
        if anew := self.noted.anew & back.keys():
            self.warned(f"{begin_anew(anew, 'of the checkpoint')}: {REMEDY}")
        self._leaving = set(self._had_ended)
        self._training, self._is_at_limit = set(back), False
        self._at_end -= self._training
        self._last = {n: last for n, last in self._last.items() if n not in back}
        super()._begin_again(kept)

    def _replace(self, states: Mapping[int, Noted], done: Mapping[int, int]) -> None:
        """Start new processes for the scripts of some workers.

        Args:
            done: by worker, the iterations that servers have of it.
        """
        anew = {worker: (None, None) for worker in states if worker in self.noted.anew}
        kept = {worker: (each.kept, each.redivided) for worker, each in states.items()}
        self._workload.workers.replace({**kept, **anew})
        for worker, each in states.items():
            self._computed_again.pop(worker, None)
            first = done[worker] if worker in anew else each.iteration
            self._again[worker] = range(first, done[worker])


class FailingScript(NotedComputing, FailingNode, ScriptWorkerNode):
    """The context of a script's worker, whose process may stand still, be slow, or be a new one."""

    _run: FailingScriptSimulation

    async def execute_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> None:
        await self._process.awake()
        await super().execute_in_parts(parameters, iteration, send)

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        kernel, life = self._kernel, self._process
        await life.awake()
        begun = await self._begin(parameters, iteration)
        started, stood = kernel.now, life.stood
        duration = nanoseconds(self._duration_s(iteration))
        if not begun.abortable:
            await computed(kernel, life, duration)
            return await self._end()
        while (left := started + duration + life.stood - stood - kernel.now) >= 0:
            message = await self.mailbox.get_within(seconds(left))
            await life.awake()
            if message is not None and ends_it(message):
                return self._stopped(kernel.now - started - (life.stood - stood), duration)
            if message is None and left == 0:
                break
        return await self._end()
