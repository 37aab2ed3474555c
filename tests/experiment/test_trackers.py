"""Experiment trackers get the configuration, every point and the end of a run."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch

import outpace
from outpace.errors import ConfigError, OutpaceWarning, RunError
from outpace.record.metrics import Metrics
from outpace.record.trackers import ThreadedTracker, Trackers
from outpace.testing import check_tracker

EXPERIMENT = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0, 2.0]},
    "workers": 2,
    "compute": {"kind": "constant", "mean_s": 1.0},
    "sync": {"kind": "bsp"},
    "stop": {"iterations": 3},
    "evaluate": {"every_updates": 1},
}


def nothing(*_, **__):
    pass


class Kept:
    """Has the three methods, and fails in those that it is told."""

    def __init__(self, *fails: str) -> None:
        self.calls: list[tuple[object, ...]] = []
        self._fails = fails

    def _take(self, *call: object) -> None:
        if call[0] in self._fails:
            raise ValueError("no\nconnection")
        self.calls.append(call)

    def config(self, values):
        self._take("config", values)

    def log(self, values, step):
        self._take("log", values, step)

    def finish(self, status):
        self._take("finish", status)


def test_a_tracker_gets_the_configuration_every_evaluation_and_the_end():
    kept = Kept()
    result = outpace.simulate(EXPERIMENT, tracker=kept)
    (first, config), *points, last = kept.calls
    assert (first, last) == ("config", ("finish", "complete"))
    assert (config["workers"], config["sync"]["kind"]) == (2, "bsp")
    rows = result.metrics.to_pylist()
    assert [step for _, _, step in points] == [row["updates"] for row in rows] == [0, 1, 2, 3]
    for (_, values, _), row in zip(points, rows, strict=True):
        assert values == {name: value for name, value in row.items() if value is not None}


def test_a_run_that_fails_tells_its_trackers():
    kept = Kept()
    divergent = {"optimizer": {"kind": "sgd", "lr": 1e9}, "stop": {"iterations": 100}}
    with pytest.raises(RunError):
        outpace.simulate(EXPERIMENT, tracker=[kept], **divergent)
    assert kept.calls[-1] == ("finish", "failed")


@pytest.mark.parametrize("method", ["config", "log", "finish"])
def test_a_tracker_that_fails_costs_a_warning_and_no_point(method):
    kept, other = Kept(method), Kept()
    with pytest.warns(OutpaceWarning, match="the tracker Kept failed.*ValueError: no connection"):
        result = outpace.simulate(EXPERIMENT, tracker=[kept, other])
    assert result.summary["status"] == "complete"
    assert len(result.metrics) == 4
    assert [call[0] for call in other.calls] == ["config", *["log"] * 4, "finish"]
    assert len(result.summary["warnings"]) == 1
    if method == "log":  # nothing is called after the failure
        assert [call[0] for call in kept.calls] == ["config"]


def test_points_of_asynchronous_workers_have_increasing_steps_and_keep_their_iterations():
    kept, metrics = Kept(), Metrics()
    trackers = Trackers([("kept", kept)])
    metrics.observers.append(trackers.point)
    # Worker 1 is behind; worker 0 logs twice in an iteration.
    for worker, iteration in ((0, 7), (1, 2), (0, 8), (0, 8), (1, 30)):
        metrics.log(10**9 * iteration, worker, iteration, {"train_loss": 1.0, "lr": 0.5})
    assert [step for _, _, step in kept.calls] == [7, 8, 9, 10, 30]
    names = ("time_s", "iteration", "train_loss", "lr")
    assert kept.calls[0][1] == dict(zip(names, (7.0, 7, 1.0, 0.5), strict=True))
    names = tuple(f"worker-1/{name}" for name in names)
    assert kept.calls[1][1] == dict(zip(names, (2.0, 2, 1.0, 0.5), strict=True))


def test_the_trackers_of_the_library_keep_their_promises():
    """Objects that are passed on to TensorBoard and W&B, and a tracker in a thread of its own."""
    writer = SimpleNamespace(add_scalar=nothing, add_text=nothing, close=nothing)
    run = SimpleNamespace(log=nothing, finish=nothing, config=SimpleNamespace(update=nothing))
    for make in (lambda: writer, lambda: run, lambda: ThreadedTracker("kept", Kept)):
        check_tracker(make)


def test_a_tracker_in_its_own_thread_gets_the_calls_in_order_and_reports_its_error():
    kept = Kept()
    beside = ThreadedTracker("kept", lambda: kept)
    beside.config({"a": 1})
    for step in range(3):
        beside.log({"loss": 0.5}, step)
    beside.finish("partial")
    points = [("log", {"loss": 0.5}, step) for step in range(3)]
    assert kept.calls == [("config", {"a": 1}), *points, ("finish", "partial")]

    failing = ThreadedTracker("kept", lambda: Kept("log"))
    failing.config({})
    failing.log({}, 0)
    with pytest.raises(ValueError, match="connection"):
        failing.finish("complete")


def test_what_is_no_tracker_is_refused_before_anything_is_written(tmp_path):
    for given in (SimpleNamespace(log=print), Kept, "tensorboard"):
        with pytest.raises(ConfigError, match="no tracker that Outpace knows"):
            outpace.simulate(EXPERIMENT, tmp_path / "run", tracker=given)
    with pytest.raises(ConfigError, match=r"unknown kind 'tensorbord'. Did you mean"):
        outpace.simulate(EXPERIMENT, tmp_path / "run", trackers=[{"kind": "tensorbord"}])
    assert not (tmp_path / "run").exists()


def test_a_missing_package_is_named_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("outpace.experiment.tracking.find_spec", lambda name: None)
    for kind in ("tensorboard", "mlflow", "wandb"):
        changes = {"trackers": [{"kind": kind}]}
        with pytest.raises(ConfigError, match=rf"trackers\[0\].*{kind}.*pip install {kind}$"):
            outpace.simulate(EXPERIMENT, tmp_path / "run", **changes)
        with pytest.raises(ConfigError, match=f"variant a: .*pip install {kind}"):
            outpace.compare({**EXPERIMENT, **changes, "variants": [{"name": "a"}]})
    assert not (tmp_path / "run").exists()


def test_tensorboard_keeps_all_points_at_the_time_of_the_run(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    before = random.getstate(), torch.get_rng_state()
    data = {**EXPERIMENT, "trackers": [{"kind": "tensorboard"}], "variants": [{"name": "a"}]}
    outpace.compare(data, tmp_path / "out", seeds=2)
    assert before[0] == random.getstate()
    assert torch.equal(before[1], torch.get_rng_state())
    for seed in range(2):
        events = EventAccumulator(str(tmp_path / "out" / "a" / f"seed-{seed}" / "tensorboard"))
        points = events.Reload().Scalars("train_loss")
        assert [point.step for point in points] == [0, 1, 2, 3]
        assert points[-1].wall_time - points[0].wall_time == pytest.approx(3.0, abs=1e-3)


@pytest.mark.filterwarnings("ignore::Warning")  # of its own
def test_mlflow_keeps_all_points_of_a_run(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    kind = {"kind": "mlflow", "tracking_uri": uri, "experiment": "mine", "tags": {"by": "me"}}
    data = {**EXPERIMENT, "trackers": [kind], "variants": [{"name": "a"}]}
    outpace.compare(data, tmp_path / "out", seeds=2, processes=2)  # both begin at the same time
    client = mlflow.MlflowClient(uri)
    found = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert sorted(run.info.run_name for run in found) == ["a/seed-0", "a/seed-1"]
    for run in found:
        assert run.info.status == "FINISHED"
        assert (run.data.params["sync.kind"], run.data.tags["by"]) == ("bsp", "me")
        points = client.get_metric_history(run.info.run_id, "train_loss")
        assert [(point.step, point.timestamp - points[0].timestamp) for point in points] == [
            (step, 1000 * step) for step in range(4)
        ]


def test_wandb_drops_no_point(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    logged = []
    monkeypatch.setattr("wandb.sdk.wandb_run.Run.log", lambda run, *args, **kw: logged.append(kw))
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"trackers\[0\]: Weights & Biases knows no account"):
        outpace.simulate(EXPERIMENT, trackers=[{"kind": "wandb"}])
    kind = {"kind": "wandb", "mode": "offline", "group": "g"}
    outpace.simulate(EXPERIMENT, tmp_path / "bsp", trackers=[kind])
    assert [each["step"] for each in logged] == [0, 1, 2, 3]
    assert list((tmp_path / "bsp" / "wandb").glob("offline-run-*"))
