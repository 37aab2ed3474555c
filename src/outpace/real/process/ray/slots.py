"""Slots on a Ray cluster: each is an actor on some CPUs, and carries out one run at a time.

The CPUs are a placement group, so that it is known when there is room for the actor, which then
takes some seconds to import torch; and a cluster that grows by itself sees what is asked for.
Both belong to the job of this process: Ray removes them when this process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from queue import SimpleQueue
from typing import Any, Final

import ray
from ray.exceptions import RayError
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from outpace.real.process.ray.cluster import problem_of
from outpace.real.process.ray.connecting import connected, last_line, node_names, staying_connected
from outpace.real.process.ray.host import Survey, survey_here
from outpace.real.process.ray.slot_news import Found, Lost, Placed, Refused, Said, SlotNews

_KNOWN_S: Final = 1.0  # so long the nodes of the cluster are taken to be the same
_CLOSE_S: Final = 5.0
_RUNS: Final = "runs"  # a thread of its own in each actor
# As many lists of messages may be on their way; then the run must wait.
_STREAM: Final[Mapping[str, Any]] = {
    "num_returns": "streaming",
    "concurrency_group": _RUNS,
    "_generator_backpressure_num_objects": 16,
}


@dataclass(eq=False, slots=True)
class _Slot:
    """A slot.

    Attributes:
        node: its name, once there is room for the slot.
        begun: the arguments of the runs that it is to carry out; None: no more.
    """

    group: PlacementGroup
    node: str = ""
    actor: Any = None  # once there is room for it
    begun: SimpleQueue[tuple[Any, ...] | None] = field(default_factory=SimpleQueue)
    thread: threading.Thread | None = None


class RaySlots:
    """`slot_news.Slots` on a Ray cluster. Use as a context manager.

    Args:
        address: see `connecting.connected`. key: names it in errors.
        kind: the class of the actors; it has the methods `carry_out`, which yields lists of
            messages, and `stop`, and is made with the working folder.
        runtime_env: of the actors, in Ray's words.

    Raises:
        ConfigError: there is no cluster at the address.
    """

    def __init__(
        self, address: str | None, key: str, kind: type, runtime_env: Mapping[str, Any]
    ) -> None:
        self._kind = ray.remote(concurrency_groups={_RUNS: 1})(kind)
        self._options = {"runtime_env": dict(runtime_env)} if runtime_env else {}
        self._slots: dict[int, _Slot] = {}
        self._count = 0  # of slots so far
        self._refused: set[str] = set()  # names of nodes
        self._cpus: tuple[float, dict[str, float]] = 0.0, {}  # when, and those of each node
        self._told = deque[SlotNews]()  # in other threads
        self.woken, self._wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(self._wake, False)
        self._waking = threading.Lock()  # of the pipe, which other threads write to
        self._is_open = True
        self._closing = contextlib.ExitStack()
        self._closing.callback(self._close_pipe)
        try:
            self._closing.enter_context(connected(address, 0, key))
        except BaseException:
            self._closing.close()
            raise

    def __enter__(self) -> RaySlots:
        return self

    def __exit__(self, *_: object) -> None:
        """End all actors, and the connection, and the cluster if it was started here."""
        for number in list(self._slots):
            self.give_back(number)
        self._closing.close()

    # -- the cluster ---------------------------------------------------------------------

    def cpus(self) -> Mapping[str, float]:
        """Return the CPUs of each node that can take part, by its name."""
        when, found = self._cpus
        if time.monotonic() - when > _KNOWN_S:
            names = node_names()
            found = {
                name: node["Resources"].get("CPU", 0.0)
                for node in ray.nodes()
                if node["Alive"] and (name := names[node["NodeID"]]) not in self._refused
            }
            self._cpus = time.monotonic(), found
        return found

    def free_cpus(self) -> float:
        """Return how many CPUs of the cluster nothing uses."""
        return float(ray.available_resources().get("CPU", 0.0))

    def survey(self, paths: Sequence[str], wait_s: float) -> dict[str, str]:
        """Look at all nodes with CPUs; return by name why some cannot take part.

        Args:
            paths: must be there.
            wait_s: for the answers of the nodes.
        """
        names, asked = node_names(), {}
        for node in ray.nodes():
            if node["Alive"] and node["Resources"].get("CPU"):
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                options = {**self._options, "num_cpus": 0, "scheduling_strategy": there}
                look = ray.remote(_survey).options(**options)
                asked[names[node["NodeID"]]] = look.remote(list(paths))
        answered, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=wait_s)
        found = {}
        for name, survey in asked.items():
            if survey not in answered:
                found[name] = f"did not answer within {wait_s:g} s: look at it with `ray status`"
                continue
            try:
                problem = _problem(*ray.get(survey))
            except RayError as error:
                problem = f"cannot start processes: {last_line(error)}"
            if problem:
                found[name] = problem
        return found

    # -- slots ---------------------------------------------------------------------------

    def ask(self, cpus: float) -> int:
        """Ask for a slot, and return its number. `news` says when there is one."""
        self._count += 1
        number = self._count
        slot = self._slots[number] = _Slot(placement_group([{"CPU": cpus}]))
        slot.thread = threading.Thread(
            target=self._serve, args=(number, slot, cpus), name=f"slot {number}", daemon=True
        )
        self._closing.callback(slot.thread.join, _CLOSE_S)  # before the connection, which it uses
        slot.thread.start()
        return number

    def give_back(self, slot: int) -> None:
        """End the run of a slot, and leave its CPUs to others."""
        if (given := self._slots.pop(slot, None)) is not None:
            given.begun.put(None)
            with contextlib.suppress(RayError, ValueError):
                remove_placement_group(given.group)  # its actor ends with it

    def begin(self, slot: int, *arguments: Any) -> None:
        if slot in self._slots:
            self._slots[slot].begun.put(arguments)

    def stop(self, slot: int, *arguments: Any) -> None:
        if slot in self._slots:
            self._slots[slot].actor.stop.remote(*arguments)

    def news(self) -> Iterator[SlotNews]:
        """Yield what has happened. `woken` can be read when there is something."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 4096)
        while self._told:
            told = self._told.popleft()
            if isinstance(told, Lost):
                self.give_back(told.slot)
            yield told

    # ----------------------------------------------------------------------------------

    def _serve(self, number: int, slot: _Slot, cpus: float) -> None:
        """Have a slot carry out what is begun on it, until it is lost. In a thread of its own."""
        try:
            with staying_connected():
                self._carry_out(number, slot, cpus)
        except BaseException as error:
            self._cpus = 0.0, {}
            self._tell(Lost(number, slot.node, last_line(error)))

    def _carry_out(self, number: int, slot: _Slot, cpus: float) -> None:
        # A function of its own: the streams are gone when it ends, while Ray is still connected.
        ray.get(slot.group.ready())
        (node_id,) = placement_group_table(slot.group)["bundles_to_node_id"].values()
        node = slot.node = node_names().get(node_id, node_id)
        self._tell(Found(number, node))
        there = PlacementGroupSchedulingStrategy(slot.group, placement_group_bundle_index=0)
        options = {**self._options, "num_cpus": cpus, "scheduling_strategy": there}
        slot.actor = self._kind.options(**options).remote(os.getcwd())
        survey, torch = ray.get(slot.actor.__ray_call__.remote(_look))
        problem = _problem(survey, torch)
        if problem:
            self._refused.add(node)
            self._cpus = 0.0, {}
        self._tell(Refused(number, node, problem) if problem else Placed(number, node))
        while (arguments := slot.begun.get()) is not None:
            for told in slot.actor.carry_out.options(**_STREAM).remote(*arguments):
                self._tell(Said(number, ray.get(told)))

    def _tell(self, news: SlotNews) -> None:
        """In another thread."""
        self._told.append(news)
        with self._waking, contextlib.suppress(BlockingIOError):  # then it is awake
            if self._is_open:
                os.write(self._wake, b"x")

    def _close_pipe(self) -> None:
        with self._waking:
            self._is_open = False
            os.close(self.woken)
            os.close(self._wake)


def _survey(paths: Sequence[str]) -> tuple[Survey, str]:
    """Return what this process finds on its node, and the version of torch."""
    return survey_here(paths), torch_version()


def _look(_: object) -> tuple[Survey, str]:
    """Return what an actor finds on its node."""
    return _survey([])


def torch_version() -> str:
    """Return the version of torch, without its variant (`+cpu`) and without importing it."""
    return version("torch").partition("+")[0]


def _problem(survey: Survey, torch: str) -> str:
    """Return in words why a node cannot take part; empty if it can."""
    if problem := problem_of(survey, survey_here(), ""):
        return problem
    here = torch_version()
    if torch != here:
        return f"has torch {torch}, and this machine {here}: install the same"
    return ""
