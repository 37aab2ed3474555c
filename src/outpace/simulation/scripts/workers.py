"""The scripts of all virtual workers of a run, each in a separate process, and their models."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final, cast

import torch

from outpace.blocks.block import Block, parts
from outpace.blocks.naming import state_dict_of
from outpace.config.experiment import Experiment
from outpace.engine.output import OnOutput, Output
from outpace.engine.scripts.requirements import other_parameters
from outpace.errors import ConfigError
from outpace.simulation.scripts.collectives.opening import Opening
from outpace.simulation.scripts.messages import Attached, Ended, receive
from outpace.simulation.scripts.process import ScriptProcess
from outpace.support.memory import free_bytes, own_bytes
from outpace.support.processes.forking import GRACE_S, preload, require_forking
from outpace.support.streams import OutputClosed
from outpace.sync.messages import worker_name
from outpace.tasks import Evaluation

_LOOK_MS: Final = 50
_COPIES_ONCE: Final = 8  # copies of the parameters in the simulation, for any number of workers


class ScriptWorkers:
    """Starts the script of each worker and waits until all have called `outpace.attach`.

    Args:
        files: the folder for files of the scripts.
        show: called with each line that the scripts print.
        measured: start only the script of worker 0, to measure at least this number of its steps.

    Attributes:
        files: as given.
        processes: processes of the scripts, by worker.
        attached: what each script has attached, by worker.

    Raises:
        ConfigError: if the scripts do not fit the run, or not into the memory.
        RunError: if a script fails.
    """

    def __init__(
        self,
        experiment: Experiment,
        files: Path | None,
        show: OnOutput,
        *,
        measured: int | None = None,
    ) -> None:
        require_forking()
        # Making a torch optimizer imports more of torch, which takes two seconds in each process.
        preload("torch._dynamo")
        preload("outpace.simulation.scripts.child.main")
        self._output = OutputThread()
        self._outputs: list[Output] = []
        self.files = files
        self.processes: list[ScriptProcess] = []
        alone = measured is not None
        workers = 1 if alone else experiment.workers
        self._experiment, self._measured = experiment, measured
        self._show: OnOutput = partial(_without_name, show) if workers == 1 else show
        try:
            first = self._start(0)
            self.processes.append(first)
            with contextlib.closing(Opening(experiment.workers, alone=alone)) as opening:
                _require_memory(first, opening.follow(first), experiment, workers)
                for worker in range(1, workers):
                    self.processes.append(self._start(worker))
                for process in self.processes[1:]:
                    opening.follow(process)
                self.attached = opening.attached()
            for worker in range(1, workers):
                _require_fit(worker, self.attached[worker], self.attached[0], experiment)
        except BaseException:
            self.close()
            raise

    def _start(self, worker: int) -> ScriptProcess:
        output = Output(self._output, worker_name(worker), self._show)
        self._outputs.append(output)
        return ScriptProcess(
            worker, self._experiment, self.files, output, self._require_reader, self._measured
        )

    def _require_reader(self) -> None:
        """Raise OutputClosed if the scripts' output is not read any more."""
        if self._output.closed:
            raise OutputClosed

    def begin(self, slices: Sequence[slice]) -> None:
        """Tell all scripts that the run begins.

        Args:
            slices: slices of the flat parameters, one for each server.
        """
        for process in self.processes:
            process.begin(self.attached[0], list(slices))

    def take_output(self) -> None:
        """Print the rest of the scripts' output. Raises OutputClosed if nothing reads it."""
        self._output.close()
        for output in self._outputs:
            output.take()
        self._require_reader()

    def close(self, *, at_once: bool = False) -> None:
        """End all processes. at_once: do not let running scripts clean up. Idempotent."""
        if not at_once:
            _end_scripts(self.processes)
        for process in self.processes:
            process.close()
        self._output.close()
        for output in self._outputs:
            with contextlib.suppress(OutputClosed):
                output.close()
        self._outputs.clear()


class ScriptWorkload:
    """The model that scripts have attached, cut into blocks. Implements `Workload`."""

    has_accuracy = True  # a script may log the accuracy
    samples = None
    model = None

    def __init__(self, workers: ScriptWorkers) -> None:
        self.workers = workers
        self.first = workers.attached[0]
        self.layers = self.first.layers
        self.size = sum(self.layers)
        self.starts = list(accumulate(self.layers, initial=0))  # shape of each parameter
        self.slices = [slice(0, self.size)]

    @property
    def layout(self) -> str:
        return self.first.layout

    def cut(self, slices: Sequence[slice]) -> None:
        self.slices = list(slices)

    def initial_parameters(self) -> list[Block]:
        flat = self.first.parameters
        assert flat is not None
        return [flat[part].clone() for part in self.slices]

    def gradient(
        self, parameters: Sequence[Block], worker: int, iteration: int
    ) -> tuple[float | None, Sequence[Block]]:
        raise NotImplementedError("scripts compute their gradients in their own processes")

    def evaluate(self, parameters: Sequence[Block], samples: int | None = None) -> Evaluation:
        raise NotImplementedError("a script evaluates its model itself")

    def state_dict(self, parameters: Sequence[Block]) -> dict[str, torch.Tensor]:
        flat = torch.cat([piece for block in parameters for piece in parts(block)])
        buffers = self.workers.processes[0].buffers
        return state_dict_of(self.first.layout, [flat[: self.size]], buffers)


