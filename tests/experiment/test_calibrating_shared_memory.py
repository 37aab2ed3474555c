"""Real runs whose large blocks went through memory that their processes shared."""

from __future__ import annotations

import json

import pytest
from tests.support.recorded_as_real import as_real

from outpace.experiment.calibrating import calibrate
from outpace.experiment.running import simulate
from outpace.record import folder as files
from outpace.support.yaml_files import read_yaml

# Time of a message over the network; in memory, a message of this size takes a tenth of it.
LATENCY_S, BANDWIDTH = 1e-3, 1e8
IN_MEMORY = {"latency_s": LATENCY_S / 10, "bandwidth_bytes_per_s": BANDWIDTH * 10, "log": True}
ON_ONE_EACH = {f"worker-{n}": f"machine {n}" for n in range(4)} | {"server-0": "machine 4"}
ON_ONE = dict.fromkeys(ON_ONE_EACH, "machine 0")


def recorded(folder, parameters=250_000, nodes=None, shared_memory=True):
    """Record a run of 4 workers, of which worker 2 is slow, with messages of 1 MB."""
    service = {"kind": "constant", "mean_s": 1e-4}
    simulate(
        {
            "task": {"kind": "timing", "parameters": parameters},
            "workers": 4,
            "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.03, "factors": [1, 1, 1.5, 1]},
            "network": IN_MEMORY,
            "push_time": service,
            "pull_time": service,
            "sync": {"kind": "bsp"},
            "stop": {"iterations": 24},
        },
        folder,
    )
    as_real(
        folder,
        latency_s=lambda _: LATENCY_S,
        bandwidth=lambda _: BANDWIDTH,
        push_s=1e-4,
        pull_s=1e-4,
        nodes=nodes,
    )
    config = read_yaml(folder / files.CONFIG)
    (folder / files.CONFIG).write_text(json.dumps({**config, "shared_memory": shared_memory}))


def about_memory(notes):
    return [note for note in notes if "shared_memory" in note]


@pytest.mark.parametrize(
    ("shared_memory", "all_reduce_latency_s"),
    [(True, 2 * LATENCY_S), (False, 2 * LATENCY_S / 10)],
)
def test_all_reduces_are_not_as_fast_as_messages_in_shared_memory(
    tmp_path, shared_memory, all_reduce_latency_s
):
    recorded(tmp_path / "run", shared_memory=shared_memory)
    found = calibrate([tmp_path / "run"])
    law = found.network_law
    assert law.latency_s == pytest.approx(LATENCY_S / 10, rel=0.05)
    assert law.bandwidth_bytes_per_s == pytest.approx(BANDWIDTH * 10, rel=0.05)
    assert law.all_reduce.latency_s == pytest.approx(all_reduce_latency_s, rel=0.05)
    notes = about_memory(found.notes)
    assert len(notes) == shared_memory
    for note in notes:
        assert "blocks of 128 KiB and more did not travel" in note
        assert "a block of 1 MB in memory" in note


@pytest.mark.parametrize(
    ("parameters", "nodes", "is_said"),
    [(250_000, ON_ONE, True), (250_000, ON_ONE_EACH, False), (25_000, None, False)],
    ids=["on one machine", "on different machines", "of small blocks"],
)
def test_a_run_is_said_to_have_used_memory_if_it_could(tmp_path, parameters, nodes, is_said):
    recorded(tmp_path / "run", parameters, nodes)
    assert bool(about_memory(calibrate([tmp_path / "run"]).notes)) is is_said
