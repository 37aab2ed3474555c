"""Tries an input of the guided search."""

from __future__ import annotations

from tests.fuzz.coordinator import FuzzedCoordinator
from tests.fuzz.draws import Bytes, Exhausted
from tests.fuzz.machines import Fuzzed


def try_input(data: bytes) -> None:
    """Let the bytes decide what is sent, until they are used up. Raises what is unforeseen."""
    if not data:
        return
    draw, coordinator = Bytes(data[1:]), None
    try:
        if data[0] % 2:
            fuzzed = Fuzzed(draw)
            while True:
                fuzzed.step()
        coordinator = FuzzedCoordinator(draw)
        while True:
            coordinator.step()
    except Exhausted:
        pass
    finally:
        if coordinator is not None:
            coordinator.close()
