"""Simulated runs on a Ray cluster: each is a task that takes up some CPUs.

Ray carries tasks out one after the other in the same processes, so that not each run imports torch.
What a run tells is the stream of its task. A task cannot be told anything: why a run is to end is
kept by an actor on this machine, which runs ask. All of them belong to the job of this process: Ray
ends them when this process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import ray
from ray import cloudpickle
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from outpace.real.process.ray.connecting import connected
from outpace.real.process.ray.nodes import (
    last_line,
    name_of_this_node,
    node_names,
    nodes_now,
    resources_of_nodes,
    surveys,
)
from outpace.real.process.ray.survey import Began, RunLost, Survey, problem_of, survey_here

_KNOWN_S: Final = 1.0  # so long the nodes of the cluster are taken to be the same
_ASK_S: Final = 0.2  # between two questions of a run whether it is to end
_RUNS_EACH: Final = 200  # of a process: its memory would grow
# As many lists of messages may be on their way; then the run must wait.
_STREAM: Final[Mapping[str, Any]] = {
    "num_returns": "streaming",
    "max_retries": 0,  # it would repeat what it has told
    "_generator_backpressure_num_objects": 16,
}


class RayTask:
    """A run on a Ray cluster."""

    def __init__(self, stream: Any, reasons: Any, number: int) -> None:
        self._stream, self._reasons, self._number = stream, reasons, number

    def told(self) -> Iterator[Any]:
        """Yield what has come: `Began`, then lists of messages; if it is lost, `RunLost`.

        Nothing may be asked for after the last message.
        """
        try:
            while ray.wait([self._stream], timeout=0)[0]:
                yield ray.get(next(self._stream))
        except (RayError, StopIteration) as error:
            yield RunLost(last_line(error))

    def stop(self, reason: str) -> None:
        """Tell the run to end at its next evaluation or sooner."""
        self._reasons.tell.remote(self._number, reason)

    def cancel(self) -> None:
        """End the run at once, also if no node has taken it yet."""
        with contextlib.suppress(RayError, ValueError):
            ray.cancel(self._stream, force=True)


class RayTasks:
    """A Ray cluster for simulated runs. Use as a context manager.

    Args:
        address: see `connecting.connected`. key: names it in errors.
        runtime_env: of the runs, in Ray's words.

    Raises:
        ConfigError: there is no cluster at the address.
    """

    def __init__(self, address: str | None, key: str, runtime_env: Mapping[str, Any]) -> None:
        self._options = {"runtime_env": dict(runtime_env)} if runtime_env else {}
        self._count = 0  # of runs so far
        self._refused: dict[str, str] = {}  # names of nodes by their ids
        self._cpus: tuple[float, dict[str, float]] = 0.0, {}  # when, and those of each node
        self._task = ray.remote(max_calls=_RUNS_EACH)(_carry_out)
        with contextlib.ExitStack() as closing:
            closing.enter_context(connected(address, 0, key))
            node = ray.get_runtime_context().get_node_id()
            here = NodeAffinitySchedulingStrategy(node, soft=False)
            options = {"num_cpus": 0, "scheduling_strategy": here}
            self._reasons = ray.remote(_Reasons).options(**options).remote()
            self._closing = closing.pop_all()

    def __enter__(self) -> RayTasks:
        return self

    def __exit__(self, *_: object) -> None:
        """End the connection with all runs, and the cluster if it was started here."""
        self._closing.close()

    def cpus(self) -> Mapping[str, float]:
        """Return the CPUs of each node that can take part, by its name."""
        when, found = self._cpus
        if time.monotonic() - when > _KNOWN_S:
            names = node_names()
            found = {
                names[node]: resources.get("CPU", 0.0)
                for node, resources in resources_of_nodes().items()
                if node not in self._refused
            }
            self._cpus = time.monotonic(), found
        return found

    def free_cpus(self) -> Mapping[str, float]:
        """Return how many CPUs nothing uses of each node that can take part, by its name."""
        return {each.name: each.free["CPU"] for each in nodes_now() if each.id not in self._refused}

    def survey(self, paths: Sequence[str], wait_s: float) -> dict[str, str]:
        """Look at all nodes with CPUs; return by name why some cannot take part.

        Args:
            paths: must be there.
            wait_s: for the answers of the nodes.
        """
        names, places = node_names(), {}
        for node, resources in resources_of_nodes().items():
            if resources.get("CPU"):
                there = NodeAffinitySchedulingStrategy(node, soft=False)
                options = {**self._options, "num_cpus": 0, "scheduling_strategy": there}
                places[names[node]] = options
        found = surveys(places, paths, wait_s)
        here = survey_here()
        problems = {
            name: each if isinstance(each, str) else problem_of(each[1], here)
            for name, each in found.items()
        }
        return {name: problem for name, problem in problems.items() if problem}

    def refuse(self, node: str) -> None:
        """Begin no more runs on the node of this name."""
        self._refused |= {each: name for each, name in node_names().items() if name == node}
        self._cpus = 0.0, {}

    def begin(
        self, cpus: float, paths: Sequence[str], carry_out: Callable[..., Any], *arguments: Any
    ) -> RayTask:
        """Have a node carry out a run when it has the CPUs.

        Args:
            paths: must be there.
            carry_out: called with the arguments and a function that returns why the run is to end,
                or None; returns an iterator of lists of messages.
        """
        self._count += 1
        options = {**_STREAM, **self._options, "num_cpus": cpus}
        if self._refused:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(self._refused)})"}
        # Pickled, so that the node answers before it imports torch.
        work = cloudpickle.dumps((carry_out, arguments))
        return RayTask(
            self._task.options(**options).remote(
                work, os.getcwd(), list(paths), survey_here(), self._reasons, self._count
            ),
            self._reasons,
            self._count,
        )


class _Reasons:
    """Why runs are to end, by their numbers. An actor."""

    def __init__(self) -> None:
        self._reasons: dict[int, str] = {}

    def tell(self, number: int, reason: str) -> None:
        self._reasons[number] = reason

    def of(self, number: int) -> str | None:
        return self._reasons.get(number)


def _carry_out(
    work: bytes,
    folder: str,
    paths: Sequence[str],
    wanted: Survey,
    reasons: Any,
    number: int,
) -> Iterator[Any]:
    """Carry out a run on a node, in the working folder if it exists there. A task."""
    problem, missing = problem_of(survey_here(), wanted), survey_here(paths).missing
    yield Began(name_of_this_node(), problem, missing)
    if problem or missing:
        return
    if os.path.isdir(folder):
        os.chdir(folder)
    asked, reason = 0.0, None

    def stopped() -> str | None:
        nonlocal asked, reason
        if time.monotonic() - asked >= _ASK_S:
            reason = ray.get(reasons.of.remote(number))
            asked = time.monotonic()
        return reason

    carry_out, arguments = pickle.loads(work)
    yield from carry_out(*arguments, stopped)
