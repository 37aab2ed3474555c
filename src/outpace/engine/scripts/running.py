"""Runs a user's script in a worker's process, like `python script arguments`."""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing
import os
import random
import runpy
import sys
import threading
import traceback
from pathlib import Path
from typing import Final, NoReturn

import numpy as np
import torch
from torch._compile import _disable_dynamo
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from outpace.config.experiment import Experiment
from outpace.engine.distributed.patches import install
from outpace.engine.scripts.ending import RunOver, own_handler
from outpace.engine.scripts.files import Written
from outpace.errors import ConfigError, OutpaceError, RunError
from outpace.support.place import HERE, tell_children
from outpace.support.randomness import generator
from outpace.support.user_code import brief
from outpace.sync.messages import worker_name
from outpace.tasks import Script

_ALONE: Final = 100  # number of steps of a script that is not part of the run


def run_script_here(
    number: int,
    experiment: Experiment,
    files: Path | None,
    written: Written,
    *,
    is_outside: bool = False,
) -> Exception | None:
    """Run a script like `python script arguments`, as a worker.

    `HERE.attach`, `HERE.collectives` and `HERE.follow` are set already.

    Args:
        number: number of the worker.
        files: the folder for files of all workers' scripts, see `outpace.output_dir`.
        written: watches which files the script writes.
        is_outside: True: another launcher has started this process, so its variables are kept.

    Returns:
        How the script failed; None if it has ended without an error.
    """
    task = experiment.script
    HERE.number, HERE.workers = number, experiment.workers
    HERE.files = None if files is None else files / worker_name(number)
    if experiment.peers is None or not experiment.peers.is_ddp:
        HERE.follow = None
    sync = experiment.sync if isinstance(experiment.sync, tuple) else (experiment.sync,)
    kinds = ", ".join(dict.fromkeys(str(getattr(each, "kind", "python")) for each in sync))
    install(kinds, task.path, is_outside=is_outside)
    written.watch()
    return run_as_main(task, number, experiment.seed)


def run_as_main(task: Script, worker: int, seed: int) -> Exception | None:
    """Run the script; return how it failed, or None if it has ended without an error.

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
    # exit handlers of this process's modules; handlers of the script are called at its end
    atexit._clear()
    atexit.register(logging.shutdown)
    problem: Exception | None = None
    this = os.getpid()
    try:
        runpy.run_path(task.path, run_name="__main__")
    except BaseException as error:
        if os.getpid() != this:
            _end_forked(error)
        problem = _problem(error, worker, task.path)
    if os.getpid() != this:
        _end_forked(None)
    own_handler.close()
    _run_exit_handlers()
    _flush()  # a process that has finished may be killed
    if problem is None and HERE.worker is None:
        problem = _nothing_trained(task.path)
    return problem


def watch_for_attach(path: str, worker: int) -> RemovableHandle:
    """Say early that the script takes steps without being part of the run, which will fail.

    The script continues, because it may train another model before it attaches. Returns a function
    that ends the watch.
    """
    steps = 0

    @_disable_dynamo
    def stepped(*_: object) -> None:
        nonlocal steps
        steps += HERE.worker is None  # the hook cannot be removed from within
        if steps == _ALONE and HERE.worker is None and worker == 0:
            print(  # noqa: T201
                f"outpace: {path} has taken {_ALONE} optimizer steps and has not called "
                "outpace.attach(model, optimizer) or torch.distributed.init_process_group yet: "
                "until then each worker trains alone, and a script that never does ends with an "
                "error",
                file=sys.stderr,
                flush=True,
            )

    return register_optimizer_step_post_hook(stepped)


def _nothing_trained(path: str) -> ConfigError:
    """Return the error for a script that has ended without training as a worker."""
    if HERE.is_distributed:
        return ConfigError(
            f"{path} called torch.distributed.init_process_group, but trained no model in "
            "DistributedDataParallel by an optimizer of its parameters: wrap the model in it, and "
            "make an optimizer"
        )
    return ConfigError(
        f"{path} ended without calling outpace.attach(model, optimizer) or torch.distributed."
        "init_process_group, so there is nothing to train; call one of them before the training "
        "loop"
    )


def _seed_generators(seed: int, worker: int) -> None:
    drawn = int(generator(seed, "script", worker).integers(2**63))
    random.seed(drawn)
    np.random.seed(drawn % 2**32)
    torch.manual_seed(drawn)


def _print_of_script(error: Exception, path: str) -> None:
    """Print the traceback of a user's error, without the frames that run the script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _problem(error: BaseException, worker: int, path: str) -> Exception | None:
    """Return how the script failed, or None; raise an error that is no failure of the script."""
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
    """Call the exit handlers that Python calls at the end of a script and multiprocessing does not.

    It waits for threads that are not daemons, and calls the functions that the script has
    registered.
    """
    for call in reversed(getattr(threading, "_threading_atexits", ())):
        call()  # threads of executors wait for work until then
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()


def _end_forked(error: BaseException | None) -> NoReturn:
    """End a process that the script has forked, as Python would: it is not a worker."""
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
