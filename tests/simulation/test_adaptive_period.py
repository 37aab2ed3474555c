"""Local SGD whose period AdaComm changes, in virtual time."""

from __future__ import annotations

import pytest
from tests.support.runtimes import rows

from outpace.config.reading import experiment_from, to_plain
from outpace.errors import ConfigError
from outpace.experiment.running import simulate
from outpace.sync import Adaptive, AdaptivePeriod

ADACOMM = {"kind": "adaptive", "rule": "adacomm", "every": 8, "interval_s": 1.0}
BASE = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0, 2.0], "noise": 0.1},
    "workers": 3,
    "optimizer": {"lr": 0.05},
    "compute": {"kind": "constant", "mean_s": 0.1},
    "sync": ADACOMM,
    "stop": {"iterations": 40},
}


def test_all_workers_average_after_the_steps_that_the_rule_says():
    result = simulate(BASE)
    switches = result.summary["switches"]
    assert switches[0]["from"] == "every 8"
    periods = [int(each["to"].removeprefix("every ")) for each in switches]
    assert periods == sorted(periods, reverse=True)
    assert "loss" in switches[0]["reason"]
    at = dict(zip((each["iteration"] for each in switches), periods, strict=True))
    expected, period, end = [], 8, -1
    while end < 39:
        end = min(end + period, 39)
        expected.append(end)
        period = at.get(end, period)
    for worker in range(3):
        found = [row["iteration"] for row in rows(result, "all-reduce") if row["worker"] == worker]
        assert found == expected
    assert all(row["clock"] == 3 for row in rows(result, "all-reduce"))


def test_each_switch_is_noted_once():
    result = simulate(BASE)
    noted = [(row["iteration"], row["lead"], row["bound"]) for row in rows(result, "switch")]
    assert [number for number, _, _ in noted] == [
        each["iteration"] for each in result.summary["switches"]
    ]
    assert noted[0][1] == 8
    assert [before for _, before, _ in noted[1:]] == [after for _, _, after in noted[:-1]]


def test_before_the_first_decision_the_run_is_that_of_local_sgd():
    late = {**ADACOMM, "interval_s": 1e6}
    found = simulate({**BASE, "sync": late})
    local = simulate({**BASE, "sync": {"kind": "local-sgd", "every": 8}})
    assert found.summary["switches"] == []
    for digest in ("parameters_digest", "trace_digest"):
        assert found.summary[digest] == local.summary[digest]


def test_the_rule_says_whether_an_adaptive_strategy_has_servers():
    assert isinstance(experiment_from(BASE, "test").sync, AdaptivePeriod)
    with_servers = experiment_from({**BASE, "sync": {"kind": "adaptive"}}, "test")
    assert isinstance(with_servers.sync, Adaptive)
    for experiment in (experiment_from(BASE, "test"), with_servers):
        assert experiment_from(to_plain(experiment), "test") == experiment


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sync": {"kind": "adaptive", "rule": "adacom"}}, "sync.rule: unknown rule"),
        ({"sync": {**ADACOMM, "window": 5}}, "sync.window"),
        ({"servers": 2}, "servers: adaptive has no servers"),
        ({"checkpoint": {"every_s": 5.0}}, "checkpoint: what the workers of adaptive keep"),
        ({"faults": {}}, "faults: what the rule of adaptive"),
        ({"task": {"kind": "timing"}}, "sync.rule: adacomm needs the loss"),
        ({"task": {"kind": "script", "path": "train.py"}}, "sync.rule: adacomm needs the loss"),
    ],
)
def test_what_the_rule_cannot_have_is_refused_with_the_reason(changes, named):
    with pytest.raises(ConfigError) as refused:
        experiment_from({**BASE, **changes}, "test")
    assert named in str(refused.value)
