"""Starts processes by forking a server that has imported torch already.

Importing torch in eleven processes takes seven seconds; forking eleven times takes one second. In a
command the fork server is a copy of the command (`copied_server`), else a new Python. The fork
server has its own session, so Ctrl-C in the terminal reaches only this process, which then
ends the others in order. If this process dies, a thread in every other process ends that process.
On Linux the kernel also kills the fork server when its parent dies, and every process when the
fork server dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess, SpawnProcess
from typing import Any, Final, TypeAlias

from outpace.errors import ConfigError
from outpace.support.processes.copied_server import can_copy, copies_this_process
from outpace.support.processes.room import require_short_temporary_folder
from outpace.support.processes.signals import uninterrupted
from outpace.support.processes.standing import is_ending

_BEGIN: Final = "outpace.support.processes.begin_server"
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1
_STARTING: Final = threading.Lock()  # one at a time: it touches sys.modules
# What a fork server that is a new Python imports, so that new processes have it already. Names,
# because `support` must not import from the layers above it.
PRELOADED: Final = [
    _BEGIN,  # before the imports that take long
    "outpace.simulation.executors.child",
    "outpace.real.node.server",
    "outpace.real.node.task",
    "torch._dynamo",  # 1.5 s; torch imports it when the first optimizer is made
]
_starts_new_pythons: Final = [False]

Process: TypeAlias = ForkServerProcess | SpawnProcess


def start(name: str, target: Callable[..., None], *arguments: Any) -> Process:
    """Run `target(*arguments)` in a new process with one torch thread.

    The process has this one's folder and environment, ignores Ctrl-C, and ends when this process
    ends. The arguments are pickled for the fork server.
    """
    given = (target, arguments, os.getcwd(), dict(os.environ))
    process: Process
    if _starts_new_pythons[0]:
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=_begin, args=given, name=name, daemon=True)
    else:
        forking = multiprocessing.get_context("forkserver")
        process = forking.Process(target=_begin, args=given, name=name, daemon=True)
    # A process whose arguments were sent in part only would end with a traceback.
    with _STARTING, uninterrupted(), _no_main_module():
        if not _starts_new_pythons[0]:
            _start_fork_server(PRELOADED)
        process.start()
    return process


def start_new_pythons() -> None:
    """From now on, start each process as a new Python: for a process that starts only one."""
    _starts_new_pythons[0] = True


def start_fork_server_as_copy(modules: Sequence[str] = ()) -> None:
    """Start the fork server, if there is none, as a copy of this process: see `copied_server`.

    It has the modules of this process, and imports these. To be called in a command, before it
    opens files or connections, changes settings, or loads code of the user. Does nothing where a
    copy cannot be made: the fork server is then started when it is needed.
    """
    if can_copy():
        with (
            copies_this_process(_STARTING.release),
            _STARTING,
            uninterrupted(),
            _no_main_module(),
        ):
            _start_fork_server([_BEGIN, *modules])


def require_forking() -> None:
    """Raise ConfigError if this platform cannot fork processes."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        raise ConfigError(
            f"this platform ({sys.platform}) cannot fork processes, which the scripts of workers "
            "need: use Linux or macOS"
        )


def preload(module: str) -> None:
    """Make the fork server import a module too, unless the fork server runs already."""
    if module not in PRELOADED:
        PRELOADED.append(module)


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent dies. Linux only."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died just before
            os._exit(1)


def keep_memory() -> None:
    """Make glibc keep freed memory, which is needed again in the next iteration.

    By default glibc returns large freed blocks to the system, and each page that is used again
    costs a page fault: half of the time of a push.
    """
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)  # one heap for all threads
        mallopt(_M_MMAP_THRESHOLD, 1 << 30) or mallopt(_M_MMAP_THRESHOLD, 1 << 25)  # old glibc
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)


_EXITED: Final = "ended with exit code"


def how_it_ended(process: Process) -> str:
    """Say how a process ended."""
    server: Any = vars(multiprocessing.forkserver)["_forkserver"]
    pid = getattr(server, "_forkserver_pid", None)
    if pid is not None and is_ending(pid):
        return f"ended with the fork server (process {pid}), from which it was forked,"
    code = process.exitcode
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"{_EXITED} {code}"


def has_exited(how: str) -> bool:
    """True if a process that ended in this way was not killed, but has ended itself."""
    return how.startswith(_EXITED)


def _begin(
    target: Callable[..., None], arguments: Sequence[Any], folder: str, environment: dict[str, str]
) -> None:
    """Set up a new process, whose fork server may have had another environment."""
    gc.freeze()  # collections of garbage must not write to the memory that is shared
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    die_with_parent()
    _kill_children_at_end()
    _end_with_starter()
    show_name(multiprocessing.current_process().name)
    keep_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one handles it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # asks the starter for a checkpoint
    import torch

    torch.set_num_threads(1)
    target(*arguments)


def _kill_children_at_end() -> None:
    """Make processes that this one forks, in a user's script for example, die with it.

    Not those that another thread forks: they would die at the end of that thread.
    """
    if sys.platform == "linux":
        ours: list[bool] = [False]

        def before() -> None:
            ours[0] = threading.current_thread() is threading.main_thread()

        def after() -> None:
            if ours[0]:
                die_with_parent()

        os.register_at_fork(before=before, after_in_child=after)


def _start_fork_server(modules: Sequence[str]) -> None:
    """Start the fork server, which imports these modules, if there is none.

    Ctrl-C is blocked until it has its own session.
    """
    require_short_temporary_folder()
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(modules))
    multiprocessing.resource_tracker.ensure_running()  # starting it later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """Prevent multiprocessing from running the user's script again in every process."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _end_with_starter() -> None:
    """End this process when the process that started it is gone.

    The starter does not know this process if it was interrupted in the middle of `start`.
    """
    starter = multiprocessing.parent_process()
    assert starter is not None
    sentinel = starter.sentinel

    def watch() -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="watch the starter", daemon=True).start()


def show_name(name: str) -> None:
    """Make `ps` and `top` show this process by this name. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())
