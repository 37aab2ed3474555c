"""A block there and back between two processes, by plain pyzmq."""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch
import zmq
from benchmarks.micro.real.processes import laps, measuring, started, value_of

from outpace.real.net.addresses import LOOPBACK


def plain(elements: int, steps: int) -> float:
    """Return the median seconds of a step, by pyzmq between two ordinary processes."""
    endpoint_in, endpoint_out = Pipe(duplex=False)
    server = _stock("server", serve, endpoint_out, elements)
    client, result = measuring(_stock, "client", ask, endpoint_in, elements, steps)
    with started(server, client):
        endpoint_in.close()
        endpoint_out.close()
        return statistics.median(value_of(result))


def _stock(name: str, target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a process without what `forking` does to ours, such as having malloc keep memory."""
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=target, args=arguments, name=name, daemon=True)
    process.start()
    return process


def serve(endpoint: Connection, elements: int) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.linger = 0
        socket.bind(f"tcp://{LOOPBACK}:*")
        endpoint.send(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        block = _bytes(elements)
        copy = len(block) < zmq.COPY_THRESHOLD
        while True:
            identity = socket.recv_multipart(0, copy)[0]
            socket.send_multipart([identity, block], copy=copy)


def ask(endpoint: Connection, elements: int, steps: int) -> list[float]:
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
