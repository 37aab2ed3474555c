"""Processes of one real run are killed; `python -m tests.kills` does it longer, in more ways."""

from __future__ import annotations

import sys

import pytest
from safetensors.torch import load_file, save_file
from tests.kills.checking import Broken, check
from tests.kills.family import FAMILIES
from tests.kills.killing import Tally, attack

from outpace import simulate


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
def test_a_run_survives_the_deaths_of_a_worker_a_server_and_its_command(tmp_path):
    tally = Tally()
    failures = [("worker", "KILL"), ("server", "KILL"), ("coordinator", "KILL")]
    # With so many copies the blocks go through shared memory.
    attack("ssp", tmp_path / "run", failures, seed=0, tally=tally, iterations=400, copies=100)
    assert tally.failures.total() == 3


@pytest.mark.parametrize(
    ("entry", "value", "deaths", "problem"),
    [
        (7, 0.0, 0, "1 gradients are missing, and 0 may be"),
        (7, 0.0, 1, "1 gradients are missing, and updates_lost says 0"),
        (0, -2 / 3, 1, "1 gradients were applied twice"),
        (11, -1 / 2, 1, "1 gradients have more weight than others"),
        (119, -1 / 6, 1, r"weights of gradients other than \[0.0, 1.0, 1.5, 3.0\]: \[0.5\]"),
    ],
)
def test_the_check_finds_gradients_that_are_missing_or_applied_twice(
    tmp_path, entry, value, deaths, problem
):
    family, model = FAMILIES["bsp"], tmp_path / "run" / "model.safetensors"
    simulate(family.config(40), tmp_path / "run")
    check(tmp_path / "run", family, 40, {"worker": deaths})
    parameters = load_file(model)
    parameters["second"][entry] = value
    save_file(parameters, model)
    with pytest.raises(Broken, match=problem):
        check(tmp_path / "run", family, 40, {"worker": deaths})
