"""Scripts with torch.distributed, unchanged, on real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.gloo import run_with_gloo
from tests.support.paths import SCRIPTS

from outpace.errors import RunError
from outpace.experiment.results import Result
from outpace.experiment.running import run, simulate

pytestmark = pytest.mark.slow
TIMES = ("what", "worker", "sent_bytes", "sent_ns", "arrived_ns")
STEPS = 12  # of each worker of ddp_trains.py


def launch(script: str, *arguments: object, how: Any = run, **changes: Any) -> Result:
    task = {
        "kind": "script",
        "path": str(SCRIPTS / script),
        "arguments": [str(a) for a in arguments],
    }
    result: Result = how({"workers": 2, "probe": False, "task": task, **changes})
    return result


@pytest.fixture(scope="module")
def gloo(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the output of ddp_trains.py without Outpace, by rank."""
    folder = tmp_path_factory.mktemp("gloo")
    run_with_gloo(SCRIPTS / "ddp_trains.py", [str(folder)], 2)
    return written(folder)


def written(folder: Path) -> list[dict[str, Any]]:
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def test_ssgd_trains_bitwise_as_gloo_alone(tmp_path, gloo):
    result = launch("ddp_trains.py", tmp_path, sync={"kind": "ssgd"}, probe=True)
    found = written(tmp_path)
    for mine, alone in zip(found, gloo, strict=True):
        assert mine["losses"] == alone["losses"]
        torch.testing.assert_close(mine["parameters"], alone["parameters"], rtol=0, atol=0)
    for name, value in found[0]["parameters"].items():
        assert torch.equal(result.parameters[name], value)
    summary = result.summary
    assert summary["iterations"] == [STEPS, STEPS]
    assert summary["synchronizations"] == STEPS
    assert summary["gradients_applied"] == 2 * STEPS
    assert summary["staleness"]["max"] == 0
    # The network is measured before the first step, which calibration needs.
    rows = zip(*(result.timing[name].to_pylist() for name in TIMES), strict=True)
    probed = [row for row in rows if row[0] == "probe"]
    assert {(worker, size) for _, worker, size, *_ in probed} >= {(0, 1024), (1, 1024)}
    assert all(sent < arrived <= 0 for *_, sent, arrived in probed)
    # A ring of two: each worker sends as many bytes as the gradient has.
    elements = sum(p.numel() for p in found[0]["parameters"].values())
    assert summary["bytes_sent"] == 2 * STEPS * 4 * elements
    assert summary["warnings"] == []


def test_bsp_trains_bitwise_as_gloo_alone(tmp_path, gloo):
    """Servers take the steps; the mean of two gradients is rounded alike in both."""
    result = launch("ddp_trains.py", tmp_path, sync={"kind": "bsp"}, servers=2, deterministic=True)
    for mine, alone in zip(written(tmp_path), gloo, strict=True):
        torch.testing.assert_close(mine["parameters"], alone["parameters"], rtol=0, atol=0)
    assert result.summary["iterations"] == [STEPS, STEPS]
    assert result.summary["gradients_applied"] == 2 * STEPS


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("how", [run, simulate])
def test_every_collective_has_its_result(how):
    law = {"kind": "constant", "mean_s": 0.001}
    result = launch("ddp_every.py", sync={"kind": "ssgd"}, compute=law, how=how)
    assert result.summary["iterations"] == [4, 4]


def test_collectives_go_on_while_workers_average_in_pairs():
    summary = launch("ddp_every.py", sync={"kind": "gossip"}).summary
    assert summary["iterations"] == [4, 4]


def test_a_collective_that_a_worker_never_joins_is_named():
    words = r"at ddp_breaks.py:\d+ failed in worker-0 after 2 s; worker-1 did not join it"
    with pytest.raises(RunError, match=words):
        launch("ddp_breaks.py", sync={"kind": "ssgd"})
