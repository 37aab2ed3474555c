"""Run a user's script in a worker's process, like `python script arguments`."""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing
import os
import random
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

import numpy as np
import torch
from torch._compile import _disable_dynamo
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from outpace.errors import ConfigError, OutpaceError, RunError
from outpace.support.place import HERE, tell_children
from outpace.support.randomness import generator
from outpace.support.user_code import brief
from outpace.tasks import Script


class RunOver(SystemExit):
    """Exits a script that still trains when the run has ended."""


class EndedEarly(RunOver):
    """Exits a script because the run was ended early, by Ctrl-C or a signal."""

    def __init__(self) -> None:
        super().__init__("outpace: the run was ended early")


def require_script(path: Path) -> Path:
    """Return the path of a script. Raises ConfigError if there is none, or it is no Python."""
    if not path.is_file():
        raise ConfigError(f"there is no script {path}")
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise ConfigError(f"cannot read the script {path}: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"the script {path} is not valid Python: {brief(error)}") from error
    return path


_DEFAULT: Final = signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, None
_ALONE: Final = 100  # steps of a script that is no part of the run
_GRACE_S: Final = 5.0  # for a script to end by itself; the coordinator waits as long


class OwnHandler:
    """The handler of SIGTERM or Ctrl-C that the script of this process may have set.

    Call `call` when the run is ended early. The script may have got the same signal, as when a
    cluster sends it to all processes of a job: the handler is called once in all.
    """

    def __init__(self) -> None:
        self._come = -1  # a pipe with the numbers of the signals that have come
        self._until: float | None = None  # when the script's time to end by itself is over

    def watch(self) -> None:
        """Note which signals come, while a script runs in this process."""
        self._come, come = os.pipe()
        for end in (self._come, come):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(come, warn_on_full_buffer=False)
        # Signals to processes that the script forks are not this one's.
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))

    def close(self) -> None:
        """Do not call the handler any more: the script has ended."""
        self._come = -1

    def call(self) -> bool:
        """Call the handler, unless it has been called.

        Returns:
            True while the script still has time to end by itself.

        torchrun passes the signal on, too: scripts set a flag, leave their loop and save.
        """
        if threading.current_thread() is not threading.main_thread():
            return False
        if self._until is None and self._come != -1:
            for number in (signal.SIGTERM, signal.SIGINT):
                handler = signal.getsignal(number)
                if callable(handler) and handler not in _DEFAULT:
                    self._until = time.monotonic() + _GRACE_S
                    # Not SIG_IGN, which programs that the script starts would inherit.
                    signal.signal(number, lambda *_: None)
                    if number not in self._signals():
                        handler(number, None)
                    break
        return self._until is not None and time.monotonic() < self._until

    def _signals(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(self._come, 4096)
        return b""


own_handler: Final = OwnHandler()  # there is one script in a process


@contextlib.contextmanager
def letting_it_end() -> Iterator[None]:
    """Continue after this block if the run is ended early and the script has a handler of its own.

    The script then reaches the place where it reads the flag that its handler has set. Its further
    steps train nothing.
    """
    try:
        yield
    except EndedEarly:
        if not own_handler.call():
            raise


def run_as_main(task: Script, worker: int, seed: int) -> Exception | None:
    """Run the script; return how it failed, or None if it has just ended.

    The traceback of a user's error is printed. `random`, numpy and torch are seeded by the seed of
    the run and the number of the worker, so that workers draw different numbers, and a run can be
    repeated.
    """
    own_handler.watch()
    tell_children()
    watch_for_attach(task.path, worker)
    # As in plain Python: a DataLoader forks its workers unless the script says otherwise.
    multiprocessing.set_start_method(None, force=True)
    multiprocessing.current_process().daemon = False  # a DataLoader may start workers
    sys.argv = [task.path, *task.arguments]
    sys.path[0:0] = [str(Path(task.path).parent)]
    _seed_generators(seed, worker)
    atexit._clear()  # of this process's modules; what the script registers is called at its end
    atexit.register(logging.shutdown)
    problem: Exception | None = None
    this = os.getpid()
    try:
        runpy.run_path(task.path, run_name="__main__")
    except BaseException as error:
        if os.getpid() != this:
            _end_forked(error)
        problem = _problem(error, worker, task.path)
        if HERE.worker is None and (exited := _exited(error)):
            problem = ConfigError(
                f"worker {worker}: {task.path} {exited} before it called {_call(task.path)}, so "
                "there is nothing to train"
            )
    if os.getpid() != this:
        _end_forked(None)
    own_handler.close()
    _run_exit_handlers()
    _flush()  # a process that has finished may be killed
    if problem is None and HERE.worker is None:
        problem = _nothing_trained(task.path)
    return problem


def _call(path: str) -> str:
    """Return the call that the training of this script begins with; both if it names neither."""
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    if "outpace" in text:
        return "outpace.attach(model, optimizer)"
    if "distributed" in text:
        return "init_process_group"
    return "outpace.attach(model, optimizer) or torch.distributed.init_process_group"


def watch_for_attach(path: str, worker: int) -> RemovableHandle:
    """Say early that the script takes steps and is no part of the run, which fails at its end.

    It is not ended: it may train another model before it attaches. Return what ends the watch.
    """
    steps = 0

    @_disable_dynamo
    def stepped(*_: object) -> None:
        nonlocal steps
        steps += HERE.worker is None  # the hook cannot be removed from within
        if steps == _ALONE and HERE.worker is None and worker == 0:
            print(  # noqa: T201
                f"outpace: {path} has taken {_ALONE} optimizer steps and has not called "
                f"{_call(path)} yet: until then each worker trains alone, and a script that never "
                "calls it ends with an error",
                file=sys.stderr,
                flush=True,
            )

    return register_optimizer_step_post_hook(stepped)


def _nothing_trained(path: str) -> ConfigError:
    """Return the error of a script that has ended and was no worker."""
    if HERE.is_distributed:
        return ConfigError(
            f"{path} called torch.distributed.init_process_group, but trained no model in "
            "DistributedDataParallel by an optimizer of its parameters: wrap the model in it, and "
            "make an optimizer; with sync.kind=ssgd a script may also average gradients itself"
        )
    return ConfigError(
        f"{path} ended without calling outpace.attach(model, optimizer) or "
        "torch.distributed.init_process_group, so there is nothing to train; call one of them "
        "before the training loop"
    )


def _seed_generators(seed: int, worker: int) -> None:
    drawn = int(generator(seed, "script", worker).integers(2**63))
    random.seed(drawn)
    np.random.seed(drawn % 2**32)
    torch.manual_seed(drawn)


def _exited(error: BaseException) -> str:
    """Return how a script exited, if its arguments are the likely cause; else an empty text."""
    code = error.code if isinstance(error, SystemExit) and not isinstance(error, RunOver) else 1
    if code == 0:
        return "ended with exit code 0, as after --help,"
    if code == 2:
        return "ended with exit code 2, as after an argument that it does not accept,"
    return ""


def _print_of_script(error: Exception, path: str) -> None:
    """Print the traceback of a user's error, without the frames that run the script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _problem(error: BaseException, worker: int, path: str) -> Exception | None:
    """Return how the script failed, or None if it has just ended; raise what is no failure."""
    script = f"worker {worker}: {path}"
    if isinstance(error, RunOver):
        return None
    if isinstance(error, SystemExit):
        failed = error.code not in (None, 0)
        return RunError(f"{script} ended with exit code {error.code}") if failed else None
    if isinstance(error, OutpaceError):
        return error
    if isinstance(error, Exception):
        _print_of_script(error, path)
        return RunError(f"{script} raised {brief(error)}")
    raise error


def _run_exit_handlers() -> None:
    """Do what Python does at the end of a script, which multiprocessing leaves out.

    Wait for threads that are no daemons, and call the functions that the script has registered.
    """
    for call in reversed(getattr(threading, "_threading_atexits", ())):
        call()  # executors' threads wait for work until then
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()


def _end_forked(error: BaseException | None) -> NoReturn:
    """End a process that the script has forked, as Python would: it is no worker."""
    code = 0
    if isinstance(error, SystemExit):
        if isinstance(error.code, int):
            code = error.code & 0xFF
        elif error.code is not None:
            print(error.code, file=sys.stderr)  # noqa: T201
            code = 1
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    _flush()
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
