"""Real runs without servers that are saved: they go on from their last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.saved_runs import give_up, numbers, once_saved

from outpace import Result, RunError, load_checkpoint, run, simulate

RUN: dict[str, Any] = {
    "task": {"kind": "quadratic", "eigenvalues": [0.5, 1.0, 2.0], "noise": 0.1},
    "workers": 3,
    "deterministic": True,
    "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9},
    "probe": False,
    "compute": {"kind": "constant", "mean_s": 0.01},
    "stop": {"iterations": 120},
    "evaluate": {"every_updates": 10},
}
SAVED = {"checkpoint": {"every_s": 0.1}}
STRATEGIES = {
    "ssgd": {"kind": "ssgd"},
    "local-sgd": {"kind": "local-sgd", "every": 7, "after": 3},
    "diloco": {"kind": "diloco", "every": 5},
    "psgd": {"kind": "psgd"},
}
# Gradients are noise of worker and iteration alone, so their sum does not depend on timing.
NOISE = {
    "task": {"kind": "quadratic", "eigenvalues": [0.0] * 6, "noise": 1.0},
    "optimizer": {"kind": "sgd", "lr": 0.05},
}


def interrupted_and_resumed(folder: Path, config: dict[str, Any], **changes: Any) -> Result:
    """Return the result of a run that failed after its third checkpoint and went on."""
    with pytest.raises(RunError, match="that is enough"):
        run({**config, **SAVED}, folder, control=once_saved(folder, give_up, 3))
    return run(resume=folder, **changes)


@pytest.mark.parametrize(
    "kind",
    [
        "ssgd",
        "diloco",
        pytest.param("local-sgd", marks=pytest.mark.slow),
        pytest.param("psgd", marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_ends_with_the_parameters_of_the_uninterrupted_one(kind, tmp_path):
    config = {**RUN, "sync": STRATEGIES[kind]}
    expected = simulate(config)
    result = interrupted_and_resumed(tmp_path / "run", config)
    summary = result.summary
    assert int(summary["resumed_from"][-6:]) >= 3
    for key in ("parameters_digest", "iterations", "gradients_applied", "status", "updates_lost"):
        assert summary[key] == expected.summary[key]
    if kind != "psgd":
        updates = result.metrics["updates"].to_pylist()
        assert updates == expected.metrics["updates"].to_pylist()
    times = result.metrics["time_s"].to_pylist()
    assert times == sorted(times)
    rows = result.trace.to_pylist()
    ended = [(row["worker"], row["iteration"]) for row in rows if row["event"] == "iteration"]
    assert len(ended) == len(set(ended)) >= 3 * 119  # that of the checkpoint has no row
    averages = {row["version"] for row in rows if row["event"] == "all-reduce"}
    assert averages == set(range(len(averages)))
    assert load_checkpoint(tmp_path / "run")  # plain tensors


@pytest.mark.parametrize("kind", ["hpsgd", "gossip"])
def test_no_gradient_is_lost_or_counts_twice_where_the_result_depends_on_timing(kind, tmp_path):
    config = {**RUN, **NOISE, "sync": {"kind": kind}}
    expected = simulate(config)
    result = interrupted_and_resumed(tmp_path / "run", config)
    assert int(result.summary["resumed_from"][-6:]) >= 3
    for key in ("iterations", "gradients_applied", "updates_lost"):
        assert result.summary[key] == expected.summary[key]
    for name, found in result.parameters.items():
        assert found.allclose(expected.parameters[name], rtol=0, atol=1e-5)


def test_a_run_goes_on_with_another_number_of_workers(tmp_path):
    config = {**RUN, "sync": STRATEGIES["local-sgd"]}
    summary = interrupted_and_resumed(tmp_path / "run", config, workers=4).summary
    assert summary["status"] == "complete"
    assert len(summary["iterations"]) == 4
    assert summary["iterations"][3] < 120
    assert numbers(tmp_path / "run")
