"""The names of machines, by what processes tell when they join."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from outpace.real.coordinator.run_state import machines_of
from outpace.real.net.messages import JoinRun
from outpace.real.run import RealRun
from outpace.support.machine import LONGEST, host_name, machine_id


def joined(host: str, machine: str) -> JoinRun:
    return JoinRun("1", 1, host=host, machine=machine)


def test_a_machine_has_its_host_name():
    assert machines_of(
        {
            "server-0": joined("a", "1"),
            "worker-0": joined("b", "2"),
            "worker-1": joined("a", "1"),
        }
    ) == {"server-0": "a", "worker-0": "b", "worker-1": "a"}


def test_machines_with_the_same_host_name_are_told_apart():
    # As containers and network namespaces of a machine, or machines that are copies.
    places = machines_of(
        {
            "server-0": joined("a", "1"),
            "worker-0": joined("a (2)", "2"),
            "worker-1": joined("a", "3"),
            "worker-2": joined("a", "1"),
            "worker-3": joined("a", "3"),
        }
    )
    assert places == {
        "server-0": "a",
        "worker-0": "a (2)",
        "worker-1": "a (3)",
        "worker-2": "a",
        "worker-3": "a (3)",
    }


def test_without_an_id_of_the_machine_its_host_name_counts():
    places = machines_of(
        {"server-0": joined("a", ""), "worker-0": joined("b", ""), "worker-1": joined("a", "")}
    )
    assert places == {"server-0": "a", "worker-0": "b", "worker-1": "a"}


def test_a_process_without_a_host_name_has_a_machine_of_its_own():
    assert machines_of({"worker-0": joined("", ""), "worker-1": joined("", "")}) == {
        "worker-0": "worker-0",
        "worker-1": "worker-1",
    }


def test_a_host_name_cannot_change_the_terminal():
    assert machines_of({"worker-0": joined("a\x1b[2J\nb", "1")}) == {"worker-0": "a?[2J?b"}


def test_a_process_tells_what_a_message_may_have():
    assert 0 < len(host_name()) <= LONGEST
    assert len(machine_id()) <= LONGEST
    assert machine_id() == machine_id()


def test_a_run_whose_workers_others_start_has_the_machines_that_its_processes_told():
    places = {"server-0": joined("a", "1"), "worker-0": joined("b", "2")}
    run: Any = SimpleNamespace(
        coordinator=SimpleNamespace(state=SimpleNamespace(joined=places)),
        launcher=SimpleNamespace(nodes={}),
        _outside=SimpleNamespace(),
    )
    assert RealRun.nodes(run) == {"server-0": "a", "worker-0": "b"}
    run._outside = None
    assert RealRun.nodes(run) == {}
