"""Tests of explanations of recorded runs."""

from __future__ import annotations

import json
from itertools import product

import pyarrow as pa
import pytest

import outpace
from outpace.errors import ConfigError
from outpace.record import folder as files
from outpace.record.timing import SCHEMA
from outpace.report.explaining import explained

FACTORS = (1, 1, 1.3, 1, 1)


def run(folder, iterations=40, **changes):
    """Return the summary of a run of 5 workers, of which worker 2 takes 1.3 times as long."""
    data = {
        "task": {"kind": "timing", "parameters": 1000},
        "workers": 5,
        "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.03, "factors": FACTORS},
        "stop": {"iterations": iterations},
        **changes,
    }
    return outpace.simulate(data, folder).summary


@pytest.mark.parametrize(
    "sync",
    [
        {"kind": "bsp"},
        {"kind": "ssgd"},
        {"kind": "local-sgd", "every": 4},
        {"kind": "ssp", "staleness": 2},
        {"kind": "asp"},
    ],
    ids=lambda sync: sync["kind"],
)
def test_the_seconds_lost_are_those_that_the_run_takes_less_without_the_slow_worker(tmp_path, sync):
    slow = run(tmp_path / "slow", sync=sync)
    even = run(
        tmp_path / "even", sync=sync, compute={"kind": "lognormal", "mean_s": 0.1, "cv": 0.03}
    )
    found = explained(tmp_path / "slow")
    (cause,) = found.causes
    assert (cause.name, cause.pattern, cause.named < 20) == ("worker 2", "steady", True)
    assert cause.factor == pytest.approx(1.3, abs=0.04)
    gained = slow["virtual_time_s"] - even["virtual_time_s"]
    assert cause.lost_s == pytest.approx(gained, abs=0.03 * slow["virtual_time_s"])
    if sync["kind"] in ("bsp", "ssgd"):
        assert found.lost_s <= found.waiting_s * 5 / 4  # the other four waited
    assert not explained(tmp_path / "even").causes


def test_without_waits_a_slow_worker_costs_a_share_of_its_own_time(tmp_path):
    """By hand: in 4 s it does 30 iterations, each 0.03 s longer, a fifth of which is 0.18 s."""
    run(tmp_path / "asp", sync={"kind": "asp"}, stop={"virtual_time_s": 4})
    (cause,) = explained(tmp_path / "asp").causes
    assert cause.lost_s == pytest.approx(0.18, rel=0.1)


def test_a_slow_link_is_told_from_a_slow_worker(tmp_path):
    network = {
        "latency_s": 0.001,
        "pairs": [{"between": ["worker-3", "server-1"], "latency_s": 0.05}],
    }
    even = {"kind": "lognormal", "mean_s": 0.1, "cv": 0.03}
    slow = run(tmp_path / "slow", sync={"kind": "bsp"}, servers=2, network=network, compute=even)
    usual = run(
        tmp_path / "usual",
        sync={"kind": "bsp"},
        servers=2,
        network={"latency_s": 0.001},
        compute=even,
    )
    (cause,) = explained(tmp_path / "slow").causes
    assert cause.name == "link of worker 3 to server 1"
    gained = slow["virtual_time_s"] - usual["virtual_time_s"]
    assert cause.lost_s == pytest.approx(gained, rel=0.1)


def test_plain_data_are_json_with_the_names_of_the_causes(tmp_path):
    run(tmp_path / "run", sync={"kind": "bsp"})
    plain = json.loads(json.dumps(explained(tmp_path / "run").to_plain()))
    assert plain["version"] == 1
    assert [cause["name"] for cause in plain["causes"]] == ["worker 2"]
    assert plain["lost_s"] == plain["causes"][0]["lost_s"]


def test_what_is_not_a_recorded_run_is_said_in_one_line(tmp_path):
    run(tmp_path / "short", iterations=5, sync={"kind": "bsp"})
    with pytest.raises(ConfigError, match="has 5 iterations, and 8 are needed"):
        explained(tmp_path / "short")
    (tmp_path / "short" / "trace.parquet").unlink()
    with pytest.raises(ConfigError, match=r"has no trace.parquet.*choose a run that ended"):
        explained(tmp_path / "short")
    with pytest.raises(ConfigError, match="there is no such folder of a run"):
        explained(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is not the folder of a run"):
        explained(tmp_path)


def test_a_server_that_handles_requests_slowly_is_named(tmp_path):
    """By hand: server 1 needs 30 ms for a request, the others 10, in 40 iterations: 0.8 s."""
    network = {"latency_s": 0.005}
    even = {"kind": "lognormal", "mean_s": 0.1, "cv": 0.03}
    run(tmp_path / "run", sync={"kind": "bsp"}, servers=3, network=network, compute=even)
    summary = files.read_summary(tmp_path / "run")
    summary["wall_time_s"] = summary.pop("virtual_time_s")
    files.write_summary(tmp_path / "run", summary)
    rows = []
    for iteration, worker, server in product(range(40), range(5), range(3)):
        done = 30_000_000 + iteration % 3 if server == 1 else 10_000_000 + server
        row = dict.fromkeys(SCHEMA.names)
        row |= {"what": "push", "worker": worker, "server": server, "iteration": iteration}
        row |= {"sent_bytes": 1, "answer_bytes": 1, "sent_ns": 0, "received_ns": 1_000_000}
        row |= {"begun_ns": 0, "done_ns": done, "answer_begun_ns": done, "answered_ns": done}
        row |= {"arrived_ns": done + 1_000_000}
        rows.append(row)
    files.write_table(tmp_path / "run" / files.TIMING, pa.Table.from_pylist(rows, SCHEMA))
    (cause,) = explained(tmp_path / "run").causes
    assert (cause.name, cause.pattern) == ("server 1", "steady")
    assert cause.factor == pytest.approx(3, rel=0.01)
    assert cause.lost_s == pytest.approx(0.8, rel=0.01)
