"""Where the processes of a run begin."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from outpace.real.process.output import write_into


def child(
    target: Callable[..., None],
    arguments: Sequence[Any],
    pipes: tuple[Connection, Connection] | None = None,
) -> None:
    """The first thing a process of a run does. `pipes`: where it shall print to."""
    if pipes is not None:
        write_into(*pipes)
    target(*arguments)


def serve(*arguments: Any) -> None:
    """A server: arguments of `server.Server`."""
    from outpace.real.node.server import Server

    Server(*arguments).run()


def work(*arguments: Any) -> None:
    """A worker of a configuration: arguments of `worker.TaskWorker`."""
    from outpace.real.node.worker import task_worker

    task_worker(*arguments)


def peer(*arguments: Any) -> None:
    """The same without servers: arguments of `task_peer.task_peer`."""
    from outpace.real.node.task_peer import task_peer

    task_peer(*arguments)


def script(link: Any, number: int, experiment: Any) -> None:
    """A worker that runs a user's script: see `attach`."""
    from outpace.real.process.script import run_script

    # As in plain Python: a DataLoader forks its workers unless the script says otherwise.
    multiprocessing.set_start_method(None, force=True)
    run_script(link, number, experiment)
