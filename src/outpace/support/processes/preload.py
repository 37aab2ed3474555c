"""Modules that the fork server imports, so that new processes have them already: see `forking`."""

import gc
import importlib
import os

from outpace.support.processes.left_behind import end_with_starter

end_with_starter()
os.setsid()  # away from the terminal's Ctrl-C

# Imported by name, because this module must not import from the layers above it.
for _module in (
    "outpace.simulation.executors.child",
    "outpace.real.node.server",
    "outpace.real.node.task",
    "torch._dynamo",  # 1.5 s; torch imports it when the first optimizer is made
):
    importlib.import_module(_module)
gc.freeze()  # new processes share the memory of these modules as long as nothing writes to it
