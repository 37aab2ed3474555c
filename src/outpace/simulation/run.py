"""One run in virtual time: real gradients, simulated cluster. An `Engine`.

Wires the parameter-server program to the kernel, the network, the shards and the
cluster's laws. Nothing here decides anything about synchronization.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from outpace.blocks import parameter_block
from outpace.cluster.run_times import RunTime
from outpace.config import Experiment
from outpace.control import ControlFunction
from outpace.errors import (
    ConfigError,
    DivergenceError,
    OutpaceError,
    ProtocolError,
    RunError,
)
from outpace.generators import left_as_they_were
from outpace.kernel import DeadlockError, Kernel, WalkerError
from outpace.messages import (
    SCHEDULER,
    Block,
    Leave,
    Message,
    Reply,
    server_name,
    size_bytes,
    worker_name,
)
from outpace.metrics import Metrics
from outpace.predict.fitting import AtOnce
from outpace.predict.interface import Model, Rule, Wait
from outpace.programs.context import Stopped
from outpace.programs.cutoff import cut_off
from outpace.programs.parameter_server import parameter_server
from outpace.randomness import Stream
from outpace.recorder import Recorder, Totals
from outpace.runtimes.table import Seconds
from outpace.shard import Shard
from outpace.simulation.control import SimulationControl
from outpace.simulation.executors import EvaluationJob, Gradients
from outpace.simulation.fair import network_of
from outpace.simulation.network import Log, Network
from outpace.simulation.service import Service
from outpace.slicing import layers_within
from outpace.strategy import (
    cut_off_rule,
    scheduler_shard,
    server_policy,
    server_program,
    worker_program,
)
from outpace.sync import CutOff
from outpace.tasks import (
    CuttableWorkload,
    Evaluation,
    require_accuracy,
)
from outpace.trace import Trace
from outpace.units import Time, nanoseconds, seconds

_END_OF_TIME: Time = 2**63 - 1  # 292 years; the trace keeps times in 64 bits
Progress = Callable[[float], None]  # share of the run done, in [0, 1]


class Simulation:
    """A run that can be driven once.

    Raises ConfigError where the experiment does not fit its task.
    """

    def __init__(
        self,
        experiment: Experiment,
        workload: CuttableWorkload,
        trace: Trace,
        *,
        progress: Progress | None = None,
        message_log: Log | None = None,
        tie_seed: int | None = None,
        control: ControlFunction | None = None,
    ) -> None:
        self.kernel = Kernel(tie_seed=tie_seed)
        self._experiment, self._workload, self._trace = experiment, workload, trace
        self._progress = progress or (lambda _: None)
        self._user_control = control
        require_accuracy(workload, experiment.stop.target_accuracy)
        slices = experiment.slices(workload.layers)
        workload.cut(slices)
        self.layers = len(workload.layers)
        layers = [layers_within(part, workload.layers) for part in slices]
        optimizer = experiment.optimizer_in_run(workload.samples)
        self.recorder = Recorder(trace, self._on_update)
        self.metrics = Metrics()
        self.network = network_of(
            experiment.network, self.kernel, message_log,
            machines=experiment.machines, seed=experiment.seed,
        )  # fmt: skip
        self._followed = experiment.policies.initial()
        self._shards = [
            Shard(
                server,
                parameter_block(block, optimizer, layers=layers[server]),
                experiment.workers,
                server_policy(experiment, self._followed[server].policy),
                self.recorder,
            )
            for server, block in enumerate(workload.initial_parameters())
        ]
        self._scheduler: Shard | None = None
        if experiment.barrier == "global":
            self._scheduler = scheduler_shard(experiment, self.recorder)
        self.gradients = Gradients(experiment, workload, self._computed, self._share)
        self._fitting: AtOnce | None = None
        self._leaves = 0
        self._evaluated_at: list[int] = []  # the shards' versions at the last evaluation
        self._pending: deque[tuple[int, EvaluationJob]] = deque()  # rows to be filled in
        self._spawn()

    def times(self, host_s: float) -> dict[str, Any]:
        return {
            "virtual_time_s": seconds(self.kernel.now),
            "simulated_in_s": host_s,
            "executor": self.gradients.describe(),
        }

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self._workload.state_dict(self.parameters())

    def run_time_model(self) -> Model | None:
        return None if self._fitting is None else self._fitting.model

    @property
    def totals(self) -> Totals:
        """What happened so far, in sums."""
        totals = self.recorder.totals
        totals.messages = self.network.messages - self._leaves
        totals.bytes_sent = self.network.bytes_sent
        return totals

    def parameters(self) -> list[Block]:
        """The blocks as the shards have them now."""
        return [shard.read() for shard in self._shards]

    def run(self) -> None:
        """Drive it to its end. Raises RunError if it fails, with the virtual time.

        `close` must be called afterwards, whatever happened.
        """
        try:
            self._drive()
        except RunError:
            with contextlib.suppress(RunError):
                self._settle(wait=True)  # what led to it
            raise
        self._settle(wait=True)

    def _drive(self) -> None:
        evaluate, stop = self._experiment.evaluate, self._experiment.stop
        until = _END_OF_TIME if stop.virtual_time_s is None else nanoseconds(stop.virtual_time_s)
        self.gradients.start()
        if self._user_control is not None:
            self._user_control(self._control)
        if evaluate.every_updates or evaluate.every_s:
            self._evaluate()
        try:
            with _rare_garbage_collection():
                self.kernel.run(until)
        except WalkerError as error:
            if isinstance(error.error, OutpaceError):
                where = f"after {seconds(error.at):.6f} s of virtual time"
                raise type(error.error)(f"{error.error} ({where})") from error.error
            raise
        except DeadlockError as error:
            held = [text for shard in self._all_shards if (text := shard.describe_waiting())]
            raise RunError("\n".join([str(error), *held])) from error
        if self.kernel.now >= _END_OF_TIME:
            raise RunError("the run came to the end of virtual time, 292 years, and to no other")
        if self._versions() != self._evaluated_at:
            self._evaluate()

    def close(self) -> None:
        """Report what was left undone to the trace. Idempotent."""
        self.kernel.close()
        self._abandon()
        self.gradients.close()
        for shard in self._all_shards:
            shard.close(self.kernel.now)
        self._trace.flush()

    @property
    def _all_shards(self) -> list[Shard]:
        """With the scheduler's."""
        return self._shards if self._scheduler is None else [*self._shards, self._scheduler]

    # -- wiring ----------------------------------------------------------------

    def _spawn(self) -> None:
        experiment = self._experiment
        if experiment.compute is None:
            raise ConfigError(
                "compute is missing: in virtual time somebody must say how long a step takes"
            )
        run_time = experiment.compute.run_time(
            experiment.seed, experiment.workers, experiment.stop.iterations
        )
        servers = [server_name(server) for server in range(experiment.servers)]
        serve = server_program(experiment)
        timed = experiment.push_time is not None or experiment.pull_time is not None
        nodes = [
            (_TimedServer if timed else _Server)(self, name, shard)
            for name, shard in zip(servers, self._shards, strict=True)
        ]
        # Before anything is started: a policy that is to come may not be made, nor a rule.
        self._control = SimulationControl(
            experiment, self.kernel, self._followed, [node.mailbox for node in nodes],
            lambda: self.totals,
        )  # fmt: skip
        sync = experiment.sync
        rule = self._rule(sync, run_time) if isinstance(sync, CutOff) else None
        for name, node in zip(servers, nodes, strict=True):
            self.kernel.spawn(serve(node), name, daemon=True)
        if self._scheduler is not None:
            scheduler = _Server(self, SCHEDULER, self._scheduler)
            self.kernel.spawn(parameter_server(scheduler), SCHEDULER, daemon=True)
        elif rule is not None:
            ends = cut_off(_CutOffScheduler(self), rule, experiment.workers, experiment.servers)
            self.kernel.spawn(ends, SCHEDULER, daemon=True)
        train = worker_program(experiment)
        self._total = experiment.workers * (experiment.stop.iterations or 0)
        self._done = 0
        for index in range(experiment.workers):
            worker = _Worker(self, index, servers, run_time)
            self.kernel.spawn(train(worker), worker_name(index))
        if experiment.evaluate.every_s is not None:
            self.kernel.spawn(self._evaluate_every(), "evaluation", daemon=True)

    def _rule(self, sync: CutOff, run_time: RunTime) -> Rule:
        """By which iterations are ended."""
        experiment = self._experiment
        iterations = itertools.count()

        def truth() -> Seconds:
            """What all would take for the iteration that begins now."""
            iteration, now = next(iterations), self.kernel.now
            times = [run_time(worker, iteration, now) for worker in range(experiment.workers)]
            return np.array(times)

        if sync.fitted_in_run:
            self._fitting = AtOnce(sync.model, experiment.seed)
        return cut_off_rule(experiment, sync, say=_warn, fitting=self._fitting, truth=truth)

    async def _evaluate_every(self) -> None:
        period_s = self._experiment.evaluate.every_s
        assert period_s is not None
        while True:
            await self.kernel.sleep(period_s)
            if self.kernel.nothing_due:
                return  # a deadlock: this clock must not hide it
            self._evaluate()

    def _on_update(self, shard: int, version: int) -> None:
        every = self._experiment.evaluate.every_updates
        if every and shard == 0 and version % every == 0:
            self._evaluate()

    def _evaluate(self) -> None:
        """At zero virtual time."""
        self._evaluated_at = self._versions()
        target = self._experiment.stop.target_accuracy
        evaluation = self.gradients.evaluate(
            self.parameters(), self._experiment.evaluate.samples, self.kernel.now,
            at_once=target is not None,
        )  # fmt: skip
        known = evaluation if isinstance(evaluation, Evaluation) else Evaluation()
        row = self.metrics.add(self.kernel.now, self._evaluated_at[0], known, self.totals)
        if isinstance(evaluation, EvaluationJob):
            self._pending.append((row, evaluation))
        elif target is not None and (evaluation.accuracy or 0.0) >= target:
            self.kernel.stop()
        self._settle(wait=False)

    def _settle(self, *, wait: bool) -> None:
        """Fill in evaluations that are there, or, waiting for them, all. Raises RunError."""
        while self._pending and (wait or self._pending[0][1].outcome is not None):
            row, job = self._pending.popleft()
            self.metrics.fill(row, job.value())

    def _abandon(self) -> None:
        """Of a run that ended early: leave out evaluations that are still under way."""
        while self._pending:
            row, job = self._pending.pop()
            if isinstance(job.outcome, Evaluation):
                self.metrics.fill(row, job.outcome)
            else:
                self.metrics.drop(row)

    def _versions(self) -> list[int]:
        return [shard.version for shard in self._shards]

    def _finished_step(self) -> None:
        """A worker has gone through the time that a gradient takes."""
        self._done += 1
        if self._done % 64 == 0:
            self._progress(self._share())

    def _share(self) -> float:
        """How much of the run is done, in [0, 1]; 0 if nobody knows."""
        limit_s = self._experiment.stop.virtual_time_s
        by_time = seconds(self.kernel.now) / limit_s if limit_s is not None else 0.0
        return max(by_time, self._done / self._total if self._total else 0.0)

    def _computed(self, worker: int, iteration: int, loss: float | None) -> None:
        """A gradient's value was read, and so computed."""
        if loss is None:
            return
        if not math.isfinite(loss):
            raise DivergenceError(
                f"the loss of worker {worker} became {loss} in its iteration {iteration}, "
                f"after {self._shards[0].version} updates; try a smaller learning rate"
            )
        self.recorder.batch_loss(loss)


