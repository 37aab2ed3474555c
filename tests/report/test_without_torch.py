"""Reports are made from files alone: torch, which takes two seconds to import, is not needed."""

from __future__ import annotations

import shutil
import subprocess
import sys

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


def test_a_report_and_an_export_of_a_run_do_not_import_torch(simulated, tmp_path):
    folder = shutil.copytree(simulated["cut-off"], tmp_path / "run")
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
