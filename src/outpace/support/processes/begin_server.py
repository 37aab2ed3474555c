"""The first module of a fork server: it gets its own session, and ends with its starter."""

import os

from outpace.support.processes.left_behind import end_with_starter

end_with_starter()
os.setsid()  # away from the terminal's Ctrl-C
