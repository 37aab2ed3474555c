"""Workers of real runs join and leave while the others go on.

In the ledger task each sample has two parameters of its own, one on each of two servers, and is
used once, so the parameters show which gradients they have, and by what each was divided.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.kills.family import TASK
from tests.support.fluentps import ssptable

from outpace import ConfigError, run
from outpace.real.control import RealControl
from outpace.record.event_log import LOG

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
ITERATIONS = 5000  # more than there is time for: a run ends some iterations after its last change
MORE = 30


def config(sync: dict[str, Any], **beside: Any) -> dict[str, Any]:
    samples = 3 * ITERATIONS
    arguments = {"samples": samples}
    return {
        "task": {"kind": "python", "target": f"{TASK}:make_task", "arguments": arguments},
        "workers": 2,
        "servers": 2,
        "batch_size": 1,
        "sync": sync,
        "deterministic": True,
        "optimizer": {"kind": "sgd", "lr": 1.0},
        "probe": False,
        "compute": {"kind": "constant", "mean_s": 0.005},
        "stop": {"iterations": ITERATIONS},
        "evaluate": {"every_updates": 10**9},
        **beside,
    }


def scaling(
    folder: Path, *steps: int, then: Callable[[], None] = lambda: None
) -> Callable[[Any], None]:
    """Return a control function that scales to these numbers of workers, one after the other.

    It stops the run some iterations after the last change.
    """

    def control(control: RealControl) -> None:
        left, due = list(steps), 0

        def look() -> None:
            nonlocal due
            fastest, done = max(control.summary()["iterations"]), len(scaled(folder))
            if done == len(steps) - len(left):  # the last change is done
                due = due or fastest + MORE
                if fastest >= due and not left:
                    control._coordinator.end("the test has seen enough")
                    return
                if fastest >= due:
                    due = 0
                    control.scale(workers=left.pop(0))
                    if not left:
                        then()
            control.at(control._now() / 1e9 + 0.02, look)

        control.at(0.1, look)

    return control


def scaled(folder: Path) -> list[dict[str, Any]]:
    """The fields of the log's lines about other numbers of workers."""
    lines = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    return [line["fields"] for line in lines if line["event"] == "scaled"]


def test_bsp_takes_the_mean_of_as_many_workers_as_take_part_and_uses_each_sample_once(tmp_path):
    folder = tmp_path / "run"
    summary = run(config({"kind": "bsp"}), folder, control=scaling(folder, 3, 2)).summary
    assert summary["updates_lost"] == summary["restarts"] == 0
    up, down = scaled(folder)
    assert [up["workers"], down["workers"]] == [3, 2]
    entries = load_file(folder / "model.safetensors")
    first, second = -entries["first"], -entries["second"]
    # Both servers have the same gradients; but a run that is told to stop may end when one of them
    # has finished an iteration and the other has not.
    differs = first != second
    assert int(differs.sum()) <= 2
    assert bool(((first == 0) | (second == 0))[differs].all())
    of_three, of_two = ((first * n).sub(1).abs() < 1e-6 for n in (3, 2))
    assert bool((of_three | of_two | (first == 0)).all())
    assert int(of_three.sum()) == 3 * (down["first"] - up["first"])
    assert summary["iterations"][2] == down["first"] - up["first"]
    used = int(of_three.sum() + of_two.sum())
    assert used == summary["gradients_applied"]


def test_ssp_counts_each_gradient_once_and_by_the_number_of_workers_at_that_time(tmp_path):
    folder = tmp_path / "run"
    sync = {"kind": "ssp", "staleness": 2}
    controls: list[RealControl] = []
    seen: list[list[int]] = []

    def note() -> None:
        (control,) = controls
        coordinator = control._coordinator
        seen.append([coordinator.iteration(worker) for worker in range(4)])
        # Processes report four times a second: a worker may have joined and reported nothing yet.
        reported = coordinator.reports.totals.iterations
        seen.append([reported.get(worker, 0) for worker in range(4)])

    def control(control: RealControl) -> None:
        controls.append(control)
        scaling(folder, 4, 1, then=note)(control)

    summary = run(config(sync), folder, control=control).summary
    assert [each["workers"] for each in scaled(folder)] == [4, 1]
    # A worker that joined is as far as its first iteration and what it has done since.
    far, done = seen
    assert far == [done[0], done[1], *(scaled(folder)[0]["first"] + each for each in done[2:])]
    assert summary["updates_lost"] == summary["restarts"] == 0
    entries = load_file(folder / "model.safetensors")
    for part in (-entries["first"], -entries["second"]):
        # In twelfths: a gradient counts 6 with two workers, 3 with four, 12 with one.
        twelfths = part * 12
        assert torch.allclose(twelfths, twelfths.round(), atol=1e-5)
        assert set(twelfths.round().int().unique().tolist()) >= {0, 3, 6, 12}
        # Workers ahead of the change used a few samples that others use again: staleness + 1 each.
        # Server 1 may have a push of the last worker that server 0 lacks when the run is stopped.
        used = int((part != 0).sum())
        assert -1 <= summary["gradients_applied"] - used <= 2 * 4 * 3


@linux
def test_a_process_that_dies_before_it_has_joined_changes_nothing(tmp_path):
    folder, runs, said = tmp_path / "run", [], []

    def kill() -> None:
        os.kill(runs[0].launcher.pids["worker-2"], signal.SIGKILL)

    def stop(control: RealControl) -> None:
        scaling(folder, 3, then=kill)(control)
        control.at(3.0, lambda: control._coordinator.end("the test has seen enough"))

    bsp = config({"kind": "bsp"})
    summary = run(bsp, folder, watch=runs.append, log=said.append, control=stop).summary
    assert said[0] == "3 workers: worker-2 will join"
    assert said[1] == "the number of workers stays 2: worker-2 was killed by SIGKILL"
    assert scaled(folder) == []
    assert summary["status"] == "complete"
    assert len(summary["iterations"]) == 2


