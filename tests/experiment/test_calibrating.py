"""Makes a cluster file from a recorded run, and with it predicts another strategy."""

from __future__ import annotations

import json
import math
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.command import outpace, refused
from tests.support.recorded_as_real import as_real, as_real_without_servers

from outpace.errors import ConfigError
from outpace.experiment.calibrating.calibration import busy_words
from outpace.experiment.running import simulate
from outpace.record import folder as files
from outpace.support.yaml_files import read_yaml

LATENCY_S, BANDWIDTH, PUSH_S, PULL_S = 1e-3, 1e8, 2e-3, 1e-3
ITERATIONS = 60
MODEL = {"task": {"kind": "timing", "parameters": 50_000}, "workers": 4, "servers": 2}
RUN = {
    **MODEL,
    "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.2},
    "network": {"latency_s": LATENCY_S, "bandwidth_bytes_per_s": BANDWIDTH, "log": True},
    "push_time": {"kind": "constant", "mean_s": PUSH_S},
    "pull_time": {"kind": "constant", "mean_s": PULL_S},
    "judge_time": {"kind": "constant", "mean_s": 1e-6},
    "sync": {"kind": "bsp"},
    "stop": {"iterations": ITERATIONS},
}


LINK = {"latency_s": lambda _: LATENCY_S, "bandwidth": lambda _: BANDWIDTH}


