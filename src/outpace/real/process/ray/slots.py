"""Slots on a Ray cluster: each is a number of CPUs of a node, and a process there.

A slot is a placement group with one bundle, so that Ray counts the CPUs, and a cluster that grows
by itself sees what is asked for. The processes of all slots of a node are children of one actor,
`NodeProcesses`, which takes up no CPU: so they share the memory of one fork server. Groups and
actors belong to the job of this process: Ray removes them when this process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import ray
from ray.exceptions import (
    ActorUnschedulableError,
    NodeDiedError,
    RayActorError,
    RayError,
    RayTaskError,
)
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from outpace.real.process.ray.cluster import problem_of
from outpace.real.process.ray.connecting import connected, last_line, node_names
from outpace.real.process.ray.host import ERROR, EXIT, OUTPUT, survey_here
from outpace.real.process.ray.node_processes import MESSAGE, MISSING, NodeProcesses, torch_version
from outpace.real.process.ray.slot_news import (
    Exited,
    Found,
    LostNode,
    Missing,
    NodeFiles,
    Placed,
    Printed,
    Refused,
    Said,
    SlotNews,
)

_NEWS, _FILES = "news", "files"  # threads of their own in each actor
_NEWS_S: Final = 10.0
_KNOWN_S: Final = 1.0  # so long the nodes of the cluster are taken to be the same
_CLOSE_S: Final = 10.0
_FILE_S: Final = 120.0  # for a piece of a file
_LOST: Final = (RayActorError, NodeDiedError)  # if a node is lost, or its actor
_NODE_DIED: Final = "its node has died"  # in the words of Ray


@dataclass(eq=False, slots=True)
class _Node:
    """A node with its actor. problem: why it cannot take part; None: not known yet."""

    id: str
    name: str
    actor: Any
    surveyed: Future[Any]
    problem: str | None = None
    slots: set[int] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class _Slot:
    """A slot. node: None until Ray has found one."""

    group: PlacementGroup
    node: _Node | None = None


class _Files:
    """The files of a node: `NodeFiles`."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def list(self, folder: str) -> Sequence[tuple[str, int]]:
        found: Sequence[tuple[str, int]] = self._asked("files", folder)
        return found

    def read(self, path: str, begin: int, size: int) -> bytes:
        found: bytes = self._asked("read", path, begin, size)
        return found

    def remove(self, folder: str) -> None:
        self._actor.remove.options(concurrency_group=_FILES).remote(folder)

    def _asked(self, method: str, *arguments: Any) -> Any:
        """Return what the node answers. Raises OSError, see `NodeFiles`."""
        asked = getattr(self._actor, method).options(concurrency_group=_FILES)
        try:
            return ray.get(asked.remote(*arguments), timeout=_FILE_S)
        except RayTaskError as error:  # raised there
            raise OSError(last_line(error)) from None
        except RayError as error:  # the actor, its node or the piece is lost
            raise ConnectionError(last_line(error)) from None


