"""A Ray cluster, and the hosts of a run on it.

Each role of a run has a bundle of a placement group and an actor in it, which is its `Host`. Groups
and actors belong to the job of this process: Ray removes them when this process ends, however it
ends. An actor whose node is lost is made again in its bundle, for which Ray finds another node.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeAlias

import ray
import ray.util
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from outpace.config.launchers import Ray as Settings
from outpace.errors import ConfigError
from outpace.real.elastic.view import ClusterView
from outpace.real.process.ray.actor import RayHost
from outpace.real.process.ray.connecting import (
    connected,
    last_line,
    node_names,
    nodes_now,
    nodes_of,
    resources_of_nodes,
    staying_connected,
)
from outpace.real.process.ray.host import Survey, problem_of, survey_here
from outpace.real.process.ray.placing import Group, lacking, no_room

_SAY_AFTER_S: Final = 3.0


_Bundle: TypeAlias = tuple[PlacementGroup, int]


class RayCluster:
    """The hosts of one run on a Ray cluster, which last longer than its attempts.

    Use as a context manager.

    Args:
        groups: the roles of the run.
        log: called with a line about what is awaited.

    Attributes:
        nodes, room_s: see `Launcher`.

    Raises:
        ConfigError: there is no cluster at the address, or it has no room for the run in time.
    """

    def __init__(
        self,
        settings: Settings,
        groups: Sequence[Group],
        log: Callable[[str], None],
    ) -> None:
        self._settings, self._groups, self._log = settings, groups, log
        # At once: in a job of Ray, another node on this machine makes the working folder anew.
        self._folder = os.getcwd()
        self._bundles: dict[str, _Bundle] = {}  # by role
        self._of_start: list[PlacementGroup] = []
        self._free: dict[str, list[_Bundle]] = {}  # of these groups, by kind of role
        self._hosts: dict[str, RayHost] = {}
        self._made: dict[str, int] = {}  # actors of each role so far
        self.nodes: dict[str, str] = {}
        self.room_s = settings.wait_s
        self._closing = contextlib.ExitStack()
        try:
            self._closing.enter_context(connected(settings.address, self._cpus, "launcher.address"))
            self.address: str = ray.util.get_node_ip_address()
            self._namespace = f"outpace-{ray.get_runtime_context().get_job_id()}-{id(self):x}"
            self._reserve()
        except BaseException:
            self._closing.close()
            raise

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all hosts, and the connection, and the cluster if it was started here."""
        for host in self._hosts.values():
            host.end()
        self._closing.close()

    @property
    def _cpus(self) -> float:
        return sum(len(group.names) * group.each.cpu for group in self._groups)

    # -- places ------------------------------------------------------------------------

    def _reserve(self) -> None:
        """Make the placement groups, and wait for them. Raises ConfigError."""
        made = self._of_start
        for group in self._groups:
            strategy = group.placement.upper().replace("-", "_")
            bundles = [group.bundle] * len(group.names)
            found = placement_group(bundles, strategy=strategy)
            self._closing.callback(_remove, found)
            made.append(found)
            for index, name in enumerate(group.names):
                self._bundles[name] = found, index
        deadline = time.monotonic() + self._settings.wait_s
        said = False
        for found in made:
            while not found.wait(min(_SAY_AFTER_S, max(0.0, deadline - time.monotonic()))):
                lack = self._lacking()
                if time.monotonic() >= deadline:
                    raise ConfigError(
                        f"launcher: {lack}; waited {self._settings.wait_s:g} s for it: ask for "
                        "less by launcher.resources, have fewer workers or servers, or wait "
                        "longer (launcher.wait_s)"
                    )
                if not said:
                    self._log(f"waiting for room on the cluster: {lack}")
                    said = True

    def _lacking(self) -> str:
        free = dict(ray.available_resources())
        for found in {id(group): group for group, _ in self._bundles.values()}.values():
            if placement_group_table(found).get("state") == "CREATED":  # what it has is this run's
                for bundle in found.bundle_specs:
                    for name, much in bundle.items():
                        free[name] = free.get(name, 0) + much
        return lacking(self._groups, resources_of_nodes(), free)

    def reserve(self, names: Sequence[str]) -> None:
        """Ask for a place for each of these roles that has none."""
        for name in names:
            if name not in self._bundles:
                self._place(name)

    @staying_connected()
    def no_room(self, names: Sequence[str]) -> str:
        """See `Launcher.no_room`. Called in another thread; Ray may raise anything."""
        without = [name for name in names if name in self._bundles]
        without = [name for name in without if not _has_place(self._bundles[name])]
        if not without:
            return ""
        return no_room(self._groups, without, resources_of_nodes(), ray.available_resources())

    @staying_connected()
    def look(self) -> ClusterView:
        """Return the nodes and the run's places there. May be called in another thread.

        Raises:
            RuntimeError: this process has disconnected. Ray may raise other errors.
        """
        by_role = dict(self._bundles)
        free = {kind: list(bundles) for kind, bundles in self._free.items()}
        used = [*by_role.values(), *(bundle for bundles in free.values() for bundle in bundles)]
        groups = {group.id: group for group, _ in used}
        nodes = {each: nodes_of(group) for each, group in groups.items()}

        def node(bundle: _Bundle) -> str | None:
            return nodes[bundle[0].id].get(bundle[1])

        return ClusterView(
            nodes=nodes_now(),
            places={name: on for name, each in by_role.items() if (on := node(each))},
            kept={kind: [on for each in free[kind] if (on := node(each))] for kind in free},
        )

    # -- hosts -------------------------------------------------------------------------

    def host(self, name: str) -> RayHost:
        """Return a host for this role: the one it has, or a new one if that is lost."""
        if name not in self._hosts:
            self._hosts[name] = self._new_host(name)
        return self._hosts[name]

    def lost(self, host: RayHost) -> None:
        """This host does not answer, or has ended."""
        host.end()
        if self._hosts.get(host.name) is host:
            del self._hosts[host.name]

    def _new_host(self, name: str) -> RayHost:
        number = self._made[name] = self._made.get(name, 0) + 1
        group, (placed, index) = self._group_of(name), self._place(name)
        options: dict[str, Any] = {
            # A lost node may keep the name of its actor for a while.
            "name": name if number == 1 else f"{name}.{number}",
            "namespace": self._namespace,
            "num_cpus": group.each.cpu,
            "num_gpus": group.each.gpu,
            "max_restarts": 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placed, placement_group_bundle_index=index
            ),
        }
        if self._settings.runtime_env:
            options["runtime_env"] = self._settings.runtime_env
        host = RayHost(name, self._folder, options)
        host.survey(()).future().add_done_callback(lambda found: self._is_on(host, found))
        return host

    def _group_of(self, name: str) -> Group:
        return next(group for group in self._groups if name.startswith(group.kind))

    def _place(self, name: str) -> _Bundle:
        """Return the bundle of a role, a new one if the role has none."""
        group = self._group_of(name)
        if name in self._bundles:
            self._change_place(name, group.kind)
        elif (free := self._free_with_place(group.kind)) is not None:
            self._bundles[name] = free
        else:
            found = placement_group([group.bundle])
            self._closing.callback(_remove, found)
            self._bundles[name] = found, 0
        return self._bundles[name]

    def _change_place(self, name: str, kind: str) -> None:
        """If the bundle of a role has lost its place, give the role a free one that has one."""
        before = self._bundles[name]
        if not self._free.get(kind) or _has_place(before):
            return
        if (free := self._free_with_place(kind)) is not None:
            self._bundles[name] = free
            self._give_back(kind, before)

    def _free_with_place(self, kind: str) -> _Bundle | None:
        """Return a bundle of the start that no role has any more; None: none has a place."""
        free = self._free.get(kind, [])
        found = next((each for each in reversed(free) if _has_place(each)), None)
        if found is not None:
            free.remove(found)
        return found

    def release(self, name: str) -> None:
        """End the host of a role that has left the run, and give back its bundle.

        Ray takes back whole placement groups only. A bundle of one of the start is kept for the
        next role of its kind.
        """
        if (host := self._hosts.pop(name, None)) is not None:
            host.end()
        if (bundle := self._bundles.pop(name, None)) is not None:
            self._give_back(self._group_of(name).kind, bundle)

    def _give_back(self, kind: str, bundle: _Bundle) -> None:
        if bundle[0] in self._of_start:
            self._free.setdefault(kind, []).append(bundle)
        else:
            _remove(bundle[0])

    def keep_only(self, names: Collection[str]) -> None:
        """Release all other roles."""
        for name in sorted(self._bundles.keys() - set(names)):
            self.release(name)

    def _is_on(self, host: RayHost, found: Future[tuple[Survey, str]]) -> None:
        """It is known on which node a host is. In another thread."""
        if found.exception() is None:
            # Not connected any more, perhaps.
            with contextlib.suppress(RayError, RuntimeError), staying_connected():
                _, node = found.result()
                host.node = node_names().get(node, node)
                self.nodes[host.name] = host.node

    def survey(self, paths: Sequence[str], shared: Path | None = None) -> str:
        """Make all hosts, and look whether their nodes have what the run needs.

        Args:
            paths: files that the processes read.
            shared: a folder of this machine that the nodes may see.

        Returns:
            The name of a node that does not see the folder; empty if all see it.

        Raises:
            ConfigError: a node lacks something, has other versions, or does not answer.
        """
        with _token(shared) as token:
            wanted = [*paths, *([] if token is None else [str(token)])]
            asked = {name: self.host(name).survey(wanted) for name in self._bundles}
            references = list(asked.values())
            deadline = time.monotonic() + self._settings.wait_s
            ready, _ = ray.wait(
                references, num_returns=len(references), timeout=self._settings.wait_s
            )
            names, blind = node_names(), ""
            for name, found in asked.items():
                if found not in ready:
                    raise ConfigError(
                        f"launcher: the node of {name} did not answer within "
                        f"{self._settings.wait_s:g} s: look at it with `ray status`, or wait "
                        "longer (launcher.wait_s)"
                    )
                left = max(0.1, deadline - time.monotonic())
                try:
                    survey, node = ray.get(found, timeout=left)
                except (RayError, GetTimeoutError) as error:
                    raise ConfigError(
                        f"launcher: the actor of {name} could not be started: {last_line(error)}"
                    ) from None
                self.host(name).node = self.nodes[name] = names.get(node, node)
                problem = problem_of(survey, survey_here(), str(token))
                if problem:
                    raise ConfigError(f"launcher: node {self.nodes[name]} {problem}")
                if str(token) in survey.missing:
                    blind = self.nodes[name]
            return blind


@contextlib.contextmanager
def _token(folder: Path | None) -> Iterator[Path | None]:
    """Make a file in a folder, or in the one in which that is to be made, for this block."""
    if folder is None:
        yield None
        return
    absolute = folder.absolute()
    there = next(each for each in (absolute, *absolute.parents) if each.is_dir())
    try:
        number, path = tempfile.mkstemp(prefix=".outpace-", dir=there)
    except OSError as error:
        raise ConfigError(f"{there} cannot be written: {error.strerror}") from None
    os.close(number)
    try:
        yield Path(path)
    finally:
        Path(path).unlink(missing_ok=True)


def _has_place(bundle: _Bundle) -> bool:
    group, index = bundle
    return index in nodes_of(group)


def _remove(group: PlacementGroup) -> None:
    with contextlib.suppress(RayError):
        remove_placement_group(group)
