"""The laws of failures, and what a configuration may say about them."""

from itertools import islice

import numpy as np
import pytest

from outpace.cluster.faults import RandomFaults
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.support.units import seconds

BASE = {
    "task": {"kind": "timing"},
    "workers": 2,
    "sync": {"kind": "bsp"},
    "compute": {"kind": "constant", "mean_s": 1.0},
    "stop": {"iterations": 10},
}


def test_times_between_failures_are_exponential():
    law = RandomFaults(60.0)
    times = [seconds(time) for time in islice(law.times(0, "failures of workers", 0), 20_000)]
    gaps = np.diff([0.0, *times])
    assert gaps.mean() == pytest.approx(60.0, abs=4 * 60.0 / np.sqrt(20_000))
    assert gaps.std() == pytest.approx(60.0, rel=0.03)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"workers": {"mtbf_s": 0}}, "faults.workers.mtbf_s must be above 0"),
        ({"workers": {}}, "faults.workers.mtbf_s is missing"),
        ({"schedule": [{"at_s": 1}]}, "needs exactly one of worker and server"),
        (
            {"schedule": [{"at_s": 1, "worker": 2}]},
            r"faults.schedule\[0\].worker must be from 0 to 1, not 2",
        ),
        ({"recovery": {"worker_s": -1}}, "faults.recovery.worker_s must be at least 0"),
        ({"recovery": {"worker": 1}}, "Did you mean 'worker_s'"),
    ],
)
def test_an_error_says_what_is_wrong_with_a_failure(faults, message):
    with pytest.raises(ConfigError, match=message):
        experiment_from({**BASE, "faults": faults}, "the test")


def test_what_is_wrong_in_each_entry_of_a_schedule_is_said_at_once():
    schedule = [
        {"at": 1, "worker": 9},
        {"at_s": -1, "worker": 0},
        {"at_s": 1, "worker": "one"},
        {"at_s": 1},
    ]
    assert _problems(schedule) == {
        "[0].at: unknown key. Did you mean 'at_s'?",
        "[1].at_s must be at least 0, not -1",
        "[2].worker must be a whole number, not 'one'",
        "[3]: needs exactly one of worker and server",
    }
    assert _problems([{"at_s": 1, "worker": 9}, {"at_s": 1, "server": 2}]) == {
        "[0].worker must be from 0 to 1, not 9",
        "[1].server must be from 0 to 1, not 2",
    }


def _problems(schedule: list[dict[str, object]]) -> set[str]:
    """What is said of a schedule of failures, without the key."""
    with pytest.raises(ConfigError) as found:
        experiment_from({**BASE, "servers": 2, "faults": {"schedule": schedule}}, "the test")
    return {line.removeprefix("the test: faults.schedule") for line in str(found.value).split("\n")}


def test_a_strategy_without_servers_has_none_that_fail():
    faults = {"servers": {"mtbf_s": 1}, "schedule": [{"at_s": 1, "server": 0}]}
    with pytest.raises(ConfigError) as found:
        experiment_from({**BASE, "sync": {"kind": "ssgd"}, "faults": faults}, "the test")
    assert "faults.servers: the strategy has no servers" in str(found.value)
    assert "faults.schedule.server: the strategy has no servers" in str(found.value)
