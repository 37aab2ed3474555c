"""The resources that a run asks of a cluster, and what the cluster lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from outpace.config.launchers import Placement, Ray, RoleResources
from outpace.support.words import plural

RESOURCES: Final = ("CPU", "GPU")


@dataclass(frozen=True, slots=True)
class Group:
    """Roles that are placed together. placement: in Ray's words it is upper case, with `_`."""

    kind: str  # worker or server
    names: Sequence[str]
    each: RoleResources
    placement: Placement

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of one role by Ray's names, without those of which it needs none."""
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


def lacking(
    groups: Sequence[Group],
    nodes: Mapping[str, Mapping[str, float]],
    free: Mapping[str, float],
    who: str = "the run",
) -> str:
    """Return in words what a cluster lacks for these groups, as far as that can be told.

    Args:
        nodes: all resources of each node, by its name.
        free: the resources that nothing uses, of all nodes together.
        who: needs them, in words.
    """
    most = {name: max((n.get(name, 0) for n in nodes.values()), default=0) for name in RESOURCES}
    for group in groups:
        count = len(group.names)
        for name, much in group.bundle.items():
            if much > most[name]:
                return (
                    f"a {group.kind} needs {much:g} {name}, and no node of the cluster has more "
                    f"than {most[name]:g}"
                )
            together = much * count
            if group.placement == "strict-pack" and together > most[name]:
                return (
                    f"the {plural(count, group.kind)} need {together:g} {name} on one node "
                    f"(strict-pack), and no node has more than {most[name]:g}"
                )
        if group.placement == "strict-spread" and count > len(nodes):
            return (
                f"the {plural(count, group.kind)} are to be on different nodes (strict-spread), "
                f"and the cluster has {plural(len(nodes), 'node')}"
            )
    for name in RESOURCES:
        needed = sum(len(group.names) * group.bundle.get(name, 0) for group in groups)
        there = sum(node.get(name, 0) for node in nodes.values())
        if needed > free.get(name, 0):
            return (
                f"{who} needs {needed:g} {name}, and {free.get(name, 0):g} of the cluster's "
                f"{there:g} are free"
            )
    return "what is free is divided among the nodes, so that some role fits on none of them"


def no_room(
    groups: Sequence[Group],
    names: Sequence[str],
    nodes: Mapping[str, Mapping[str, float]],
    free: Mapping[str, float],
) -> str:
    """Return in words that there is no room for some roles, why, and what to do.

    Args:
        names: the roles, which belong to these groups or have joined late.
        nodes, free: see `lacking`.
    """
    without = [
        replace(group, names=mine, placement="pack")
        for group in groups
        if (mine := [name for name in names if name.startswith(group.kind)])
    ]
    kinds = [group.kind for group in without]
    where = "".join(
        f", and launcher.{group.kind}s is {group.placement}"
        for group in groups
        if group.kind in kinds and group.placement.startswith("strict")
    )
    who = ", ".join(names)
    lack = lacking(without, nodes, free, who)
    return f"the cluster has no room for {who} ({lack}{where}): add a node, or free resources"
