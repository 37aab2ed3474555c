"""Starts processes by forking a server that has imported torch already.

Importing torch in eleven processes takes seven seconds; forking eleven times takes one second. The
fork server belongs to multiprocessing. It has its own session, so Ctrl-C in the terminal reaches
only this process, which then ends the others in order. If this process dies, a thread in every
other process ends that process. On Linux the kernel also kills the fork server when its parent
dies, and every process when the fork server dies.

multiprocessing starts its fork server as a new Python. If a command has imported torch, the new
Python imports torch a second time, and a run of a few steps takes twice as long. So in a command
the fork server is a forked copy of the command (`start_fork_server_as_copy`), which shares the
memory of its modules. The copy does what a new Python would do: it closes all files except those
that are passed to it, resets signals, warnings and the collection of garbage, and runs the same
line. A copy has the locks of this process in their present state, but not its threads. So it is
made only on Linux, and only while this process has one Python thread. (The threads of numpy's
linear algebra are no problem: their own handlers end them before a fork.)
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess, SpawnProcess
from typing import Any, Final, NoReturn, TypeAlias

from outpace.errors import ConfigError
from outpace.support.garbage import collect_as_usual
from outpace.support.notices import show_as_usual
from outpace.support.processes.room import require_short_temporary_folder
from outpace.support.processes.signals import uninterrupted
from outpace.support.processes.standing import is_ending

GRACE_S: Final = 2.0  # for a process to end before it is killed
_BEGIN: Final = "outpace.support.processes.begin_server"
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1
_EXITED: Final = "ended with exit code"
_STANDARD_FILES: Final = {0, 1, 2}  # input, output and error
_STARTING: Final = threading.Lock()  # one start at a time, because it changes sys.modules
# Modules that a fork server imports if it is a new Python, so that new processes have them already.
# They are given as names, because `support` must not import from the layers above it.
PRELOADED: Final = [
    _BEGIN,  # before the slow imports
    "outpace.simulation.executors.child",
    "outpace.real.node.server",
    "outpace.real.node.task",
    "torch._dynamo",  # 1.5 s; torch imports it when the first optimizer is made
]
_starts_new_pythons: Final = [False]

Process: TypeAlias = ForkServerProcess | SpawnProcess


def start(name: str, target: Callable[..., None], *arguments: Any) -> Process:
    """Run `target(*arguments)` in a new process with one torch thread.

    The new process has the folder and the environment of this process, ignores Ctrl-C, and ends
    when this process ends. The arguments are pickled for the fork server.
    """
    given = (target, arguments, os.getcwd(), dict(os.environ))
    kind = SpawnProcess if _starts_new_pythons[0] else ForkServerProcess
    process: Process = kind(target=_begin, args=given, name=name, daemon=True)
    # A process that has received only a part of its arguments would end with a traceback.
    with _starting():
        if not _starts_new_pythons[0]:
            _start_fork_server(PRELOADED)
        process.start()
    return process


class Child:
    """Runs `target(pipe, *arguments)` in a new process, with a pipe between it and this one.

    Attributes:
        pipe: this process's end of the pipe.
    """

    def __init__(self, name: str, target: Callable[..., None], *arguments: Any) -> None:
        self.name = name
        self.pipe, theirs = multiprocessing.Pipe()
        with theirs:
            try:
                self._process = start(name, target, theirs, *arguments)
            except BaseException:
                self.pipe.close()
                raise

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    def how_it_ended(self) -> str:
        """Say how the process ended; call it after its end of the pipe is closed."""
        self._process.join(GRACE_S)
        return how_it_ended(self._process)

    def end(self, *, by_itself: bool = False) -> None:
        """Close the pipe, and tell the process to end.

        by_itself: True: the process is about to end, and is given some seconds.
        """
        self.pipe.close()
        if by_itself:
            self._process.join(GRACE_S)
        self._process.terminate()

    def close(self) -> None:
        """Wait until the process has ended, after `end`; kill it if it takes too long."""
        self._process.join(GRACE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


def start_new_pythons() -> None:
    """Start all later processes as new Pythons: for a process that starts only one."""
    _starts_new_pythons[0] = True


def require_forking() -> None:
    """Raise ConfigError if this platform cannot fork processes."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        raise ConfigError(
            f"this platform ({sys.platform}) cannot fork processes, which the scripts of workers "
            "need: use Linux or macOS"
        )


def preload(module: str) -> None:
    """Make the fork server import a further module, unless the fork server runs already."""
    if module not in PRELOADED:
        PRELOADED.append(module)


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
    """True if a process that ended in this way was not killed but exited by itself."""
    return how.startswith(_EXITED)


# -- in a new process ------------------------------------------------------------------


