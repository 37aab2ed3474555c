"""Simulated runs that the tests of the report share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outpace.errors import RunError
from outpace.experiment.running import simulate

CONFIG: dict[str, Any] = {
    "task": {"kind": "digits-mlp"},
    "workers": 4,
    "servers": 2,
    "compute": {
        "kind": "lognormal",
        "mean_s": 0.1,
        "cv": 0.2,
        "slow": [{"workers": [0], "factor": 3.0}],
    },
    "network": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1e8},
    "optimizer": {"kind": "sgd", "lr": 0.2},
    "stop": {"iterations": 12},
    "evaluate": {"every_s": 0.3},
}


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name -> folder: BSP, SSP, ASP, cut-off, timing, and one that failed."""
    place = tmp_path_factory.mktemp("runs")
    variants: dict[str, dict[str, Any]] = {
        "BSP": {"sync": {"kind": "bsp"}},
        "SSP": {"sync": {"kind": "ssp", "staleness": 2}},
        "ASP": {"sync": {"kind": "asp"}},
        "cut-off": {"sync": {"kind": "cutoff", "model": "fixed", "share": 0.7, "warmup": 1}},
        "timing": {"sync": {"kind": "bsp"}, "task": {"kind": "timing"}},
        "failed": {"sync": {"kind": "asp"}, "optimizer": {"kind": "sgd", "lr": 1e9}},
    }
    for name, variant in variants.items():
        try:
            simulate({**CONFIG, **variant}, place / name)
        except RunError:
            assert name == "failed"
    return {name: place / name for name in variants}
