"""`python -m benchmarks.explain`: each part for seconds, and the table in the README."""

from __future__ import annotations

from benchmarks.explain.__main__ import BENCHMARK


def test_every_part_runs(capsys):
    assert BENCHMARK.main(["--quick"]) in (0, 1)  # so few clusters may miss goals
    printed = capsys.readouterr().out
    assert "| all of these | 100.00 % |" in printed
    assert "| a server, 3 times as slow | 1 | 1 | 0 | 0 |  |" in printed
