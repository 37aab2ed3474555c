"""Workers and servers import no library that only the command needs, and no process imports Ray."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("ray", "plotly", "optuna", "perfetto", "scipy", "jinja2")
USERS = """
import multiprocessing, pathlib, sys
import torch
import outpace
from outpace.sync import Asp


def note(role):
    if multiprocessing.parent_process() is None:  # the command, which tries the task
        role = "command"
    heavy = [name for name in {heavy!r} if name in sys.modules]
    (pathlib.Path(__file__).parent / role).write_text(" ".join(heavy))


class Noting(Asp):
    def may_answer(self, pull, view):
        note("server")
        return Asp.may_answer(self, pull, view)


def loss(output, target):
    note("worker")
    return (output - target).square().mean()


def task():
    return outpace.Task(torch.nn.Linear(2, 1), loss, (torch.ones(8, 2), torch.ones(8, 1)))
"""
CONFIG = """
task: {kind: python, target: "users.py:task"}
sync: {kind: python, target: "users.py:Noting"}
workers: 2
batch_size: 2
stop: {iterations: 4}
probe: false
"""


def test_processes_of_a_run_import_none_of_the_libraries_of_the_command(tmp_path):
    (tmp_path / "users.py").write_text(USERS.format(heavy=HEAVY))
    (tmp_path / "run.yaml").write_text(CONFIG)
    command = [sys.executable, "-m", "outpace", "run", "run.yaml", "--out", "out"]
    ended = subprocess.run(
        command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "worker").read_text() == ""
    assert (tmp_path / "server").read_text() == ""
    assert "ray" not in (tmp_path / "command").read_text()
