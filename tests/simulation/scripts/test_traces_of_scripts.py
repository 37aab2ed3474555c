"""The times of events do not depend on whether a script or a task computes the gradients."""

from __future__ import annotations

import pytest
from tests.support.paths import SCRIPTS
from tests.support.runtimes import SYNCS, config

from outpace.experiment.running import simulate

PARAMETERS = 300  # of the script
SCRIPT = {"kind": "script", "path": str(SCRIPTS / "plain.py")}
OTHERS = {
    "cut-off": {"sync": {"kind": "cutoff", "model": "fixed", "share": 0.6}},
    "cut-off after a time-out": {
        "sync": {"kind": "cutoff", "model": "fixed", "share": 0.6, "timeout_s": 0.02}
    },
    "gossip": {"sync": {"kind": "gossip"}, "servers": 1},
    "diloco": {"sync": {"kind": "diloco", "every": 4}, "servers": 1},
}


@pytest.mark.parametrize("sync", ["bsp", "ssp", "partial-push", *OTHERS])
def test_a_script_has_the_trace_of_a_task_of_its_size(sync, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = config(sync) if sync in SYNCS else config("bsp") | OTHERS[sync]
    for key in ("batch_size", "evaluate"):  # a script has its own
        del base[key]
    task = simulate({**base, "task": {"kind": "timing", "parameters": PARAMETERS}})
    script = simulate({**base, "task": SCRIPT})
    assert script.summary["trace_digest"] == task.summary["trace_digest"]
    same = ("virtual_time_s", "iterations", "gradients_applied", "messages", "seconds")
    assert [script.summary[key] for key in same] == [task.summary[key] for key in same]
