"""The command line: its output, its refusals and their messages."""

from __future__ import annotations

import html
import json
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file
from tests.support.command import outpace, refused

from outpace.record import folder as files

CONFIG = """\
seed: 0
task: {kind: digits-mlp}
workers: 4
servers: 2
compute: {kind: lognormal, mean_s: 0.1, cv: 0.1, worker_cv: 0.05}
network: {latency_s: 0.001, bandwidth_bytes_per_s: 1.25e8, contention: serialised}
sync: {kind: ssp, staleness: 3, buffer: lazy}
optimizer: {kind: sgd, lr: 0.1, momentum: 0.0}
batch_size: 8
evaluate: {every_updates: 50}
stop: {iterations: 20}
"""
FIELDS = {
    "status",
    "virtual_time_s",
    "iterations",
    "gradients_applied",
    "gradients_dropped",
    "delayed_pulls",
    "staleness",
    "seconds",
    "messages",
    "bytes_sent",
    "restarts",
    "updates_lost",
    "resumed_from",
    "train_loss",
    "accuracy",
    "time_to_target_s",
    "parameters_digest",
    "trace_digest",
    "simulated_in_s",
}

# Nine lists of ten, and thirty mappings that each contain the one before twice.
BOMB = "a0: &a0 [1]\n" + "".join(
    f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]\n" for n in range(8)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n + 1}: &a{n + 1} {{<<: [*a{n}, *a{n}], y{n}: 1}}\n" for n in range(30)
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def test_a_run_leaves_a_complete_folder(here, capsys):
    assert outpace("simulate", "config.yaml", "--out", "run") == 0
    assert "report: run/report.html" in capsys.readouterr().out
    run = here / "run"
    assert {path.name for path in run.iterdir()} == {
        files.CONFIG,
        files.SUMMARY,
        files.METRICS,
        files.TRACE,
        files.MODEL,
        files.LOG,
        files.REPORT,
    }
    summary = json.loads((run / files.SUMMARY).read_text())
    assert summary.keys() >= FIELDS
    assert summary["status"] == "complete"
    assert summary["staleness"].keys() == {"mean", "max", "histogram"}
    assert summary["seconds"].keys() == {"compute", "communicate", "wait"}
    assert summary["gradients_applied"] == 80
    assert pq.read_table(run / files.METRICS).num_rows == 1 + 80 // 50 + 1
    assert load_file(run / files.MODEL)["1.weight"].shape == (64, 64)


def test_without_out_runs_are_numbered(here):
    for _ in range(2):
        assert outpace("simulate", "config.yaml", "stop.iterations=1") == 0
    assert sorted(p.name for p in (here / "runs").iterdir()) == ["config", "config-2"]


def test_overrides_apply_together_and_a_kind_resets_its_mapping(here):
    overrides = ("sync.staleness=1", "sync.kind=ssp", "compute.mean_s=1e-1", "compute.kind=normal")
    assert outpace("simulate", "config.yaml", *overrides, "--out", "run") == 0
    config = files.read_config(here / "run")
    assert config["sync"]["staleness"] == 1
    assert config["compute"]["kind"] == "normal"
    assert config["compute"]["worker_cv"] == 0


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["workers"], "must have the form key=value"),
        (["servers=5000"], "5000 servers cannot share 4810 parameters"),
        (["variants=[{name: a}]"], "use outpace compare"),
        (["task={kind: digits-mlp, x: " + "[" * 1100 + "]" * 1100 + "}"], "too deeply"),
    ],
)
def test_bad_input_is_refused_in_words_and_leaves_nothing(here, capsys, overrides, words):
    message = refused(capsys, "simulate", "config.yaml", *overrides, "--out", "run")
    assert words in message
    assert message.startswith("error: ")
    assert not (here / "run").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workers: [1", "line 1"),
        ("workers: 1\nworkers: 2\n", "duplicate"),
        ("- a\n- b\n", "must hold a mapping"),
        ("", "must hold a mapping"),
        ("workers: \t1\n  x: 2", "line"),
        ("task: {kind: timing}\nsync: &s {kind: bsp, x: *s}", "would become endless"),
        (BOMB, "by its value, 484 characters would become endless, or far too many: write out"),
        (MERGES, "every alias (*name) replaced by its value"),
    ],
)
def test_unreadable_yaml_is_refused_with_its_line(here, capsys, text, words):
    Path("broken.yaml").write_text(text)
    message = refused(capsys, "simulate", "broken.yaml")
    assert words in message
    assert "broken.yaml" in message


def test_a_missing_file_and_a_used_folder_are_refused(here, capsys):
    assert "there is no file nowhere.yaml" in refused(capsys, "simulate", "nowhere.yaml")
    (here / "used").mkdir()
    (here / "used" / "precious").write_text("x")
    message = refused(capsys, "simulate", "config.yaml", "--out", "used")
    assert "used exists and is not an empty folder" in message
    assert [p.name for p in (here / "used").iterdir()] == ["precious"]


TASKS = """\
import torch
from outpace import Task

def fine(scale=1.0):
    x = torch.randn(64, 3)
    return Task(torch.nn.Linear(3, 2), torch.nn.functional.cross_entropy, (x, (x[:, 0] > 0).long()))

def raises_later():
    calls = []
    def loss(output, target):
        calls.append(1)
        if len(calls) > 6:
            raise ZeroDivisionError("on purpose")
        return torch.nn.functional.cross_entropy(output, target)
    task = fine()
    return Task(task.model, loss, task.train)

def explodes():
    task = fine()
    return Task(task.model, lambda o, t: (o ** 2).sum() * 1e3, task.train)
"""


