"""Runs whose servers and workers shared machines: the machines, and the rates of their links."""

from __future__ import annotations

import json
import shutil
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
    """Return the network of the cluster file, and what was said."""
    found = calibrate([folder])
    path = folder.with_suffix(".yaml")
    write_calibration(found, path, path.with_suffix(".html"))
    return read_yaml(path)["network"], found.shown


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """A recorded run, its network as calibrated, and what was said."""
    folder = tmp_path_factory.mktemp("apart") / "run"
    recorded(folder, APART)
    return folder, *calibrated(folder)


def require_links(found):
    # Links are saturated: an iteration computes for 50 ms, and its pushes need 80 ms and more.
    assert found["bandwidth_bytes_per_s"] == pytest.approx(BANDWIDTH, rel=0.05)
    assert found["latency_s"] == pytest.approx(LATENCY_S, rel=0.05)
    assert not {"nodes", "pairs", "delays"} & found.keys()


def test_the_rate_of_links_that_were_shared_is_found(apart):
    _, found, said = apart
    assert found["machines"] == APART
    assert found["contention"] == "fair"
    require_links(found)
    network = next(words for key, words in said.laws if key == "network")
    assert all(name in network for name in APART)


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
    """Leave out the probes between some workers and servers, as when there is no time for them."""
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


def forget_machines(folder):
    """Make the folder that of a run which does not know where its processes were."""
    summary, config = (read_yaml(folder / name) for name in (files.SUMMARY, files.CONFIG))
    del summary["nodes"]
    del config["network"]["machines"]
    (folder / files.SUMMARY).write_text(json.dumps(summary))
    (folder / files.CONFIG).write_text(json.dumps(config))


def test_what_was_calibrated_on_shared_links_predicts_asynchronous_training(apart, tmp_path):
    # Under ASP messages meet less often than under BSP. Links of their own that are slow enough for
    # BSP are too slow for ASP.
    folder, *_ = apart
    asp = config(APART, sync={"kind": "asp"}, compute={"kind": "constant", "mean_s": 0.2})
    real = simulate(asp).summary["virtual_time_s"]

    def predicted(cluster):
        own = {key: value for key, value in asp.items() if key != "network"}
        plan = {**own, "include": str(cluster.with_suffix(".yaml"))}
        return simulate(plan).summary["virtual_time_s"]

    assert predicted(folder) == pytest.approx(real, rel=0.01)
    shutil.copytree(folder, tmp_path / "run")
    forget_machines(tmp_path / "run")
    calibrated(tmp_path / "run")
    assert predicted(tmp_path / "run") > 1.03 * real


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ({"server-0": "a", "worker-0": "c", "worker-1": "d"}, {}),
        ({"server-0": "a", "worker-0": "a", "worker-1": "a"}, {}),
        (
            {"server-0": "a", "server-1": "a", "worker-1": "b", "worker-10": "c", "worker-2": "c"},
            {"a": ("server-0", "server-1"), "c": ("worker-2", "worker-10")},
        ),
    ],
    ids=["one each", "all on one", "some together"],
)
def test_machines_are_those_with_several_processes_if_there_are_others(places, expected):
    notes = []
    assert shared_machines([Run(places)], notes) == expected
    assert not notes


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


def test_the_machines_that_a_run_had_count(apart, tmp_path):
    folder, *_ = apart
    shutil.copytree(folder, tmp_path / "run")
    named = read_yaml(folder / files.CONFIG)
    named["network"]["machines"] = MIXED
    (tmp_path / "run" / files.CONFIG).write_text(json.dumps(named))
    found = calibrate([tmp_path / "run"])
    assert {name: list(nodes) for name, nodes in found.network_law.machines.items()} == APART
