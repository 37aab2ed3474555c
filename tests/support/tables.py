"""Tables of run times that tests share."""

from __future__ import annotations

import numpy as np

from outpace.predict.recorded import RunTimes


def table(seconds, *, censored=None, node=None) -> RunTimes:
    """Return a table from lists, with a row per iteration."""
    times = np.array(seconds, dtype=np.float64)
    cut = np.zeros(times.shape, np.bool_) if censored is None else np.array(censored, np.bool_)
    where = np.zeros(times.shape[1], np.int64) if node is None else np.array(node, np.int64)
    return RunTimes(times, cut, where)


def assert_same(found: RunTimes, expected: RunTimes) -> None:
    np.testing.assert_array_equal(found.seconds, expected.seconds)  # NaN equals NaN
    np.testing.assert_array_equal(found.censored, expected.censored)
    np.testing.assert_array_equal(found.node, expected.node)
