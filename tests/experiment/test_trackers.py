"""Experiment trackers get the configuration, every point and the end of a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import outpace
from outpace.errors import ConfigError, OutpaceWarning, RunError
from outpace.record.metrics import Metrics
from outpace.record.trackers import Trackers

EXPERIMENT = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0, 2.0]},
    "workers": 2,
    "compute": {"kind": "constant", "mean_s": 1.0},
    "sync": {"kind": "bsp"},
    "stop": {"iterations": 3},
    "evaluate": {"every_updates": 1},
}


class Kept:
    """Has the three methods; the methods that it is given fail."""

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
    trackers = Trackers([("kept", lambda: kept)])
    trackers.config({})
    metrics.observers.append(trackers.point)
    # Worker 1 is behind; worker 0 logs twice in an iteration.
    for worker, iteration in ((0, 7), (1, 2), (0, 8), (0, 8), (1, 30)):
        metrics.log(10**9 * iteration, worker, iteration, {"train_loss": 1.0, "lr": 0.5})
    _, *points = kept.calls
    assert [step for _, _, step in points] == [7, 8, 9, 10, 30]
    names = ("time_s", "iteration", "train_loss", "lr")
    assert points[0][1] == dict(zip(names, (7.0, 7, 1.0, 0.5), strict=True))
    names = tuple(f"worker-1/{name}" for name in names)
    assert points[1][1] == dict(zip(names, (2.0, 2, 1.0, 0.5), strict=True))


def test_what_is_no_tracker_is_refused_before_anything_is_written(tmp_path):
    for given in (SimpleNamespace(log=print), Kept, "tensorboard"):
        with pytest.raises(ConfigError, match="is no tracker: give an object"):
            outpace.simulate(EXPERIMENT, tmp_path / "run", tracker=given)
    with pytest.raises(ConfigError, match=r"name what makes each tracker, as in trackers: \['tr"):
        outpace.simulate(EXPERIMENT, tmp_path / "run", trackers=[{"kind": "tensorboard"}])
    with pytest.raises(ConfigError, match=r"trackers\[0\]: there is no file .*none.py"):
        outpace.simulate(EXPERIMENT, tmp_path / "run", trackers=["none.py:make"])
    assert not (tmp_path / "run").exists()


def test_a_function_of_the_configuration_makes_the_tracker_of_each_run(tmp_path):
    (tmp_path / "mine.py").write_text(
        "class Written:\n"
        "    def __init__(self, name, folder):\n"
        "        self.file, self.lines = folder / 'points.txt', [name]\n"
        "    def config(self, values):\n"
        "        pass\n"
        "    def log(self, values, step):\n"
        "        self.lines.append(str(step))\n"
        "    def finish(self, status):\n"
        "        self.file.write_text(' '.join([*self.lines, status]))\n"
    )
    target = f"{tmp_path / 'mine.py'}:Written"
    data = {**EXPERIMENT, "trackers": [target], "variants": [{"name": "a"}]}
    outpace.compare(data, tmp_path / "out", seeds=2)
    for seed in range(2):
        said = (tmp_path / "out" / "a" / f"seed-{seed}" / "points.txt").read_text()
        assert said == f"a/seed-{seed} 0 1 2 3 complete"
