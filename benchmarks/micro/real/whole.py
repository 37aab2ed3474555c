"""A run with real processes whose workers have their gradients already."""

from __future__ import annotations

import secrets
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import torch
from benchmarks.micro.real.processes import between, value_of

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.experiment.running import as_experiment
from outpace.real.coordinator.coordinator import Coordinator
from outpace.real.net.block_frames import head_of
from outpace.real.net.messages import Initialize
from outpace.real.net.session import Session, new_keys
from outpace.real.net.zeromq.transport import LOOPBACK
from outpace.real.node.member import COORDINATOR, CoordinatorLink
from outpace.real.node.worker import EndsIt, Worker
from outpace.real.process import roles
from outpace.real.process.launcher import Role
from outpace.real.process.local import LocalLauncher
from outpace.real.run import LEASE_S
from outpace.record.sinks import MemorySink
from outpace.record.trace import Trace


class Given(Worker):
    """A worker whose gradient is there already, or after a pause of `pause_s` seconds."""

    layout = "given"

    def __init__(
        self,
        link: CoordinatorLink,
        worker: int,
        experiment: Experiment,
        elements: int,
        steps: int,
        pause_s: float,
    ) -> None:
        super().__init__(link, worker, experiment)
        self.stamps: list[float] = []
        self._gradient = torch.full((elements,), 1e-6)
        self._steps, self._pause_s = steps, pause_s

    @property
    def layers(self) -> list[int]:
        return [self._gradient.numel()]

    def cut(self, slices: Sequence[slice]) -> list[Block]:
        self._parts = [self._gradient[part] for part in slices]
        return [torch.zeros_like(part) for part in self._parts]

    def initialize(self, server: int, block: Block) -> Initialize:
        return Initialize("", [], [], head_of(block))

    def must_stop(self, iteration: int) -> bool:
        self.stamps.append(time.perf_counter())
        return iteration >= self._steps

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        if self._pause_s:
            await self.kernel.sleep(self._pause_s)
        return self._parts

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: EndsIt
    ) -> Sequence[Block | None]:
        raise AssertionError("no strategy measured here cuts workers off")


def work(
    link: CoordinatorLink,
    worker: int,
    experiment: Experiment,
    elements: int,
    steps: int,
    pause_s: float,
    result: Connection,
) -> None:
    member = Given(link, worker, experiment, elements, 2 * steps, pause_s)
    member.run()
    result.send(between(member.stamps)[steps:])


def whole(
    elements: int,
    steps: int,
    *,
    workers: int = 1,
    servers: int = 1,
    keys: bool = False,
    sync: str = "bsp",
    pause_s: float = 0.0,
    watch: Callable[[Coordinator, LocalLauncher], None] | None = None,
) -> float:
    """Return the median seconds of the steps of worker 0, after as many steps to warm up."""
    experiment = as_experiment(
        {
            "task": {"kind": "timing", "parameters": elements},  # only its size: `Given` trains
            "workers": workers,
            "servers": servers,
            "sync": {"kind": sync},
            "stop": {"iterations": steps},
        }
    )
    names = [f"server-{m}" for m in range(servers)] + [f"worker-{n}" for n in range(workers)]
    pairs = {name: new_keys() for name in [COORDINATOR, *names]} if keys else {}
    public = {name: pair.public for name, pair in pairs.items()}
    run_id = secrets.randbits(62)

    def session(name: str) -> Session:
        return Session(run_id, 0, LEASE_S, pairs.get(name))

    coordinator = Coordinator(
        experiment,
        session(COORDINATOR),
        public,
        Trace(MemorySink()),
        lambda *_: None,
        lambda text: print(text, file=sys.stderr),
    )
    group = LocalLauncher(coordinator.clock, coordinator.process_ended)
    results = []
    try:
        for name in names:
            endpoint, key = coordinator.listener.endpoint, public.get(COORDINATOR, "")
            link = CoordinatorLink(name, endpoint, key, session(name))
            number = int(name.split("-")[1])
            if name.startswith("server"):
                group.start(Role(name, roles.serve, (link, number, experiment, public)), LOOPBACK)
            else:
                result_in, result_out = Pipe(duplex=False)
                arguments = link, number, experiment, elements, steps, pause_s, result_out
                group.start(Role(name, work, arguments), LOOPBACK)
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