def real(folder, **changes):
    """Record a simulated run in the form of a real one."""
    simulate({**RUN, **changes}, folder)
    as_real(folder, **LINK, push_s=PUSH_S, pull_s=PULL_S)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folder of a run in the form of a real one, and of a simulated one."""
    here = tmp_path_factory.mktemp("runs")
    simulate({**RUN, "stop": {"iterations": 20}}, here / "simulated")
    real(here / "real")
    return here


def test_the_laws_of_a_run_are_found_in_its_folder(runs, tmp_path, capsys):
    out = tmp_path / "cluster.yaml"
    assert outpace("calibrate", str(runs / "real"), "-o", str(out)) == 0
    found = read_yaml(out)
    n = 4 * ITERATIONS
    assert found["compute"]["kind"] == "lognormal"
    assert found["compute"]["mean_s"] == pytest.approx(0.1, rel=4 * 0.2 / math.sqrt(n))
    assert found["compute"]["cv"] == pytest.approx(0.2, rel=4 / math.sqrt(2 * n))
    assert found["network"]["latency_s"] == pytest.approx(LATENCY_S, rel=0.01)
    assert found["network"]["bandwidth_bytes_per_s"] == pytest.approx(BANDWIDTH, rel=0.05)
    # Data for the protocol of Gloo.
    assert found["network"]["all_reduce"]["latency_s"] == pytest.approx(2 * LATENCY_S, rel=0.01)
    assert found["push_time"]["mean_s"] == pytest.approx(PUSH_S, rel=0.01)
    assert found["pull_time"]["mean_s"] == pytest.approx(PULL_S, rel=0.01)
    assert "update_time" not in found
    # Half of 50,000 parameters; the servers answer the probe at once.
    assert found["service_size"] == {
        "size_bytes": 100_000, "message_s_per_byte": 0.0, "update_s_per_byte": 0.0
    }  # fmt: skip
    assert (found["calibrated"]["workers"], found["calibrated"]["servers"]) == (4, 2)
    assert "The law lognormal describes the run times" in (tmp_path / "cluster.html").read_text()
    said = capsys.readouterr().out
    assert "lognormal, mean_s" in said
    assert "place 4 of 4" in said


def test_a_run_in_bfloat16_shows_the_network_by_the_bytes_that_travelled(tmp_path):
    real(tmp_path / "run", sync={"kind": "bsp", "wire": "bf16"})
    out = tmp_path / "cluster.yaml"
    assert outpace("calibrate", str(tmp_path / "run"), "-o", str(out)) == 0
    found = read_yaml(out)
    assert found["network"]["bandwidth_bytes_per_s"] == pytest.approx(BANDWIDTH, rel=0.05)
    assert found["calibrated"]["push_bytes"] == 2 * 25_000
    assert "service_size" not in found  # an update writes more bytes than a push brings


def test_a_run_of_some_seconds_is_too_short_to_name_links(tmp_path, capsys):
    stop = {"iterations": 25}
    simulate({**RUN, "stop": stop}, tmp_path / "run")
    late = {"latency_s": lambda m: (LATENCY_S, 0.05)[m], "bandwidth": lambda _: BANDWIDTH}
    as_real(tmp_path / "run", **late, push_s=PUSH_S, pull_s=PULL_S)
    out = tmp_path / "cluster.yaml"
    assert outpace("calibrate", str(tmp_path / "run"), "-o", str(out)) == 0
    assert not {"nodes", "pairs"} & read_yaml(out)["network"].keys()
    said = capsys.readouterr()
    assert "note: too short to judge: " in said.err
    assert "server-1" not in said.out + said.err


def test_a_server_whose_work_takes_longer_has_factors_of_its_own(tmp_path):
    push = {"kind": "constant", "mean_s": PUSH_S, "factors": [0.5, 1.5]}
    update = {"kind": "constant", "mean_s": 0.01, "factors": [0.2, 1.8]}
    simulate({**RUN, "push_time": push, "update_time": update}, tmp_path / "run")
    as_real(
        tmp_path / "run",
        **LINK,
        push_s=lambda m: (0.001, 0.003)[m],
        pull_s=PULL_S,
        update_s=lambda m: (0.002, 0.018)[m],
    )
    assert outpace("calibrate", str(tmp_path / "run"), "-o", str(tmp_path / "cluster.yaml")) == 0
    found = read_yaml(tmp_path / "cluster.yaml")
    for key, law in {"push_time": push, "update_time": update}.items():
        assert found[key]["mean_s"] == pytest.approx(law["mean_s"], rel=0.01)
        assert found[key]["factors"] == pytest.approx(law["factors"], rel=0.01)
    assert "factors" not in found["pull_time"]
    (said,) = [note for note in found["calibrated"]["notes"] if "servers differ" in note]
    assert said.startswith("servers differ in push_time and update_time")


def test_untimed_spans_before_a_step_are_one_evaluation(runs, tmp_path):
    shutil.copytree(runs / "real", tmp_path / "run")
    table = pq.read_table(tmp_path / "run" / files.TIMING)
    spans = [
        {
            "what": "untimed",
            "worker": 1,
            "server": -1,
            "iteration": n,
            "sent_ns": 0,
            "arrived_ns": t,
        }
        for n in range(0, 40, 4)
        for t in (300_000_000, 200_000_000)
    ]
    more = pa.Table.from_pylist(spans, schema=table.schema)
    pq.write_table(pa.concat_tables([table, more]), tmp_path / "run" / files.TIMING)
    out = tmp_path / "cluster.yaml"
    assert outpace("calibrate", str(tmp_path / "run"), "-o", str(out)) == 0
    found = read_yaml(out)
    assert found["evaluation_time"] == {"kind": "constant", "mean_s": 0.5}


@pytest.mark.parametrize(
    "network",
    [
        {"contention": "serialised"},
        {"contention": "fair"},
        {"nodes": {"server-1": {"latency_s": 2e-3, "bandwidth_bytes_per_s": 4e7}}},
    ],
    ids=lambda network: next(iter(network)) + str(len(str(network))),
)
def test_the_network_of_the_training_is_found_by_a_replay(tmp_path, network):
    # All workers send 1 MB to each server at once. The probe alone was twice as fast.
    law = {"latency_s": LATENCY_S, "bandwidth_bytes_per_s": BANDWIDTH, "log": True, **network}
    changes = {
        "network": law,
        "compute": {"kind": "constant", "mean_s": 0.1},
        "task": {"kind": "timing", "parameters": 500_000},
    }
    simulate({**RUN, **changes}, tmp_path / "run")
    slow = network.get("nodes", {}).get("server-1", law)
    as_real(
        tmp_path / "run",
        latency_s=lambda m: (LATENCY_S, slow["latency_s"])[m] / 2,
        bandwidth=lambda m: (BANDWIDTH, slow["bandwidth_bytes_per_s"])[m] * 2,
        push_s=PUSH_S,
        pull_s=PULL_S,
    )
    assert outpace("calibrate", str(tmp_path / "run"), "-o", str(tmp_path / "c.yaml")) == 0
    found = read_yaml(tmp_path / "c.yaml")["network"]
    assert found["latency_s"] == pytest.approx(LATENCY_S, rel=0.05)
    assert found["bandwidth_bytes_per_s"] == pytest.approx(BANDWIDTH, rel=0.05)
    assert found.get("contention", "serialised") == network.get("contention", "serialised")
    if "nodes" in network:
        link = found["nodes"]["server-1"]
        assert link["bandwidth_bytes_per_s"] == pytest.approx(4e7, rel=0.05)


def test_what_was_calibrated_on_bsp_predicts_another_strategy(runs, tmp_path):
    out = tmp_path / "cluster.yaml"
    assert outpace("calibrate", str(runs / "real"), "-o", str(out)) == 0
    # The difference of two means of n run times: √2 standard errors. With ASP a worker waits for
    # nobody, so that its time is the sum of its run times.
    changes = {"sync": {"kind": "asp"}, "stop": {"iterations": 400}}
    truth = simulate({**RUN, **changes}).summary["virtual_time_s"]
    predicted = simulate({**MODEL, **changes, "include": str(out)}).summary["virtual_time_s"]
    error = 0.2 * math.sqrt(1 / (4 * ITERATIONS) + 2 / 400)
    assert predicted == pytest.approx(truth, rel=4 * error)


# -- runs without servers: 6 rounds among 4 workers, of ROUND_S and 50 kB at ROUND_BANDWIDTH --

ROUND_S, ROUND_BANDWIDTH = 3e-3, 5e7
LAW = {"latency_s": ROUND_S, "bandwidth_bytes_per_s": ROUND_BANDWIDTH}
ALL_REDUCE_S = 6 * (ROUND_S + 50_000 / ROUND_BANDWIDTH)


@pytest.fixture(scope="module")
def without_servers(runs):
    """Runs without servers in the form of real ones. Alone, their all-reduces took half as long."""
    for kind in ("ssgd", "hpsgd"):
        config = {key: value for key, value in RUN.items() if not key.endswith("_time")}
        changes = {"sync": {"kind": kind}, "servers": 1, "network": {"all_reduce": LAW}, "seed": 1}
        simulate(config | changes, runs / kind)
        as_real_without_servers(
            runs / kind,
            size_bytes=200_000,
            probe_s=lambda size: 6 * (ROUND_S + size / 4 / ROUND_BANDWIDTH) / 2,
        )
    return runs


@pytest.mark.parametrize("names", [["hpsgd"], ["real", "ssgd"]])
def test_all_reduces_are_calibrated_on_runs_without_servers(
    without_servers, tmp_path, capsys, names
):
    out = tmp_path / "cluster.yaml"
    assert outpace("calibrate", *(str(without_servers / n) for n in names), "-o", str(out)) == 0
    found = read_yaml(out)
    assert found["network"]["all_reduce"] == pytest.approx(LAW, rel=0.01)
    assert ("push_time" in found) == ("latency_s" in found["network"]) == ("real" in names)
    n = 4 * ITERATIONS * len(names)  # of the run times: no wait is in them
    assert found["compute"]["mean_s"] == pytest.approx(0.1, rel=4 * 0.2 / math.sqrt(n))
    said = capsys.readouterr().out
    (row,) = (row for row in said.splitlines() if row.endswith("  200000"))
    assert f"{ALL_REDUCE_S:.5g}" in row  # the recorded mean
    assert "not testable" in row, "a factor lets the law meet the mean of a single run"
    said_of = found["calibrated"]["all_reduces"]
    assert said_of["testable"], "the probe has more than two sizes"
    assert said_of["times_slower_in_training"] == pytest.approx(2, rel=0.02)
    # A run of 10 iterations predicts itself: with the same run times only the network differs.
    changes = {"sync": {"kind": "ssgd"}, "stop": {"iterations": 10}}
    config = {**MODEL, **changes, "servers": 1, "include": str(out), "compute": RUN["compute"]}
    total = simulate(config).summary["seconds"]["communicate"]
    assert total == pytest.approx(10 * ALL_REDUCE_S, rel=0.01)


def test_a_file_without_servers_is_refused_where_other_messages_are_sent(
    without_servers, tmp_path, capsys
):
    out = tmp_path / "cluster.yaml"
    assert outpace("calibrate", str(without_servers / "ssgd"), "-o", str(out)) == 0
    capsys.readouterr()
    for kind in ("bsp", "gossip"):
        config = {**MODEL, "sync": {"kind": kind}, "stop": {"iterations": 1}, "servers": 1}
        with pytest.raises(ConfigError, match="calibrated on runs without servers"):
            simulate({**config, "include": str(out)})
        simulate({**config, "include": str(out), "network": {"latency_s": 0.001}})


def test_run_times_that_no_law_describes_are_replayed_by_any_number_of_workers(tmp_path):
    times = tmp_path / "times.csv"
    levels = [1.0, 1.0, 5.0, 9.0]  # in all workers alike, so they are slow together
    rows = [f"{w},{i},{levels[i * 7 % 4] + 0.01 * w}\n" for w in range(3) for i in range(40)]
    times.write_text("worker,iteration,seconds\n" + "".join(rows))
    law = {"kind": "trace", "path": str(times)}
    config = {**MODEL, "workers": 3, "sync": {"kind": "bsp"}, "stop": {"iterations": 40}}
    real(tmp_path / "run", **config, compute=law)
    out = tmp_path / "cluster.yaml"
    assert outpace("calibrate", str(tmp_path / "run"), "-o", str(out)) == 0
    assert read_yaml(out)["compute"]["path"] == "cluster.run-times.parquet"
    alone = {"network": None, "push_time": None, "pull_time": None, "judge_time": None}
    again = simulate({**config, "include": str(out), **alone}).summary["virtual_time_s"]
    assert again == pytest.approx(sum(levels) * 10 + 0.02 * 40, rel=0.01)
    drawn = {"include": str(out), "draw_cluster": True}  # in ten blocks of four iterations
    assert simulate({**config, **drawn}).experiment.compute.block == 4
    with pytest.warns(RuntimeWarning, match="describes 3 workers, and the run has 8"):
        simulate({**config, "include": str(out), "workers": 8, "stop": {"iterations": 60}})


def damaged(folder):
    (folder / files.TRACE).write_bytes(b"PAR1 no more")


def without_probe(folder):
    table = pq.read_table(folder / files.TIMING)
    chosen = [what != "probe" for what in table["what"].to_pylist()]
    pq.write_table(table.filter(chosen), folder / files.TIMING)


def with_cut_offs(folder):
    files.write_config(folder, {**files.read_config(folder), "sync": {"kind": "cutoff"}})
    summary = json.loads((folder / files.SUMMARY).read_text())
    (folder / files.SUMMARY).write_text(json.dumps({**summary, "cut_offs": {"iterations": 9}}))


def with_a_worker_that_joined(folder):
    summary = json.loads((folder / files.SUMMARY).read_text())
    summary["iterations"].append(7)
    (folder / files.SUMMARY).write_text(json.dumps(summary))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (damaged, "trace.parquet: "),
        (without_probe, "no probe of the network"),
        (with_cut_offs, "workers were cut off"),
        (with_a_worker_that_joined, "workers joined it while it was running"),
    ],
)
def test_a_run_that_does_not_say_enough_is_refused_in_a_line(runs, tmp_path, capsys, change, words):
    shutil.copytree(runs / "real", tmp_path / "run")
    change(tmp_path / "run")
    message = refused(capsys, "calibrate", str(tmp_path / "run"), "-o", str(tmp_path / "c.yaml"))
    assert words in message
    assert len(message.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_runs_that_cannot_be_calibrated_are_refused(runs, tmp_path, capsys):
    real(tmp_path / "short", stop={"iterations": 19})
    real(tmp_path / "other", stop={"iterations": 20}, workers=3)
    out = tmp_path / "c.yaml"
    for names, words in (
        (["short"], "it has 19 iterations, and a calibration needs at least 20"),
        ([str(runs / "simulated")], "the run is simulated, so summary.json has no wall_time_s"),
        ([str(runs / "real"), "other"], "workers is 3 instead of 4"),
        (["other", "other"], "the run is named twice"),
        (["gone"], "there is no such folder"),
    ):
        folders = [str(tmp_path / name) for name in names]
        message = refused(capsys, "calibrate", *folders, "-o", str(out))
        assert words in message
        assert len(message.splitlines()) == 1
    out.write_text("mine: 1\n")
    refusal = refused(capsys, "calibrate", str(tmp_path / "other"), "-o", str(out))
    assert "was not written by outpace calibrate" in refusal
    assert out.read_text() == "mine: 1\n"


@pytest.mark.parametrize(
    ("processor", "said"),
    [
        ({"cores": 2, "busy": 1.9, "others": 1.4}, "kept 1.4 of 2 cores busy"),
        ({"cores": 2, "busy": 1.9, "others": 0.1}, ""),  # the cores were busy with the run itself
        ({"cores": 8, "busy": 3.0, "others": 2.0}, ""),  # there were cores for all
        (None, ""),  # a run of a version without this record, or with workers started elsewhere
    ],
)
def test_a_recording_on_a_busy_machine_is_said_so(tmp_path, processor, said):
    summary = {} if processor is None else {"processor": processor}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    found = busy_words([tmp_path])
    assert said in found
    assert bool(found) == bool(said)
