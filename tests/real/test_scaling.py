"""A real run continues with other numbers of workers and servers: all begin again with these."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outpace import ConfigError, run
from outpace.blocks.block import parameters_digest
from outpace.config.reading import experiment_from
from outpace.engine.resuming import ResumePoint
from outpace.real.control import RealControl
from outpace.record.checkpoints import Checkpoints
from outpace.record.folder import LOG

ITERATIONS = 60


def config(kind: str = "bsp", **changes: Any) -> dict[str, Any]:
    return {
        "task": {"kind": "digits-mlp"},
        "workers": 2,
        "servers": 1,
        "batch_size": 8,
        "sync": {"kind": kind},
        "deterministic": True,
        "probe": False,
        "compute": {"kind": "constant", "mean_s": 0.02},
        "stop": {"iterations": ITERATIONS},
        "checkpoint": {"every_s": 1000, "keep": 9},
        **changes,
    }


def scaled(folder: Path) -> list[dict[str, Any]]:
    """Return the fields of the log's lines about other numbers."""
    lines = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    return [line["fields"] for line in lines if line["event"] == "scaled"]


def copied(folder: Path, number: int) -> Path:
    """Return the path of a copy of the run's folder, made when it had this number of changes."""
    return folder.parent / f"after-{number}"


def scaling(folder: Path, *steps: dict[str, int]) -> Callable[[RealControl], None]:
    """Return a control function that requests these numbers, one after the other."""
    left, due = list(steps), [10]

    def control(control: RealControl) -> None:
        def look() -> None:
            number = len(scaled(folder))
            if number and not copied(folder, number).exists():
                shutil.copytree(folder, copied(folder, number))
            done = number == len(steps) - len(left)
            if left and done and min(control.summary()["iterations"]) >= due[0]:
                due[0] += 20
                control.scale(**left.pop(0))
            control.at(control._now() / 1e9 + 0.02, look)

        control.at(0.02, look)

    return control


def test_bsp_scaled_up_and_down_is_bitwise_a_run_that_was_resumed_with_these_numbers(tmp_path):
    folder = tmp_path / "run"
    up, down = {"workers": 3, "servers": 2}, {"workers": 1, "servers": 1}
    summary = run(config(), folder, control=scaling(folder, up, down)).summary
    assert (summary["status"], summary["restarts"], summary["updates_lost"]) == ("complete", 0, 0)
    assert summary["iterations"][0] == ITERATIONS
    assert summary["scalings"] == [[3, 2], [1, 1]]
    events = scaled(folder)
    assert [(each["workers"], each["servers"]) for each in events] == [(3, 2), (1, 1)]
    assert [each["workers_before"] for each in events] == [2, 3]
    # Stopped when the run had more processes, and resumed with these numbers until it had fewer.
    found = Checkpoints(copied(folder, 2)).newest()
    assert found is not None
    (clock,) = {shard.clock for shard in found.index.shards}
    assert 10 < clock < ITERATIONS
    more = run(resume=copied(folder, 1), **up, stop={"iterations": clock}).summary
    assert more["parameters_digest"] == parameters_digest(found.blocks())
    # Worker 2 was not there in the first iterations, but is as far as the others.
    first = Checkpoints(copied(folder, 1)).newest()
    point = ResumePoint.of(first, experiment_from(config(**up), "the test"))
    assert point.not_computed == {0: 0, 1: 0, 2: first.index.shards[0].clock}
    # And after that.
    fewer = run(resume=copied(folder, 2), **down).summary
    assert fewer["parameters_digest"] == summary["parameters_digest"]


def test_workers_without_servers_begin_again_with_another_number(tmp_path):
    folder = tmp_path / "run"
    summary = run(config("psgd"), folder, control=scaling(folder, {"workers": 3})).summary
    assert (summary["status"], summary["restarts"], summary["updates_lost"]) == ("complete", 0, 0)
    assert [each["workers"] for each in scaled(folder)] == [3]
    assert len(summary["iterations"]) == 3
    assert summary["scalings"] == [[3, 0]]


def test_what_control_asked_for_before_the_run_went_on_is_not_asked_for_again(tmp_path):
    def control(control: RealControl) -> None:
        control.at(0.2, lambda: control.scale(workers=1))
        control.at(1.5, lambda: control.scale(workers=2))

    folder = tmp_path / "run"
    summary = run(config(stop={"iterations": 90}), folder, control=control).summary
    assert [each["workers"] for each in scaled(folder)] == [1, 2]
    assert summary["status"] == "complete"


def test_what_cannot_be_is_refused_and_the_run_goes_on(tmp_path):
    def control(control: RealControl) -> None:
        for numbers, words in (
            ({"servers": 2000}, "servers: must be from 1 to 1000, not 2000"),
            ({"workers": 1}, "workers: the configuration does not fit 1 worker: "),
        ):
            with pytest.raises(ConfigError, match=words):
                control.scale(**numbers)
        assert control.scale(servers=1) == "the run has 1 server already"  # fewer than the quorum

    quorum = {"kind": "drop-stragglers", "quorum": 2}
    given = config(sync=quorum, stop={"iterations": 5})
    assert run(given, tmp_path / "run", control=control).summary["status"] == "complete"
