"""Only workers that compute the same gradient are named."""

from __future__ import annotations

import json

import pytest
from tests.support.paths import SCRIPTS

from outpace.engine.scripts.sameness import SameGradients
from outpace.experiment.running import run
from outpace.real.net.messages import Compared

WORKERS = [f"worker-{number}" for number in range(5)]
A, B = Compared("gradient", 0, "a"), Compared("gradient", 0, "b")


def warned(*found: Compared | None, workers: list[str] = WORKERS) -> list[str]:
    """Return the warnings if each worker sends its value; None: it leaves without a gradient."""
    said: list[str] = []
    same = SameGradients(workers, said.append)
    for worker, gradient in zip(workers, found, strict=False):
        if gradient is None:
            same.has_left(worker)
        else:
            same.add(worker, gradient.iteration, gradient.text)
    return said


def test_each_group_of_equal_gradients_has_one_warning_that_names_its_workers():
    first, second = warned(A, B, A, B, A)
    assert first.startswith("worker-0, worker-2 and worker-4 computed the same gradient in iter")
    assert second.startswith("worker-1 and worker-3 computed the same gradient in iteration 0")
    assert "outpace.sampler(dataset)" in first
    assert "outpace.rank()" in first
    (many,) = warned(*[A] * 20, workers=[f"worker-{number}" for number in range(20)])
    assert many.startswith("worker-0, worker-1, worker-2 and 17 more workers computed")


def test_gradients_that_may_differ_for_other_reasons_are_not_compared():
    none, later = Compared("gradient", 0, ""), Compared("gradient", 1, "a")
    assert warned(A, B, later, none, none) == []
    assert warned(A, A, None, None) == []  # one worker has not sent anything yet
    assert len(warned(A, A, None, None, None)) == 1
    assert warned(A, workers=WORKERS[:1]) == []


def test_workers_that_abstained_first_are_compared_by_their_next_gradient():
    said: list[str] = []
    same = SameGradients(WORKERS[:2], said.append)
    for gradient in (Compared("gradient", 0, ""), Compared("gradient", 1, "a")):
        for worker in WORKERS[:2]:
            same.add(worker, gradient.iteration, gradient.text)
    assert len(said) == 1
    assert "worker-0 and worker-1 computed the same gradient in iteration 1" in said[0]
    same.has_left("worker-1")
    assert len(said) == 1


@pytest.mark.slow
def test_a_script_that_does_not_share_its_data_out_is_warned(tmp_path):
    task = {"kind": "script", "path": str(SCRIPTS / "same_data.py")}
    said: list[str] = []
    out = tmp_path / "out"
    run({"workers": 4, "sync": {"kind": "bsp"}, "task": task}, out, log=said.append)
    found = [each for each in said if each.startswith("warning: ")]
    line, uneven = found
    assert line.startswith("warning: worker-0 and worker-1 computed the same gradient in iter")
    assert uneven.startswith(
        "warning: the script of worker-2 took 3 steps and the script of worker-0"
    )
    warnings = [each.removeprefix("warning: ") for each in found]
    assert json.loads((out / "summary.json").read_text())["warnings"] == warnings
    text = warnings[0]
    assert f'<p class="notice">Warning: {text}</p>' in (out / "report.html").read_text()
