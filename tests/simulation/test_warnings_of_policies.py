"""Warnings about settings of policies that are allowed but probably not meant."""

from __future__ import annotations

import warnings

from outpace import simulate
from outpace.errors import OutpaceWarning

LAZY = {"kind": "dsps", "staleness": 1, "buffer": "lazy"}
CONFIG = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0, 0.5]},
    "workers": 2,
    "servers": 2,
    "compute": {"kind": "constant", "mean_s": 1e-3},
    "stop": {"iterations": 3},
}


def said(**changes):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        simulate({**CONFIG, **changes})
    assert all(each.category is OutpaceWarning for each in found)
    return [str(each.message) for each in found]


def test_a_lazy_buffer_of_dsps_is_warned_of_with_its_key():
    (warning,) = said(sync=LAZY)
    assert warning.startswith("sync.buffer: lazy holds a pull")
    assert warning.endswith("use soft")
    changes = [{"at_s": 0.001, "sync": [LAZY, {"kind": "asp"}]}]
    (warning,) = said(sync={"kind": "asp"}, sync_changes=changes)
    assert warning.startswith("sync_changes[0].sync[0].buffer: lazy")
