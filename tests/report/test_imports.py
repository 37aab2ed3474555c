"""Processes of a run do not wait for the libraries that only commands need."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("plotly", "optuna", "perfetto", "scipy", "jinja2")
CODE = """
import importlib, pkgutil, sys
import torch
before = set(sys.modules)
for name in {packages!r}:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(package, "__path__", []), f"{{name}}."):
        importlib.import_module(found.name)
print(*({heavy!r} & {{name.partition(".")[0] for name in set(sys.modules) - before}}))
"""


PACKAGES = (
    "outpace.script",
    "outpace.real.node",
    "outpace.engine",
    "outpace.sync",
    "outpace.simulation.executors",
    "outpace.simulation.scripts",
)


def test_processes_of_a_run_import_no_library_of_the_commands():
    code = CODE.format(packages=PACKAGES, heavy=set(HEAVY))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
