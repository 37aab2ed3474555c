"""Learned cut-offs without a file: the model is fitted to the warm-up of the run itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache

import pyarrow.parquet as pq
import pytest

from outpace.experiment.running import run, simulate

REGIMES = [{"factor": 1.0, "dwell_s": 1.0}, {"factor": 4.0, "dwell_s": 1.0}]
SLOWING = {
    "kind": "regimes",
    "mean_s": 0.05,
    "cv": 0.05,
    "workers_per_node": 2,
    "regimes": REGIMES,
}


def config(iterations, **sync):
    return {
        "task": {"kind": "digits-mlp"},
        "workers": 8,
        "servers": 2,
        "batch_size": 4,
        "seed": 3,
        "compute": SLOWING,
        "stop": {"iterations": iterations},
        "evaluate": {},
        "sync": {"kind": "cutoff", "model": "pooled", **sync},
    }


def counts(result):
    """Return the number of gradients that counted, by iteration."""
    closed = [row for row in result.trace.to_pylist() if row["event"] == "cut-off"]
    return [row["clock"] for row in sorted(closed, key=lambda row: row["iteration"])]


@cache
def cold(folder):
    return simulate(config(50), folder / "cold")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.mark.slow
def test_it_decides_the_same_with_the_kernels_of_another_processor(folder):
    program = (
        f"from outpace import simulate\nprint(simulate({config(50)!r}).summary['trace_digest'])\n"
    )
    other = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **other},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.stdout.split()[-1] == cold(folder).summary["trace_digest"]


@pytest.mark.slow
def test_for_real_training_goes_on_while_the_model_is_fitted(tmp_path):
    begins = []

    def interrupt(text):
        if found := re.search(r"was fitted .* from iteration (\d+) on", text):
            begins.append(int(found[1]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # however long the fit takes
        run(config(100_000), tmp_path / "run", log=interrupt)
    trace = pq.read_table(tmp_path / "run" / "trace.parquet").to_pylist()
    found = [row["clock"] for row in trace if row["event"] == "cut-off"]
    assert found[0] == 8
    assert len(found) == begins[0] > 20
    assert min(found[1:]) < 8  # the last iterations are used in the meantime
    fitted = str(tmp_path / "run" / "run-times.safetensors")
    assert len(counts(simulate(config(10, file=fitted)))) == 10
