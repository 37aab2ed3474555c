"""The content of the status of a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.kernels import run_for

from outpace.config.reading import experiment_from
from outpace.engine.status import StatusFile
from outpace.kernel import Kernel
from outpace.real.coordinator.run_state import Announcements
from outpace.real.coordinator.status import StatusOfRun
from outpace.record.event_log import EventLog
from outpace.record.totals import Totals


def test_workers_that_are_behind_and_silent_are_what_the_run_waits_for():
    assert waits() == ["", "", "", "worker-0, worker-1 in iteration 7: nothing new for 3 s"]


def test_a_lost_worker_whose_place_another_process_takes_is_what_the_run_waits_for():
    assert waits("worker-1") == ["worker-1 to come back"] * 4
    assert waits("worker-0", "worker-1") == ["worker-0, worker-1 to come back"] * 4


def waits(*lost: str) -> list[str]:
    """Return the status files of the first four seconds if no process sends a report.

    lost: workers whose places other processes take.
    """
    kernel, written = Kernel(), []
    names = ["server-1", "worker-0", "worker-1"]
    totals = {name: Totals() for name in names}
    whole = Totals(iterations={0: 7, 1: 3})
    coordinator: Any = SimpleNamespace(
        kernel=kernel,
        clock=kernel,
        started=True,
        servers=names[:1],
        workers=names[1:],
        state=SimpleNamespace(
            joined=names,
            table=SimpleNamespace(
                role=lambda name: SimpleNamespace(has_finished=False, is_coming_back=name in lost)
            ),
            announced=Announcements(kernel),
            totals=whole,
            totals_of=totals,
            reported_at=dict.fromkeys(names, 0),
            not_computed={0: 0, 1: 4},  # worker 1 did not exist in the first four iterations
            awaited=lambda names: names,
        ),
    )
    file: Any = SimpleNamespace(write=lambda *what: written.append(what[-1]), events=EventLog())
    status = StatusOfRun(file)
    status.attach(coordinator)

    run_for(kernel, 3.5)
    return written


@pytest.mark.parametrize(
    ("stop", "share"),
    [
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
