"""Real processes against bare pyzmq and against DDP on Gloo, over TCP on 127.0.0.1.

*whole*: what a user gets. Kernel, sockets and wire on both sides; the worker's program
pushes a gradient that is there already and pulls; the server looks whether the gradient is
finite, its shard takes a step (SGD, without momentum), looks whether the parameters are
finite, and copies them for the readers. Against pyzmq under ASP: one worker's gradients
need no sum. *transport*: the same kernel, sockets and wire, and a server that answers a
push at once with a block it holds; both ends have the block in memory of its own, ready to
be computed with. *plain*: DEALER and ROUTER, one message of one frame each way,
copy=False, no keys; what comes is left where ZeroMQ put it.

All run in processes forked from the same server, torch on one thread. A step is timed
from its start in the worker to the start of the next.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe, forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import zmq
from benchmarks.micro.harness import Measurement, in_turn, ratio, value
from benchmarks.micro.steps import GivenLoss

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.experiment.running import as_experiment, run
from outpace.kernel import Kernel, Mailbox
from outpace.real.coordinator.coordinator import Coordinator
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Initialize, WireMessage, WirePush, WireReply
from outpace.real.net.session import Session, new_keys
from outpace.real.net.wire import head_of
from outpace.real.net.zeromq.transport import LOOPBACK, ZeroMQTransport
from outpace.real.node.member import COORDINATOR, CoordinatorLink
from outpace.real.node.worker import EndsIt, Worker
from outpace.real.process import roles
from outpace.real.process.launcher import Role
from outpace.real.process.local import LocalLauncher
from outpace.real.run import LEASE_S, RealRun
from outpace.record.trace import MemorySink, Trace

MB = 250_000  # float32 elements
SMALL = 1024  # 4 KB
WARM_UP = 20
LIMIT_S = 120.0  # for one program; then the benchmark fails
IDLE_S = 5.0
START = {"task": {"kind": "digits-cnn"}, "workers": 8, "servers": 2}


def measure(quick: bool) -> list[Measurement]:
    repetitions = 3 if quick else 7
    few = 1 if quick else 3
    # All processes are forked from a server that has imported what they need, in seconds.
    multiprocessing.set_forkserver_preload(["outpace.support.preload", __name__])
    forkserver.ensure_running()
    return [
        *against_pyzmq(25 * MB, "25 MB", 10 if quick else 30, repetitions, goal=1.0, keys=True),
        *against_pyzmq(100 * MB, "100 MB", 4 if quick else 8, repetitions, goal=0.8),
        *against_pyzmq(SMALL, "4 KB", 500 if quick else 2000, repetitions, goal=1.4),
        *against_ddp(10 if quick else 30, repetitions),
        value(
            f"idle server in a run, share of a core over {IDLE_S:.0f} s",
            [idle_percent() for _ in range(few)],
            unit="%",
            goal=1,
        ),
        *start(few),
    ]


def against_pyzmq(
    elements: int, size: str, steps: int, repetitions: int, goal: float, keys: bool = False
) -> list[Measurement]:
    programs = [
        lambda: in_pair(serve_plain, ask_plain, elements, steps, kind=Stock),
        lambda: in_pair(serve_transport, ask_transport, elements, steps),
        lambda: whole(elements, steps, sync="asp"),
    ]
    if keys:
        programs.append(lambda: whole(elements, steps, sync="asp", keys=True))
    plain, transport, ours, *secure = in_turn(programs, repetitions)

    def line(name: str, above: list[float], below: list[float], goal: float | None) -> Measurement:
        return ratio(
            f"{size} there and back: {name}", above, below, goal=goal, at_least=False, note=times
        )

    return [
        line("whole / plain pyzmq", ours, plain, goal),
        line("transport / plain pyzmq", transport, plain, None),
        *(line("whole with CURVE / whole without", column, ours, None) for column in secure),
    ]


def against_ddp(steps: int, repetitions: int) -> list[Measurement]:
    ours, theirs = in_turn(
        [lambda: whole(25 * MB, steps, workers=2, servers=2), lambda: ddp(25 * MB, steps)],
        repetitions,
    )
    return [
        ratio(
            "BSP step of 25 MB, 2 workers, 2 servers / DDP on Gloo",
            ours,
            theirs,
            goal=1.5,
            at_least=False,
            note=times,
        )
    ]


def times(above: float, below: float) -> str:
    unit, factor = ("ms", 1e3) if below > 1e-3 else ("µs", 1e6)
    return f"{above * factor:.1f} and {below * factor:.1f} {unit}"


# -- processes -----------------------------------------------------------------------------


@contextlib.contextmanager
def processes(kind: type[LocalLauncher] = LocalLauncher) -> Iterator[LocalLauncher]:
    """Those started in here are gone afterwards."""
    group = kind(RealClock(), lambda *_: None)
    try:
        yield group
    finally:
        group.stop()


class Stock(LocalLauncher):
    """Processes without what `forking` does to ours, such as having malloc keep memory."""

    def _start(self, name: str, target: Callable[..., None], *arguments: Any) -> ForkServerProcess:
        context = multiprocessing.get_context("forkserver")
        process = context.Process(target=target, args=arguments, name=name, daemon=True)
        process.start()
        return process


def start_in(group: LocalLauncher, name: str, target: Callable[..., None], *arguments: Any) -> None:
    """Run target(*arguments) in a process of this group."""
    group.start(Role(name, target, arguments), LOOPBACK)


def in_pair(
    serve: Callable[..., None],
    ask: Callable[..., list[float]],
    *arguments: Any,
    kind: type[LocalLauncher] = LocalLauncher,
) -> float:
    """The median of the seconds that `ask` measures; it and `serve` get a process each."""
    endpoint_in, endpoint_out = Pipe(duplex=False)
    result_in, result_out = Pipe(duplex=False)
    with processes(kind) as group:
        start_in(group, "server", serve, endpoint_out, *arguments)
        start_in(group, "client", answer, result_out, ask, endpoint_in, *arguments)
        for end in (endpoint_in, endpoint_out, result_out):
            end.close()  # so that a child that fails is noticed
        return statistics.median(result_of(result_in))


def answer(result: Connection, work: Callable[..., Any], *arguments: Any) -> None:
    result.send(work(*arguments))


def result_of(connection: Connection) -> Any:
    with connection:
        if not connection.poll(LIMIT_S):
            raise TimeoutError(f"nothing came of it in {LIMIT_S:.0f} s")
        return connection.recv()


def first_of(results: list[Connection]) -> list[float]:
    """The first one's, when all have come: nobody is stopped who has not finished."""
    return [result_of(result) for result in results][0]  # noqa: RUF015


