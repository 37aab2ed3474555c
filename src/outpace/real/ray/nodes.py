"""The nodes of a Ray cluster to which this process is connected.

There is no public way to get from Ray the free resources of each node
(`available_resources_per_node`), and the nodes that are drained (`state.get_draining_nodes`).
Whether an actor has ended with its node is known only from the text of its error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray._private.state import available_resources_per_node, state
from ray.exceptions import ActorDiedError, RayError
from ray.util.placement_group import PlacementGroup, placement_group_table

from outpace.real.elastic.deciding import Node
from outpace.real.ray.placing import RESOURCES
from outpace.real.ray.survey import Survey, survey_here


def node_names() -> dict[str, str]:
    """Return distinct and readable names of all nodes, by their ids."""
    found = {}
    for node in ray.nodes():
        own, address = node["NodeName"], node["NodeManagerAddress"]
        found[node["NodeID"]] = node["NodeManagerHostname"] if own == address else own
    names = list(found.values())
    return {
        each: name if names.count(name) == 1 else f"{name}-{each[:6]}"
        for each, name in found.items()
    }


def name_of_this_node() -> str:
    """Return the name of the node on which this process of Ray is."""
    own: str = ray.get_runtime_context().get_node_id()
    return node_names().get(own, own)


def resources_of_nodes() -> dict[str, dict[str, float]]:
    """Return the resources of each node that is alive, used or free, by id of the node."""
    return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}


def nodes_now() -> Sequence[Node]:
    """Return the nodes that are alive."""
    free, drained, names = available_resources_per_node(), state.get_draining_nodes(), node_names()
    return [
        Node(
            id=each,
            name=names.get(each, each),
            free={name: free[each].get(name, 0.0) for name in RESOURCES},
            is_drained=each in drained,
        )
        for each in sorted(resources_of_nodes())
        if each in free
    ]


def nodes_of(group: PlacementGroup) -> Mapping[int, str]:
    """Return the node ids of a group's bundles, by index; bundles without a node are left out."""
    found: Mapping[int, str] = placement_group_table(group).get("bundles_to_node_id", {})
    return {index: node for index, node in found.items() if node}


def surveys(
    places: Mapping[str, Mapping[str, Any]], paths: Sequence[str], wait_s: float
) -> dict[str, tuple[str, Survey] | str]:
    """Look at places of the cluster.

    Args:
        places: options of a task at each place, by the place's name.
        paths: files that should be there.
        wait_s: seconds for all answers.

    Returns:
        For each place the name of its node and the survey of it, or a text that says why there is
        none.
    """
    look, found = ray.remote(_survey), dict[str, tuple[str, Survey] | str]()
    asked = {place: look.options(**each).remote(list(paths)) for place, each in places.items()}
    answered, _ = ray.wait([*asked.values()], num_returns=len(asked), timeout=wait_s)
    for place, answer in asked.items():
        if answer not in answered:
            found[place] = (
                f"did not answer within {wait_s:g} s: look at it with `ray status`, or wait longer "
                "(wait_s)"
            )
            continue
        try:
            found[place] = ray.get(answer)
        except RayError as error:
            found[place] = f"cannot start processes: {last_line(error)}"
    return found


def _survey(paths: Sequence[str]) -> tuple[str, Survey]:
    return name_of_this_node(), survey_here(paths)


def has_lost_its_node(error: ActorDiedError) -> bool:
    """True if an actor has ended because its node has ended."""
    return "its node has died" in str(error)


def last_line(error: BaseException) -> str:
    """Return the last line of an error, which contains the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