class RaySlots:
    """`slot_news.Slots` on a Ray cluster. Use as a context manager.

    Args:
        address: see `connecting.connected`. key: names it in errors.
        target, modules: see `NodeProcesses`.
        runtime_env: of the actors, in Ray's words.

    Raises:
        ConfigError: there is no cluster at the address.
    """

    def __init__(
        self,
        address: str | None,
        key: str,
        target: str,
        modules: Sequence[str],
        runtime_env: Mapping[str, Any],
    ) -> None:
        self._target, self._modules = target, list(modules)
        self._runtime_env = dict(runtime_env)
        self._slots: dict[int, _Slot] = {}
        self._nodes: dict[str, _Node] = {}  # by id
        self._count = 0  # of slots so far
        self._cpus: tuple[float, dict[str, float]] = 0.0, {}  # when, and those of each node
        self._told = deque[Callable[[], Iterator[SlotNews]]]()  # in other threads
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
        """End all processes, and the connection, and the cluster if it was started here."""
        with self._closing:
            closed = [node.actor.close.remote() for node in self._nodes.values()]
            if closed:
                ray.wait(closed, num_returns=len(closed), timeout=_CLOSE_S)
            for number in list(self._slots):
                self._drop(number)
            for node in self._nodes.values():
                _kill(node.actor)
            self._nodes.clear()

    # -- the cluster ---------------------------------------------------------------------

    def cpus(self) -> Mapping[str, float]:
        """Return the CPUs of each node that can take part, by its name."""
        when, found = self._cpus
        if time.monotonic() - when > _KNOWN_S:
            names = node_names()
            refused = {node.id for node in self._nodes.values() if node.problem}
            found = {
                names.get(node["NodeID"], node["NodeID"]): node["Resources"].get("CPU", 0.0)
                for node in ray.nodes()
                if node["Alive"] and node["NodeID"] not in refused
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
        names = node_names()
        there = [n["NodeID"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
        asked = {self._node(each).name: self._nodes[each] for each in there}
        surveys = {
            name: _future(node.actor.survey.remote(list(paths))) for name, node in asked.items()
        }
        deadline = time.monotonic() + wait_s
        found = {}
        for name, survey in surveys.items():
            try:
                problem = _problem(*survey.result(max(0.0, deadline - time.monotonic())))
            except TimeoutError:
                problem = f"did not answer within {wait_s:g} s: look at it with `ray status`"
            except RayError as error:
                problem = f"cannot start processes: {last_line(error)}"
            if problem:
                found[names.get(asked[name].id, name)] = problem
        return found

    # -- slots ---------------------------------------------------------------------------

    def ask(self, cpus: float) -> int:
        """Ask for a slot, and return its number. `news` says when there is one."""
        self._count += 1
        number = self._count
        self._slots[number] = _Slot(group := placement_group([{"CPU": cpus}]))
        _future(group.ready()).add_done_callback(
            lambda placed: self._tell(partial(self._placed, number, placed))
        )
        return number

    def give_back(self, slot: int) -> None:
        """End the process of a slot, and leave its CPUs to others."""
        if slot in self._slots:
            node = self._slots[slot].node
            if node is not None:
                node.actor.end.remote(slot)
            self._drop(slot)

    def begin(self, slot: int, message: bytes, paths: Sequence[str], anew: bool) -> None:
        node = self._slots[slot].node
        assert node is not None
        _future(node.actor.begin.remote(slot, message, list(paths), anew)).add_done_callback(
            lambda begun: self._tell(partial(self._begun, slot, node.name, begun))
        )

    def send(self, slot: int, message: bytes) -> None:
        if slot in self._slots:
            self._actor(slot).send.remote(slot, message)

    def interrupt(self, slot: int) -> None:
        if slot in self._slots:
            self._actor(slot).interrupt.remote(slot)

    def files(self, slot: int) -> NodeFiles:
        return _Files(self._actor(slot))

    def news(self) -> Iterator[SlotNews]:
        """Yield what has happened. `woken` can be read when there is something."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 4096)
        while self._told:
            yield from self._told.popleft()()

    # ----------------------------------------------------------------------------------

    def _actor(self, slot: int) -> Any:
        node = self._slots[slot].node
        assert node is not None
        return node.actor

    def _drop(self, number: int) -> None:
        slot = self._slots.pop(number)
        if slot.node is not None:
            slot.node.slots.discard(number)
        with contextlib.suppress(RayError):
            remove_placement_group(slot.group)

    def _tell(self, what: Callable[[], Iterator[SlotNews]]) -> None:
        """Have `news` call this. In another thread."""
        self._told.append(what)
        with self._waking, contextlib.suppress(BlockingIOError):  # then it is awake
            if self._is_open:
                os.write(self._wake, b"x")

    def _close_pipe(self) -> None:
        with self._waking:
            self._is_open = False
            os.close(self.woken)
            os.close(self._wake)

    def _placed(self, number: int, placed: Future[Any]) -> Iterator[SlotNews]:
        slot = self._slots.get(number)
        if slot is None:  # given back
            return
        nodes = {}
        if placed.exception() is None:
            nodes = placement_group_table(slot.group).get("bundles_to_node_id", {})
        if not nodes.get(0):  # the node has been lost meanwhile
            self._drop(number)
            yield LostNode("", (number,))
            return
        slot.node = node = self._node(nodes[0])
        node.slots.add(number)
        yield from self._usable(node, (number,))

    def _begun(self, slot: int, node: str, begun: Future[Any]) -> Iterator[SlotNews]:
        error = begun.exception()
        if error is not None and not isinstance(error, _LOST):  # that is said by `_come`
            yield Missing(slot, node, f"cannot begin a run: {last_line(error)}")

    def _usable(self, node: _Node, slots: Sequence[int]) -> Iterator[SlotNews]:
        """Say of these slots of a node whether they can be used."""
        for slot in slots:
            if node.problem is None:
                yield Found(slot, node.name)
            elif node.problem:
                yield Refused(slot, node.name, node.problem)
            else:
                yield Placed(slot, node.name)

    def _node(self, node_id: str) -> _Node:
        """Return the node, which has an actor afterwards."""
        if node_id not in self._nodes:
            options: dict[str, Any] = {
                "num_cpus": 0,
                "max_restarts": 0,
                "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
            }
            if self._runtime_env:
                options["runtime_env"] = self._runtime_env
            kind = ray.remote(concurrency_groups={_NEWS: 1, _FILES: 1})(NodeProcesses)
            actor = kind.options(**options).remote(os.getcwd(), self._modules, self._target)
            name = node_names().get(node_id, node_id)
            surveyed = _future(actor.survey.remote([]))
            node = self._nodes[node_id] = _Node(node_id, name, actor, surveyed)
            surveyed.add_done_callback(
                lambda survey: self._tell(partial(self._surveyed, node, survey))
            )
            self._listen(node)
        return self._nodes[node_id]

    def _listen(self, node: _Node) -> None:
        """Ask a node for what happens next."""
        method = node.actor.news.options(concurrency_group=_NEWS)
        _future(method.remote(_NEWS_S)).add_done_callback(
            lambda come: self._tell(partial(self._come, node, come))
        )

    def _surveyed(self, node: _Node, survey: Future[Any]) -> Iterator[SlotNews]:
        if self._nodes.get(node.id) is not node:  # lost meanwhile
            return
        error = survey.exception()
        if isinstance(error, ActorUnschedulableError):  # its node was lost before it was made
            yield self._lose(node)
            return
        if error is None:
            node.problem = _problem(*survey.result())
        elif _NODE_DIED not in str(error):
            node.problem = f"cannot start processes: {last_line(error)}"
        if node.problem:
            self._cpus = 0.0, {}
        yield from self._usable(node, tuple(node.slots))

    def _come(self, node: _Node, come: Future[Any]) -> Iterator[SlotNews]:
        if self._nodes.get(node.id) is not node:
            return
        if (error := come.exception()) is not None:
            # If it has never answered, `_surveyed` says why, and asking again would not help.
            if node.problem == "" or _NODE_DIED in str(error):
                yield self._lose(node)
            return
        for slot, kind, what in come.result():
            yield _NEWS_OF[kind](slot, node.name, what)
        self._listen(node)

    def _lose(self, node: _Node) -> LostNode:
        del self._nodes[node.id]
        _kill(node.actor)
        lost = tuple(node.slots)
        for slot in lost:
            self._drop(slot)
        self._cpus = 0.0, {}
        return LostNode(node.name, lost)


_NEWS_OF: Final[Mapping[str, Callable[[int, str, bytes], SlotNews]]] = {
    OUTPUT: lambda slot, _, what: Printed(slot, what.decode(), False),
    ERROR: lambda slot, _, what: Printed(slot, what.decode(), True),
    EXIT: lambda slot, _, what: Exited(slot, what.decode()),
    MISSING: lambda slot, node, what: Missing(slot, node, _lacks(what.decode().split("\n"))),
    MESSAGE: lambda slot, _, what: Said(slot, what),
}


def _problem(survey: Any, torch: str) -> str:
    """Return in words why a node cannot take part; empty if it can."""
    if problem := problem_of(survey, survey_here(), ""):
        return problem
    here = torch_version()
    if torch != here:
        return f"has torch {torch}, and this machine {here}: install the same"
    return ""


def _lacks(paths: Sequence[str]) -> str:
    here = survey_here()
    return problem_of(type(here)(here.outpace, here.python, 0, tuple(paths)), here, "")


def _future(reference: Any) -> Future[Any]:
    found: Future[Any] = reference.future()
    return found


def _kill(actor: Any) -> None:
    with contextlib.suppress(RayError, ValueError):
        ray.kill(actor)
