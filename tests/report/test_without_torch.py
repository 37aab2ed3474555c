"""Reports are made from files alone: torch, which takes two seconds to import, is not needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import outpace

COMMANDS = """
import sys
from outpace.__main__ import main

for arguments in {commands!r}:
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, arguments
print("torch" in sys.modules)
"""


@pytest.fixture(params=["cutoff", "asp", "gossip"])
def folder(request, tmp_path):
    options = {"model": "fixed", "share": 0.7, "warmup": 1} if request.param == "cutoff" else {}
    outpace.simulate(
        {
            "task": {"kind": "timing", "parameters": 100},
            "workers": 3,
            "sync": {"kind": request.param, **options},
            "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.5},
            "stop": {"iterations": 12},
        },
        out=tmp_path / "run",
    )
    return tmp_path / "run"


def test_a_report_and_an_export_of_a_run_do_not_import_torch(folder):
    commands = [["report", str(folder)], ["export", "--perfetto", str(folder)]]
    ended = subprocess.run(
        [sys.executable, "-c", COMMANDS.format(commands=commands)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "False"
    assert (folder / "report.html").stat().st_size > 100_000
    assert (folder / "perfetto.pftrace.gz").exists()