class _Node:
    """What the contexts of servers and workers have in common."""

    def __init__(self, kernel: Kernel, network: Network, name: str) -> None:
        self._kernel, self._network, self._name = kernel, network, name
        self.mailbox = mailbox = network.add(name)
        self.recv: Callable[[], Coroutine[Any, Any, Message]] = mailbox.get
        self.recv_within: Callable[[float], Coroutine[Any, Any, Message | None]]
        self.recv_within = mailbox.get_within

    @property
    def now(self) -> Time:
        return self._kernel.now

    def send(self, to: str, *messages: Message) -> None:
        for message in messages:
            self._network.send(self._name, to, message, size_bytes(message))


class _Server(_Node):
    """The context of a server's program."""

    def __init__(self, simulation: Simulation, name: str, shard: Shard) -> None:
        super().__init__(simulation.kernel, simulation.network, name)
        self.shard = shard

    def refuse(self, message: Message, error: ProtocolError) -> None:
        raise error


class _TimedServer(_Server):
    """The same where pushes and pulls take the server time."""

    def __init__(self, simulation: Simulation, name: str, shard: Shard) -> None:
        super().__init__(simulation, name, shard)
        experiment = simulation._experiment
        self._service = Service(
            self._kernel, self.mailbox, experiment.seed, shard.index,
            experiment.push_time, experiment.pull_time,
        )  # fmt: skip
        self.recv, self.recv_within = self._service.next, self._service.next_within

    def send(self, to: str, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Reply):
                self._service.answer(message, partial(super().send, to))
            else:
                super().send(to, message)


