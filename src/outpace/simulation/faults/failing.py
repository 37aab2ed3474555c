"""The common part of simulated runs whose processes fail, with servers and without."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec import structs

from outpace.config.experiment import Experiment
from outpace.engine.interruptions import Interruptions
from outpace.engine.server_losses import ServerLosses
from outpace.errors import OutpaceError, RunError
from outpace.kernel import Future
from outpace.record.event_log import EventLog
from outpace.record.recovery import Recovery
from outpace.record.totals import Totals
from outpace.record.trace import Trace, TraceRows
from outpace.simulation.faults.costs import Costs
from outpace.simulation.faults.held_rows import HeldRows
from outpace.simulation.faults.injection import Injection, Strike
from outpace.simulation.faults.processes import Process
from outpace.simulation.faults.saving import Kept
from outpace.simulation.faults.undisturbed import undisturbed_rate
from outpace.simulation.virtual import VirtualRun
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import server_name, worker_name


class FailingRun(VirtualRun):
    """A run with failures.

    Each process is an object (`Process`), and what it sends is lost with it if it has not arrived.
    Where all processes begin again they do so from the last checkpoint, which is in memory, and
    also in the folder of a run that has one. The trace, the sums and the metrics go back with it.

    Attributes:
        events: is told of losses and restarts.
    """

    events: EventLog = EventLog()
    _keeps_in_memory = True
    # False: what a process that ends has sent arrives, unless all begin again.
    _cuts_network = True

    def _rows_for(self, trace: Trace) -> TraceRows:
        # Without checkpoints nothing is taken back.
        return trace if self.experiment.checkpoint is None else HeldRows(trace)

    @property
    def held_rows(self) -> HeldRows:
        """The rows since the last checkpoint, of a run that takes checkpoints."""
        assert isinstance(self.rows, HeldRows)
        return self.rows

    def _prepare(self, experiment: Experiment) -> None:
        """Set what a run with failures keeps; before its nodes are made."""
        assert experiment.faults is not None
        self._recovery = Recovery() if self.resume is None else self.resume.recovery
        self._repairs = experiment.faults.recovery
        self._costs = Costs(experiment.workers)
        if self.resume is not None:
            self._costs.restore(self.resume.checkpoint.index.costs)
        self._interruptions = Interruptions(self.rows)
        self._processes: dict[str, Process] = {}
        self._failed_at: dict[str, Time] = {}  # processes that are lost: when they failed
        self._numbers = {worker_name(n): n for n in range(experiment.workers)}
        self._servers = [server_name(n) for n in range(experiment.servers_in_run)]
        self._gone: set[int] = set()
        self._finished: set[int] = set()
        self._generations: dict[str, int] = {}  # of processes that were started again
        # When the last checkpoint was written, or all processes began again after that.
        self._worked_since: Time = self.kernel.now
        self.is_down = False  # all processes are about to begin again
        self._server_losses = ServerLosses(
            experiment.on_server_loss,
            can_restart=True,
            advises_checkpoint=experiment.checkpoint is None,
        )
        self._over = Future[None](self.kernel, "the end of the run")

    def _begin_failures(self, experiment: Experiment) -> None:
        """Let failures happen from now on."""
        assert experiment.faults is not None
        self.kernel.spawn(self._wait_for_end(), "the coordinator")
        self._interruptions.began_again(self.kernel.now)
        workers, servers = experiment.workers, experiment.servers_in_run
        begin = self.kernel.now
        Injection(
            experiment.faults, self.kernel, experiment.seed, workers, servers, begin, self._strike
        )

    # -- processes -----------------------------------------------------------------

    def _spawn_program(
        self, name: str, program: Coroutine[Any, Any, None], *, daemon: bool = False
    ) -> None:
        self._processes[name].walker = self.kernel.spawn(program, name, daemon=daemon)

    def _new_process(self, name: str) -> Process:
        if name in self._processes and self._cuts_network:
            self.network.cut(name)  # from what was sent to the one before
        process = self._processes[name] = Process(self.kernel, name)
        return process

    async def _wait_for_end(self) -> None:
        """Keep the run going while a worker is away."""
        await self._over

    def _end_if_over(self) -> None:
        done = len(self._finished | self._gone) == self.experiment.workers
        if done and not self._over.done:
            self._over.set(None)

    # -- failures ------------------------------------------------------------------

    def _strike(self, strike: Strike) -> None:
        """Let a failure happen now, unless the process is not there."""
        if self.is_down or self._over.done:
            return
        process = self._processes[strike.node]
        if not process.alive or process.has_finished:
            return
        self._costs.happened(strike.kind)
        now, duration = self.kernel.now, strike.duration
        match strike.kind:
            case "crash":
                self._end(process)
                self._call_after(nanoseconds(self._repairs.detected_s), self._lose, process)
            case "pause":
                stood, before = process.stood, process.until
                process.stand_still(duration)
                if strike.node in self._numbers:
                    self._costs.add("standing", process.stood - stood)
                self._lose_if_silent(process, before, lambda: process.until)
            case "partition":
                obstacles = self.network.obstacles
                before = obstacles.until(strike.node)
                obstacles.partition(strike.node, now + duration)
                self._lose_if_silent(process, before, lambda: obstacles.until(strike.node))
            case "loss":
                self.network.obstacles.lose(strike.node, duration)
            case "slow":
                process.slow_down(strike.factor, now + duration)

    def _lose_if_silent(self, process: Process, before: Time, until: Callable[[], Time]) -> None:
        """Count a process as lost if it is silent for the lease.

        Args:
            before: until when it would have been silent anyway.
        """
        now = self.kernel.now
        if before < now:
            process.silent_since = now
        lease, began = nanoseconds(self._repairs.lease_s), process.silent_since

        def look(_: object) -> None:
            if process.alive and until() > began + lease:
                self._end(process, began)
                self._lose(process, f"was silent for {self._repairs.lease_s:g} s")

        if until() > began + lease:
            self._call_after(max(0, began + lease - now), look)

    def _end(self, process: Process, failed: Time | None = None) -> None:
        """End a process. failed: when it failed; None: now."""
        process.end()
        if self._cuts_network:
            self.network.cut(process.name)
        self._failed_at[process.name] = self.kernel.now if failed is None else failed

    def _call_after(self, delay: Time, function: Callable[[Any], None], what: Any = None) -> None:
        self.kernel.call_at(self.kernel.now + delay, function, what)

    def _lose(self, process: Process, how: str = "was killed by SIGKILL") -> None:
        """The coordinator knows that a process is lost."""
        if self._processes[process.name] is not process or self.is_down or self._over.done:
            return
        try:
            self._lose_process(process, how)
        except OutpaceError as error:
            where = f"after {seconds(self.kernel.now):.6f} s of virtual time"
            raise type(error)(f"{error} ({where})") from error

    def _log_loss(self, name: str, how: str) -> None:
        generation = self._generations.get(name, 0)
        self.events.add("lost", "warning", role=name, generation=generation, why=f"{name} {how}")

    @abstractmethod
    def _lose_process(self, process: Process, how: str) -> None:
        """Go on without a process, or replace it. Raises RunError if the run ends."""

    # -- all processes begin again ---------------------------------------------------

    def _begin_all_again(
        self,
        loss: RunError,
        kept: Kept | None,
        failed: Time,
        servers: Sequence[int],
        workers: Sequence[int],
    ) -> None:
        """End all processes and begin again from the last checkpoint.

        Args:
            loss: the error if that cannot be.
            failed: when the lost servers or workers failed.

        Raises:
            RunError: if the run ends.
        """
        self._server_losses.require_way_on(loss, 0 if kept is None else kept.number)
        assert kept is not None
        now = self.kernel.now
        self._costs.server_losses += len(servers)
        self._costs.worker_losses += len(workers)
        self._note_lost_time(failed, workers)
        self.is_down = True
        for each in self._processes.values():
            if each.alive:
                self._end(each)
            self.network.cut(each.name)
        self._failed_at.clear()
        self._generations.clear()
        self._take_back(kept)
        self._interruptions.group_lost(servers, workers, failed, kept)
        self._restore_from(kept)
        self.events.add(
            "group-restart",
            "warning",
            cause=str(loss),
            number=kept.number,
            time_s=seconds(kept.now),
            restarts=self._recovery.restarts,
            updates_lost=self._recovery.updates_lost,
        )
        ready = now + nanoseconds(self._repairs.servers_s)
        ready = max([ready, *map(self.network.obstacles.until, self._processes)])
        self._costs.add("restart", ready - now, self.experiment.workers)
        self.kernel.call_at(ready, self._start_again, kept)

    def _note_lost_time(self, failed: Time, lost: Sequence[int]) -> None:
        """Count what the workers have lost, of which these failed now and others before."""
        now, workers = self.kernel.now, self.experiment.workers
        before = [name for name, n in self._numbers.items() if n not in lost]
        away = [self._failed_at[name] for name in before if name in self._failed_at]
        self._costs.add("detection", now - failed, workers - len(away))
        since = self._worked_since
        self._costs.add("repeated", failed - since, workers - len(away))
        for at in away:
            self._costs.add("repeated", at - since)
            self._costs.add("restart", now - at)

    def _take_back(self, kept: Kept) -> None:
        """Put the records back to a checkpoint."""
        self.settle(wait=True)
        totals = self.recorder.totals = Totals()
        totals.add(kept.totals)
        for ended in self.held_rows.go_back(kept.first):
            totals.add_times(*ended)
        self.network.messages, self.network.bytes_sent = totals.messages, totals.bytes_sent
        self._done = sum(totals.iterations.values())
        self.metrics.take_up(kept.metrics)
        self._evaluated_at = None
        self._recovery.restarts += 1
        self._recovery.updates_lost = kept.recovery.updates_lost

    @abstractmethod
    def _restore_from(self, kept: Kept) -> None:
        """Put parameters back to a checkpoint, so that evaluations see them."""

    def _start_again(self, kept: Kept) -> None:
        self.is_down, self._worked_since = False, self.kernel.now
        self._finished.clear()
        self._gone.clear()
        self._interruptions.began_again(self.kernel.now)
        self._begin_again(kept)

    @abstractmethod
    def _begin_again(self, kept: Kept) -> None:
        """Start all processes again."""

    def let_workers_write(self, size_bytes: int) -> Time:
        """Let all workers stand still to write a checkpoint; return for how long (ns)."""
        writing = nanoseconds(self._repairs.writing_s(size_bytes))
        for name in self._numbers:
            self._processes[name].stand_still(writing)
        return writing

    def checkpoint_written(self, taken: Time, still: Time = 0) -> None:
        """A checkpoint is complete, for which all wait for so long (ns), `still` ns from now on."""
        self._costs.add("checkpoints", taken, self.experiment.workers)
        self._worked_since = self.kernel.now + still

    # -- the engine ----------------------------------------------------------------

    def run(self) -> None:
        super().run()
        self._costs.goodput = self._goodput()

    def _goodput(self) -> float | None:
        """Return the gradients per second, over those of the same run without failures."""
        rate = self._undisturbed_rate()
        now_s = seconds(self.kernel.now)
        return self.totals.applied / now_s / rate if rate and now_s else None

    def _undisturbed_rate(self) -> float | None:
        """Return the gradients per second of the same run without failures, if they are known."""
        done = max(self.totals.iterations.values(), default=0)
        return undisturbed_rate(self.experiment, self._workload, self._ended_early_at, done)

    @property
    def _ended_early_at(self) -> Time | None:
        """When the run ended (ns), if workers may have been in the middle of their iterations.

        A run that was ended by the last of them can be shorter than the same run without failures:
        averages of fewer workers take less time.
        """
        stop = self.experiment.stop
        is_early = stop.virtual_time_s is not None or stop.target_accuracy is not None
        return self.kernel.now if is_early else None

    def times(self, host_s: float) -> dict[str, Any]:
        return {**super().times(host_s), "faults": self._costs.summary()}

    def costs(self) -> dict[str, Any]:
        return self._costs.state()

    def recovery(self) -> Recovery:
        return structs.replace(self._recovery)
