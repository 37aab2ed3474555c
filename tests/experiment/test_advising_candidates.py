"""The candidates of advice: every family, quorums by the number of workers, reasons."""

import pytest

from outpace.experiment.advising.candidates import (
    ALL_REDUCE,
    BSP,
    OWN,
    candidates,
    usable,
)

CONFIG = {
    "task": {"kind": "timing", "parameters": 1000},
    "workers": 4,
    "servers": 2,
    "compute": {"kind": "constant", "mean_s": 0.1},
    "network": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1e8},
    "sync": {"kind": "bsp"},
    "stop": {"iterations": 10},
}


def test_the_references_come_first_and_every_kind_of_strategy_follows():
    found = candidates(16)
    assert [each.name for each in found[:2]] == [BSP, ALL_REDUCE]
    assert len(found) == len({each.name for each in found}) == 24
    # Others are tried once they have been measured among the strategies of the benchmark.
    known = {"bsp", "asp", "ssp", "pssp", "dynamic-pssp", "dsps", "psp-sampling", "drop-stragglers"}
    known |= {"partial-push", "cutoff", "ssgd", "local-sgd", "hpsgd", "diloco", "gossip"}
    assert {each.sync["kind"] for each in found} == known


@pytest.mark.parametrize(
    ("workers", "quorums"), [(2, [1]), (4, [3]), (8, [6, 7]), (16, [12, 14]), (64, [48, 56])]
)
def test_a_quorum_leaves_out_a_quarter_or_an_eighth_and_at_least_one_worker(workers, quorums):
    drops = [c.sync for c in candidates(workers) if c.sync["kind"] == "drop-stragglers"]
    assert [sync["quorum"] for sync in drops] == quorums


def test_all_candidates_fit_a_configuration_with_servers_and_late_messages():
    delays = [{"message": "reply", "probability": 0.1, "seconds": 1.0}]
    found, refused = usable(
        {**CONFIG, "network": {**CONFIG["network"], "delays": delays}}, "x.yaml"
    )
    assert refused == {}
    assert [each.name for each in found] == [each.name for each in candidates(4)]
    all_reduce = found[1].experiment({**CONFIG, "colocate": True, "push_time": None}, "x.yaml")
    assert all_reduce.servers == 1
    assert not all_reduce.colocate


def test_without_servers_a_candidate_has_the_failures_of_workers_alone():
    schedule = [{"at_s": 1.0, "server": 1}, {"at_s": 2.0, "worker": 1}]
    laws = {"workers": {"mtbf_s": 60.0}, "servers": {"mtbf_s": 600.0}}
    data = {**CONFIG, "checkpoint": {"every_s": 5.0}, "faults": {**laws, "schedule": schedule}}
    found, refused = usable(data, "x.yaml")
    assert "ssgd" in [each.sync["kind"] for each in found]
    assert not [name for name, why in refused.items() if "faults" in why]
    all_reduce = found[1].experiment(data, "x.yaml")
    assert all_reduce.faults.servers is None
    assert [fault.worker for fault in all_reduce.faults.schedule] == [1]
    assert all_reduce.checkpoint is not None  # for the continuation after the death of a worker
    assert len(found[0].experiment(data, "x.yaml").faults.schedule) == 2


def test_a_candidate_that_cannot_be_run_is_left_out_with_the_reason():
    found, refused = usable({**CONFIG, "servers": 1}, "x.yaml")
    assert refused == {"partial push and pull": "a partial pull needs at least 2 servers"}
    assert "partial push" in [each.name for each in found]


def test_the_strategy_of_the_configuration_is_a_candidate():
    own = {"kind": "ssp", "staleness": 5}
    found, _ = usable({**CONFIG, "sync": own, "skip": {"pull": {"every": 4}}}, "x.yaml")
    assert found[-1].name == OWN
    assert (found[-1].sync, found[-1].beside) == (own, {"skip": {"pull": {"every": 4}}})
    found, _ = usable({**CONFIG, "sync": {"kind": "ssp", "staleness": 4}}, "x.yaml")
    assert OWN not in [each.name for each in found]
