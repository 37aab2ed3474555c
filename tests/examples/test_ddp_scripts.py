"""The DDP scripts of the examples, which know nothing of Outpace, train with Gloo."""

from __future__ import annotations

import re

import pytest
from tests.support.ddp import started_by_torchrun
from tests.support.paths import EXAMPLES

pytestmark = pytest.mark.slow

SCRIPTS = {
    "ddp_mnist.py": [
        "--epochs",
        "2",
        "--samples",
        "640",
        "--batch-size",
        "16",
        "--log-interval",
        "1",
    ],
    "ddp_gpt.py": ["--steps", "16", "--width", "16", "--log-interval", "1"],
}


def losses(lines: list[str]) -> list[float]:
    return [float(found[1]) for line in lines if (found := re.search(r"loss ([\d.]+)", line))]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_trains_as_torchrun_starts_it(warm, name, tmp_path):
    printed = started_by_torchrun(warm, EXAMPLES / name, *SCRIPTS[name], folder=tmp_path)
    found = losses(printed)
    assert found[-1] < 0.9 * found[0]
