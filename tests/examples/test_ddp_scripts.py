"""The DDP scripts of the examples do not use Outpace, and train under it as with Gloo."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.checkpoints import same
from tests.support.gloo import run_with_gloo
from tests.support.paths import EXAMPLES

from outpace.experiment.running import run, simulate

pytestmark = pytest.mark.slow

SCRIPTS = {
    "ddp_mnist.py": [
        *("--epochs", "2", "--samples", "640", "--batch-size", "16", "--log-interval", "1"),
        *("--checkpoint", "model.pt"),
    ],
    "ddp_gpt.py": ["--steps", "16", "--width", "16", "--log-interval", "1"],
}
STEPS = {"ddp_mnist.py": 40, "ddp_gpt.py": 16}


def configuration(name: str, sync: dict[str, Any]) -> dict[str, Any]:
    task = {"kind": "script", "path": str(EXAMPLES / name), "arguments": SCRIPTS[name]}
    law = {"kind": "constant", "mean_s": 0.01}
    return {"task": task, "workers": 2, "sync": sync, "compute": law}


def of_worker_0(output: str) -> list[str]:
    """Return the lines of worker 0 in the output of a run, without its name."""
    start = "worker-0 | "
    return [line.removeprefix(start) for line in output.splitlines() if line.startswith(start)]


def losses(lines: list[str]) -> list[float]:
    return [float(found[1]) for line in lines if (found := re.search(r"loss ([\d.]+)", line))]


@pytest.mark.parametrize(("name", "how"), [("ddp_mnist.py", run), ("ddp_gpt.py", simulate)])
def test_with_ssgd_a_script_prints_and_saves_what_it_does_with_gloo(
    name, how, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    checkpoint = Path("model.pt")
    run_with_gloo(EXAMPLES / name, SCRIPTS[name], 2, output=Path("output.txt"))
    expected = Path("output.txt").read_text().splitlines()
    found = losses(expected)
    assert found[-1] < 0.9 * found[0]
    saved = torch.load(checkpoint) if checkpoint.exists() else {}
    assert bool(saved) == ("mnist" in name)
    checkpoint.unlink(missing_ok=True)
    result = how(configuration(name, {"kind": "ssgd"}))
    assert of_worker_0(capfd.readouterr().out) == expected
    assert result.summary["status"] == "complete"
    assert result.summary["iterations"] == [STEPS[name]] * 2
    assert result.summary["warnings"] == []
    if saved:
        assert same(torch.load(checkpoint), saved)
        assert same(result.parameters, saved)
