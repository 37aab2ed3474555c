"""`python -m benchmarks.fidelity`: on which hosts the roles of its parts run."""

from __future__ import annotations

from benchmarks.fidelity import setups
from benchmarks.fidelity.setups import BSP, LINK

ROLES = ["server-0", "server-1", "worker-0", "worker-1", "worker-2", "worker-3"]


def test_only_the_steps_of_the_slow_server_sleep_and_its_link_is_like_the_others():
    setup = setups.slow_server(quick=False)
    assert dict(setup.hosts.step_s) == {"server-1": 0.03}
    assert set(setup.hosts.links) == {LINK}


def test_servers_share_a_host_and_two_workers_each():
    places = setups.shared_hosts(quick=False).hosts
    assert [places.of_roles[role] for role in ROLES] == [0, 0, 1, 1, 2, 2]
    assert places.links == [LINK] * 3


def test_strategies_of_other_parts_are_left_out():
    setup = setups.slow_server(quick=True)
    assert setups.chosen(["ssp", "cut-off"], setup) == [BSP, "SSP lazy", "SSP soft"]
    assert setups.chosen([], setup, quick=True) == [BSP, "SSP soft"]
