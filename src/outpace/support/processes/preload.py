"""Imported by the fork server, so that new processes have the modules already: see `forking`."""

import importlib
from typing import Final

import outpace.support.processes.begin_server  # noqa: F401  # before the imports that take long

# By name, because `support` must not import from the layers above it.
_MODULES: Final = (
    "outpace.simulation.executors.child",
    "outpace.real.node.server",
    "outpace.real.node.task",
    "torch._dynamo",  # 1.5 s; torch imports it when the first optimizer is made
)

for _module in _MODULES:
    importlib.import_module(_module)
