"""Imported by the fork server, so that new processes have the modules already: see `forking`."""

import gc
import importlib
import os

from outpace.support.processes.left_behind import end_with_starter
from outpace.support.processes.modules import MODULES

end_with_starter()
os.setsid()  # away from the terminal's Ctrl-C

for _module in MODULES:
    importlib.import_module(_module)
gc.freeze()  # new processes share the memory of these modules as long as nothing writes to it
