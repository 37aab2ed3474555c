"""The number of functions that a push and pull of a script calls in real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.paths import SCRIPTS

from outpace.experiment.running import run

pytestmark = pytest.mark.slow
# Modules that carry messages between the script and the shard, and wait for them; without the
# script's gradient, the shard and the records.
ON_THE_WAY = ("real/", "kernel/", "sync/programs/", "sync/membership/")
LIMIT = 105  # reached on 2026-11-30; a slow worker also looks for messages


def fewest(folder: Path, role: str) -> set[str]:
    """Return the functions of a step in which nothing else was done, such as a report."""
    steps = json.loads((folder / f"{role}.json").read_text())[20:]  # the first steps make objects
    found = [{name for name in step if name.startswith(ON_THE_WAY)} for step in steps]
    return min(found, key=len)


def test_a_push_and_pull_of_a_script_passes_no_more_functions_than_it_did(tmp_path):
    script, policy = SCRIPTS / "counted_calls.py", SCRIPTS.parent / "counted_calls.py"
    sync = {
        "kind": "python",
        "target": f"{policy}:CountedAsp",
        "arguments": {"folder": str(tmp_path)},
    }
    run(
        {
            "task": {"kind": "script", "path": str(script), "arguments": [str(tmp_path), "80"]},
            "workers": 1,
            "servers": 1,
            "sync": sync,
            "probe": False,
            "stop": {"iterations": 1000},
        }
    )
    worker, server = fewest(tmp_path, "worker"), fewest(tmp_path, "server")
    assert len(worker) + len(server) <= LIMIT, sorted(worker | server)
