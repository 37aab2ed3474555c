"""Runs whose servers and workers shared machines: the machines, and the rates of their links."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.recorded_as_real import as_real

from outpace.experiment.calibrating import calibrate, write_calibration
from outpace.experiment.calibrating.runs import shared_machines
from outpace.experiment.running import simulate
from outpace.record import folder as files
from outpace.support.yaml_files import read_yaml

LATENCY_S, BANDWIDTH, PUSH_S, PULL_S = 1e-3, 1e8, 2e-4, 1e-4
WITHIN_S, WITHIN_BANDWIDTH = 1e-4, 2e9
# As `outpace serve` starts them: both servers on one host, and two workers on each of two.
APART = {
    "a": ["server-0", "server-1"],
    "b": ["worker-0", "worker-1"],
    "c": ["worker-2", "worker-3"],
}
MIXED = {"a": ["worker-0", "server-0"], "b": ["worker-1", "worker-2", "server-1"]}


@dataclass
class Run:
    nodes: dict
    servers: int = 1


def config(machines, contention="fair", **changes):
    return {
        "task": {"kind": "timing", "parameters": 500_000},  # 1 MB for each server
        "workers": 4,
        "servers": 2,
        "compute": {"kind": "lognormal", "mean_s": 0.05, "cv": 0.3},
        "network": {
            "latency_s": LATENCY_S,
            "bandwidth_bytes_per_s": BANDWIDTH,
            "contention": contention,
            "machines": machines,
            "loopback": {"latency_s": WITHIN_S, "bandwidth_bytes_per_s": WITHIN_BANDWIDTH},
            "log": True,
        },
        "push_time": {"kind": "constant", "mean_s": PUSH_S},
        "pull_time": {"kind": "constant", "mean_s": PULL_S},
        "judge_time": {"kind": "constant", "mean_s": 1e-6},
        "sync": {"kind": "bsp"},
        "stop": {"iterations": 24},
        **changes,
    }


def recorded(folder, machines, contention="fair", **changes):
    """Record a run on these machines, with a probe that is twice as fast as the training."""
    simulate(config(machines, contention, **changes), folder)
    nodes = {f"worker-{n}": f"worker-{n}" for n in range(4)}
    nodes |= {node: name for name, on_it in machines.items() for node in on_it}
    as_real(
        folder,
        latency_s=lambda _: LATENCY_S / 2,
        bandwidth=lambda _: BANDWIDTH * 2,
        push_s=PUSH_S,
        pull_s=PULL_S,
        nodes=nodes,
        loopback=(WITHIN_S / 2, WITHIN_BANDWIDTH * 2),
    )


def calibrated(folder):
    """Return the network of the cluster file, and the messages."""
    found = calibrate([folder])
    path = folder.with_suffix(".yaml")
    write_calibration(found, path)
    return read_yaml(path)["network"], found


def require_links(found):
    # Links are saturated: an iteration computes for 50 ms, and its pushes need 80 ms and more.
    assert found["bandwidth_bytes_per_s"] == pytest.approx(BANDWIDTH, rel=0.05)
    assert found["latency_s"] == pytest.approx(LATENCY_S, rel=0.05)
    assert not {"nodes", "pairs", "delays"} & found.keys()


def test_the_rate_of_links_that_were_shared_is_found(tmp_path):
    recorded(tmp_path / "run", APART)
    found, said = calibrated(tmp_path / "run")
    assert found["machines"] == APART
    assert found["contention"] == "fair"
    require_links(found)
    assert all(name in said.words["network"] for name in APART)


def test_the_rates_of_links_and_of_the_loopback_are_found(tmp_path):
    recorded(tmp_path / "run", MIXED, "serialised")
    found, _ = calibrated(tmp_path / "run")
    assert found["machines"] == MIXED
    assert "contention" not in found  # the default
    require_links(found)
    within = found["loopback"]
    assert within["latency_s"] == pytest.approx(WITHIN_S, rel=0.05)
    assert within["bandwidth_bytes_per_s"] == pytest.approx(WITHIN_BANDWIDTH, rel=0.05)


def leave_out_probes(folder, is_left_out):
    """Leave out the probes between some workers and servers, as if time had been short."""
    table = pq.read_table(folder / files.TIMING)
    kept = [
        row["what"] != "probe" or not is_left_out(row["worker"], row["server"])
        for row in table.select(["what", "worker", "server"]).to_pylist()
    ]
    pq.write_table(table.filter(pa.array(kept)), folder / files.TIMING)


def test_without_probes_between_machines_their_links_are_said_to_be_unknown(tmp_path):
    recorded(tmp_path / "run", MIXED, "serialised")
    leave_out_probes(tmp_path / "run", lambda worker, server: (worker, server) != (0, 0))
    found, said = calibrated(tmp_path / "run")
    assert not {"machines", "loopback"} & found.keys()
    assert found["bandwidth_bytes_per_s"] > 0
    (note,) = [note for note in said.notes if "probes of two sizes" in note]
    assert "network.machines is left out" in note


def test_runs_on_different_machines_name_none():
    one = Run({"server-0": "a", "worker-0": "a", "worker-1": "b"})
    renamed = Run({"server-0": "x", "worker-0": "x", "worker-1": "y"})
    other = Run({"server-0": "a", "worker-0": "b", "worker-1": "b"})
    without = Run({"worker-0": "a", "worker-1": "a"}, servers=0)
    notes = []
    assert shared_machines([one, renamed, without], notes) == {"a": ("worker-0", "server-0")}
    assert not notes
    assert shared_machines([one, other], notes) == {}
    assert ["on different machines" in note for note in notes] == [True]
