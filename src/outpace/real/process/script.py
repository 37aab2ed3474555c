"""Run a user's script in a worker's process."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import numpy as np

from outpace.config.experiment import Experiment
from outpace.errors import ConfigError, OutpaceError, RunError
from outpace.real.node.member import CoordinatorLink, report_failure
from outpace.real.node.script.attach import RunOver
from outpace.support.place import HERE
from outpace.support.user_code import brief
from outpace.tasks import Script


def run_script(link: CoordinatorLink, number: int, experiment: Experiment) -> None:
    """Run the script like `python script arguments`, then leave the run.

    Errors are reported to the coordinator; the traceback of a user's error is printed.
    """
    task = experiment.task
    assert isinstance(task, Script)
    # As in plain Python: a DataLoader forks its workers unless the script says otherwise.
    multiprocessing.set_start_method(None, force=True)
    HERE.link, HERE.experiment = link, experiment
    HERE.number, HERE.workers = number, experiment.workers
    sys.argv = [task.path, *task.arguments]
    sys.path[0:0] = [str(Path(task.path).parent)]
    # Like a process of its own: a DataLoader may start workers, and numpy has a seed of its own
    # instead of the fork server's, which all workers share.
    multiprocessing.current_process().daemon = False
    np.random.seed()
    problem: Exception | None = None
    this = os.getpid()
    try:
        runpy.run_path(task.path, run_name="__main__")
    except BaseException as error:
        if os.getpid() != this:
            _end_forked(error)
        problem = _problem(error, f"worker {number}: {task.path}")
    if os.getpid() != this:
        _end_forked(None)
    for stream in (sys.stdout, sys.stderr):  # a process that has finished may be killed
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if problem is None and HERE.worker is None:
        problem = ConfigError(
            f"{task.path} ended without calling outpace.attach(model, optimizer), so there is "
            "nothing to train; call it before the training loop"
        )
    if HERE.worker is None:
        assert problem is not None
        report_failure(link, problem)
    else:
        HERE.worker.end(problem)


def _problem(error: BaseException, script: str) -> Exception | None:
    """Return how the script failed, or None if it has just ended; raise what is no failure."""
    if isinstance(error, RunOver):
        return None
    if isinstance(error, SystemExit):
        failed = error.code not in (None, 0)
        return RunError(f"{script} ended with exit code {error.code}") if failed else None
    if isinstance(error, OutpaceError):
        return error
    if isinstance(error, Exception):
        traceback.print_exc()
        return RunError(f"{script} raised {brief(error)}")
    raise error


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
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
