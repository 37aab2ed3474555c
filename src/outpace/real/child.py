"""Where the processes of a run begin."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from outpace.real.output import write_into

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies. Linux only."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died just before
            os._exit(1)


def keep_memory() -> None:
    """Have glibc keep what is freed: it is needed again in the next iteration.

    By default it gives blocks of megabytes back to the system as soon as they are free,
    and every page that is used again costs a fault: half of the time of a push.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)  # one heap for all threads
        mallopt(_M_MMAP_THRESHOLD, 1 << 30) or mallopt(_M_MMAP_THRESHOLD, 1 << 25)  # old ones
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def end_with_launcher() -> None:
    """End this process once the launcher is gone, or has forgotten it: interrupted in the
    middle of `Processes.start`, it does not know that there is such a process."""
    launcher = multiprocessing.parent_process()
    assert launcher is not None
    sentinel = launcher.sentinel

    def watch() -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="watch the launcher", daemon=True).start()


def show_name() -> None:
    """Have `ps` and `top` show this process by its name. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, multiprocessing.current_process().name.encode())


def child(
    target: Callable[..., None], arguments: Sequence[Any], folder: str,
    environment: dict[str, str], pipes: tuple[Connection, Connection] | None = None,
) -> None:  # fmt: skip
    """The first thing a process of a run does.

    Folder and environment are the launcher's now; the fork server may be older. `pipes`:
    where it shall print to.
    """
    if pipes is not None:
        write_into(*pipes)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    die_with_parent()
    end_with_launcher()
    keep_memory()
    show_name()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher's business
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    import torch

    torch.set_num_threads(1)
    target(*arguments)


def serve(*arguments: Any) -> None:
    """A server: arguments of `server.Server`."""
    from outpace.real.server import Server

    Server(*arguments).run()


def work(*arguments: Any) -> None:
    """A worker of a configuration: arguments of `worker.TaskWorker`."""
    from outpace.real.worker import task_worker

    task_worker(*arguments)


def script(link: Any, number: int, experiment: Any) -> None:
    """A worker that runs a user's script: see `attach`."""
    from outpace.real.script import run_script

    # As in plain Python: a DataLoader forks its workers unless the script says otherwise.
    multiprocessing.set_start_method(None, force=True)
    run_script(link, number, experiment)
