"""The resources that a run requests from a cluster, and the resources that the cluster lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from outpace.config.launchers import Placement, Ray, RoleResources

RESOURCES: Final = ("CPU", "GPU")


@dataclass(frozen=True, slots=True)
class Group:
    """Roles that are placed together. placement: Ray's name is in upper case, with `_`."""

    kind: str  # worker or server
    names: Sequence[str]
    each: RoleResources
    placement: Placement

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of one role by Ray's names, without resources that it does not need."""
        each = self.each
        return {name: much for name, much in (("CPU", each.cpu), ("GPU", each.gpu)) if much}


def groups_of(settings: Ray, servers: Sequence[str], workers: Sequence[str]) -> list[Group]:
    """Return the groups of a run: its servers, if it has any, and its workers."""
    resources = settings.resources
    found = [
        Group("server", servers, resources.server, settings.servers),
        Group("worker", workers, resources.worker, settings.workers),
    ]
    return [group for group in found if group.names]


def lacking(groups: Sequence[Group], free: Mapping[str, float], who: str = "the run") -> str:
    """Return a text about the resources that these groups need, and those that are free.

    Args:
        free: the free resources of all nodes together.
        who: text that names the processes that need them.
    """
    needed = {
        name: sum(len(group.names) * group.bundle.get(name, 0) for group in groups)
        for name in RESOURCES
    }
    what = [
        f"{much:g} {name} ({free.get(name, 0):g} free)" for name, much in needed.items() if much
    ]
    where = "".join(
        f", and launcher.{group.kind}s is {group.placement}"
        for group in groups
        if group.placement.startswith("strict")
    )
    return f"{who} needs {' and '.join(what)}, each process on one node{where}"


def no_room(groups: Sequence[Group], names: Sequence[str], free: Mapping[str, float]) -> str:
    """Return a text that there is no room for some roles, why, and what to do.

    Args:
        names: the roles, which belong to these groups or have joined late.
        free: see `lacking`.
    """
    without = [
        replace(group, names=mine)
        for group in groups
        if (mine := [name for name in names if name.startswith(group.kind)])
    ]
    lack = lacking(without, free, who := ", ".join(names))
    return f"the cluster has no room for {who} ({lack}): add a node, or free resources"
