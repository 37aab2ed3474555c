"""The nodes of a Ray cluster, and the nodes on which the bundles of a placement group are.

Two functions of Ray that are used here are not public: `available_resources_per_node` returns the
free resources of each node, and `get_draining_nodes` the nodes that are drained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ray
from ray._private.state import available_resources_per_node, state
from ray.util.placement_group import PlacementGroup, placement_group_table

from outpace.real.elastic.view import Node
from outpace.real.process.ray.connecting import node_names
from outpace.real.process.ray.placing import RESOURCES


def nodes_now() -> Sequence[Node]:
    """Return the nodes that are alive."""
    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    free, drained, names = available_resources_per_node(), state.get_draining_nodes(), node_names()
    return [
        Node(
            id=each,
            name=names.get(each, each),
            free={name: free[each].get(name, 0.0) for name in RESOURCES},
            is_drained=each in drained,
        )
        for each in sorted(alive)
        if each in free
    ]


def nodes_of(group: PlacementGroup) -> Mapping[int, str]:
    """Return the ids of the nodes of a group's bundles, by index; without those that have none."""
    found: Mapping[int, str] = placement_group_table(group).get("bundles_to_node_id", {})
    return {index: node for index, node in found.items() if node}
