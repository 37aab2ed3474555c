"""The names of machines, from the data that processes send when they join."""

from __future__ import annotations

from outpace.real.coordinator.run_state import machines_of
from outpace.real.net.messages import JoinRun


def joined(host: str, machine: str) -> JoinRun:
    return JoinRun("1", 1, host=host, machine=machine)


def test_a_machine_has_its_host_name_and_those_with_the_same_are_told_apart():
    # For example containers and network namespaces of a machine, or copied machines.
    places = machines_of(
        {
            "server-0": joined("a", "1"),
            "worker-0": joined("a (2)", "2"),
            "worker-1": joined("a", "3"),
            "worker-2": joined("a", "1"),
            "worker-3": joined("b", "4"),
        }
    )
    assert places == {
        "server-0": "a",
        "worker-0": "a (2)",
        "worker-1": "a (3)",
        "worker-2": "a",
        "worker-3": "b",
    }


def test_a_host_name_cannot_change_the_terminal():
    assert machines_of({"worker-0": joined("a\x1b[2J\nb", "1")}) == {"worker-0": "a?[2J?b"}
