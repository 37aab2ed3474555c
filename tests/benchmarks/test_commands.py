"""`python -m benchmarks.NAME`: a part runs for some seconds and writes its measurements."""

from __future__ import annotations

import json

import pytest
from benchmarks.explain.__main__ import BENCHMARK as EXPLAIN
from benchmarks.fidelity.__main__ import main as fidelity
from benchmarks.micro.__main__ import BENCHMARK as MICRO
from benchmarks.parts import Benchmark
from benchmarks.rows import markdown, row
from tests.support.paths import ROOT


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'src'}")
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("main", "words"),
    [
        pytest.param(EXPLAIN.main, [], id="explain"),
        pytest.param(MICRO.main, ["kernel"], id="micro", marks=pytest.mark.slow),
        pytest.param(fidelity, ["a", "--mb", "0.1"], id="fidelity", marks=pytest.mark.slow),
    ],
)
def test_a_benchmark_measures_something(main, words, tmp_path, capsys):
    """Runs the short parts only, since the longer ones are tried when they are measured."""
    path = tmp_path / "found.json"
    assert main([*words, "--quick", "--json", str(path)]) in (0, 1)  # so short runs may miss goals
    if "left out: " in (said := capsys.readouterr().err):
        pytest.skip(said)
    assert json.loads(path.read_text("utf-8"))


def test_a_row_is_the_median_with_the_extremes_or_the_interval_of_the_mean():
    """By hand: the mean is 0.02, its deviation 0.01, and t(0.975; 2) = 4.303, over sqrt(3)."""
    each = row("cost", [0.03, 0.01, 0.02], unit="%", goal=0.03, around="95 %")
    assert (each.median, each.met) == (0.02, True)
    assert (each.low, each.high) == pytest.approx((-0.00484, 0.04484), abs=1e-5)
    missed = row("back", [2.0, 9.0, 4.0], unit="s", goal=3.0)
    assert (missed.low, missed.high, missed.met) == (2.0, 9.0, False)
    assert markdown([vars(missed)])[-1] == (
        "| back | 4 s | 2 s to 9 s (extremes of 3) | at most 3 s, **missed** |"
    )
    assert row("share", [0.96], unit="%", goal=0.95, at_least=True).met


def test_rows_are_written_as_json_with_what_they_depend_on(tmp_path, capsys):
    measured = row("steps", [2.0], unit="ms", goal=3.0)
    benchmark = Benchmark(
        "made up", "", ("all",), lambda *_: [measured], about=lambda: {"gpu": "none"}
    )
    assert benchmark.main(["--json", str(tmp_path / "rows.json")]) == 0
    written = json.loads((tmp_path / "rows.json").read_text())
    assert written["gpu"] == "none"
    assert written["parts"]["all"]["rows"] == [vars(measured)]
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(["nothing"])
    assert "parts are all" in capsys.readouterr().err
