"""Servers of real runs join and leave while the workers go on."""

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
from tests.kills.family import WORKERS, Family
from tests.support.saved_runs import give_up

from outpace import ConfigError, RunError, run, simulate
from outpace.real.control import RealControl
from outpace.record.checkpoints import Checkpoints
from outpace.record.event_log import LOG

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
BSP = {
    "task": {"kind": "quadratic", "eigenvalues": [0.5, 1.0, 2.0, 3.0, 1.5, 0.7], "noise": 0.1},
    "workers": 2,
    "servers": 2,
    "sync": {"kind": "bsp"},
    "deterministic": True,
    "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9},
    "probe": False,
    "compute": {"kind": "constant", "mean_s": 0.01},
    "stop": {"iterations": 250},
    "evaluate": {"every_updates": 50},
}


def scaling(
    folder: Path, *steps: int, then: Callable[[], None] = lambda: None
) -> Callable[[Any], None]:
    """Return a control function that scales to these numbers of servers, one after the other."""

    def control(control: RealControl) -> None:
        left = list(steps)

        def look() -> None:
            if len(divided(folder)) == len(steps) - len(left) and left:
                control.scale(servers=left.pop(0))
                if not left:
                    then()
            if left:
                control.at(control._now() / 1e9 + 0.02, look)

        control.at(0.1, look)

    return control


def divided(folder: Path) -> list[dict[str, Any]]:
    """The fields of the log's lines about new divisions."""
    return [line["fields"] for line in logged(folder) if line["event"] == "divided"]