@linux
def test_a_worker_that_has_joined_and_dies_is_replaced_and_a_checkpoint_has_all(tmp_path):
    folder, runs = tmp_path / "run", []

    def control(control: RealControl) -> None:
        scaling(folder, 3)(control)

        def look() -> None:
            if scaled(folder):
                os.kill(runs[0].launcher.pids["worker-2"], signal.SIGKILL)
            else:
                control.at(control._now() / 1e9 + 0.02, look)

        control.at(0.1, look)

    saved = config({"kind": "bsp"}, checkpoint={"every_s": 0.2})
    summary = run(saved, folder, watch=runs.append, control=control).summary
    assert summary["restarts"] == 1
    entries = load_file(folder / "model.safetensors")
    # They differ at most in the iteration in which the run was told to stop, and in one of which
    # the worker's push was on its way to one server when it died.
    differs = entries["first"] != entries["second"]
    assert int(differs.sum()) <= 3 * (1 + summary["updates_lost"])
    assert summary["updates_lost"] <= 1
    assert max((-entries["first"]).unique()) <= 0.5  # none counts twice


@pytest.mark.parametrize(
    ("sync", "workers", "words"),
    [
        ({"kind": "bsp"}, 0, "must be from 1 to 1000, not 0"),
        (ssptable(2), 3, "take steps of their own"),
        ({"kind": "cutoff", "model": "mean-5"}, 3, "counts on the workers at the start"),
        ({"kind": "drop-stragglers", "quorum": 2}, 1, "does not fit 1 worker: .*quorum"),
        ({"kind": "gossip"}, 3, "has no servers.*--workers 3 continues the run with 3 workers"),
    ],
)
def test_what_cannot_be_is_refused_and_the_run_goes_on(tmp_path, sync, workers, words):
    refused = []

    def control(control: RealControl) -> None:
        with pytest.raises(ConfigError, match=words) as error:
            control.scale(workers=workers)
        refused.append(str(error.value))

    made = config(sync, stop={"iterations": 5})
    if sync["kind"] == "gossip":
        del made["servers"]
    assert run(made, tmp_path / "run", control=control).summary["status"] == "complete"
    assert len(refused) == 1


@linux
def test_after_the_loss_of_a_server_all_begin_again_with_the_workers_of_the_configuration(tmp_path):
    folder, runs, killed = tmp_path / "run", [], []

    def control(control: RealControl) -> None:
        if killed:
            return
        scaling(folder, 3)(control)

        def look() -> None:
            if scaled(folder):
                killed.append(runs[-1].launcher.pids["server-1"])
                os.kill(killed[0], signal.SIGKILL)
            else:
                control.at(control._now() / 1e9 + 0.02, look)

        control.at(0.1, look)

    beside = {"checkpoint": {"every_s": 0.1}, "stop": {"iterations": 200}}
    ssp = config({"kind": "ssp", "staleness": 2}, **beside)
    summary = run(ssp, folder, watch=runs.append, control=control).summary
    assert killed
    assert (summary["status"], summary["restarts"]) == ("complete", 1)
    assert summary["iterations"][:2] == [200, 200]


@linux
@pytest.mark.slow
def test_a_lost_worker_that_is_given_up_takes_part_again_when_it_is_asked_for(tmp_path):
    """As on a cluster that has no room for its next process, and then has."""
    folder, runs = tmp_path / "run", []

    def control(control: RealControl) -> None:
        steps, due = ["kill", "give up", "ask", "end"], MORE

        def look() -> None:
            nonlocal due
            fastest, coordinator = max(control.summary()["iterations"]), control._coordinator
            view = coordinator.view()
            is_due = view.returning if steps[0] == "give up" else fastest >= due
            if steps[0] == "end" and not scaled(folder):
                is_due, due = False, fastest + MORE
            if is_due:
                match steps.pop(0):
                    case "kill":
                        coordinator.processes.start = lambda *_: None  # there is no room
                        os.kill(runs[0].launcher.pids["worker-1"], signal.SIGKILL)
                    case "give up":
                        coordinator.goes_without("worker-1")
                        assert coordinator.view().absent == ["worker-1"]
                        due = fastest + MORE
                    case "ask":
                        control.scale(workers=3)
                    case "end":
                        assert coordinator.view().absent == []
                        coordinator.end("the test has seen enough")
                        return
            control.at(control._now() / 1e9 + 0.02, look)

        control.at(0.1, look)

    three = config({"kind": "bsp"}, workers=3)
    summary = run(three, folder, watch=runs.append, control=control).summary
    assert summary["status"] == "complete"
    (again,) = scaled(folder)
    assert (again["before"], again["workers"]) == (3, 3)
    entries = load_file(folder / "model.safetensors")
    first = -entries["first"]
    assert bool(((first == 0) | ((first * 3).sub(1).abs() < 1e-6) | (first == 0.5)).all())
    of_two = int((first == 0.5).sum())
    assert of_two >= 2 * (MORE - 1)
    assert summary["iterations"][1] < min(summary["iterations"][0], summary["iterations"][2])
    assert summary["updates_lost"] <= 1
    assert summary["restarts"] == 0  # the process that was to take its place never ran
