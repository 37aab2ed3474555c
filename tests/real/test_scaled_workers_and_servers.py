"""Workers and servers of one real run join and leave, in any order."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.real.test_moving_servers import divided, saved_servers
from tests.real.test_scaled_workers import config, scaled

from outpace import ConfigError, run
from outpace.real.control import RealControl

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
MORE = 10  # iterations between two changes
SLOW = {"compute": {"kind": "constant", "mean_s": 0.02}}


def changing(
    folder: Path,
    *steps: dict[str, int],
    at_end: Callable[[RealControl], None],
    more: int = MORE,
) -> Callable[[RealControl], None]:
    """Return a control function that makes these changes, one after the other.

    It calls `at_end` when some iterations have been done after the last one. more: how many.
    """

    def control(control: RealControl) -> None:
        left, due, expected = list(steps), 0, 0

        def look() -> None:
            nonlocal due, expected
            fastest = max(control.summary()["iterations"])
            if len(scaled(folder)) + len(divided(folder)) == expected:
                due = due or fastest + more
                if fastest >= due and not left:
                    at_end(control)
                    return
                if fastest >= due:
                    due, step = 0, left.pop(0)
                    expected += len(step)
                    control.scale(**step)
            control.at(control._now() / 1e9 + 0.02, look)

        control.at(0.1, look)

    return control


def stop(control: RealControl) -> None:
    control._coordinator.end("the test has seen enough")


def test_bsp_uses_each_sample_once_while_workers_and_servers_join_and_leave(tmp_path):
    folder = tmp_path / "run"
    steps: list[dict[str, int]] = [
        {"workers": 3, "servers": 3},  # a server, and then a worker which is told of it
        {"servers": 4},  # a server that must know of worker 2
        {"workers": 2, "servers": 1},
    ]
    control = changing(folder, *steps, at_end=stop)
    summary = run(config({"kind": "bsp"}, **SLOW), folder, control=control).summary
    assert summary["updates_lost"] == summary["restarts"] == 0
    assert [each["servers"] for each in divided(folder)] == [3, 4, 1]
    up, down = scaled(folder)
    assert [up["workers"], down["workers"]] == [3, 2]
    entries = load_file(folder / "model.safetensors")
    first, second = -entries["first"], -entries["second"]
    assert torch.equal(first, second)  # all servers have the same gradients
    of_two, of_three = (int(((first * n).sub(1).abs() < 1e-6).sum()) for n in (2, 3))
    assert of_three == 3 * (down["first"] - up["first"])
    assert int((first != 0).sum()) == of_two + of_three == summary["gradients_applied"]
    assert summary["iterations"][2] == down["first"] - up["first"]


@linux
def test_after_both_changes_a_lost_worker_comes_back_alone_and_a_lost_server_with_all(tmp_path):
    folder, runs, killed = tmp_path / "run", [], []

    def kill(name: str) -> None:
        killed.append(name)
        os.kill(runs[-1].launcher.pids[name], signal.SIGKILL)

    def then(control: RealControl) -> None:
        kill("worker-2")

        def look() -> None:
            restarts = runs[-1].recovery().restarts
            if restarts == 1 and saved_servers(folder) == 3:
                kill("server-2")
            else:
                control.at(control._now() / 1e9 + 0.02, look)

        look()

    def control(control: RealControl) -> None:
        if not killed:
            changing(folder, {"workers": 3, "servers": 3}, at_end=then)(control)
        else:
            control.at(control._now() / 1e9 + 0.5, lambda: stop(control))

    saved = config({"kind": "bsp"}, checkpoint={"every_s": 0.2}, **SLOW)
    summary = run(saved, folder, watch=runs.append, control=control).summary
    assert killed == ["worker-2", "server-2"]
    assert summary["restarts"] == 2
    entries = load_file(folder / "model.safetensors")
    assert torch.equal(entries["first"], entries["second"])


def test_if_one_of_both_numbers_cannot_be_nothing_is_changed(tmp_path):
    refused: list[str] = []

    def control(control: RealControl) -> None:
        for servers, workers in ((2000, 3), (3, 2000)):
            with pytest.raises(ConfigError) as error:
                control.scale(servers=servers, workers=workers)
            refused.append(str(error.value))

    folder: Any = tmp_path / "run"
    made = config({"kind": "bsp"}, stop={"iterations": 20})
    assert run(made, folder, control=control).summary["status"] == "complete"
    assert refused == [
        "servers: must be from 1 to 1000, not 2000",
        "workers: must be from 1 to 1000, not 2000",
    ]
    assert scaled(folder) == divided(folder) == []
