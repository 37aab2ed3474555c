"""A block there and back between two processes: by plain pyzmq, and by our transport."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch
import zmq
from benchmarks.micro.real.processes import Start, between, laps, measuring, started, value_of

from outpace.kernel import Kernel, Mailbox
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.block_frames import head_of
from outpace.real.net.clock import RealClock
from outpace.real.net.transport import Handlers, Session
from outpace.real.net.zeromq.transport import ZeroMQTransport
from outpace.real.run import LEASE_S
from outpace.support.processes import forking
from outpace.sync.messages import Push, Reply, WireMessage

SESSION = Session(run=1, generation=0, lease_s=LEASE_S, keys=None)


def plain(elements: int, steps: int) -> float:
    """Return the median seconds of a step, by pyzmq between two ordinary processes."""
    return _pair(_stock, serve_plain, ask_plain, elements, steps)


def transport(elements: int, steps: int) -> float:
    """Return the median seconds of a step, by our transport between two processes of ours."""
    return _pair(forking.start, serve_transport, ask_transport, elements, steps)


def _stock(name: str, target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a process without what `forking` does to ours, such as having malloc keep memory."""
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=target, args=arguments, name=name, daemon=True)
    process.start()
    return process


def _pair(
    start: Start,
    serve: Callable[[Connection, int], None],
    ask: Callable[[Connection, int, int], list[float]],
    elements: int,
    steps: int,
) -> float:
    endpoint_in, endpoint_out = Pipe(duplex=False)
    server = start("server", serve, endpoint_out, elements)
    client, result = measuring(start, "client", ask, endpoint_in, elements, steps)
    with started(server, client):
        endpoint_in.close()
        endpoint_out.close()
        return statistics.median(value_of(result))


def serve_plain(endpoint: Connection, elements: int) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.linger = 0
        socket.bind(f"tcp://{LOOPBACK}:*")
        endpoint.send(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        block = _bytes(elements)
        copy = len(block) < zmq.COPY_THRESHOLD
        while True:
            identity = socket.recv_multipart(0, copy)[0]
            socket.send_multipart([identity, block], copy=copy)


def ask_plain(endpoint: Connection, elements: int, steps: int) -> list[float]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(endpoint.recv())
        block = _bytes(elements)
        copy = len(block) < zmq.COPY_THRESHOLD

        def step() -> None:
            socket.send(block, 0, copy)
            socket.recv(0, copy)

        return laps(step, steps)


def _bytes(elements: int) -> memoryview:
    return memoryview(torch.zeros(elements).numpy().data).cast("B")


def serve_transport(endpoint: Connection, elements: int) -> None:
    block = torch.zeros(elements)
    head = head_of(block)
    kernel = Kernel(clock := RealClock())
    inbox = Mailbox[WireMessage](kernel)
    listener = ZeroMQTransport("server-0", SESSION, clock, print).listen(
        LOOPBACK,
        {"worker-0": ""},
        Handlers(
            expect=lambda _, __: (head.dtype, head.elements),
            on_message=lambda _, message: inbox.put(message),
            on_lost=lambda _: kernel.stop(),
        ),
    )

    async def serve() -> None:
        while True:
            push = await inbox.get()
            assert isinstance(push, Push)
            reply = Reply(0, push.worker, push.iteration, 0, 0, 0, block)
            listener.send("worker-0", reply)

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
        Handlers(
            expect=lambda _, __: (head.dtype, head.elements),
            on_message=lambda _, message: inbox.put(message),
            on_lost=lambda _: kernel.stop(),
        ),
    )
    stamps = []

    async def ask() -> None:
        for iteration in range(2 * steps + 1):
            stamps.append(time.perf_counter())
            caller.send(Push(0, iteration, 0, block))
            await inbox.get()

    kernel.spawn(ask())
    kernel.run()
    return between(stamps)[steps:]
