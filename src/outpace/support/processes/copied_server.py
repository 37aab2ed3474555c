"""Makes the fork server a copy of this process, which has imported torch already.

multiprocessing starts its fork server as a new Python. In a command that has imported torch, this
imports it a second time: 2 to 4 s of processor time, and 300 MB. A copy has the modules at once
and shares their memory. `copies_this_process` replaces the function with which multiprocessing
starts the new Python. The copy does what a new Python would do: it closes all files but those that
it is given, takes the usual settings of signals, warnings and garbage, and runs the same line.

A copy has the locks of this process as they are, but not its threads. So it is made only on Linux,
and only while this process has one Python thread. (The threads of numpy's linear algebra end before
a fork, by its own handlers; a fork server has them as well.)
"""

from __future__ import annotations

import contextlib
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

from outpace.support.garbage import collect_as_usual
from outpace.support.notices import show_as_usual

_STANDARD_ERROR: Final = 2  # file descriptor
_OURS: Final = "multiprocessing.forkserver"


def can_copy() -> bool:
    """True if a copy of this process can be its fork server."""
    return sys.platform == "linux" and threading.active_count() == 1


@contextlib.contextmanager
def copies_this_process(in_copy: Callable[[], None]) -> Iterator[None]:
    """In this block, a fork server that multiprocessing starts is a copy of this process.

    in_copy: called in the copy before it becomes the fork server.
    """
    util: Any = multiprocessing.util
    spawn, handlers = util.spawnv_passfds, _handlers()

    def copy(path: Any, command: Sequence[Any], descriptors: Sequence[int]) -> int:
        if _OURS not in command[-1]:
            return int(spawn(path, command, descriptors))
        for stream in (sys.stdout, sys.stderr):  # else the copy has what is to be written, too
            with contextlib.suppress(AttributeError, OSError, ValueError):  # it is closed
                stream.flush()
        pid = os.fork()
        if pid == 0:
            _become(command[-1], descriptors, handlers, in_copy)
        return pid

    util.spawnv_passfds = copy
    try:
        yield
    finally:
        util.spawnv_passfds = spawn


def _handlers() -> dict[int, Any]:
    """Return the handlers that a new Python would have: what is ignored here is ignored there."""
    found: dict[int, Any] = {}
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        handler = signal.getsignal(number)
        is_ctrl_c = number == signal.SIGINT
        usual = signal.default_int_handler if is_ctrl_c else signal.SIG_DFL
        if handler is not None:  # None: a handler that was not set from Python
            found[number] = usual if callable(handler) else handler
    return found


def _become(
    line: str, kept: Sequence[int], handlers: dict[int, Any], in_copy: Callable[[], None]
) -> NoReturn:
    """Become the fork server that this line of Python starts."""
    code = 1
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _close_files(kept)
        show_as_usual()
        collect_as_usual()
        for known in (
            vars(multiprocessing.forkserver)["_forkserver"],
            vars(multiprocessing.resource_tracker)["_resource_tracker"],
        ):
            type(known).__init__(known)  # this process has started neither
        sys.argv = ["-c"]
        in_copy()
        exec(line, {"__name__": "__main__"})
        code = 0
    except SystemExit:  # the command has ended
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _close_files(kept: Sequence[int]) -> None:
    """Close all files but standard input, output and error, and these."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > _STANDARD_ERROR and number not in kept:
            with contextlib.suppress(OSError):  # the one with which the folder was read
                os.close(number)
