"""`python -m benchmarks.explain`: each part for seconds, and the table in the README."""

from __future__ import annotations

import pytest
from benchmarks.explain.__main__ import BENCHMARK


def test_every_part_that_needs_no_processes_runs(capsys):
    assert BENCHMARK.main(["names", "servers", "speed", "--quick"]) in (
        0,
        1,
    )  # so few clusters may miss goals
    printed = capsys.readouterr().out
    assert "| all of these | 100.00 % |" in printed
    assert "| a server, 3 times as slow | 1 | 1 | 0 | 0 |  |" in printed
    assert "| 4 | " in printed


@pytest.mark.slow
def test_a_promise_is_compared_with_a_real_rerun(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert BENCHMARK.main(["repairs", "--quick"]) in (0, 1)  # so short a run may miss the goal
    assert "worker 1 steady" in capsys.readouterr().out
