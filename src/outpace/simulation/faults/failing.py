"""The life of a run whose processes fail: what is common to runs with servers and without.

Each process is an object (`MortalProcess`). What it has sent is lost with it if it has not arrived.
Where all processes begin again they do so from the last checkpoint, which is in memory, and also in
the folder of a run that has one. The trace, the sums and the metrics go back with it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from outpace.config.experiment import Experiment
from outpace.config.goals import Evaluate, Stop
from outpace.engine.interruptions import Interruptions
from outpace.engine.losses import rules_about_losses
from outpace.engine.servers import has_scheduler
from outpace.errors import OutpaceError
from outpace.kernel import Future
from outpace.record.event_log import EventLog
from outpace.record.sinks import NoSink
from outpace.record.trace import Trace
from outpace.simulation.checkpoints import count_until
from outpace.simulation.faults.costs import Costs
from outpace.simulation.faults.held_rows import HeldRows
from outpace.simulation.faults.injection import Strike, inject
from outpace.simulation.faults.processes import MortalProcess
from outpace.simulation.faults.saving import Kept
from outpace.simulation.life import Life, Process
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.checkpoint.state import ShardState, aligned, first_iteration, gaps
from outpace.sync.membership import BeginAgain, Loss, Membership, Order
from outpace.sync.messages import SCHEDULER, server_name, worker_name
from outpace.tasks import Timing, Workload

if TYPE_CHECKING:
    from outpace.simulation.peers import Peers
    from outpace.simulation.servers import Servers
    from outpace.simulation.virtual import VirtualRun


class Failures(Life):
    """The life of a run with failures.

    Args:
        held: keeps the rows of the trace since the last checkpoint, if there are checkpoints.
        events: is told of losses and restarts.
        plain: makes a run of a task without failures.
    """

    keeps_in_memory = True
    # False: what a process that ends has sent arrives, unless all begin again.
    _cuts_network = True

    def __init__(
        self,
        run: VirtualRun,
        exchange: Servers | Peers,
        held: HeldRows,
        events: EventLog,
        plain: Callable[[Experiment, Workload, Trace], VirtualRun],
    ) -> None:
        super().__init__(run)
        experiment = self.experiment = run.experiment
        assert experiment.faults is not None
        self._run, self._exchange, self._plain, self._held = run, exchange, plain, held
        self._repairs = experiment.faults.recovery
        self._costs = Costs(experiment.workers)
        if run.resume is not None:
            self._costs.restore(run.resume.checkpoint.index.costs)
        self._interruptions = Interruptions(run.rows, events, self._recovery)
        self._processes: dict[str, MortalProcess] = {}
        self._programs: list[Coroutine[Any, Any, None]] = []  # of workers, also of those lost
        self._failed_at: dict[str, Time] = {}  # processes that are lost: when they failed
        self._numbers = {worker_name(n): n for n in range(experiment.workers)}
        self._servers = [server_name(n) for n in range(experiment.servers_in_run)]
        self.gone: Collection[int] = ()
        # When the last checkpoint was written, or all processes began again after that.
        self._worked_since: Time = self.kernel.now
        has_decider = experiment.peers is None and has_scheduler(experiment)
        # A process is ready when the configuration says so, however late that is.
        rules = rules_about_losses(experiment, start_s=2e9)
        schedulers = [SCHEDULER] if has_decider else []
        self._members = Membership(rules, schedulers)
        self._members.begin(experiment.workers, self._servers)
        self._over = Future[None](self.kernel, "the end of the run")

    def begin(self) -> None:
        faults, seed = self.experiment.faults, self.experiment.seed
        assert faults is not None
        self.kernel.spawn(self._wait_for_end(), "the coordinator")
        self._interruptions.began_again(self.kernel.now)
        self._members.started()
        workers, servers = len(self._numbers), len(self._servers)
        inject(faults, self.kernel, seed, workers, servers, self._strike)

    # -- processes -----------------------------------------------------------------

    def process(self, name: str) -> Process:
        if self._cuts_network and name in self._numbers:
            self._run.network.cut(name)  # from what was sent to the process before
        process = self._processes[name] = MortalProcess(self.kernel, name)
        return process

    def spawn(self, name: str, program: Coroutine[Any, Any, None], *, daemon: bool = False) -> None:
        process = self._processes[name]
        if name in self._numbers:
            self._programs.append(program)
            program = self._to_the_end(program, process)
        process.walker = self.kernel.spawn(program, name, daemon=daemon)

    async def _to_the_end(self, program: Coroutine[Any, Any, None], process: MortalProcess) -> None:
        """Run the program of a worker, and note its end."""
        await program
        process.has_finished = True
        self._members.finished(self._numbers[process.name])
        self._end_if_over()

    async def _wait_for_end(self) -> None:
        """Keep the run going while a worker is away."""
        await self._over

    def _end_if_over(self) -> None:
        if self._members.is_over and not self._over.done:
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
                obstacles = self._run.network.obstacles
                before = obstacles.until(strike.node)
                obstacles.partition(strike.node, now + duration)
                self._lose_if_silent(process, before, lambda: obstacles.until(strike.node))
            case "loss":
                self._run.network.obstacles.lose(strike.node, duration)
            case "slow":
                process.slow_down(strike.factor, now + duration)

    def _lose_if_silent(
        self, process: MortalProcess, before: Time, until: Callable[[], Time]
    ) -> None:
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

    def _end(self, process: MortalProcess, failed: Time | None = None) -> None:
        """End a process. failed: when it failed; None: now."""
        process.end()
        if self._cuts_network:
            self._run.network.cut(process.name)
        self._failed_at[process.name] = self.kernel.now if failed is None else failed

    def _call_after(self, delay: Time, function: Callable[[Any], None], what: Any = None) -> None:
        self.kernel.call_at(self.kernel.now + delay, function, what)

    def _lose(self, process: MortalProcess, how: str = "was killed by SIGKILL") -> None:
        """The coordinator knows that a process is lost."""
        if self._processes[process.name] is not process or self.is_down or self._over.done:
            return
        kept, loss = self.last_checkpoint, Loss(process.name, how)
        self._note_loss(loss)
        try:
            last = 0 if kept is None else kept.number
            self._follow(self._members.lost([loss], self.kernel.now, checkpoint=last))
        except OutpaceError as error:
            where = f"after {seconds(self.kernel.now):.6f} s of virtual time"
            raise type(error)(f"{error} ({where})") from error

    def _note_loss(self, loss: Loss) -> None:
        """Note a loss for which not all begin again."""

    @abstractmethod
    def _follow(self, orders: Sequence[Order]) -> None:
        """Carry out the orders of the membership. Raises RunError if the run ends."""

    # -- all processes begin again ---------------------------------------------------

    def _begin_all_again(self, order: BeginAgain) -> None:
        """End all processes and begin again from the last checkpoint."""
        (name,), kept = order.lost, self.last_checkpoint
        assert kept is not None
        now, failed = self.kernel.now, self._failed_at[name]
        workers = [self._numbers[name]] if name in self._numbers else []
        servers = [] if workers else [self._servers.index(name)]
        self._costs.server_losses += len(servers)
        self._costs.worker_losses += len(workers)
        self._note_lost_time(failed, workers)
        gone = order.without if self.experiment.peers is not None else ()
        self._members.begin(len(self._numbers), self._servers, gone)
        self.is_down = True
        for each in self._processes.values():
            if each.alive:
                self._end(each)
            self._run.network.cut(each.name)
        self._failed_at.clear()
        self._interruptions.generations.clear()
        self._take_back(kept)
        self._restore_from(kept)
        lost = kept.recovery.updates_lost + gaps(kept.states)
        self._interruptions.group_lost(order.why, servers, workers, failed, kept, lost)
        ready = now + nanoseconds(self._repairs.servers_s)
        ready = max([ready, *map(self._run.network.obstacles.until, self._processes)])
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
        self._run.settle(wait=True)
        totals = kept.totals.copy()
        for ended in self._held.go_back(kept.first):
            totals.add_times(*ended)
        self._run.take_up(totals, kept.metrics)

    def _restore_from(self, kept: Kept) -> None:
        """Put parameters back to a checkpoint, so that evaluations see them."""
        self._exchange.go_back(kept)

    def _start_again(self, kept: Kept) -> None:
        self.is_down, self._worked_since = False, self.kernel.now
        self.gone = self._members.gone
        self._interruptions.began_again(self.kernel.now)
        self._members.started()
        self._exchange.start_again(kept)

    def keep(self, kept: Kept, writing: Time, still: Time = 0) -> None:
        kept.hand_on(self._held)
        self.last_checkpoint = kept
        self._costs.add("checkpoints", writing, self.experiment.workers)
        self._worked_since = self.kernel.now + still

    def kept(
        self, number: int, states: Sequence[ShardState], own: Sequence[ShardState] = ()
    ) -> Kept:
        run, experiment = self._run, self.experiment
        run.settle(wait=True)  # the evaluations until now
        totals = run.totals.copy()
        if experiment.cut_off is not None:
            states = aligned(states)
        workers = range(experiment.workers)
        if experiment.peers is None:
            first = [first_iteration(worker, states) for worker in workers]
        else:
            first = [1 + states[0].watermarks[worker] for worker in workers]
            count_until(states[0].watermarks, totals.iterations)
        return Kept(
            number=number,
            now=self.kernel.now,
            states=states,
            own=own,
            first=first,
            totals=totals,
            metrics=run.metrics.kept(),
            recovery=self.recovery(),
            rows=self._held.held,
        )

    # -- the end ---------------------------------------------------------------------

    def end(self) -> None:
        rate, now_s = self._undisturbed_rate(), seconds(self.kernel.now)
        if rate and now_s:
            self._costs.goodput = self._run.totals.applied / now_s / rate

    def _undisturbed_rate(self) -> float:
        """Return the gradients per second that the same run applies without failures; 0: unknown.

        It has neither evaluations nor checkpoints, and computes nothing but times. It ends where
        this run has ended if workers may have been in the middle of their iterations: a run that
        was ended by the last of them can be shorter than the same run without failures, because
        averages of fewer workers take less time.
        """
        run, stop = self._run, self.experiment.stop
        iterations = max(run.totals.iterations.values(), default=0)
        if not iterations:
            return 0.0
        is_early = stop.virtual_time_s is not None or stop.target_accuracy is not None
        task = Timing(layers=run.layers)
        plain = replace(
            self.experiment,
            task=task,
            faults=None,
            checkpoint=None,
            evaluate=Evaluate(),
            target=None,
            stop=Stop(
                iterations=iterations,
                virtual_time_s=seconds(self.kernel.now) if is_early else None,
            ),
        )
        sizes = task.workload(plain.workers, plain.batch_size, plain.seed)
        twin = self._plain(plain, sizes, Trace(NoSink()))
        try:
            twin.run()
            return twin.totals.applied / seconds(twin.kernel.now) if twin.kernel.now else 0.0
        finally:
            twin.close()

    def close(self) -> None:
        for program in self._programs:  # one that has never begun is not closed with its process
            program.close()

    def summary(self) -> dict[str, Any]:
        return {"faults": self._costs.summary()}

    def costs(self) -> dict[str, Any]:
        return self._costs.state()
