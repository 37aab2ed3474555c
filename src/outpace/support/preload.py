"""Imported by the fork server alone, so that processes start with these modules: see `forking`."""

import importlib
import os

from outpace.support.forking import die_with_parent

die_with_parent()
os.setsid()  # away from the terminal's Ctrl-C

# By name, because import layers forbid this module to import those above it.
for _module in (
    "outpace.simulation.executors.child",
    "outpace.real.node.server",
    "outpace.real.node.task",
):
    importlib.import_module(_module)
