"""A training loop of Ray Train, on a cluster of this machine, with Outpace's servers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
from tests.support.cluster import nodes
from tests.support.paths import EXAMPLES

SERVE = ["serve", "--workers", "2", "--servers", "1", "--connect", "run.json", "--out", "run"]
TRAIN = ["--connect", "run.json", "--epochs", "2", "--storage", "of-ray"]


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("tensorboardX") is None,
    reason="Ray Train is not installed: pip install 'outpace[ray-train]'",
)
def test_the_workers_of_ray_train_train_with_each_other(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray keeps the loopback address
    with nodes("one", cpus=2) as cluster:
        environment = {**os.environ, "RAY_ADDRESS": cluster.address}
        environment.pop("RAY_TMPDIR")
        serve = subprocess.Popen(
            [sys.executable, "-m", "outpace", *SERVE, "sync.kind=ssp", "sync.staleness=3"],
            cwd=tmp_path,
        )
        try:
            done = subprocess.run(
                [sys.executable, EXAMPLES / "ray_train.py", *TRAIN],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr
            assert serve.wait(60) == 0
        finally:
            serve.kill()
            serve.wait()
    (accuracy,) = re.findall(r"^accuracy ([\d.]+)$", done.stdout, flags=re.MULTILINE)
    assert float(accuracy) > 0.6  # one in ten by chance
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert summary["iterations"] == [90, 90]  # 1437 samples, two workers, batches of 16, twice
    assert not (tmp_path / "run.json").exists()
