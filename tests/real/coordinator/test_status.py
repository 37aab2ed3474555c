"""What the status of a run says."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from outpace.config.reading import experiment_from
from outpace.engine.status import StatusFile
from outpace.kernel import Kernel
from outpace.real.coordinator.run_state import Announcements
from outpace.real.coordinator.status import StatusOfRun
from outpace.record.event_log import EventLog
from outpace.record.totals import Totals


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_process_that_a_signal_has_stopped_is_what_the_run_waits_for(tmp_path):
    sleep = shutil.which("sleep")
    assert sleep is not None
    (tmp_path / "server-1").symlink_to(sleep)  # its name
    with subprocess.Popen([tmp_path / "server-1", "600"]) as server:
        try:
            joined = {"server-1": server.pid, "worker-0": os.getpid(), "worker-1": server.pid}
            assert waits(joined) == [
                "",
                "",
                "",
                "worker-0, worker-1 in iteration 7: nothing new for 3 s",
            ]
            server.send_signal(signal.SIGSTOP)
            os.waitpid(server.pid, os.WUNTRACED)
            # Not worker-1: a process with its number has another name, so it is on another machine.
            assert waits(joined) == ["", *["server-1, stopped by a signal"] * 3]
        finally:
            server.kill()


def test_a_lost_worker_whose_place_another_process_takes_is_what_the_run_waits_for():
    joined = dict.fromkeys(["server-1", "worker-0", "worker-1"], os.getpid())
    assert waits(joined, "worker-1") == ["worker-1 to come back"] * 4
    assert waits(joined, "worker-0", "worker-1") == ["worker-0, worker-1 to come back"] * 4


def waits(pids: dict[str, int], *lost: str) -> list[str]:
    """Return what is written in the first four seconds if no process sends a report.

    lost: workers whose places other processes take.
    """
    kernel, written = Kernel(), []
    names = [*pids]
    totals = {name: Totals() for name in names}
    whole = Totals(iterations={0: 7, 1: 3})
    joined = {name: SimpleNamespace(pid=pid) for name, pid in pids.items()}
    coordinator: Any = SimpleNamespace(
        kernel=kernel,
        clock=kernel,
        started=True,
        servers=names[:1],
        workers=names[1:],
        state=SimpleNamespace(
            joined=joined,
            table=SimpleNamespace(
                role=lambda name: SimpleNamespace(has_finished=False, is_coming_back=name in lost)
            ),
            announced=Announcements(kernel),
            totals=whole,
            totals_of=totals,
            reported_at=dict.fromkeys(names, 0),
            not_computed={0: 0, 1: 4},  # worker 1 was not there in the first four
            awaited=lambda names: names,
        ),
    )
    file: Any = SimpleNamespace(write=lambda *what: written.append(what[-1]), events=EventLog())
    status = StatusOfRun(file)
    status.attach(coordinator)

    async def for_a_while() -> None:
        await kernel.sleep(3.5)

    kernel.spawn(for_a_while(), "the test")
    kernel.run()
    return written


@pytest.mark.parametrize(
    ("stop", "share"),
    [
        ({"iterations": 100}, 0.25),
        ({"virtual_time_s": 20.0}, 0.25),
        ({"iterations": 100, "virtual_time_s": 10.0}, 0.5),
        ({"iterations": 10}, 1.0),
        ({"target_accuracy": 0.9}, None),
    ],
)
def test_the_share_done_is_known_if_iterations_or_time_have_a_limit(stop, share):
    experiment = experiment_from(
        {
            "task": {"kind": "digits-mlp"},
            "workers": 2,
            "sync": {"kind": "asp"},
            "evaluate": {"every_s": 1},
            "stop": stop,
        },
        "the test",
    )
    file = StatusFile(None, "run", experiment, EventLog())
    file.write("training", 5.0, Totals(iterations={0: 30, 1: 20}))
    assert file.latest is not None
    assert file.latest.share == share
