"""The values of a script keep their precision, in virtual time and in real runs."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest
import torch
from tests.support.checkpoints import same
from tests.support.paths import SCRIPTS

from outpace.errors import ConfigError
from outpace.experiment.results import Result
from outpace.experiment.running import run, simulate

VALUES = runpy.run_path(str(SCRIPTS / "values.py"))
STEPS, NET, BATCH, COUNT = (VALUES[name] for name in ("STEPS", "Net", "batch", "COUNT"))
SSGD = {"kind": "ssgd"}
LOCAL = {"kind": "local-sgd", "every": 2}
LAW = {"kind": "constant", "mean_s": 0.5}


def trained(how: Any, kind: str, folder: Any, sync: Any, **changes: Any) -> Result:
    folder.mkdir(exist_ok=True)
    task = {"kind": "script", "path": str(SCRIPTS / "values.py"), "arguments": [kind, str(folder)]}
    result: Result = how({"workers": 2, "sync": sync, "task": task, **changes})
    return result


def saved(folder: Any) -> list[dict[str, torch.Tensor]]:
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def averaged_by_hand(every: int) -> torch.Tensor:
    """Return the mean of the inputs of two workers that average it after `every` steps."""
    means = [torch.zeros(6), torch.zeros(6)]
    for step in range(STEPS):
        means = [0.5 * mean + 0.5 * BATCH(r, step).mean(0) for r, mean in enumerate(means)]
        if (step + 1) % every == 0:
            means = [(means[0] + means[1]) / 2] * 2
    return means[0]


@pytest.mark.filterwarnings("ignore:the optimizer has momentum")
@pytest.mark.parametrize("sync", [SSGD, LOCAL, {"kind": "hpsgd"}], ids=lambda sync: sync["kind"])
def test_buffers_are_averaged_in_their_dtype_and_constant_ones_keep_their_bits(tmp_path, sync):
    result = trained(simulate, "plain", tmp_path, sync, compute=LAW)
    start, (first, second) = NET(), saved(tmp_path)
    for state in (first, second):
        assert torch.equal(state["frequencies"], start.frequencies)
        assert torch.equal(state["mask"], start.mask)
        assert torch.equal(state["base.weight"], start.base.weight)
        assert state["table"].shape == (3 + STEPS, 6)
    assert torch.equal(first["head.weight"], second["head.weight"])
    if sync["kind"] != "hpsgd":  # whose averages come while workers continue
        assert first["count"] == second["count"] == COUNT + STEPS
        expected = averaged_by_hand(sync.get("every", 1))
        assert torch.allclose(first["mean"], expected, atol=1e-6)
        assert torch.equal(first["mean"], second["mean"])
    first.pop("frequencies")
    assert same(result.parameters, first)


def test_real_workers_have_the_same_buffers_and_send_no_frozen_parameters(tmp_path):
    trained(simulate, "plain", tmp_path / "v", SSGD, compute=LAW)
    result = trained(run, "plain", tmp_path / "r", SSGD, deterministic=True)
    for virtual, real in zip(saved(tmp_path / "v"), saved(tmp_path / "r"), strict=True):
        assert same(virtual, real)
    model = NET()
    assert result.summary["script"]["parameters"] == model.head.weight.numel() + 3


def test_a_setting_that_differs_between_workers_is_named(tmp_path, recwarn):
    words = (
        r"the optimizers of worker-0 and worker-1 have different settings in iteration {} \({}\)"
    )
    (warning,) = trained(run, "plateau", tmp_path / "r", SSGD).summary["warnings"]
    assert re.match(words.format(2, "lr 0.1 and 0.05") + ", so their parameters differ", warning)
    with pytest.raises(ConfigError, match=words.format(0, "nesterov False and True")):
        trained(simulate, "rates", tmp_path / "v", SSGD, compute=LAW)
    # A server takes a step along a sum with one worker's settings, and says so; `asp` has no sums.
    words = (
        "different settings (nesterov False and True) in iteration 0, and the step along the sum"
    )
    for kind, expected in ("bsp", 1), ("asp", 0):
        result = trained(simulate, "rates", tmp_path / kind, {"kind": kind}, compute=LAW)
        assert sum(words in each for each in result.summary["warnings"]) == expected


def test_a_frozen_parameter_that_is_trained_later_ends_the_run(tmp_path):
    words = "parameter base.bias requires a gradient in iteration 1 .* none in outpace.attach,"
    with pytest.raises(ConfigError, match=words):
        trained(simulate, "unfreezes", tmp_path, SSGD, compute=LAW)
