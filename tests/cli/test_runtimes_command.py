"""`outpace runtimes`: its files and output, its refusals and their messages."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.command import outpace, refused
from tests.support.reports.run_folders import Page
from tests.support.tables import table

from outpace.experiment.running import simulate
from outpace.predict.models import MODELS, Kind, load
from outpace.predict.recorded import read, write

CONFIG = {
    "task": {"kind": "timing", "parameters": 10},
    "workers": 3,
    "compute": {"kind": "lognormal", "mean_s": 1.0, "cv": 0.3},
    "sync": {"kind": "bsp"},
    "stop": {"iterations": 5},
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(table([[1.0, 2.0], [3.0, 4.0]], node=[0, 1]), tmp_path / "times.parquet")
    return tmp_path


def test_convert_writes_the_table_and_says_what_its_times_are(here, capsys):
    simulate(CONFIG, here / "run")
    assert outpace("runtimes", "convert", "run", "-o", "a.parquet", "--workers-per-node", "2") == 0
    said = capsys.readouterr().out
    assert "a.parquet: 3 workers, 5 iterations; times: from the start of an iteration" in said
    assert read(here / "a.parquet").node.tolist() == [0, 0, 1]
    assert outpace("runtimes", "convert", "run", "--of", "compute", "-o", "b.parquet") == 0
    assert "times: computing alone" in capsys.readouterr().out


def test_show_says_the_main_numbers_and_writes_a_page(here, capsys):
    times = np.ones((10, 20))
    times[:, 19], times[::2, 3] = 4.0, 2.0
    write(table(times, node=np.arange(20) // 10), here / "times.parquet")
    assert outpace("runtimes", "show", "times.parquet", "-o", "page.html") == 0
    text = capsys.readouterr().out
    lines = dict(line.split("  ", 1) for line in text.splitlines() if "  " in line)
    said = {name: value.strip() for name, value in lines.items()}
    assert said["Workers"] == "20"
    assert said["Iterations"] == "10"
    assert said["Median"] == "1.00 s"
    assert said["Best count"] == "18"  # 18 / 1 s each time
    assert said["Gain"] == "260 %"  # over 20 / 4 s
    page = Page(here / "page.html")
    assert page.figures.keys() == {"figure-throughput"}
    assert "Waiting for 18 of 20 workers would give 260 % more gradients per second" in page.text
    assert "Worker 19 was slow most often, in 100 % of the iterations" in page.text


def test_show_overwrites_no_file_of_ones_own(here, capsys):
    (here / "runtimes.html").write_text("mine")
    message = refused(capsys, "runtimes", "show", "times.parquet")
    assert "runtimes.html exists and is not a page of Outpace" in message
    assert (here / "runtimes.html").read_text() == "mine"


def test_fit_writes_a_model_that_can_be_loaded(here, capsys, monkeypatch):
    monkeypatch.setitem(MODELS, "stand-in", Kind("tests.support.stand_in", "StandIn"))
    twice = ("times.parquet", "times.parquet", "--model", "stand-in", "--seed", "7")
    assert outpace("runtimes", "fit", *twice, "-o", "m.safetensors") == 0
    assert "m.safetensors: stand-in, fitted to 4 iterations in " in capsys.readouterr().out
    found = load(here / "m.safetensors")
    assert (found.mean.item(), found.seed) == (2.5, 7)


def test_what_cannot_be_fitted_is_refused_and_nothing_is_written(here, capsys, monkeypatch):
    monkeypatch.setitem(MODELS, "stand-in", Kind("tests.support.stand_in", "StandIn"))
    write(table([[1.0]]), here / "short.parquet")
    fit = ("runtimes", "fit", "-o", "m.safetensors", "--model")
    assert "short.parquet: 1 iteration is too few" in refused(
        capsys, *fit, "stand-in", "short.parquet"
    )
    assert "Did you mean 'pooled'?" in refused(capsys, *fit, "poold", "times.parquet")
    wrong = ("runtimes", "fit", "times.parquet", "--model", "stand-in", "-o", "m.parquet")
    assert "models are written as .safetensors" in refused(capsys, *wrong)
    nowhere = ("runtimes", "fit", "short.parquet", "--model", "stand-in", "-o", "no/m.safetensors")
    assert "there is no folder no" in refused(capsys, *nowhere)
    assert "--seed" in refused(capsys, *fit, "stand-in", "times.parquet", "--seed", "-1")
    simulate(CONFIG, here / "run")
    mixed = refused(capsys, *fit, "stand-in", "run", "times.parquet")
    assert "the sources have different kinds of times" in mixed
    assert not (here / "m.safetensors").exists()


def test_bad_sources_are_refused_and_nothing_is_written(here, capsys):
    (here / "times.csv").write_text("worker,iteration,seconds\n0,0,1\n1,0,nan\n")
    message = refused(capsys, "runtimes", "convert", "times.csv", "-o", "a.parquet")
    assert "worker 1, iteration 0 has no time" in message
    message = refused(capsys, "runtimes", "show", "times.parquet", "--of", "computing")
    assert "--of computing: must be server or compute. Did you mean 'compute'?" in message
    (here / "empty").mkdir()
    message = refused(capsys, "runtimes", "show", "empty")
    assert "there are no run times in it" in message
    message = refused(capsys, "runtimes", "convert", "times.parquet", "-o", "a.csv")
    assert "run times are written as .parquet" in message
    assert {path.name for path in here.iterdir()} == {"times.csv", "times.parquet", "empty"}


@pytest.mark.slow
def test_replay_compares_the_decisions_of_a_fitted_model_with_rules_without_one(here, capsys):
    random = np.random.default_rng(0)
    slow = np.repeat(random.random((30, 2)) < 0.3, 4, axis=1)
    seconds = np.where(slow, 3.0, 1.0) * random.lognormal(0, 0.05, (30, 8))
    write(table(seconds, node=np.arange(8) // 4), here / "times.parquet")
    fit = "runtimes", "fit", "times.parquet", "--model", "pooled", "-o", "pooled.safetensors"
    assert outpace(*fit) == 0
    capsys.readouterr()
    assert outpace("runtimes", "replay", "times.parquet", "--file", "pooled.safetensors") == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line[:15].strip(): line[15:].split() for line in lines[1:-2]}
    assert list(rows)[-4:] == [f"pooled {how}" for how in ("count", "deadline", "replan", "hedge")]
    assert "last-20" in rows
    assert float(rows["all"][2]) == 1.0  # times BSP
    assert float(rows["all"][3]) == 8.0  # mean count
    assert all(0 < float(cells[0]) <= 100 for cells in rows.values())
    assert "8 workers, 10 iterations after 20 that wait for all" in lines[-2]