def test_what_cannot_start_in_a_comparison_is_found_before_the_first_run(here, capsys):
    variants = "variants=[{name: a}, {name: b, servers: 5000}]"
    message = refused(capsys, "compare", "config.yaml", variants, "--out", "all")
    assert "variant b: servers: 5000 servers cannot share" in message
    assert not (here / "all").exists()


def failed(here, capsys, *arguments: str) -> tuple[str, dict]:
    assert outpace("simulate", "config.yaml", *arguments, "--out", "run") == 1
    message = capsys.readouterr().err
    assert "Traceback" not in message
    assert not list((here / "run").glob("*.part"))
    assert (here / "run" / files.REPORT).exists()
    return message, files.read_summary(here / "run")


def test_a_task_that_raises_fails_the_run_and_leaves_a_valid_folder(here, capsys):
    (here / "my_task.py").write_text(TASKS)
    target = "task={kind: python, target: 'my_task.py:raises_later'}"
    message, summary = failed(here, capsys, target)
    assert "ZeroDivisionError: on purpose" in message
    assert "my_task.py, line 13" in message
    assert "iteration" in message
    assert "of virtual time" in message
    assert summary["status"] == "failed"
    assert summary["error"] in message
    assert summary["gradients_applied"] == 5, "the first loss was that of the evaluation at 0 s"
    assert pq.read_table(here / "run" / files.TRACE).num_rows > 0


def test_in_a_comparison_a_run_that_diverges_is_a_row_and_the_others_go_on(here, capsys):
    (here / "my_task.py").write_text(TASKS)
    with Path("config.yaml").open("a") as config:
        config.write(
            "variants:\n"
            "- {name: bad, task: {kind: python, target: 'my_task.py:explodes'},"
            " optimizer: {lr: 1e6}}\n"
            "- {name: good, sync: {kind: bsp}}\n"
        )
    assert outpace("compare", "config.yaml", "--out", "all") == 1
    printed = capsys.readouterr()
    assert "bad failed: " in printed.err
    # Where there is no terminal for progress bars, a line about each run that has ended.
    lines = [line.split(": ") for line in printed.err.splitlines() if " of 2)" in line]
    assert sorted(name for name, _ in lines) == ["bad", "good"]
    assert sorted(line.rpartition(" (")[2] for _, line in lines) == ["1 of 2)", "2 of 2)"]
    assert "report: all/report.html" in printed.out
    assert files.read_summary(here / "all" / "bad")["status"] == "failed"
    assert files.read_summary(here / "all" / "good")["status"] == "complete"
    error = files.read_summary(here / "all" / "bad")["error"]
    assert "try a smaller learning rate" in error
    assert error in html.unescape((here / "all" / files.REPORT).read_text())


def test_variants_replace_mappings_with_a_kind_and_merge_others(here):
    with Path("config.yaml").open("a") as config:
        config.write(
            "variants:\n"
            "- {name: BSP, sync: {kind: bsp}}\n"
            "- {name: short, stop: {virtual_time_s: 0.5}}\n"
        )
    assert outpace("compare", "config.yaml", "stop.iterations=4", "--out", "all") == 0
    first, second = (files.read_config(here / "all" / name) for name in ("BSP", "short"))
    assert first["sync"]["kind"] == "bsp"
    assert second["sync"]["staleness"] == 3
    assert second["stop"]["virtual_time_s"] == 0.5
    assert first["stop"]["iterations"] == second["stop"]["iterations"] == 4
    one, other = (files.read_summary(here / "all" / name) for name in ("BSP", "short"))
    assert one["trace_digest"] != other["trace_digest"]


@pytest.mark.parametrize(
    ("variants", "words"),
    [
        ("[]", "has no variants"),
        ("[{sync: {kind: bsp}}]", "must be a mapping with a name"),
        ("[{name: a}, {name: A}]", "another variant is called"),
        ("[{name: ../a}]", "cannot be the name of the run's folder"),
        ("[{name: report.html}]", "cannot be the name of the run's folder"),
        ("[{name: a, target: {loss: 1}}]", "variants[0].target: it is the same for all variants"),
        ("[{name: a, sync: {kind: bspp}}]", "Did you mean 'bsp'?"),
    ],
)
def test_bad_variants_are_refused_before_anything_is_written(here, capsys, variants, words):
    message = refused(capsys, "compare", "config.yaml", f"variants={variants}", "--out", "all")
    assert words in message
    assert not (here / "all").exists()


@pytest.mark.slow
def test_an_interrupted_run_leaves_a_valid_folder_marked_partial(here, warm):
    command = ("simulate", "config.yaml", "stop.iterations=1000000", "--out", "run")
    process = warm.outpace(*command, cwd=here)
    try:
        summary = here / "run" / files.SUMMARY
        while process.poll() is None and not summary.exists():
            time.sleep(0.001)  # the folder is there as soon as the run starts
        for _ in range(2):  # a second Ctrl-C: the folder is still completed
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert files.read_summary(here / "run")["status"] == "partial"
    assert not list((here / "run").glob("*.part"))
    pq.read_table(here / "run" / files.TRACE)
