"""Processes of one real run are killed; `python -m tests.kills` does it longer, in more ways."""

from __future__ import annotations

import sys

import pytest
from tests.kills.killing import Tally, attack


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
def test_a_run_survives_the_deaths_of_a_worker_a_server_and_its_command(tmp_path):
    tally = Tally()
    failures = [("worker", "KILL"), ("server", "KILL"), ("coordinator", "KILL")]
    # With so many copies the blocks go through shared memory.
    attack("ssp", tmp_path / "run", failures, seed=0, tally=tally, iterations=400, copies=100)
    assert tally.failures.total() == 3
