"""Fixtures: running commands `outpace serve`, and a process that has not looked for a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.served import Served
from tests.support.warm import Warm

from outpace import script
from outpace.real.process import rendezvous
from outpace.support import place


@pytest.fixture
def serve(tmp_path: Path, warm: Warm) -> Iterator[Callable[..., Served]]:
    """Return a function that starts `outpace serve` for two workers."""
    running: list[Served] = []

    def begin(*settings: str) -> Served:
        running.append(Served(warm, tmp_path, 2, *settings))
        return running[-1]

    yield begin
    for each in running:
        for process in (each.process, *each.started):
            process.kill()
            process.communicate()


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process as if it had not looked for a run yet."""
    fresh = place.Place()
    for module in (place, script, rendezvous):
        monkeypatch.setattr(module, "HERE", fresh)
    for key in ("RANK", "WORLD_SIZE", "OUTPACE_CONNECT"):
        monkeypatch.delenv(key, raising=False)