def laps(step: Callable[[], object], steps: int) -> list[float]:
    """The seconds of each step, after some to warm up."""
    stamps = []
    for _ in range(steps + WARM_UP + 1):
        stamps.append(time.perf_counter())
        step()
    return between(stamps)[WARM_UP:]


def between(stamps: Sequence[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(stamps)]


# -- plain pyzmq -----------------------------------------------------------------------------


def bytes_of(elements: int) -> memoryview:
    return memoryview(torch.zeros(elements).numpy().data).cast("B")


def serve_plain(endpoint: Connection, elements: int, _: int) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.linger = 0
        socket.bind(f"{LOOPBACK}:*")
        endpoint.send(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        block = bytes_of(elements)
        copy = len(block) < zmq.COPY_THRESHOLD
        while True:
            identity = socket.recv_multipart(0, copy)[0]
            socket.send_multipart([identity, block], copy=copy)


def ask_plain(endpoint: Connection, elements: int, steps: int) -> list[float]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(endpoint.recv())
        block = bytes_of(elements)
        copy = len(block) < zmq.COPY_THRESHOLD

        def step() -> None:
            socket.send(block, 0, copy)
            socket.recv(0, copy)

        return laps(step, steps)


# -- our transport -----------------------------------------------------------------------------


SESSION = Session(run=1, epoch=0, lease_s=LEASE_S, keys=None)


def serve_transport(endpoint: Connection, elements: int, _: int) -> None:
    block = torch.zeros(elements)
    head = head_of(block)
    kernel = Kernel(clock := RealClock())
    inbox = Mailbox[WireMessage](kernel)
    listener = ZeroMQTransport("server-0", SESSION, clock, print).listen(
        LOOPBACK,
        {"worker-0": ""},
        expected=lambda _: lambda _: (head.dtype, head.elements),
        on_message=lambda _, message, __: inbox.put(message),
        on_lost=lambda _: kernel.stop(),
    )

    async def serve() -> None:
        while True:
            push = await inbox.get()
            assert isinstance(push, WirePush)
            message = WireReply(0, push.worker, push.iteration, 0, 0, 0, head)
            listener.send("worker-0", message, block)

    endpoint.send(listener.endpoint)
    kernel.spawn(serve())
    kernel.run()


def ask_transport(endpoint: Connection, elements: int, steps: int) -> list[float]:
    block = torch.zeros(elements)
    head = head_of(block)
    kernel = Kernel(clock := RealClock())
    inbox = Mailbox[WireMessage](kernel)
    caller = ZeroMQTransport("worker-0", SESSION, clock, print).call(
        "server-0",
        endpoint.recv(),
        "",
        expect=lambda _: (head.dtype, head.elements),
        on_message=lambda _, message, __: inbox.put(message),
        on_lost=lambda _: kernel.stop(),
    )
    stamps = []

    async def ask() -> None:
        for iteration in range(steps + WARM_UP + 1):
            stamps.append(time.perf_counter())
            caller.send(WirePush(0, iteration, 0, head), block)
            await inbox.get()

    kernel.spawn(ask())
    kernel.run()
    return between(stamps)[WARM_UP:]


# -- the whole of it -----------------------------------------------------------------------------


class Given(Worker):
    """A worker whose gradient is there already, or after `pause_s`."""

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
    member = Given(link, worker, experiment, elements, steps + WARM_UP, pause_s)
    member.run()
    result.send(between(member.stamps)[WARM_UP:])


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
    """The median of worker 0's steps, in seconds."""
    experiment = as_experiment(
        {
            "task": {"kind": "timing", "parameters": elements},  # in name: see `Given`
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
            link, number = (
                CoordinatorLink(name, endpoint, key, session(name)),
                int(name.split("-")[1]),
            )
            if name.startswith("server"):
                start_in(group, name, roles.serve, link, number, experiment, public)
            else:
                result_in, result_out = Pipe(duplex=False)
                start_in(
                    group,
                    name,
                    work,
                    link,
                    number,
                    experiment,
                    elements,
                    steps,
                    pause_s,
                    result_out,
                )
                result_out.close()
                results.append(result_in)
        if watch is not None:
            watch(coordinator, group)
        coordinator.run()
        return statistics.median(first_of(results))
    finally:
        group.stop()
        coordinator.close()


# -- DDP on Gloo ---------------------------------------------------------------------------------


def ddp(elements: int, steps: int) -> float:
    """The median of rank 0's steps, in seconds."""
    with tempfile.TemporaryDirectory() as folder, processes() as group:
        results = []
        for rank in range(2):
            result_in, result_out = Pipe(duplex=False)
            start_in(
                group,
                f"rank-{rank}",
                answer,
                result_out,
                train_ddp,
                rank,
                f"{folder}/store",
                elements,
                steps,
            )
            result_out.close()
            results.append(result_in)
        return statistics.median(first_of(results))


class GivenModel(torch.nn.Module):
    def __init__(self, elements: int) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(elements))
        self.given = torch.full((elements,), 1e-6)

    def forward(self) -> torch.Tensor:
        return GivenLoss.apply(self.weights, self.given)


def train_ddp(rank: int, store: str, elements: int, steps: int) -> list[float]:
    import torch.distributed

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    model = torch.nn.parallel.DistributedDataParallel(
        GivenModel(elements), gradient_as_bucket_view=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model().backward()
        optimizer.step()

    seconds = laps(step, steps)
    torch.distributed.destroy_process_group()
    return seconds


# -- idle, and start -------------------------------------------------------------------------------


def idle_percent() -> float:
    """Of a server whose only worker computes."""
    shares = []

    def watch(coordinator: Coordinator, group: LocalLauncher) -> None:
        async def look() -> None:
            pid = group.pids["server-0"]
            while not coordinator.started:
                await coordinator.kernel.sleep(0.05)
            await coordinator.kernel.sleep(0.5)
            before, began = cpu_seconds(pid), time.perf_counter()
            await coordinator.kernel.sleep(IDLE_S)
            shares.append((cpu_seconds(pid) - before) / (time.perf_counter() - began))

        coordinator.kernel.spawn(look(), daemon=True)

    whole(SMALL, 1, pause_s=(IDLE_S + 10) / (WARM_UP + 1), watch=watch)
    return 100 * shares[0]


def cpu_seconds(pid: int) -> float:
    """Of all its threads, by the scheduler's own clock. Linux only."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def start(repetitions: int) -> list[Measurement]:
    code = "from benchmarks.micro.real import print_start; print_start()"
    rows = []
    for _ in range(repetitions):
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
        )
        rows.append([float(word) for word in done.stdout.split()])
    *parts, total = [list(column) for column in zip(*rows, strict=True)]
    names = ("task, fork server", "forks", "servers join", "workers join", "ready")
    words = [f"{name} {statistics.median(p):.2f}" for name, p in zip(names, parts, strict=True)]
    return [
        value(
            f"start of {START['workers']} workers, {START['servers']} servers",
            total,
            unit="s",
            goal=4,
            note=", ".join(words),
        )
    ]


def print_start() -> None:
    """Seconds until the first process is forked, all are, servers have joined, workers have
    joined, all are ready; and the sum. From where the launcher has imported everything."""
    stamps = [time.monotonic()]
    forks: list[float] = []
    runs: list[RealRun] = []
    begin = LocalLauncher.start

    def start(group: LocalLauncher, role: Role, address: str) -> None:
        begin(group, role, address)
        forks.append(time.monotonic())

    def watch(run: RealRun) -> None:
        runs.append(run)
        coordinator = run.coordinator

        async def look() -> None:
            for names in (coordinator.servers, coordinator.workers):
                while not coordinator.joined.keys() >= set(names):
                    await coordinator.kernel.sleep(0.002)
                stamps.append(time.monotonic())

        coordinator.kernel.spawn(look(), daemon=True)

    with mock.patch.object(LocalLauncher, "start", start):
        run(START | {"sync": {"kind": "bsp"}, "stop": {"iterations": 1}}, watch=watch)
    stamps[1:1] = forks[0], forks[-1]
    stamps.append(runs[0].coordinator.clock.origin / 1e9)
    print(*between(stamps), stamps[-1] - stamps[0])
