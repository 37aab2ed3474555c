"""Imported by the fork server, so that new processes have the modules already: see `forking`."""

import importlib

import outpace.support.processes.begin_server  # noqa: F401  # before the imports that take long
from outpace.support.processes.modules import MODULES

for _module in MODULES:
    importlib.import_module(_module)
