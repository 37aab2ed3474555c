"""Scripts in virtual time whose workers and servers stand still, are slow, or cut off."""

from __future__ import annotations

import pytest
from tests.support.paths import SCRIPTS

import outpace
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError, RunError

CONFIG = {
    "task": {"kind": "script", "path": str(SCRIPTS / "kept.py")},  # 9 iterations
    "workers": 2,
    "servers": 2,
    "sync": {"kind": "bsp"},
    "compute": {"kind": "constant", "mean_s": 0.1},
}


def test_a_script_meets_failures_and_trains_the_same():
    schedule = [
        {"at_s": 0.25, "kind": "pause", "worker": 1, "for_s": 0.4},  # iteration 2: until 0.7
        {"at_s": 0.65, "kind": "slow", "worker": 0, "for_s": 0.1, "factor": 3.0},  # until 1.0
        {"at_s": 1.05, "kind": "pause", "server": 1, "for_s": 0.25},  # answers at 1.3, not 1.1
        {"at_s": 1.45, "kind": "partition", "worker": 0, "for_s": 0.1},  # a push at 1.5
        {"at_s": 1.56, "kind": "duplicate", "worker": 0},
        {"at_s": 1.56, "kind": "reorder", "worker": 1, "for_s": 0.02},
    ]
    plain = outpace.simulate(CONFIG)
    found = outpace.simulate({**CONFIG, "faults": {"schedule": schedule}})
    assert plain.summary["virtual_time_s"] == pytest.approx(0.9)
    assert found.summary["virtual_time_s"] == pytest.approx(0.9 + 0.4 + 0.2 + 0.2 + 0.05 + 0.02)
    assert found.summary["parameters_digest"] == plain.summary["parameters_digest"]
    assert found.summary["faults"]["lost_s"]["standing"] == pytest.approx(0.4 / 2)
    assert found.summary["faults"]["goodput"] == pytest.approx(0.9 / 1.77, rel=0.06)


def test_a_script_whose_process_counts_as_lost_ends_with_an_error():
    schedule = [{"at_s": at_s, "kind": "pause", "worker": 1, "for_s": 0.4} for at_s in (0.25, 0.55)]
    faults = {"schedule": schedule, "recovery": {"lease_s": 0.5}}
    with pytest.raises(RunError, match=r"worker-1 was silent for 0.5 s .* \(after 0.75"):
        outpace.simulate({**CONFIG, "faults": faults})


@pytest.mark.parametrize(
    ("faults", "sync", "message"),
    [
        ({"workers": {"mtbf_s": 9}}, "bsp", "faults.workers: the processes of scripts cannot"),
        (
            {"schedule": [{"at_s": 1, "kind": "pause", "server": 0, "for_s": 11}]},
            "bsp",
            r"faults.schedule\[0\].for_s: after 10 s .* a process counts as lost",
        ),
        (
            {"workers": {"mtbf_s": 9, "kind": "pause", "for_s": 1}},
            "ssgd",
            "failures of scripts without servers cannot be simulated yet",
        ),
    ],
)
def test_failures_that_end_processes_of_scripts_are_refused(faults, sync, message):
    servers = {} if sync == "bsp" else {"servers": 1}
    with pytest.raises(ConfigError, match=message):
        experiment_from({**CONFIG, **servers, "sync": {"kind": sync}, "faults": faults}, "it")
