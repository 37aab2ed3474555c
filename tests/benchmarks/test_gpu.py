"""`python -m benchmarks.gpu` where there is no GPU, and what it measures, tried on the CPU."""

from __future__ import annotations

import json

import pytest
import torch
from benchmarks.failures.rows import row
from benchmarks.gpu import measuring
from benchmarks.gpu.__main__ import BENCHMARK
from benchmarks.parts import Benchmark


def test_without_a_gpu_it_ends_with_a_line_and_code_2(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert BENCHMARK.main(["--quick"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "benchmarks.gpu: there is no GPU that torch can use\n"


@pytest.mark.slow
def test_gradients_are_compared_and_steps_are_timed(tmp_path):
    (shared,) = measuring.differences(tmp_path, "cpu", lambda _: None, [2])
    assert (shared.median, shared.goal) == (0.0, 1e-6)
    assert shared.what == "largest difference of gradients, 2 workers, the first step"
    timed = measuring._step_row("steps", [{"steps_s": [9.0, 9.0, 9.0, 0.001, 0.003]}])
    assert (timed.low, timed.high) == (1.0, 3.0)  # in ms, without the first three


def test_rows_are_written_as_json_with_what_they_depend_on(tmp_path):
    measured = row("steps", [2.0], unit="ms", goal=3.0)
    benchmark = Benchmark(
        "made up", "", ("all",), lambda *_: [measured], about=lambda: {"gpu": "none"}
    )
    assert benchmark.main(["--json", str(tmp_path / "rows.json")]) == 0
    written = json.loads((tmp_path / "rows.json").read_text())
    assert written["gpu"] == "none"
    assert written["parts"]["all"]["rows"] == [vars(measured)]
