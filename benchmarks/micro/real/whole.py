"""A run with real processes whose workers have their gradients already."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import torch
from benchmarks.micro.real.processes import between, value_of

from outpace.blocks.block import Block, StepSettings
from outpace.config.experiment import Experiment
from outpace.engine.losses import rules_about_losses
from outpace.engine.output import print_line
from outpace.experiment.sources import as_experiment
from outpace.optim.torch_optimizers import State
from outpace.real.coordinator.coordinator import Coordinator
from outpace.real.coordinator.setting import Setting
from outpace.real.net.messages import Initialize
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.server import serve
from outpace.real.node.worker import ServedWorker
from outpace.real.process.launcher import Role
from outpace.real.process.local import LocalLauncher
from outpace.real.run import LEASE_S
from outpace.record.event_log import EventLog
from outpace.record.trace import Trace, trace_table
from outpace.sync.membership.decide import Membership
from outpace.sync.messages import SCHEDULER
from outpace.sync.programs.context import SendPart


class Given:
    """A trainer whose gradient is there already, or after a pause of `pause_s` seconds.

    It lies where a trainer would have made it: in a slot of shared memory, if there is one.
    """

    used = ""
    layout = "given"
    stops = True
    step_settings: StepSettings | None = None

    def __init__(self, process: ServedWorker, elements: int, pause_s: float) -> None:
        self.stamps: list[float] = []
        self.layers = [elements]
        self._gradient = torch.full((elements,), 1e-6)
        self._filled = set[int]()  # addresses of slots that have a gradient
        self._process, self._pause_s = process, pause_s

    def read_buffers(self, *, unsaved: bool = False) -> torch.Tensor:
        return torch.empty(0, dtype=torch.uint8)

    def load_buffers(self, data: torch.Tensor) -> None:
        raise AssertionError("there are none")

    def cut(self, slices: Sequence[slice]) -> list[Block]:
        self._parts = [self._gradient[part] for part in slices]
        return [torch.zeros_like(part) for part in self._parts]

    def initialize(self, server: int, block: Block) -> Initialize:
        return Initialize("", [], [], block)

    def lengths(self, server: int) -> dict[int, int]:
        return {}

    def initial_state(self) -> Sequence[Mapping[int, State]]:
        return []

    async def gradient(
        self,
        parameters: Sequence[Block],
        iteration: int,
        must_end: Callable[[], bool] | None = None,
    ) -> Sequence[Block | None]:
        self.stamps.append(time.perf_counter())
        if self._pause_s:
            await self._process.kernel.sleep(self._pause_s)
        return [self._made(number, part) for number, part in enumerate(self._parts)]

    def _made(self, number: int, part: torch.Tensor) -> torch.Tensor:
        """Return the gradient in memory in which it is sent without a copy, if there is any."""
        place = self._process.gradient_memory(number, part.numel(), part.dtype)
        if place is None:
            return part
        if place.data_ptr() not in self._filled:
            self._filled.add(place.data_ptr())
            place.copy_(part)
        return place

    async def gradient_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> Sequence[Block | None]:
        return await self.gradient(parameters, iteration)


def work(
    link: CoordinatorLink,
    worker: int,
    experiment: Experiment,
    elements: int,
    steps: int,
    pause_s: float,
    result: Connection,
) -> None:
    process = ServedWorker(link, worker, experiment)
    given = Given(process, elements, pause_s)
    process.run(process.work(given))
    result.send(between(given.stamps)[steps:])


def whole(
    elements: int,
    steps: int,
    *,
    workers: int = 1,
    servers: int = 1,
    memory: bool = False,
    sync: str = "bsp",
    pause_s: float = 0.0,
    watch: Callable[[Coordinator, LocalLauncher], None] | None = None,
) -> float:
    """Return the median seconds of the steps of worker 0, after as many steps to warm up.

    memory: large blocks go through shared memory.
    """
    experiment = as_experiment(
        {
            "task": {"kind": "timing", "parameters": elements},  # only its size: `Given` trains
            "workers": workers,
            "servers": servers,
            "sync": {"kind": sync},
            "shared_memory": memory,
            "stop": {"iterations": 2 * steps + 1},
        }
    )
    rules = rules_about_losses(experiment, 120.0, can_start=False, can_begin_again=False)
    trace = Trace(trace_table())
    coordinator = Coordinator(
        Setting(
            experiment=experiment,
            members=Membership(rules, [SCHEDULER]),
            launcher=LocalLauncher,
            lease_s=LEASE_S,
            on_output=print_line,
            events=EventLog(),
            trace=trace,
            evaluate=lambda *_: None,
            log=lambda text: print(text, file=sys.stderr),
        ),
        start_worker=lambda worker, generation: None,
    )
    group, links = coordinator.launcher, coordinator.links
    assert isinstance(group, LocalLauncher)
    public = {name: link.session.keys.public for name, link in links.items()}
    results = []
    try:
        for name in coordinator.servers + coordinator.workers:
            link = links[name]
            number = int(name.split("-")[1])
            if name.startswith("server"):
                group.start(Role(name, serve, (link, number, experiment, public)))
            else:
                result_in, result_out = Pipe(duplex=False)
                arguments = link, number, experiment, elements, steps, pause_s, result_out
                group.start(Role(name, work, arguments))
                result_out.close()
                results.append(result_in)
        if watch is not None:
            watch(coordinator, group)
        coordinator.run()
        seconds = [value_of(result) for result in results]
        return statistics.median(seconds[0])
    finally:
        group.stop()
        coordinator.close()