def _begin(
    target: Callable[..., None], arguments: Sequence[Any], folder: str, environment: dict[str, str]
) -> None:
    """Set up a new process; its environment may differ from the fork server's."""
    gc.freeze()  # the collection of garbage must not write to shared memory
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    die_with_parent()
    _kill_children_at_end()
    _end_with_starter()
    show_name(multiprocessing.current_process().name)
    _keep_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the signal asks the starter for a checkpoint
    import torch

    torch.set_num_threads(1)
    target(*arguments)


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent dies. Linux only."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died just before
            os._exit(1)


def show_name(name: str) -> None:
    """Make `ps` and `top` show this process by this name. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def _kill_children_at_end() -> None:
    """Make processes that this one forks, for example in a user's script, end when it ends.

    Processes that another thread forks are excluded: they would be killed at the end of that
    thread.
    """
    if sys.platform == "linux":
        ours: list[bool] = [False]

        def before() -> None:
            ours[0] = threading.current_thread() is threading.main_thread()

        def after() -> None:
            if ours[0]:
                die_with_parent()

        os.register_at_fork(before=before, after_in_child=after)


def _end_with_starter() -> None:
    """End this process when the process that started it has ended.

    This is needed if the starter was interrupted within `start`: then it does not know this
    process.
    """
    starter = multiprocessing.parent_process()
    assert starter is not None
    sentinel = starter.sentinel

    def watch() -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="watch the starter", daemon=True).start()


def _keep_memory() -> None:
    """Make glibc keep freed memory, which is needed again in the next iteration.

    By default glibc returns large freed blocks to the system, so each page costs a page fault when
    it is used again. This would take half of the time of a push.
    """
    with contextlib.suppress(OSError, AttributeError):  # the C library is not glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)  # one heap for all threads
        # glibc is too old
        mallopt(_M_MMAP_THRESHOLD, 1 << 30) or mallopt(_M_MMAP_THRESHOLD, 1 << 25)
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)


# -- the fork server -------------------------------------------------------------------


@contextlib.contextmanager
def _starting() -> Iterator[None]:
    """Let only one thread start a process at a time, and delay signals meanwhile.

    Hide the main module, the user's script: multiprocessing would run it again in every process.
    """
    with _STARTING, uninterrupted():
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def _start_fork_server(modules: Sequence[str]) -> None:
    """Start the fork server if there is none; it imports these modules.

    Ctrl-C is blocked until the fork server has its own session.
    """
    require_short_temporary_folder()
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(modules))
    # starting the resource tracker later would unblock the signal
    multiprocessing.resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_fork_server_as_copy(modules: Sequence[str] = ()) -> None:
    """Start the fork server, if there is none, as a copy of this process.

    The copy has the modules of this process and imports `modules` in addition. A command calls this
    before it opens files or connections, changes settings, or loads code of the user. If a copy
    cannot be made, this does nothing: the fork server is then started when it is needed.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return
    util: Any = multiprocessing.util
    spawn = util.spawnv_passfds

    def copy(path: Any, command: Sequence[Any], descriptors: Sequence[int]) -> int:
        if "multiprocessing.forkserver" not in command[-1]:
            return int(spawn(path, command, descriptors))
        # otherwise the copy would write buffered output a second time
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):  # the stream is closed
                stream.flush()
        pid = os.fork()
        if pid == 0:
            _become(command[-1], {*_STANDARD_FILES, *descriptors})
        return pid

    with _starting():
        util.spawnv_passfds = copy
        try:
            _start_fork_server([_BEGIN, *modules])
        finally:
            util.spawnv_passfds = spawn


def _become(line: str, kept: set[int]) -> NoReturn:
    """Become the fork server that this line of Python starts, with these open files."""
    code = 1
    try:
        for number in map(int, signal.valid_signals()):
            # a new Python also ignores the signals that are ignored here
            if callable(signal.getsignal(number)):
                is_ctrl_c = number == signal.SIGINT
                signal.signal(number, signal.default_int_handler if is_ctrl_c else signal.SIG_DFL)
        for number in set(map(int, os.listdir("/proc/self/fd"))) - kept:
            with contextlib.suppress(OSError):  # the descriptor with which the folder was read
                os.close(number)
        show_as_usual()
        collect_as_usual()
        _STARTING.release()
        for known in (
            vars(multiprocessing.forkserver)["_forkserver"],
            vars(multiprocessing.resource_tracker)["_resource_tracker"],
        ):
            type(known).__init__(known)  # this process has started neither of the two
        sys.argv = ["-c"]
        exec(line, {"__name__": "__main__"})
        code = 0
    except SystemExit:  # the command has ended
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
