"""`python -m benchmarks.gpu` where there is no GPU, and what it measures, tried on the CPU."""

from __future__ import annotations

import json
import runpy
import sys

import torch
from benchmarks.gpu import measuring
from benchmarks.gpu.__main__ import BENCHMARK
from benchmarks.parts import Benchmark
from benchmarks.rows import row


def test_without_a_gpu_it_ends_with_a_line_and_code_2(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert BENCHMARK.main(["--quick"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "benchmarks.gpu: there is no GPU that torch can use\n"


def test_the_script_writes_gradients_and_seconds_which_are_compared(tmp_path, monkeypatch):
    """In this process, without a run: two workers that compute the same."""

    def trained(out, settings, *_):
        monkeypatch.setattr(sys, "argv", [str(measuring.SCRIPT), str(tmp_path), *settings])
        runpy.run_path(str(measuring.SCRIPT), run_name="__main__")
        return torch.load(tmp_path / "0.pt")

    monkeypatch.setattr(measuring, "_alone", trained)
    monkeypatch.setattr(measuring, "_run", lambda *given: [trained(*given)] * 2)
    alone, shared = measuring.differences(tmp_path, "cpu", lambda _: None)
    assert (alone.median, shared.median, alone.goal) == (0.0, 0.0, 1e-6)
    assert shared.what == "largest difference of gradients, 2 workers, the first step"
    plain, *others = measuring.steps(tmp_path, "cpu", lambda _: None, 5, 16)
    assert plain.around == "extremes of 2"  # the first three are not measured
    assert [each.what for each in others][-1] == "the same, hpsgd, 2 workers"


def test_gradients_in_batches_are_compared():
    *speeds, apart = measuring.virtual("cpu", lambda _: None, 1)
    assert apart.met
    assert all(each.median > 0 for each in speeds)


def test_rows_are_written_as_json_with_what_they_depend_on(tmp_path):
    measured = row("steps", [2.0], unit="ms", goal=3.0)
    benchmark = Benchmark(
        "made up", "", ("all",), lambda *_: [measured], about=lambda: {"gpu": "none"}
    )
    assert benchmark.main(["--json", str(tmp_path / "rows.json")]) == 0
    written = json.loads((tmp_path / "rows.json").read_text())
    assert written["gpu"] == "none"
    assert written["parts"]["all"]["rows"] == [vars(measured)]
