"""How a run finds its Ray cluster."""

from __future__ import annotations

import socket

import pytest
from ray._private import ray_constants

from outpace.errors import ConfigError
from outpace.real.ray import connecting


@pytest.fixture
def listening():
    """Return a port that accepts connections, on the loopback interface only."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def reach(monkeypatch, address, running, other="127.0.0.2"):
    """Connect; return the address, and whether Ray had to use the loopback address unchanged.

    Args:
        running: The address that Ray finds for `auto`.
        other: The address that Ray uses instead of the loopback address.
    """
    used = []

    def init(*, address, **_):
        used.append((address, not ray_constants.ENABLE_RAY_CLUSTER))

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    monkeypatch.setattr(connecting.services, "get_node_ip_address", lambda: other)
    monkeypatch.setattr(connecting.services, "get_ray_address_from_environment", lambda *_: running)
    monkeypatch.setattr(connecting.ray, "init", init)
    monkeypatch.setattr(connecting.ray, "is_initialized", lambda: False)
    with connecting.connected(address, 1.0, "launcher.address"):
        pass
    assert ray_constants.ENABLE_RAY_CLUSTER
    return used


@pytest.mark.parametrize("address", [None, "auto", "HOST:PORT"])
def test_a_cluster_on_the_loopback_interface_alone_is_reached_there(
    monkeypatch, listening, address
):
    running = f"127.0.0.1:{listening}"
    found = running if address == "HOST:PORT" else address
    assert reach(monkeypatch, found, running) == [(running, True)]


def test_without_a_cluster_auto_is_an_error(monkeypatch):
    def none(*_):
        raise ConnectionError

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(connecting.services, "get_ray_address_from_environment", none)
    monkeypatch.setattr(connecting.ray, "is_initialized", lambda: False)
    with (
        pytest.raises(ConfigError, match=r"no Ray cluster runs on this machine"),
        connecting.connected("auto", 1.0, "launcher.address"),
    ):
        pass