def _end_scripts(processes: Sequence[ScriptProcess]) -> None:
    """End scripts in the middle, like a real run that ends early: they may clean up.

    `ScriptProcess.close` kills a script that has not ended after two seconds.
    """
    pipes = {process.child.pipe for process in processes if process.end_early()}
    deadline = time.monotonic() + GRACE_S
    while pipes and (left_s := deadline - time.monotonic()) > 0:
        for pipe in cast("list[Connection]", wait(pipes, left_s)):
            try:  # their messages are read, because a full pipe would stop them
                has_ended = isinstance(receive(pipe), Ended)
            except (EOFError, ConnectionError):
                has_ended = True
            if has_ended:
                pipes.remove(pipe)


def _without_name(show: OnOutput, _: str, line: str, error: bool) -> None:
    show("", line, error)


def _require_memory(
    first: ScriptProcess, attached: Attached | None, experiment: Experiment, workers: int
) -> None:
    """Raise ConfigError if the other workers' processes do not fit into the memory.

    attached: None if the script waits for others in one of its own collectives.
    """
    own, free = own_bytes(first.child.pid), free_bytes()
    if attached is not None and attached.own_bytes is not None:
        own = attached.own_bytes
    if own is None or free is None or workers == 1:
        return
    size = 0 if attached is None else sum(attached.layers) * attached.dtype.itemsize
    each, once = own + _copies(experiment) * size, _COPIES_ONCE * size
    if workers * each - own + once > free:  # the first process has its own memory already
        most, needed = max(1, (free + own - once) // each), workers * each + once
        raise ConfigError(
            f"workers: {workers} scripts need about {needed / 1e9:.1f} GB, because "
            f"the process of worker-0 has {own / 1e6:.0f} MB for itself alone before its training, "
            f"and {free / 1e9:.1f} GB are free: have at most {most} workers"
        )


def _copies(experiment: Experiment) -> int:
    """Return how many copies of the parameters each worker has besides its model.

    Measured with SGD with momentum and 3 and 6 workers: 6.3 with servers, 8.2 with ssgd and 10.3
    with local-sgd. They are the gradient, the memory shared with the simulation, and copies there.
    """
    if experiment.peers is None:
        return 6
    return 10 if experiment.peers.has_own else 8


def _require_fit(worker: int, other: Attached, first: Attached, experiment: Experiment) -> None:
    """Raise ConfigError unless this worker trains the same model as worker 0."""
    name = worker_name(worker)
    if other.is_followed != first.is_followed:
        raise ConfigError(
            f"{name} and worker-0 differ: one calls outpace.attach, the other trains with "
            "DistributedDataParallel: let all workers do the same"
        )
    if other.layout != first.layout:
        raise other_parameters(name, other.layout, first.layout)
    if experiment.peers is not None and other.state_digest != first.state_digest:
        raise ConfigError(
            f"{name}'s optimizer begins with another state than worker-0's: load the same "
            "checkpoint into the optimizer of every worker, before the training begins"
        )


class OutputThread:
    """Prints the output of scripts, in a thread of the simulation. Implements `Watcher`.

    Attributes:
        closed: True once nothing reads the output of this process any more.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[], None]] = {}
        self._poll = select.poll()
        self._lock = threading.RLock()  # copied, because a handler may call `forget`
        self._is_over = threading.Event()
        self.closed = False
        self._thread = threading.Thread(target=self._read, name="output of scripts", daemon=True)
        self._thread.start()

    def watch(self, socket: int, handler: Callable[[], None]) -> None:
        with self._lock:
            self._handlers[socket] = handler
            self._poll.register(socket, select.POLLIN)

    def forget(self, socket: int) -> None:
        with self._lock:
            if self._handlers.pop(socket, None):
                self._poll.unregister(socket)

    def close(self) -> None:
        """End the thread. Files are no longer watched, but can still be forgotten."""
        self._is_over.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._is_over.is_set():
            ready = self._poll.poll(_LOOK_MS)
            with self._lock:
                for file, _ in ready:
                    handler = self._handlers.get(file)
                    if handler is not None:
                        self._call(handler)

    def _call(self, handler: Callable[[], None]) -> None:
        try:
            handler()
        except OutputClosed:
            self.closed = True
