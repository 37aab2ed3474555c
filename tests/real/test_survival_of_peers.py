"""Real runs without servers that are saved: they continue from their last checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.saved_runs import give_up, once_saved

from outpace import RunError, run, simulate

RUN: dict[str, Any] = {
    "task": {"kind": "quadratic", "eigenvalues": [0.5, 1.0, 2.0], "noise": 0.1},
    "workers": 3,
    "deterministic": True,
    "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9},
    "probe": False,
    "compute": {"kind": "constant", "mean_s": 0.01},
    "stop": {"iterations": 120},
    "evaluate": {"every_updates": 40},
}
SAVED = {"checkpoint": {"every_s": 0.1}}
# Gradients are noise of worker and iteration alone, so their sum does not depend on timing.
NOISE = {
    "task": {"kind": "quadratic", "eigenvalues": [0.0] * 6, "noise": 1.0},
    "optimizer": {"kind": "sgd", "lr": 0.05},
}


@pytest.mark.parametrize("sync", [{"kind": "hpsgd"}, {"kind": "gossip"}])
def test_no_gradient_is_lost_or_counts_twice_where_the_result_depends_on_timing(sync, tmp_path):
    config = {**RUN, **NOISE, "sync": sync}
    expected = simulate(config)
    folder = tmp_path / "run"
    with pytest.raises(RunError, match="that is enough"):
        run({**config, **SAVED}, folder, control=once_saved(folder, give_up, 3))
    result = run(resume=folder)
    assert int(result.summary["resumed_from"][-6:]) >= 3
    for key in ("iterations", "gradients_applied", "updates_lost"):
        assert result.summary[key] == expected.summary[key]
    for name, found in result.parameters.items():
        assert found.allclose(expected.parameters[name], rtol=0, atol=1e-5)
