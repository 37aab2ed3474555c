"""The places of a run on a Ray cluster.

Each role of a run has a bundle of a placement group, in which its process has an actor. Groups and
actors belong to the job of this process: Ray removes them when this process ends in any way. If the
node of a bundle is lost, Ray finds another node for it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import ray
import ray.util
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

from outpace.config.launchers import Ray as Settings
from outpace.errors import ConfigError
from outpace.real.elastic.deciding import ClusterView
from outpace.real.ray.connecting import connected
from outpace.real.ray.host import OutpaceHost, RemoteProcess
from outpace.real.ray.nodes import nodes_now, nodes_of, surveys
from outpace.real.ray.placing import Group, lacking, no_room
from outpace.real.ray.survey import problem_of, survey_here

_SAY_AFTER_S: Final = 3.0

_Bundle: TypeAlias = tuple[PlacementGroup, int]


class RayCluster:
    """The places of one run on a Ray cluster, which last longer than its attempts.

    Use as a context manager.

    Args:
        groups: the roles of the run.
        log: called with a line about what the run waits for.

    Attributes:
        nodes, room_s: see `Launcher`.

    Raises:
        ConfigError: if there is no cluster at the address, or if it has no room for the run in
            time.
    """

    def __init__(
        self,
        settings: Settings,
        groups: Sequence[Group],
        log: Callable[[str], None],
    ) -> None:
        self._settings, self._groups, self._log = settings, groups, log
        # This is done at once, because in a job of Ray another node on this machine makes the
        # working folder again.
        self._folder = os.getcwd()
        self._bundles: dict[str, _Bundle] = {}  # by role
        self._of_start: list[PlacementGroup] = []
        # placement groups of these groups
        self._free: dict[str, list[_Bundle]] = {each.kind: [] for each in groups}
        self._made = Counter[str]()  # number of actors of each role so far
        self.nodes: dict[str, str] = {}
        self.room_s = settings.wait_s
        cpus = sum(len(group.names) * group.each.cpu for group in groups)
        # Made only once, because a cluster keeps each function and class until the job ends.
        self._host, self._view, self._no_room = map(ray.remote, (OutpaceHost, _view, _no_room))
        self._env = {"runtime_env": settings.runtime_env} if settings.runtime_env else {}
        with contextlib.ExitStack() as closing:
            closing.enter_context(connected(settings.address, cpus, "launcher.address"))
            self._closing = closing
            self.address: str = ray.util.get_node_ip_address()
            self._namespace = f"outpace-{ray.get_runtime_context().get_job_id()}-{id(self):x}"
            self._reserve()
            self._closing = closing.pop_all()

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        """End the connection with all actors, and the cluster if it was started here."""
        self._closing.close()

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
            # its present resources belong to this run
            if placement_group_table(found).get("state") == "CREATED":
                for bundle in found.bundle_specs:
                    for name, much in bundle.items():
                        free[name] = free.get(name, 0) + much
        return lacking(self._groups, free)

    def reserve(self, names: Sequence[str]) -> None:
        """Request a place for each of these roles that has none."""
        for name in names:
            if name not in self._bundles:
                self._place(name)

    def host(self, name: str) -> RemoteProcess:
        """Make the parent of a process of this role, at the place of the role."""
        self._made[name] += 1
        options = {
            **self._at_place(name),
            # The actor of a lost node keeps its name for some time.
            "name": name if self._made[name] == 1 else f"{name}.{self._made[name]}",
            "namespace": self._namespace,
            "max_restarts": 0,
        }
        return RemoteProcess(name, self._host.options(**options).remote(self._folder))

    def _at_place(self, name: str) -> dict[str, Any]:
        """Return the options of an actor or a task at the place of a role."""
        placed, index = self._place(name)
        group = self._group_of(name)
        return {
            **self._env,
            "num_cpus": group.each.cpu,
            "num_gpus": group.each.gpu,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placed, placement_group_bundle_index=index
            ),
        }

    def _group_of(self, name: str) -> Group:
        return next(group for group in self._groups if name.startswith(group.kind))

    def _place(self, name: str) -> _Bundle:
        """Return the bundle of a role: its present one, or a free one, or a new one.

        A bundle that has lost its node is exchanged for a free bundle with a node.
        """
        group = self._group_of(name)
        mine, free = self._bundles.get(name), self._free[group.kind]
        if free and (mine is None or not _has_node(mine)):
            found = next((each for each in reversed(free) if _has_node(each)), None)
            if found is not None:
                free.remove(found)
                self._give_back(group.kind, mine)
                mine = found
        if mine is None:
            mine = placement_group([group.bundle]), 0
            self._closing.callback(_remove, mine[0])
        self._bundles[name] = mine
        return mine

    def _give_back(self, kind: str, bundle: _Bundle | None) -> None:
        """Give back a bundle that a role does not need any more.

        Ray takes back only whole placement groups. A bundle of a group from the start is kept for
        the next role of its kind.
        """
        if bundle is not None and bundle[0] in self._of_start:
            self._free[kind].append(bundle)
        elif bundle is not None:
            _remove(bundle[0])

    def release(self, name: str) -> None:
        """Give back the place of a role that has left the run."""
        self._give_back(self._group_of(name).kind, self._bundles.pop(name, None))

    def keep_only(self, names: Collection[str]) -> None:
        """Release the places of all roles except these."""
        for name in sorted(self._bundles.keys() - set(names)):
            self.release(name)

    # -- what the cluster has ------------------------------------------------------------

    def no_room(self, names: Sequence[str]) -> Future[str]:
        """See `Launcher.no_room`."""
        mine = {name: self._bundles[name] for name in names if name in self._bundles}
        return self._ask(self._no_room, self._groups, mine)

    def look(self) -> Future[ClusterView]:
        """Begin to observe the nodes, and the places of the run on them."""
        return self._ask(self._view, self._bundles, self._free)

    def _ask(self, function: Any, *arguments: Any) -> Future[Any]:
        """Call a remote function on this node, because the cluster may take long to answer."""
        node = ray.get_runtime_context().get_node_id()
        here = NodeAffinitySchedulingStrategy(node, soft=False)
        asked = function.options(num_cpus=0, scheduling_strategy=here, **self._env)
        found: Future[Any] = asked.remote(*arguments).future()
        return found

    def survey(self, paths: Sequence[str], shared: Path | None = None) -> str:
        """Check that the nodes of all roles have everything that the run needs.

        Args:
            paths: files that the processes read.
            shared: a folder of this machine that the nodes may see.

        Returns:
            The name of a node that does not see the folder; empty if all see it.

        Raises:
            ConfigError: if a node lacks something, has other versions, or does not answer.
        """
        blind = ""
        with _token(shared) as token:
            wanted = [*paths, *([] if token is None else [str(token)])]
            places = {name: self._at_place(name) for name in self._bundles}
            for name, found in surveys(places, wanted, self._settings.wait_s).items():
                if isinstance(found, str):
                    raise ConfigError(f"launcher: the node of {name} {found}")
                self.nodes[name], there = found
                # Versions of torch may differ: processes of a real run exchange plain numbers.
                here = replace(survey_here(), torch=there.torch)
                if problem := problem_of(there, here, str(token)):
                    raise ConfigError(f"launcher: node {self.nodes[name]} {problem}")
                if str(token) in there.missing:
                    blind = self.nodes[name]
        return blind


def _no_room(groups: Sequence[Group], bundles: Mapping[str, _Bundle]) -> str:
    without = [name for name, each in bundles.items() if not _has_node(each)]
    if not without:
        return ""
    return no_room(groups, without, ray.available_resources())


def _view(places: Mapping[str, _Bundle], kept: Mapping[str, Sequence[_Bundle]]) -> ClusterView:
    used = [*places.values(), *(bundle for bundles in kept.values() for bundle in bundles)]
    nodes = {group.id: nodes_of(group) for group in {group.id: group for group, _ in used}.values()}

    def node(bundle: _Bundle) -> str | None:
        return nodes[bundle[0].id].get(bundle[1])

    return ClusterView(
        nodes=nodes_now(),
        places={name: on for name, each in places.items() if (on := node(each))},
        kept={kind: [on for each in kept[kind] if (on := node(each))] for kind in kept},
    )


@contextlib.contextmanager
def _token(folder: Path | None) -> Iterator[Path | None]:
    """For this block, make a file in a folder, or in the folder's nearest existing parent."""
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


def _has_node(bundle: _Bundle) -> bool:
    group, index = bundle
    return index in nodes_of(group)


def _remove(group: PlacementGroup) -> None:
    with contextlib.suppress(RayError):
        remove_placement_group(group)
