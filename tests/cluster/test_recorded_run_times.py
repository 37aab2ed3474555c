"""Run times from a file: replayed unchanged, or refused with the place of the error."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outpace.cluster.observed import Recorded
from outpace.config.reading import experiment_from
from outpace.engine import cut_offs
from outpace.errors import ConfigError, RunError
from outpace.experiment.running import simulate

TIMES = {0: [0.25, 0.5, 0.125], 1: [1.0, 2.0, 4.0]}
HEAD = "worker,iteration,seconds\n"


def config(path, *, workers=2, iterations=3, stop=None, **law):
    return {
        "task": {"kind": "timing", "parameters": 10},
        "workers": workers,
        "sync": {"kind": "asp"},
        "compute": {"kind": "trace", "path": str(path), **law},
        "stop": stop or {"iterations": iterations},
    }


def replayed(result) -> dict[int, list[float]]:
    """Run times of the workers' iterations, from the run's own trace."""
    found: dict[int, dict[int, float]] = {}
    for row in result.trace.to_pylist():
        if row["event"] == "iteration":
            took = (row["computed_ns"] - row["start_ns"]) / 1e9
            found.setdefault(row["worker"], {})[row["iteration"]] = took
    return {worker: [each[i] for i in range(len(each))] for worker, each in found.items()}


def rows() -> list[tuple[int, int, float]]:
    every = [(worker, i, t) for worker, times in TIMES.items() for i, t in enumerate(times)]
    random.Random(0).shuffle(every)  # in any order
    return every


def csv(folder: Path, text: str) -> Path:
    path = folder / "times.csv"
    path.write_text(text)
    return path


def own(folder: Path) -> Path:
    return csv(folder, HEAD + "".join(f"{w},{i},{t}\n" for w, i, t in rows()))


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_it_is_replayed_as_it_is(tmp_path, form):
    if form == "parquet":
        path = tmp_path / "times.parquet"
        columns = zip(*rows(), strict=True)
        names = ("worker", "iteration", "seconds")
        pq.write_table(pa.table(dict(zip(names, map(list, columns), strict=True))), path)
    else:
        path = own(tmp_path)
    assert replayed(simulate(config(path))) == TIMES
    twice = {worker: [2 * t for t in times] for worker, times in TIMES.items()}
    assert replayed(simulate(config(path, scale=2))) == twice


def test_workers_replay_the_recorded_workers_that_they_are_given(tmp_path):
    law = {"workers": 3, "recorded_workers": [1, 0, 1]}
    # Worker 2 is the second of two that replay worker 1, so it starts 3 · 1/2 = 1 iteration later.
    expected = {0: TIMES[1], 1: TIMES[0], 2: [2.0, 4.0, 1.0]}
    assert replayed(simulate(config(own(tmp_path), **law))) == expected
    with pytest.raises(ConfigError, match="has no run times of worker 7"):
        simulate(config(own(tmp_path), recorded_workers=[0, 7]))


def test_too_few_are_an_error_before_the_run_or_in_it(tmp_path):
    path = own(tmp_path)
    with pytest.raises(ConfigError, match="has 3 run times of worker 0, fewer than the 4 iter"):
        simulate(config(path, iterations=4))
    with pytest.raises(RunError, match="3 run times of worker 0, and it is at iteration 3; wrap"):
        simulate(config(path, stop={"virtual_time_s": 5.0}))


def test_an_oracle_ends_with_the_last_recorded_iteration(tmp_path):
    oracle = {"sync": {"kind": "cutoff", "model": "oracle"}}
    path = own(tmp_path)
    result = simulate(config(path) | oracle)
    # Ω(1) against Ω(2): 4 and 2, 2 and 1, 8 and 0.5: it never waits for worker 1.
    assert result.summary["iterations"] == [3, 0]
    assert result.summary["virtual_time_s"] == 0.25 + 0.5 + 0.125
    with pytest.raises(RunError, match=r"of worker ., and it is at iteration 3; wrap"):
        simulate(config(path, stop={"virtual_time_s": 5.0}) | oracle)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + "0,0,1\n", "has no run times of worker 1"),
        (HEAD + "0,0,1\n1,0,1\n2,0,1\n", "has run times of worker 2, and there are 2 workers"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_the_place(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words):
        simulate(config(csv(tmp_path, text), iterations=1))


NODES = [0, 1, 0, 1]  # workers are not in the order of their machines
WITH_NODES = "worker,iteration,seconds,node\n" + "".join(
    f"{w},0,1,{n}\n" for w, n in enumerate(NODES)
)


class Watching:
    """Replaces a fitted model, and notes the nodes that are passed to it."""

    kind, needs, told = "pooled", 1, None

    def follow(self, node, seed):
        self.told = node.tolist()


@pytest.mark.parametrize(
    ("text", "sync", "nodes"),
    [
        (WITH_NODES, {}, NODES),
        (WITH_NODES, {"workers_per_node": 3}, [0, 0, 0, 1]),
        (HEAD + "".join(f"{worker},0,1\n" for worker in range(4)), {}, [0, 1, 2, 3]),
    ],
    ids=["as the file says", "as the strategy says", "a node for each worker"],
)
def test_a_cut_off_knows_the_nodes_of_recorded_run_times(tmp_path, monkeypatch, text, sync, nodes):
    model = Watching()
    monkeypatch.setattr(cut_offs, "load_model", lambda _: model)
    data = config(csv(tmp_path, text), workers=4)
    sync = {"kind": "cutoff", "model": "pooled", "file": "a.safetensors", **sync}
    experiment = experiment_from(data | {"sync": sync}, "a test", tmp_path)
    cut_offs.cut_off_rule(experiment, experiment.sync, say=lambda _: None)
    assert model.told == nodes


def test_blocks_drawn_for_each_seed_vary_like_a_run_and_its_recording(tmp_path):
    source, count, seeds = np.random.default_rng(1), 200, 300
    seconds = source.exponential(1.0, count) + 1.0
    rows = [f"{w},{i},{seconds[i] + 0.5 * w}\n" for w in range(2) for i in range(count)]
    path = tmp_path / "times.csv"
    path.write_text("worker,iteration,seconds\n" + "".join(rows))
    law = Recorded(path=str(path), block=20)
    totals = []
    for seed in range(seeds):
        run_time = law.run_time(seed, 2, 5 * count)
        times = [run_time(0, n, 0) for n in range(count)]
        assert run_time(1, 37, 0) == pytest.approx(times[37] + 0.5)  # workers stay together
        totals.append(sum(times))
    assert set(np.round(times, 9)) <= set(np.round(seconds, 9))
    assert run_time(0, 5 * count - 1, 0) > 0  # a run may be longer than the recording
    # Sums of `count` independent times vary by count · variance, once for the run and once for the
    # recording. The ratio of the variances of 300 sums has an error of √(2/300) = 8 %, and the
    # recording's own 10 blocks one of √(2/9) = 47 %.
    assert 1.0 < np.var(totals) / (count * seconds.var()) < 3.5
