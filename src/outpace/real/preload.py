"""Imported by the fork server, and by nobody else: see `launcher`."""

from __future__ import annotations

import os

from outpace.real.child import die_with_parent

die_with_parent()
os.setsid()  # away from the terminal's Ctrl-C

import sklearn.datasets  # noqa: E402, F401  # the digits: a second per process otherwise

import outpace.real.server  # noqa: E402
import outpace.real.worker  # noqa: E402, F401
