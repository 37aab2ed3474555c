"""The process of a script in virtual time: runs the script and reports its end."""

from __future__ import annotations

import contextlib
import os
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from outpace.config.experiment import Experiment
from outpace.engine.output import print_into
from outpace.engine.scripts.attached import AttachedScript
from outpace.engine.scripts.files import Written
from outpace.engine.scripts.running import run_script_here
from outpace.engine.scripts.worker import FollowedScript
from outpace.errors import OutpaceError, RunError
from outpace.simulation.scripts.child.attached import VirtualAttached
from outpace.simulation.scripts.child.pipe import ScriptPipe
from outpace.simulation.scripts.collectives.followed import VirtualFollowed
from outpace.simulation.scripts.collectives.script import VirtualCollectives
from outpace.simulation.scripts.messages import Ended, Left, Wrote, send
from outpace.simulation.scripts.shared_memory import CallMemory, Slots
from outpace.support.place import HERE


def run_script(
    pipe: Connection,
    number: int,
    slots: Slots,
    memory: CallMemory,
    experiment: Experiment,
    files: Path | None,
    output: tuple[Connection, Connection],
    measured: int | None = None,
) -> None:
    """Run the script of worker `number` like `python script arguments`; target of a process.

    Args:
        files: the folder for files of all workers' scripts, see `outpace.output_dir`.
        measured: the least number of steps to measure, if the script is run only for that.
    """
    print_into(*output)
    line = ScriptPipe(pipe)
    collectives = VirtualCollectives(line, memory, number, experiment.workers)
    HERE.attach = lambda model, optimizer: AttachedScript(
        VirtualAttached(line, slots, number, experiment, model, optimizer), experiment
    )
    HERE.collectives = lambda *_: collectives
    HERE.follow = lambda model, optimizer: FollowedScript(
        VirtualFollowed(line, collectives, number, experiment, model, optimizer)
    )
    written = Written()
    if measured is not None:
        written = Written(EndBeforeWrite(line, measured, files))
    problem = run_script_here(number, experiment, files, written)
    if HERE.worker is not None:
        HERE.worker.end(problem)
    error: tuple[type[OutpaceError], str] | None = None
    if problem is not None:
        error = type(problem) if isinstance(problem, OutpaceError) else RunError, str(problem)
    with contextlib.suppress(ConnectionError):
        send(line, Ended(error, written.paths, frozenset(written.overwritten)))


class EndBeforeWrite:
    """Ends a script that is only measured before it writes to a file.

    For example, the following run would resume from a snapshot that it wrote. Processes that the
    script forks are not watched.

    Args:
        least: number of steps before which files may be written, because too few are measured.
        files: the folder of `outpace.output_dir` while steps are measured.
    """

    def __init__(self, pipe: ScriptPipe, least: int, files: Path | None) -> None:
        self._pipe, self._least, self._pid = pipe, least, os.getpid()
        self._files = None if files is None else f"{files}/"
        self._told: set[str] = set()

    def __call__(self, path: str) -> None:
        """Handle a write to a file, before it happens, in any thread; see `Written`."""
        is_own = self._files is not None and path.startswith(self._files)
        if is_own or os.getpid() != self._pid:
            return
        if self._pipe.steps >= self._least:
            self._pipe.send(Left(False, torch.empty(0)))
            threading.Event().wait()  # wait until this process is ended
        elif path not in self._told:
            self._told.add(path)
            self._pipe.send(Wrote(path))
