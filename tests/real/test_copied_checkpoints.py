"""Real runs whose processes do not see the folder of the run: checkpoints are copied."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.real.test_survival import SAVED, uninterrupted
from tests.support.saved_runs import give_up, numbers, once_saved

from outpace import RunError, run
from outpace.engine.control import Control
from outpace.real.process.launcher import Role
from outpace.real.process.local import LocalLauncher
from outpace.record.checkpoints import Checkpoints

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes"),
]


class Elsewhere(LocalLauncher):
    """Starts processes that do not find a folder of which they are told."""

    def start(self, role: Role) -> None:
        hidden = (Path("/nowhere") if isinstance(x, Path) else x for x in role.arguments)
        super().start(replace(role, arguments=tuple(hidden)))


ELSEWHERE: dict[str, Any] = {"launcher": Elsewhere, "copies": True}


def test_bsp_is_bitwise_the_same_after_the_loss_of_a_server_and_after_a_resume(tmp_path):
    folder, runs = tmp_path / "run", []

    def kill() -> None:
        os.kill(runs[0].launcher.pids["server-1"], signal.SIGKILL)

    killed = once_saved(folder, kill, number=2)

    def control(given: Control) -> None:
        if len(runs) == 1:
            killed(given)
        else:  # all processes have begun again; stop after the next checkpoint
            newest = max(int(name) for name in numbers(folder) if name.isdigit())
            once_saved(folder, give_up, number=newest + 1)(given)

    with pytest.raises(RunError, match="that is enough"):
        run(SAVED, folder, **ELSEWHERE, watch=runs.append, control=control)
    assert len(runs) == 2  # all processes began again
    assert all(name.isdigit() for name in numbers(folder))  # none is half-written
    newest = Checkpoints(folder).newest()
    assert newest is not None
    newest.check()
    summary = run(resume=folder, **ELSEWHERE).summary
    assert summary["resumed_from"] == newest.name
    assert (summary["restarts"], summary["updates_lost"]) == (1, 0)
    assert summary["parameters_digest"] == uninterrupted()
