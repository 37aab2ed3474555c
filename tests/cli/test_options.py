"""Options that several commands have in common, and what the commands print."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator

import pytest
import typer
from tests.support.command import outpace, refused

from outpace.cli import app, output, processes
from outpace.errors import RunError
from outpace.record import folder as files
from outpace.support.processes import forking

CONFIG = """\
task: {kind: timing, parameters: 100}
workers: 4
compute: {kind: lognormal, mean_s: 1.0, cv: 0.3}
sync: {kind: bsp}
stop: {iterations: 2}
"""
COMPARISON = CONFIG + "seeds: 2\nvariants: [{name: a}, {name: b, sync: {kind: asp}}]\n"
ONE = ("all.yaml", "seeds=1", "variants=[{name: a}]")  # in this process
LAZY = "sync={kind: dsps, staleness: 1, buffer: lazy}"
COMMON = {"--workers", "--servers", "--seed", "--out", "--quiet", "--json"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "all.yaml").write_text(COMPARISON)
    (tmp_path / "all").mkdir()
    return tmp_path


def test_commands_that_run_something_have_the_same_options():
    commands = typer.main.get_command(app).commands
    for name in ("simulate", "compare", "run", "serve"):
        options = {option for each in commands[name].params for option in each.opts}
        assert options >= COMMON, name


def test_options_set_the_keys_of_the_same_names_and_overrides_win(here):
    options = ("--workers", "3", "--servers", "2", "--seed", "7", "workers=5")
    assert outpace("simulate", "config.yaml", *options, "--out", "run") == 0
    config = files.read_config(here / "run")
    assert (config["workers"], config["servers"], config["seed"]) == (5, 2, 7)


def test_json_is_the_summary_and_nothing_else(here, capfd):
    assert outpace("simulate", "config.yaml", "--json", "--out", "run") == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out) == files.read_summary(here / "run")
    assert printed.err == "report: run/report.html\n"


PRINTS = """\
import os, torch, outpace

def make():
    print("made")
    os.write(1, b"from below Python\\n")
    linear = torch.nn.Linear(1, 1)
    torch.nn.init.constant_(linear.weight, float("{weight}"))
    data = torch.ones(8, 1), torch.ones(8, 1)
    return outpace.Task(linear, torch.nn.functional.mse_loss, data)
"""


@pytest.mark.parametrize(("rate", "status"), [("0.1", "complete"), ("1e9", "failed")])
def test_with_json_what_a_task_prints_goes_to_standard_error(here, capfd, rate, status):
    (here / "mine.py").write_text(PRINTS.format(weight=0))
    task = ("task={kind: python, target: 'mine.py:make'}", "batch_size=8", f"optimizer.lr={rate}")
    code = outpace("simulate", "config.yaml", *task, "stop.iterations=20", "--json", "--out", "run")
    assert code == (status == "failed")
    printed = capfd.readouterr()
    assert json.loads(printed.out)["status"] == status
    assert "made\n" in printed.err
    assert "from below Python\n" in printed.err


def test_json_of_a_comparison_is_what_it_says_of_each_variant(here, capfd):
    assert outpace("compare", *ONE, "--seed", "5", "--json", "--out", "all") == 0
    (found,) = json.loads(capfd.readouterr().out)
    assert [found] == json.loads((here / "all" / files.COMPARISON).read_text())
    assert (found["accuracy"]["low"], found["distinguishable"]) == (None, None)  # of one seed
    assert files.read_config(here / "all" / "a")["seed"] == 5


def test_quiet_prints_warnings_only(here, capsys):
    assert outpace("simulate", "config.yaml", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert outpace("simulate", "config.yaml", "-q", LAZY) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("warning: sync.buffer: lazy holds a pull")
    assert err.count("\n") == 1


def test_an_experiment_without_variants_and_a_folder_are_not_compared(here, capsys):
    assert "outpace simulate config.yaml" in refused(capsys, "compare", "config.yaml")
    assert "all is a folder, not a YAML file" in refused(capsys, "compare", str(here / "all"))


def test_without_its_variants_a_comparison_is_one_run(here, capsys):
    assert "variants=[]" in refused(capsys, "simulate", "all.yaml")
    assert outpace("simulate", "all.yaml", "variants=[]", "--out", "run") == 0
    assert len(files.read_summary(here / "run")["iterations"]) == 4


@contextlib.contextmanager
def nothing_reads(monkeypatch: pytest.MonkeyPatch, stream: str) -> Iterator[None]:
    """Replace the stream by a pipe that nothing reads, as after `| head`."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, stream, pipe)
        yield
        pipe.flush()  # as the interpreter does at its end


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "config.yaml"),
        ("simulate", "config.yaml", "--json"),
        ("compare", *ONE),
        ("report", "run"),
        ("runtimes", "show", "run"),
        ("export", "run", "--perfetto"),
    ],
)
def test_a_command_whose_output_nothing_reads_ends_quietly(here, monkeypatch, capsys, command):
    assert outpace("simulate", "config.yaml", "-q", "--out", "run") == 0
    with nothing_reads(monkeypatch, "stdout"):
        assert outpace(*command) == 141
    lines = capsys.readouterr().err.splitlines()
    assert all(
        line.startswith(("a: complete", "report: runs/config/report.html")) for line in lines
    )
    if command[0] == "simulate":
        assert files.read_summary(here / "runs" / "config")["status"] == "complete"


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "all.yaml"),
        ("sweep", "config.yaml", "--over", "workers=2,3"),
        ("advise", "config.yaml", "--target-loss", "1"),
    ],
)
def test_the_fork_server_of_a_study_is_started_before_progress_bars(here, monkeypatch, command):
    """Progress bars have a thread, and a process with several threads cannot be copied."""
    order = []

    def bars(wanted):
        order.append("bars")
        raise RunError("enough")

    monkeypatch.setattr(processes, "_is_the_command", [True])
    monkeypatch.setattr(forking, "start_fork_server_as_copy", lambda _: order.append("server"))
    monkeypatch.setattr(output, "progress_bars", bars)
    assert outpace(*command) == 1
    assert order == ["server", "bars"]


def test_options_of_a_script_belong_behind_the_dashes(capsys):
    message = refused(capsys, "run", "train.py", "--epochs", "3", "--workers", "2")
    assert message == (
        "error: outpace run has no option --epochs; options of the script come after --: "
        "outpace run SCRIPT -- --epochs\n"
    )
    assert "no option --worker; did you mean --workers?" in refused(
        capsys, "run", "train.py", "--worker", "2"
    )
