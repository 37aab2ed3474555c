"""Tests of `outpace explain`, and of the gains that it promises."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import outpace
from outpace.cli import app
from outpace.errors import ConfigError

EVEN = {"kind": "lognormal", "mean_s": 0.1, "cv": 0.03}
SLOW = {**EVEN, "factors": [1, 1, 1.3, 1]}


def run(folder, **changes):
    """Make a run of 4 workers, of which worker 2 is slow, and return its virtual seconds."""
    data = {
        "task": {"kind": "timing", "parameters": 1000},
        "workers": 4,
        "sync": {"kind": "bsp"},
        "compute": SLOW,
        "stop": {"iterations": 40},
        **changes,
    }
    return outpace.simulate(data, folder).summary["virtual_time_s"]


def explain(*arguments):
    return CliRunner().invoke(app, ["explain", *map(str, arguments)])


def test_the_promised_time_is_that_of_the_run_with_an_even_worker(tmp_path):
    slow, even = run(tmp_path / "slow"), run(None, compute=EVEN)
    asynchronous = run(None, sync={"kind": "asp"})
    found = outpace.explain(tmp_path / "slow", {"sync": {"kind": "asp"}})
    by_change = {gain.change: gain for gain in found.gains}
    repaired = by_change["worker 2 as fast as the others"]
    assert repaired.run_s == pytest.approx(even, rel=0.02)
    assert repaired.saved_s == pytest.approx(slow - repaired.run_s)
    assert by_change["with sync.kind=asp"].run_s == pytest.approx(asynchronous, rel=0.01)


def test_a_strategy_without_servers_can_take_the_place_of_one_with_servers(tmp_path):
    late = {"message": "push", "probability": 0.01, "seconds": 0.01}
    network = {"latency_s": 0.001, "delays": [late]}
    run(tmp_path / "run", compute=EVEN, servers=2, network=network)
    alone = run(
        None, compute=EVEN, sync={"kind": "local-sgd", "every": 4}, network={"latency_s": 0.001}
    )
    changes = {"sync": {"kind": "local-sgd", "every": 4}}
    (gain,) = outpace.explain(tmp_path / "run", changes).gains
    assert gain.run_s == pytest.approx(alone, rel=0.05)


@pytest.mark.parametrize("latency_s", [0.02, 0.2])
def test_the_repair_of_a_slow_link_is_simulated(tmp_path, latency_s):
    """This includes a link on which messages take longer than a worker computes.

    The first parameters also come late, but before the first iteration.
    """
    usual = {"latency_s": 0.001}
    slow = {**usual, "nodes": {"worker-1": {"latency_s": latency_s}}}
    run(tmp_path / "slow", compute=EVEN, network=slow)
    even = run(None, compute=EVEN, network=usual)
    (gain,) = outpace.explain(tmp_path / "slow").gains
    assert gain.change == "link of worker 1 as fast as the others"
    assert gain.run_s == pytest.approx(even, abs=0.01 * even + latency_s)


def test_the_gain_of_a_run_with_cut_offs_is_said_to_be_unknown(tmp_path):
    """Run times that were cut off are lower bounds."""
    sync = {"kind": "cutoff", "model": "last-5", "decision": "deadline", "warmup": 10}
    run(tmp_path / "run", sync=sync, stop={"iterations": 60})
    found = outpace.explain(tmp_path / "run")
    assert [cause.name for cause in found.causes] == ["worker 2"]
    assert found.gains == ()
    assert "its workers were cut off" in found.notes[-1]


def test_the_model_of_a_simulated_repair_has_the_tensors_of_the_run(tmp_path):
    """Servers that share whole tensors cannot share a single one."""
    run(tmp_path / "run", task={"kind": "digits-mlp"}, servers=2, slicing="layers")
    found = outpace.explain(tmp_path / "run")
    assert "worker 2 as fast as the others" in [gain.change for gain in found.gains]
    assert not [note for note in found.notes if "tensor" in note]


def test_the_command_says_who_slows_the_run_and_writes_it(tmp_path):
    run(tmp_path / "run")
    result = explain(tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Worker 2 costs ")
    assert "1.29 times as slow as the others in iterations 0 to the end (0 to " in result.output
    assert "; with worker 2 as fast as the others, the run would take about " in result.output
    printed = json.loads(explain(tmp_path / "run", "--json", "--no-gains").stdout)
    assert printed == json.loads((tmp_path / "run" / "explain.json").read_text())
    assert printed["gains"] == []
    assert printed["causes"][0]["name"] == "worker 2"


def test_a_run_without_slow_workers_gets_one_line(tmp_path):
    run(tmp_path / "even", compute=EVEN)
    result = explain(tmp_path / "even")
    words = "In 40 iterations no worker or link was slower than the others."
    assert result.output.splitlines()[0] == words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{run}", "sync.kind=nothing"], "sync.kind"),
        (["{run}/none"], "there is no such folder of a run"),
    ],
)
def test_wrong_input_is_one_error_and_writes_nothing(tmp_path, arguments, words):
    run(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    result = explain(*(part.format(run=tmp_path / "run") for part in arguments))
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output
    assert sorted(tmp_path.rglob("*")) == before


def test_what_cannot_be_simulated_is_said(tmp_path):
    changes = [{"at_s": 2.0, "sync": {"kind": "asp"}}]
    run(tmp_path / "run", sync_changes=changes)
    found = outpace.explain(tmp_path / "run")
    assert found.causes
    assert found.gains == ()
    assert "its strategy was changed" in found.notes[-1]
    with pytest.raises(ConfigError, match="its strategy was changed"):
        outpace.explain(tmp_path / "run", {"sync": {"kind": "asp"}})
