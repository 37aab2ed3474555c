"""Carries out runs on a Ray cluster: each run is a task that uses some CPUs.

All runs are given to Ray at once, so that an autoscaler sees how many are requested. Ray chooses
the nodes, carries out tasks one after the other in the same processes, and starts a run again if
its process or node is lost. A task cannot receive or send messages before it returns, so messages
of runs, and reasons for ending them, are passed through an actor on this machine. The files of a
run are sent back at its end.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import time
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import RayError, TaskCancelledError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from outpace.errors import ConfigError, RunError
from outpace.experiment.launching import files_of
from outpace.experiment.status import resume_command
from outpace.experiment.trials.one import Ended, Order, Point, Told, carry_out
from outpace.experiment.trials.pool import KILLED, RUNS_EACH, needs_all_cores
from outpace.real.ray.left_behind import PassingFolder
from outpace.real.ray.nodes import last_line, name_of_this_node, resources_of_nodes
from outpace.real.ray.survey import Survey, problem_of, survey_here
from outpace.record import folder as files

_LOOK_S: Final = 0.05
_RETRIES: Final = 3  # number of times that a run is begun again if its process or node is lost


@dataclass(eq=False, slots=True)
class _Run:
    """A run that was given to Ray.

    Attributes:
        number: number of the run for the actor.
        reason: why the run was told to end; empty: it was not.
    """

    number: int
    order: Order
    has_begun: bool = False
    reason: str = ""


class RunsOnRay:
    """A `pool.Carrier` on the cluster to which this process is connected.

    Args:
        cpus: CPUs of each run; None: one, or if a run needs all cores, as many as the largest node
            has.
        most: largest number of runs at a time; None: as many as there is room for.
        wait_s: seconds to wait for a run to begin, if none is running.
        runtime_env: the environment of the runs, as Ray describes it.
    """

    def __init__(
        self,
        *,
        cpus: float | None,
        most: int | None,
        wait_s: float,
        runtime_env: Mapping[str, Any],
    ) -> None:
        self._cpus, self._most, self._wait_s = cpus, most, wait_s
        self._options = {"runtime_env": dict(runtime_env)} if runtime_env else {}
        node = ray.get_runtime_context().get_node_id()
        here = NodeAffinitySchedulingStrategy(node, soft=False)
        self._board = ray.remote(_Board).options(num_cpus=0, scheduling_strategy=here).remote()
        self._task = ray.remote(max_calls=RUNS_EACH, max_retries=_RETRIES)(_carry_out)
        self._runs: dict[Any, _Run] = {}  # runs, by the reference of the task
        self._count = 0  # number of runs so far
        self._waits_since = time.monotonic()

    def has_room(self, order: Order, others: Collection[Order]) -> bool:
        return self._most is None or len(others) < self._most

    def begin(self, order: Order) -> None:
        cpus = self._cpus
        if cpus is None and needs_all_cores(order.experiment):
            cpus = max(node.get("CPU", 1.0) for node in resources_of_nodes().values())
        self._count += 1
        # Pickled, so that the node answers before it imports torch.
        work, paths = pickle.dumps(order), files_of(order.experiment)
        task = self._task.options(num_cpus=cpus or 1.0, **self._options).remote(
            work, os.getcwd(), paths, survey_here(), self._board, self._count
        )
        self._runs[task] = _Run(self._count, order)

    def stop(self, key: Hashable, reason: str) -> None:
        for task, run in self._runs.items():
            if run.order.key == key:
                run.reason = reason
                self._board.stop.remote(run.number, reason)
                if not run.has_begun:
                    ray.cancel(task)

    def events(self, timeout_s: float) -> Iterator[tuple[Hashable, Told]]:
        tasks = list(self._runs)
        ended, _ = ray.wait(tasks, num_returns=len(tasks), timeout=min(timeout_s, _LOOK_S))
        numbers = {run.number: run for run in self._runs.values()}
        for number, told in ray.get(self._board.take.remote()):
            if (run := numbers.get(number)) is not None:
                run.has_begun = True
                yield run.order.key, told
        for task in ended:
            run = self._runs.pop(task)
            yield run.order.key, self._end_of(run, task)
        self._require_begun()

    def close(self) -> None:
        """Cancel all runs; their folders are not sent back."""
        for task in self._runs:
            with contextlib.suppress(RayError):
                ray.cancel(task)
        self._runs.clear()

    def _end_of(self, run: _Run, task: Any) -> Ended:
        key = run.order.key
        try:
            ended, content = ray.get(task)
            if run.order.folder is not None:
                _write(run.order.folder, content, ended)
        except TaskCancelledError:
            return Ended.unbegun(key, run.reason)
        except (RayError, RunError) as error:
            return Ended.failed(key, f"{KILLED}was lost: {last_line(error)}")
        except (OSError, ConfigError) as error:
            return Ended.failed(key, f"the files of the run cannot be written: {error}")
        assert isinstance(ended, Ended)
        return ended

    def _require_begun(self) -> None:
        """Raise RunError if no run has begun for too long."""
        now = time.monotonic()
        if not self._runs or any(run.has_begun for run in self._runs.values()):
            self._waits_since = now
        elif now - self._waits_since >= self._wait_s:
            raise RunError(
                f"on: no node has begun a run within {self._wait_s:g} s: look at the cluster with "
                "`ray status`, or wait longer (wait_s)"
            )


class _Board:
    """An actor with messages of runs, and reasons why some runs are to end, by run number."""

    def __init__(self) -> None:
        self._told: list[tuple[int, Told]] = []
        self._points: dict[int, int] = {}
        self._reasons: dict[int, str] = {}

    def tell(self, run: int, told: Told, points: int) -> str | None:
        """Take a message of a run; return the reason why the run is to end, if any.

        points: points of the run so far. A run that begins again repeats its earlier points.
        """
        if not isinstance(told, Point) or points > self._points.get(run, 0):
            self._told.append((run, told))
            self._points[run] = points
        return self._reasons.get(run)

    def stop(self, run: int, reason: str) -> None:
        self._reasons[run] = reason

    def take(self) -> list[tuple[int, Told]]:
        """Return the messages since the last call."""
        told, self._told = self._told, []
        return told


def _carry_out(
    work: bytes, cwd: str, paths: list[str], wanted: Survey, board: Any, number: int
) -> tuple[Ended, dict[str, bytes]]:
    """Carry out a run on a node, in the working folder if it exists there. A task.

    Returns:
        The end of the run, and its files by their names.

    Raises:
        RunError: if the node has another version of a package, or lacks a file.
    """
    if problem := problem_of(survey_here(paths), wanted):
        raise RunError(f"node {name_of_this_node()} {problem}")
    if os.path.isdir(cwd):
        os.chdir(cwd)
    reason: str | None = None
    points = 0

    def tell(told: Told) -> None:
        nonlocal reason, points
        points += isinstance(told, Point)
        reason = ray.get(board.tell.remote(number, told, points))

    tell(0.0)
    order: Order = pickle.loads(work)
    if order.folder is None:
        return carry_out(order, None, tell, lambda: reason), {}
    passing = PassingFolder("outpace-runs-")
    folder = Path(passing.path) / order.folder.name  # some trackers give the run this name
    ended = carry_out(order, folder, tell, lambda: reason)
    content = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    passing.close()
    return ended, content


def _write(folder: Path, content: Mapping[str, bytes], ended: Ended) -> None:
    """Write the folder of a run, completely or not at all.

    The command in its summary that resumes it is changed to name this folder.
    """
    if not content:  # the run could not begin
        return
    files.require_new(folder)
    part = folder.parent / f".{folder.name}.part"
    shutil.rmtree(part, ignore_errors=True)  # folder of a command that was killed
    for name, data in content.items():
        path = part / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    if ended.summary.get("resume") is not None:
        ended.summary["resume"] = resume_command("simulate", folder.absolute())
        files.write_summary(part, ended.summary)
    part.rename(folder)
