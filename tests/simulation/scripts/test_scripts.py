"""A user's script has the same effects in virtual time as in a real run."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from tests.support.command import outpace
from tests.support.paths import SCRIPTS

from outpace.experiment.results import Result
from outpace.experiment.running import run, simulate
from outpace.support.yaml_files import read_yaml

STEP_S = 0.25
TASK = {"kind": "script", "path": str(SCRIPTS / "trains.py")}
BASE: dict[str, Any] = {"task": TASK, "workers": 3, "seed": 4, "sync": {"kind": "bsp"}}
LAW = {"kind": "constant", "mean_s": STEP_S}
STEPS = 8  # of each worker: two epochs of 96 samples, 3 workers, batches of 8


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Let scripts of runs without a folder write their files elsewhere."""
    monkeypatch.chdir(tmp_path)


def simulated(out: Any = None, **changes: Any) -> Result:
    return simulate({**BASE, "compute": LAW, **changes}, out)


def test_virtual_and_real_runs_end_with_bitwise_equal_parameters(tmp_path):
    changes = {"servers": 2, "target": {"loss": 100.0}}
    virtual = simulated(tmp_path / "virtual", **changes)
    real = run({**BASE, **changes, "deterministic": True}, tmp_path / "real")
    assert virtual.summary["parameters_digest"] == real.summary["parameters_digest"]
    for key in ("gradients_applied", "iterations", "train_loss", "accuracy"):
        assert virtual.summary[key] == real.summary[key]
    assert virtual.summary["time_to_target_s"] == 4 * STEP_S  # of the first loss that is logged
    assert real.summary["time_to_target_s"] == real.metrics["time_s"][0].as_py()
    for result in (virtual, real):
        assert result.summary["script"]["batch_size"] == 8
        assert result.summary["script"]["optimizer"] == "SGD"
    assert virtual.parameters.keys() == real.parameters.keys()
    saved = [
        torch.load(tmp_path / kind / "files" / "worker-1" / "end.pt", weights_only=True)
        for kind in ("virtual", "real")
    ]
    for one, other in zip(*(each["model"].values() for each in saved), strict=True):
        assert torch.equal(one, other)


def test_times_are_those_of_the_law_and_evaluation_takes_none():
    result = simulated()
    assert result.summary["virtual_time_s"] == STEPS * STEP_S
    assert result.summary["iterations"] == [STEPS] * 3
    logged = [row for row in result.metrics.to_pylist() if row["worker"] == 1]
    assert [row["time_s"] for row in logged] == [1.0, 2.0]
    assert [row["rate"] for row in logged] == [0.05, 0.025]


def test_an_evaluation_between_two_steps_takes_the_time_of_its_law():
    result = simulated(evaluation_time={"kind": "constant", "mean_s": 0.5})
    logged = [row for row in result.metrics.to_pylist() if row["worker"] == 1]
    assert [row["time_s"] for row in logged] == [1.0, 2.5]
    assert result.summary["virtual_time_s"] == STEPS * STEP_S + 0.5
    assert result.summary["seconds"]["compute"] == STEPS * STEP_S  # it is not part of an iteration
    assert result.summary["parameters_digest"] == simulated().summary["parameters_digest"]


def test_compare_runs_a_script_under_the_variants_of_a_file(tmp_path, capsys):
    script = tmp_path / "writes.py"
    script.write_text(
        f"import runpy\nrunpy.run_path({TASK['path']!r})\nopen('log.txt', 'a').write('x')\n"
    )
    variants = tmp_path / "variants.yaml"
    variants.write_text(
        "workers: 5\nvariants:\n  - {name: BSP, sync: {kind: bsp}}\n"
        "  - {name: ASP, sync: {kind: asp}, compute: {kind: constant, mean_s: 0.5}}\n"
    )
    given = [str(script), "--workers", "2", "--variants", str(variants), "--out", "out", "--json"]
    law = "compute={kind: measured, samples: 3}"
    assert outpace("compare", *given, law, "--", "--epochs", "1") == 0
    printed = capsys.readouterr()
    assert [entry["name"] for entry in json.loads(printed.out)] == ["BSP", "ASP"]
    for place in ("BSP/files/worker-0", "ASP/files/worker-1"):
        assert (tmp_path / "out" / place / "output.txt").read_text() == "finished 1 epochs\n"
    assert "finished" not in printed.err
    assert "script (writes.py) · 2 workers" in (tmp_path / "out" / "report.html").read_text()
    bsp, asp = (tmp_path / "out" / name for name in ("BSP", "ASP"))
    assert json.loads((bsp / "summary.json").read_text())["iterations"] == [6, 6]
    assert json.loads((asp / "summary.json").read_text())["virtual_time_s"] == 3.0
    law = read_yaml(bsp / "config.yaml")["compute"]
    assert (law["kind"], len(law["seconds"])) == ("measured", 3)
    assert "the scripts of BSP, ASP wrote the same files" in printed.err
    assert "log.txt" in printed.err
