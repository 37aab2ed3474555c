"""Processes of one benchmark: what they measure comes back through a pipe."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

LIMIT_S = 120.0  # for one program; then the benchmark fails

Start = Callable[..., BaseProcess]  # start(name, target, *arguments)


@contextlib.contextmanager
def started(*processes: BaseProcess) -> Iterator[None]:
    """End these processes at the end of the block."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def measuring(
    start: Start, name: str, work: Callable[..., Any], *arguments: Any
) -> tuple[BaseProcess, Connection]:
    """Start a process that sends the value of `work(*arguments)` to the connection returned."""
    result_in, result_out = Pipe(duplex=False)
    process = start(name, send_value, result_out, work, *arguments)
    result_out.close()  # so that the end of a process that fails is noticed
    return process, result_in


def send_value(result: Connection, work: Callable[..., Any], *arguments: Any) -> None:
    result.send(work(*arguments))


def value_of(connection: Connection) -> Any:
    """Return the value that a process sends.

    Raises:
        TimeoutError: after LIMIT_S.
        EOFError: if the process ends without a value.
    """
    with connection:
        if not connection.poll(LIMIT_S):
            raise TimeoutError(f"no result came within {LIMIT_S:.0f} s")
        return connection.recv()


def laps(step: Callable[[], object], steps: int) -> list[float]:
    """Return the seconds of each step, after as many steps to warm up."""
    stamps = []
    for _ in range(2 * steps + 1):
        stamps.append(time.perf_counter())
        step()
    return between(stamps)[steps:]


def between(stamps: Sequence[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(stamps)]
