"""`outpace.log`, `outpace.untimed` and `outpace.output_dir` in real processes."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from tests.support.paths import SCRIPTS
from tests.support.reports.run_folders import Page
from tests.support.script_runs import without_costs

from outpace.errors import ConfigError, OutpaceWarning
from outpace.experiment.running import run, simulate
from outpace.experiment.sources import as_experiment
from outpace.support.yaml_files import read_yaml

pytestmark = pytest.mark.slow
LAW = {"kind": "constant", "mean_s": 0.1}


def configuration(case, **changes):
    task = {"kind": "script", "path": str(SCRIPTS / "logs.py"), "arguments": [case]}
    return {"task": task, "workers": 1, "sync": {"kind": "bsp"}, **changes}


def launch(case, out=None, **changes):
    said: list[str] = []
    return run(configuration(case, **changes), out, log=without_costs(said)), said


def test_a_logged_accuracy_ends_the_run_and_all_workers_points_are_rows(tmp_path):
    result, _ = launch("curve", tmp_path / "run", workers=2, stop={"target_accuracy": 0.5})
    summary, metrics = result.summary, pq.read_table(tmp_path / "run" / "metrics.parquet")
    rows = metrics.to_pylist()
    mine = [row for row in rows if row["worker"] == 0]
    losses = [row for row in mine if row["train_loss"] is not None]
    assert [row["train_loss"] for row in losses] == [10.0 - n for n in range(len(losses))]
    assert [row["iteration"] for row in losses] == [n + 1 for n in range(len(losses))]
    assert {row["lr/0"] for row in losses} == {0.25}
    curve = [row["accuracy"] for row in mine if row["accuracy"] is not None]
    assert curve == [min(1.0, n / 10) for n in range(len(curve))]
    assert [row["lr/1"] for row in rows if row["worker"] == 1 and row["train_loss"] is not None]
    (reached,) = [row["time_s"] for row in mine if row["accuracy"] == 0.5]
    assert summary["time_to_target_s"] == reached
    assert summary["accuracy"] == curve[-1]
    assert summary["train_loss"] == losses[-1]["train_loss"]
    assert summary["test_loss"] is None  # not finite
    assert summary["iterations"][0] < 10_000
    assert "test accuracy" in str(Page(tmp_path / "run" / "report.html").figures)
    # The configuration has no default that the script did not use.
    assert (
        not {"optimizer", "batch_size", "evaluate"} & read_yaml(tmp_path / "run/config.yaml").keys()
    )
    (group,) = summary["script"]["groups"]
    assert (summary["script"]["optimizer"], group["lr"]) == ("AdamW", 0.25)
    assert as_experiment(tmp_path / "run" / "config.yaml") == result.experiment


def test_untimed_is_not_computed_and_the_last_point_comes_after_finish(tmp_path):
    compute = {"kind": "constant", "mean_s": 0.02}
    result, said = launch("untimed", tmp_path / "run", compute=compute, stop={"iterations": 9})
    assert result.summary["untimed_s"] >= 0.9
    # Begins are noted a little late on a busy machine, so a span may seem shorter than 0.02 s.
    assert 3 * 0.01 <= result.summary["seconds"]["compute"] < 0.9
    spans: dict[str, list[float]] = {"untimed": [], "compute": []}
    for each in result.timing.to_pylist():
        if each["worker"] == 0 and each["what"] in spans:
            spans[each["what"]].append((each["arrived_ns"] - each["sent_ns"]) / 1e9)
    assert len(spans["untimed"]) == 3
    assert min(spans["untimed"]) >= 0.3
    assert len(spans["compute"]) == 3
    assert 0.01 <= min(spans["compute"]) < 0.3  # 0.32 if the untimed spans counted
    *rows, row = result.metrics.to_pylist()
    assert [each["number"] for each in rows] == list(range(600))  # from another thread
    assert (row["accuracy"], row["iteration"], row["worker"]) == (0.75, 3, 0)
    assert result.summary["accuracy"] == 0.75
    # The process that the script forked could not log.
    assert (tmp_path / "run" / "files" / "worker-0" / "code").read_text() == "1"
    assert said == []


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("before", "call outpace.attach first"),
        ("untimed step", "worker-0 called optimizer.step.. in outpace.untimed"),
        ("percent", "worker-0: accuracy must be from 0 to 1, not 93.2"),
    ],
)
def test_an_error_in_what_is_logged_ends_the_run(case, why):
    with pytest.raises(ConfigError, match=why):
        simulate(configuration(case, compute=LAW))


def test_a_target_that_could_not_be_checked_is_a_warning():
    changes = {"stop": {"iterations": 1}, "target": {"loss": 0.1}, "compute": LAW}
    with pytest.warns(OutpaceWarning) as said:
        result = simulate(configuration("none", **changes))
    warning, no_step = result.summary["warnings"]
    assert warning.startswith("target.loss: the script logged no loss, so it was never checked")
    assert no_step.startswith("no worker took a step")
    assert [str(each.message) for each in said] == [warning, no_step]
