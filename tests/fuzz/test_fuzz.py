"""Random and damaged messages: illegal ones are refused and change nothing.

`python -m tests.fuzz --messages 1000000`, in `make soak`, tries more.
"""

import random

import pytest
from tests.fuzz.coordinator import SYNCS, FuzzedCoordinator
from tests.fuzz.machines import run

from outpace.real.net.messages import Compared, Fetch, TrainingDone


# 11: a worker that saves the common model is lost before the checkpoint is complete.
@pytest.mark.parametrize("seed", [0, 11])
def test_an_illegal_message_changes_nothing_and_raises_protocol_error_only(seed):
    counts = run(10_000, seed)
    for what in ("decoder", "shard", "coordinator"):
        assert counts[f"taken by the {what}"] > 0
        assert counts[f"refused by the {what}"] > 0


# -- what the search has found ---------------------------------------------------------------


@pytest.mark.parametrize("kind", SYNCS)
@pytest.mark.parametrize(
    "message", [Compared("gradient", 0, "a"), TrainingDone(), Fetch("initial")]
)
def test_a_server_that_speaks_as_a_worker_is_refused(kind, message):
    coordinator = FuzzedCoordinator(random.Random(0), kind)
    try:
        for name in ("worker-0", "worker-1", "worker-2"):
            assert coordinator.hear(name, message)
        if SYNCS[kind].get("servers") is None:
            assert not coordinator.hear("server-1", message)
    finally:
        coordinator.close()