class _CutOffScheduler(_Node):
    """The context of the program that cuts iterations off."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation.kernel, simulation.network, SCHEDULER)
        self._recorder = simulation.recorder

    def iteration_closed(
        self, iteration: int, opened: Time, ended: Time, wait: Wait, count: int
    ) -> None:
        self._recorder.iteration_closed(iteration, opened, ended, wait, count)

    def refuse(self, message: Message, error: ProtocolError) -> None:
        raise error


class _Worker(_Node):
    """The context of a worker's program."""

    def __init__(
        self,
        simulation: Simulation,
        worker: int,
        servers: Sequence[str],
        run_time: Callable[[int, int, Time], float],
    ) -> None:
        super().__init__(simulation.kernel, simulation.network, worker_name(worker))
        self.worker, self.servers = worker, servers
        self.recv_nowait = self.mailbox.get_nowait
        self._simulation, self._run_time = simulation, run_time
        self._recorder = simulation.recorder
        experiment = simulation._experiment
        limit = experiment.stop.iterations
        self._last = math.inf if limit is None else limit
        self._coins = Stream(experiment.seed, "coin", worker, lambda source, n: source.random(n))

    def send(self, to: str, *messages: Message) -> None:
        super().send(to, *messages)
        self._simulation._leaves += isinstance(messages[0], Leave)

    def initial_parameters(self) -> list[Block]:
        return self._simulation.parameters()

    def coin(self, iteration: int) -> float:
        return self._coins[iteration]

    def must_stop(self, iteration: int) -> bool:
        return iteration >= self._last

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        kernel = self._kernel
        duration_s = self._run_time(self.worker, iteration, kernel.now)
        due = kernel.now + nanoseconds(duration_s)
        gradient = self._simulation.gradients.submit(parameters, self.worker, iteration, due)
        await kernel.sleep(duration_s)
        self._recorder.gradient_computed(self.worker)
        self._simulation._finished_step()
        return gradient

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        kernel, started = self._kernel, self._kernel.now
        duration = nanoseconds(self._run_time(self.worker, iteration, started))
        due = started + duration
        gradient = self._simulation.gradients.submit(parameters, self.worker, iteration, due)
        while message := await self.mailbox.get_within(seconds(max(0, due - kernel.now))):
            if ends_it(message):  # nobody refers to the gradient any more: never computed
                self._simulation._finished_step()
                layers = self._simulation.layers  # as far as a real worker would know it
                return Stopped((kernel.now - started) * layers // max(1, duration) / layers)
        self._recorder.gradient_computed(self.worker)
        self._simulation._finished_step()
        return gradient

    def iteration_finished(
        self, iteration: int, started: Time, computed: Time, finished: Time, held: Time,
        last_server: int,
    ) -> None:  # fmt: skip
        self._recorder.iteration_finished(
            self.worker, iteration, started, computed, finished, held, last_server
        )


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


@contextlib.contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """A run makes many short-lived objects and hardly a cycle among them."""
    thresholds = gc.get_threshold()
    gc.set_threshold(max(thresholds[0], 50_000), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@contextlib.contextmanager
def one_thread_own_randomness() -> Iterator[None]:
    """What a simulation needs of this process, given back afterwards.

    One thread, because sums over several depend on their number; the user's random
    states and default dtype are left as they were.
    """
    threads = torch.get_num_threads()
    with left_as_they_were():
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
