"""Shares of the workers are numbers in the configuration of a run."""

from __future__ import annotations

import pytest

from outpace.config.reading import experiment_from, to_plain
from outpace.sync import DropStragglers

BASE = {
    "task": {"kind": "timing", "parameters": 8},
    "servers": 2,
    "compute": {"kind": "constant", "mean_s": 1.0},
    "stop": {"iterations": 1},
}
SYNC = {"kind": "drop-stragglers", "quorum_percent": 75}


@pytest.mark.parametrize(("workers", "number"), [(1, 1), (4, 3), (5, 4), (16, 12)])
def test_a_quorum_is_a_share_of_any_number_of_workers_rounded_up(workers, number):
    data = {
        **BASE,
        "workers": workers,
        "sync": [SYNC, {"kind": "bsp"}],
        "sync_changes": [{"at_s": 1, "sync": SYNC}],
    }
    plain = to_plain(experiment_from(data, "test"))
    for sync in (plain["sync"][0], plain["sync_changes"][0]["sync"]):
        assert (sync["quorum"], sync["quorum_percent"]) == (number, None)
    assert experiment_from(plain, "again") == experiment_from(data, "test")


def test_a_share_is_exact_for_a_decimal_number():
    # 0.55 and 100 are 55.00000000000001 in floating point.
    # 0.55 * 100 is 55.00000000000001 in floating point.
    assert DropStragglers(quorum_percent=55).for_workers(100).quorum == 55
    assert DropStragglers(quorum_percent=87.5).for_workers(16).quorum == 14
