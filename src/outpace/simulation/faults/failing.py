"""The life of a run whose processes fail, with servers and without.

Each process is an object (`MortalProcess`). With servers, a message that has not arrived is lost if
its sender dies. Without servers an average that has begun is completed, even if a worker dies,
because it takes much less time than computations.

`sync.membership` decides what follows, as in real runs. The coordinator's own messages take no
time: an order to a server waits behind the messages that have arrived there. If all processes begin
again, they begin from the last checkpoint, which is in memory, and also in the folder of a run that
has one. The trace, the sums and the metrics are reset to the checkpoint as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from outpace.config.experiment import Experiment
from outpace.engine.losses import add_restart, rules_about_losses
from outpace.engine.servers import has_scheduler
from outpace.errors import OutpaceError, RunError
from outpace.kernel import Alarm, Future
from outpace.record.trace import Trace
from outpace.simulation.checkpoints import count_until
from outpace.simulation.faults.costs import Costs, undisturbed_rate
from outpace.simulation.faults.held_rows import CheckpointInMemory, HeldRows
from outpace.simulation.faults.injection import inject
from outpace.simulation.faults.processes import MortalProcess, Obeyed
from outpace.simulation.life import Life, Process
from outpace.simulation.servers import Servers
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.checkpoint.state import ShardState, aligned, first_iteration, gaps
from outpace.sync.membership.decide import Membership
from outpace.sync.membership.events import (
    AllBegin,
    BeginAgain,
    CheckpointComplete,
    Confirmed,
    DeadlinePassed,
    EndRun,
    Event,
    Finished,
    Loss,
    Order,
    ProcessesLost,
    Removed,
    Replace,
    Start,
    TrainingBegan,
    WorkerBegan,
)
from outpace.sync.membership.table import Phase
from outpace.sync.messages import SCHEDULER, Lost, server_name, worker_name
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.peers import Peers
    from outpace.simulation.virtual import VirtualRun


class Failures(Life):
    """The life of a run with failures.

    Args:
        held: keeps the rows of the trace since the last checkpoint, if there are checkpoints.
        plain: makes a run of a task without failures.
    """

    keeps_in_memory = True

    def __init__(
        self,
        run: VirtualRun,
        exchange: Servers | Peers,
        held: HeldRows,
        plain: Callable[[Experiment, Workload, Trace], VirtualRun],
    ) -> None:
        super().__init__(run)
        experiment = self.experiment = run.experiment
        assert experiment.faults is not None
        self._run, self._exchange, self._plain, self._held = run, exchange, plain, held
        self._has_servers = experiment.peers is None
        self._repairs = experiment.faults.recovery
        self._costs = Costs(experiment.workers)
        if run.resume is not None:
            self._costs.restore(run.resume.checkpoint.index.costs)
        self._processes: dict[str, MortalProcess] = {}
        # programs of workers, including lost ones
        self._programs: list[Coroutine[Any, Any, None]] = []
        self._failed_at: dict[str, Time] = {}  # lost processes, with the times of their failures
        self._numbers = {worker_name(n): n for n in range(experiment.workers)}
        self._servers = [server_name(n) for n in range(experiment.servers_in_run)]
        self.gone: Collection[int] = ()
        self.last_checkpoint: CheckpointInMemory | None = None  # the last checkpoint
        # Time when the last checkpoint was written, or when all processes began again after it.
        self._worked_since: Time = self.kernel.now
        # A process becomes ready when the configuration says so, however late that is.
        rules = rules_about_losses(experiment, start_s=2e9)
        has_decider = self._has_servers and has_scheduler(experiment)
        self._members = Membership(rules, [SCHEDULER] * has_decider)
        self._tell(AllBegin(experiment.workers, len(self._servers)))
        self._alarm: Alarm | None = None  # alarm for the next deadline of a replacement
        self._over = Future[None](self.kernel, "the end of the run")

    def begin(self) -> None:
        faults, seed = self.experiment.faults, self.experiment.seed
        assert faults is not None
        self.kernel.spawn(self._wait_for_end(), "the coordinator")
        self._tell(TrainingBegan())
        workers, servers = len(self._numbers), len(self._servers)
        inject(faults, self.kernel, seed, workers, servers, self._strike)

    # -- processes -----------------------------------------------------------------

    def process(self, name: str) -> Process:
        if self._has_servers and name in self._numbers:
            self._run.network.cut(name)  # messages that were sent to the previous process
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
        self._tell(Finished(process.name))
        self._end_if_over()

    async def _wait_for_end(self) -> None:
        """Keep the run going while a worker is away."""
        await self._over

    def _end_if_over(self) -> None:
        if self._members.table.is_over and not self._over.done:
            self._over.set(None)

    # -- failures ------------------------------------------------------------------

    def _strike(self, name: str) -> None:
        """Kill a process now, unless it does not exist."""
        if self.is_down or self._over.done:
            return
        process = self._processes[name]
        if not process.alive or process.has_finished:
            return
        self._end(process)
        known = self.kernel.now + nanoseconds(self._repairs.detected_s)
        self.kernel.call_at(known, self._lose, process)

    def _end(self, process: MortalProcess) -> None:
        process.end()
        if self._has_servers:
            self._run.network.cut(process.name)
        self._failed_at[process.name] = self.kernel.now

    def _lose(self, process: MortalProcess) -> None:
        """Let the coordinator notice that a process is lost."""
        if self._processes[process.name] is not process or self.is_down or self._over.done:
            return
        name, failed = process.name, self._failed_at[process.name]
        loss = Loss(name, "was killed by SIGKILL", since=failed)
        if self._has_servers and name in self._numbers:  # otherwise all processes begin again
            self._costs.worker_losses += 1
            self._costs.add("detection", self.kernel.now - failed)
        self.events.add("lost", "warning", role=name, why=str(loss), lost_ns=failed)
        try:
            self._tell(ProcessesLost([loss]))
        except OutpaceError as error:
            where = f"after {seconds(self.kernel.now):.6f} s of virtual time"
            raise type(error)(f"{error} ({where})") from error

    def _tell(self, event: Event) -> None:
        """Carry out the membership's decision about an event. Raises RunError if the run ends."""
        self._carry_out(self._members.take(event, self.kernel.now))

    def _carry_out(self, orders: Sequence[Order]) -> None:
        attempt = self._members.table.attempt
        for order in orders:
            match order:
                case Replace(server, worker, _, stays):
                    obeyed = Obeyed(Lost(worker, stays), partial(self._confirm, attempt, order))
                    self._run.network.join(server).mailbox.put(obeyed)
                case Start():
                    self._replace(attempt, order)
                case Removed(worker):  # the others continue without it
                    name, now = worker_name(worker), self.kernel.now
                    del self._failed_at[name]
                    self.events.add("without", role=name, time_ns=now, updates_lost=order.lost)
                    self._end_if_over()
                case BeginAgain():
                    self._begin_all_again(order)
                case EndRun(reason):
                    raise RunError(reason)
        if orders:
            self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self.kernel.call_off(self._alarm)
        due, self._alarm = self._members.table.next_deadline, None
        if due is not None:
            due = max(due, self.kernel.now)
            self._alarm = self.kernel.set_alarm(due, lambda: self._tell(DeadlinePassed()))

    # -- replaced workers ------------------------------------------------------------

    def _confirm(self, attempt: int, order: Replace) -> None:
        """Note that a server knows that a worker is lost."""
        if attempt != self._members.table.attempt:
            return  # all processes have begun again
        assert isinstance(self._exchange, Servers)
        shard = self._exchange.shard_of(order.server)
        reached = (-1, 0) if shard is None else (shard.watermark(order.worker), shard.clock)
        self._tell(Confirmed(order.server, order.worker, order.generation, *reached))

    def _replace(self, attempt: int, start: Start) -> None:
        """Start another process for a worker."""
        name = worker_name(start.worker)
        add_restart(self.events, start)
        computing, failed = self._processes[name].computing, self._failed_at[name]
        # the worker's push has not arrived
        if computing is not None and computing[0] >= start.first:
            self._costs.add("repeated", failed - computing[1])
        ready = self.kernel.now + nanoseconds(self._repairs.worker_s)
        self.kernel.call_at(ready, self._begin_one, (attempt, start))

    def _begin_one(self, what: tuple[int, Start]) -> None:
        """Let the new process of a worker begin, because it is ready."""
        attempt, start = what
        if attempt != self._members.table.attempt:
            return
        assert isinstance(self._exchange, Servers)
        self._tell(WorkerBegan(start.worker))
        self._set_alarm()
        name, now = worker_name(start.worker), self.kernel.now
        self._costs.add(
            "restart", now - self._failed_at.pop(name) - nanoseconds(self._repairs.detected_s)
        )
        self.events.add("began", role=name, time_ns=now)
        self._exchange.start_worker(start.worker, start.first)

    # -- all processes begin again ---------------------------------------------------

    def _begin_all_again(self, order: BeginAgain) -> None:
        """End all processes and begin again from the last checkpoint."""
        ((name, failed),) = ((loss.name, loss.since) for loss in order.lost)
        now, kept = self.kernel.now, self.last_checkpoint
        assert kept is not None
        workers = [self._numbers[name]] if name in self._numbers else []
        servers = [] if workers else [self._servers.index(name)]
        self._costs.server_losses += len(servers)
        self._costs.worker_losses += len(workers)
        self._note_lost_time(failed, workers)
        gone = [self._numbers[name] for name in order.without]
        numbers = len(self._numbers), len(self._servers)
        self._tell(AllBegin(*numbers, gone, order.checkpoint))
        self.is_down = True
        for each in self._processes.values():
            if each.alive:
                self._end(each)
            self._run.network.cut(each.name)
        self._failed_at.clear()
        self._take_back(kept)
        self._exchange.go_back(kept)
        lost = kept.recovery.updates_lost + gaps(kept.states)
        self.events.add(
            "group-restart",
            "warning",
            cause=order.why,
            lost=[order.lost[0].name],
            lost_ns=failed,
            number=kept.number,
            time_ns=kept.now,
            first=min(kept.first),
            updates_lost=lost,
            anew=0,
        )
        ready = now + nanoseconds(self._repairs.servers_s)
        self._costs.add("restart", ready - now, self.experiment.workers)
        self.kernel.call_at(ready, self._start_again, kept)

    def _note_lost_time(self, failed: Time, lost: Sequence[int]) -> None:
        """Count the time that the workers have lost.

        Args:
            failed: time of the present failure.
            lost: the workers that were lost with it; other workers may have been lost before.
        """
        now, table = self.kernel.now, self._members.table
        workers = sum(worker.phase is not Phase.GONE for worker in table.workers)
        before = [name for name, n in self._numbers.items() if n not in lost]
        away = [self._failed_at[name] for name in before if name in self._failed_at]
        self._costs.add("detection", now - failed, workers - len(away))
        since = self._worked_since
        self._costs.add("repeated", failed - since, workers - len(away))
        for at in away:
            self._costs.add("repeated", at - since)
            self._costs.add("restart", now - at)

    def _take_back(self, kept: CheckpointInMemory) -> None:
        """Reset the records to a checkpoint."""
        totals = kept.totals.copy()
        for ended in self._held.go_back(kept.first):
            totals.add_times(*ended)
        self._run.take_up(totals, kept.metrics)

    def _start_again(self, kept: CheckpointInMemory) -> None:
        self.is_down, self._worked_since = False, self.kernel.now
        self.gone = [each.number for each in self._members.table.workers if each.has_left]
        self.events.add("training", time_ns=self.kernel.now)
        self._tell(TrainingBegan())
        self._exchange.start_again(kept)

    # -- checkpoints -----------------------------------------------------------------

    def keep(self, kept: CheckpointInMemory) -> None:
        kept.hand_on(self._held)
        self.last_checkpoint = kept
        self._tell(CheckpointComplete(kept.number))
        self._worked_since = self.kernel.now

    def kept(
        self, number: int, states: Sequence[ShardState], own: Sequence[ShardState] = ()
    ) -> CheckpointInMemory:
        run, experiment = self._run, self.experiment
        totals = run.totals.copy()
        if experiment.cut_off is not None:
            states = aligned(states)
        workers = range(experiment.workers)
        if self._has_servers:
            first = [first_iteration(worker, states) for worker in workers]
        else:
            first = [1 + states[0].watermarks[worker] for worker in workers]
            count_until(states[0].watermarks, totals.iterations)
        return CheckpointInMemory(
            number=number,
            now=self.kernel.now,
            states=states,
            own=own,
            first=first,
            totals=totals,
            metrics=run.metrics.kept(),
            recovery=structs.replace(self.events.recovery),
            rows=self._held.held,
        )

    # -- the end ---------------------------------------------------------------------

    def end(self) -> None:
        run, now_s = self._run, seconds(self.kernel.now)
        if now_s and (rate := undisturbed_rate(run, self._plain)):
            self._costs.goodput = run.totals.applied / now_s / rate

    def close(self) -> None:
        # a coroutine that has never begun is not closed with its process
        for program in self._programs:
            program.close()

    def summary(self) -> dict[str, Any]:
        return {"faults": self._costs.summary()}

    def costs(self) -> dict[str, Any]:
        return self._costs.state()
