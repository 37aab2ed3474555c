"""The targets of roles: what servers and workers do in their processes.

Nothing is imported before the role is known, so that the launcher's process stays small.
"""

from __future__ import annotations

import multiprocessing
from typing import Any


def serve(*arguments: Any) -> None:
    """A server; arguments of `Server`."""
    from outpace.real.node.server import Server

    Server(*arguments).run()


def work(*arguments: Any) -> None:
    """A worker that trains a task; arguments of `run_task`."""
    from outpace.real.node.task import run_task

    run_task(*arguments)


def script(link: Any, number: int, experiment: Any) -> None:
    """A worker that runs a user's script; arguments of `run_script`."""
    from outpace.real.process.script import run_script

    # As in plain Python: a DataLoader forks its workers unless the script says otherwise.
    multiprocessing.set_start_method(None, force=True)
    run_script(link, number, experiment)
