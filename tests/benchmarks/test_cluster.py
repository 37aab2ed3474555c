"""`python -m benchmarks.cluster`: each part for seconds, and the table in the README."""

from __future__ import annotations

import pytest
from benchmarks.cluster.__main__ import BENCHMARK


@pytest.mark.slow
def test_every_part_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert BENCHMARK.main(["--quick"]) in (0, 1)  # so short runs may miss goals
    printed = capsys.readouterr().out
    for what in (
        "| 2 workers and a server on Ray, beside an empty actor |",
        "| on Ray, BSP, 2 workers and a server, a model of 0.1 MB: iterations |",
        "| on Ray, BSP, 2 workers and a server, a model of 0.1 MB: time of ",
    ):
        assert what in printed