def logged(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


@pytest.mark.parametrize("wire", ["full", "bf16"])
def test_bsp_with_servers_that_join_and_leave_ends_bitwise_as_without(tmp_path, wire):
    folder, config = tmp_path / "run", {**BSP, "sync": {"kind": "bsp", "wire": wire}}
    result = run(config, folder, control=scaling(folder, 3, 1))
    summary, undisturbed = result.summary, simulate(config)
    assert summary["parameters_digest"] == undisturbed.summary["parameters_digest"]
    assert summary["iterations"] == [250, 250]
    assert summary["gradients_applied"] == 500
    # The final parameters are evaluated in the order of the parameters, not of the servers.
    last, expected = (each.metrics["train_loss"].to_pylist()[-1] for each in (result, undisturbed))
    assert last == expected
    first, second = divided(folder)
    assert (first["servers"], second["servers"]) == (3, 1)
    # 6 parameters of 8 bytes: a third for the new server, then all but a third; momentum as well,
    # and the sum of an iteration to which one worker has pushed when the servers move.
    assert (first["moved_bytes"], second["moved_bytes"]) == (2 * 8, 4 * 8)
    assert first["sent_bytes"] in (2 * 16, 2 * 24)
    assert second["sent_bytes"] in (4 * 16, 4 * 24)


@pytest.mark.parametrize(
    "sync", [{"kind": "ssp", "staleness": 2}, {"kind": "asp"}], ids=["ssp", "asp"]
)
def test_relaxed_strategies_lose_no_gradient_and_count_none_twice(tmp_path, sync):
    folder, beside = tmp_path / "run", {"evaluate": {"every_updates": 50}, "checkpoint": None}
    config = Family(sync, beside=beside).config(120)
    summary = run(config, folder, control=scaling(folder, 4, 1, 2)).summary
    assert [each["servers"] for each in divided(folder)] == [4, 1, 2]
    entries = load_file(folder / "model.safetensors")
    found = torch.stack([entries["first"], entries["second"]]) * -WORKERS
    assert found.round(decimals=3).eq(1).all()
    assert summary["updates_lost"] == summary["restarts"] == 0


@linux
def test_a_server_that_dies_before_it_has_joined_is_dropped(tmp_path):
    folder, runs, said = tmp_path / "run", [], []

    def kill() -> None:
        os.kill(runs[0].launcher.pids["server-2"], signal.SIGKILL)

    summary = run(
        BSP, folder, watch=runs.append, log=said.append, control=scaling(folder, 3, then=kill)
    ).summary
    assert said[0] == "3 servers: server-2 will join"
    assert "the number of servers stays 2: server-2 was killed by SIGKILL" in said
    assert divided(folder) == []
    assert summary["status"] == "complete"
    digest = simulate(BSP).summary["parameters_digest"]
    assert summary["parameters_digest"] == digest


@linux
def test_after_the_loss_of_a_server_that_has_joined_all_begin_again_from_a_checkpoint(tmp_path):
    folder, runs = tmp_path / "run", []
    killed: list[int] = []

    def control(control: RealControl) -> None:
        if not killed:
            scaling(folder, 3)(control)

        def look() -> None:
            if not divided(folder) or saved_servers(folder) != 3:
                control.at(control._now() / 1e9 + 0.02, look)
            elif not killed:
                killed.append(runs[-1].launcher.pids["server-2"])
                os.kill(killed[0], signal.SIGKILL)

        control.at(0.1, look)

    saved = {**BSP, "checkpoint": {"every_s": 0.2}, "stop": {"iterations": 160}}
    summary = run(saved, folder, watch=runs.append, control=control).summary
    assert killed
    assert summary["restarts"] == 1
    undisturbed = simulate({**BSP, "stop": {"iterations": 160}})
    assert summary["parameters_digest"] == undisturbed.summary["parameters_digest"]


def saved_servers(folder: Path) -> int:
    """The servers in the newest checkpoint."""
    newest = Checkpoints(folder).newest()
    return 0 if newest is None else len(newest.index.shards)


def test_a_run_whose_servers_have_moved_is_resumed_with_any_number_of_them(tmp_path):
    folder = tmp_path / "run"

    def control(control: RealControl) -> None:
        scaling(folder, 3)(control)

        def look() -> None:
            if saved_servers(folder) == 3:
                give_up()
            control.at(control._now() / 1e9 + 0.02, look)

        control.at(0.1, look)

    saved = {**BSP, "checkpoint": {"every_s": 0.2}, "stop": {"iterations": 160}}
    with pytest.raises(RunError, match="that is enough"):
        run(saved, folder, control=control)
    newest = Checkpoints(folder).newest()
    assert newest is not None
    assert [len(part) for part in newest.index.owned] == [1, 1, 2]
    summary = run(resume=folder, servers=2).summary
    undisturbed = simulate({**BSP, "stop": {"iterations": 160}})
    assert summary["parameters_digest"] == undisturbed.summary["parameters_digest"]


@linux
def test_a_worker_that_has_come_back_goes_over_with_the_others(tmp_path):
    folder, runs = tmp_path / "run", []

    def control(control: RealControl) -> None:
        os.kill(runs[0].launcher.pids["worker-1"], signal.SIGKILL)

        def look() -> None:
            if any(line["event"] == "restarted" for line in logged(folder)):
                scaling(folder, 3)(control)
            else:
                control.at(control._now() / 1e9 + 0.02, look)

        control.at(0.1, look)

    summary = run(BSP, folder, watch=runs.append, control=control).summary
    assert [each["servers"] for each in divided(folder)] == [3]
    assert summary["restarts"] == 1
    assert summary["parameters_digest"] == simulate(BSP).summary["parameters_digest"]


@linux
def test_a_worker_that_dies_after_servers_have_moved_comes_back(tmp_path):
    folder, runs, killed = tmp_path / "run", [], []

    def control(control: RealControl) -> None:
        scaling(folder, 3, 1)(control)

        def look() -> None:
            if len(divided(folder)) == 2:
                killed.append(os.kill(runs[0].launcher.pids["worker-0"], signal.SIGKILL))
            else:
                control.at(control._now() / 1e9 + 0.02, look)

        control.at(0.1, look)

    summary = run(BSP, folder, watch=runs.append, control=control).summary
    assert killed
    assert summary["restarts"] == 1
    assert summary["iterations"] == [250, 250]
    assert summary["parameters_digest"] == simulate(BSP).summary["parameters_digest"]


@linux
def test_the_loss_of_a_server_that_has_joined_is_said(tmp_path):
    folder, runs = tmp_path / "run", []

    def control(control: RealControl) -> None:
        scaling(folder, 3)(control)

        def look() -> None:
            if divided(folder):
                os.kill(runs[0].launcher.pids["server-2"], signal.SIGKILL)
            else:
                control.at(control._now() / 1e9 + 0.02, look)

        control.at(0.1, look)

    with pytest.raises(RunError, match="server-2 was killed by SIGKILL"):
        run(BSP, folder, watch=runs.append, control=control)


@pytest.mark.parametrize(
    ("changes", "servers", "why"),
    [
        ({"stop": {"iterations": 3}}, 0, "must be from 1 to 1000, not 0"),
        ({"slicing": "layers", "servers": 1}, 3, "set slicing: even"),
        ({"stop": {"iterations": 3}}, 7, "7 servers cannot share 6 parameters"),
    ],
)
def test_a_number_of_servers_that_cannot_be_is_refused(tmp_path, changes, servers, why):
    found: list[str] = []

    def control(control: RealControl) -> None:
        with pytest.raises(ConfigError, match=why) as error:
            control.scale(servers=servers)
        found.append(str(error.value))

    run({**BSP, "stop": {"iterations": 3}, **changes}, tmp_path / "run", control=control)
    assert len(found) == 1
