"""Imported by the fork server, and by nobody else: see `forking`."""

from __future__ import annotations

import contextlib
import importlib
import os

from outpace.support.forking import die_with_parent

die_with_parent()
os.setsid()  # away from the terminal's Ctrl-C

import sklearn.datasets  # noqa: E402, F401  # the digits: a second per process otherwise

# By name: this module lies below them. Without the extra `real` some cannot be imported.
for _module in (
    "outpace.simulation.executors.child",
    "outpace.real.node.server",
    "outpace.real.node.worker",
):
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(_module)
