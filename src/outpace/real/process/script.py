"""Run a user's script in a worker's process."""

from __future__ import annotations

import contextlib
import multiprocessing
import runpy
import sys
import traceback
from pathlib import Path

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
    try:
        runpy.run_path(task.path, run_name="__main__")
    except RunOver:
        pass
    except SystemExit as end:
        if end.code not in (None, 0):
            problem = RunError(f"worker {number}: {task.path} ended with exit code {end.code}")
    except OutpaceError as error:
        problem = error
    except Exception as error:
        traceback.print_exc()
        problem = RunError(f"worker {number}: {task.path} raised {brief(error)}")
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
