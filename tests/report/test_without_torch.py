"""Reports are made from files alone: torch, which takes two seconds to import, is not needed."""

from __future__ import annotations

import shutil

from tests.cli.test_entry import imported


def test_a_report_and_an_export_of_a_run_do_not_import_torch(simulated, tmp_path):
    folder = shutil.copytree(simulated["cut-off"], tmp_path / "run")
    for command, made in (("report", "report.html"), ("export", "perfetto.pftrace.gz")):
        options = ["--perfetto"] if command == "export" else []
        code, modules = imported(command, *options, folder)
        assert code == 0
        assert "torch" not in modules
        assert (folder / made).exists()
