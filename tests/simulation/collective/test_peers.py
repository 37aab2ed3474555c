"""Workers without servers: every gradient counts once, and no worker waits that should not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.strategies import networks, timings

from outpace.cluster.network import NetworkLaw
from outpace.optim import Adam, AdamW
from outpace.sync import DiLoCo, Hpsgd, LocalSgd, Ssgd
from outpace.testing.peer_runs import PeerRun, digits

HPSGD = {"immediate": Hpsgd(), "delayed": Hpsgd(commit="delayed")}
every_commit = pytest.mark.parametrize("sync", HPSGD.values(), ids=HPSGD)


@every_commit
@settings(max_examples=150)
@given(table=timings(), network=networks(), tie_seed=st.none() | st.integers(0, 99))
def test_hpsgd_commits_every_gradient_exactly_once_and_no_step_waits(
    sync, table, network, tie_seed
):
    run = PeerRun(sync, table, network=network, tie_seed=tie_seed)
    iterations = len(table[0])
    for worker, seconds in enumerate(table):
        assert digits(-run.parameters[worker].item(), iterations) == [1] * iterations
        now = 0
        for iteration, row in enumerate(run.rows("iteration", worker=worker)):
            assert (row["iteration"], row["start_ns"]) == (iteration, now)
            now += round(seconds[iteration] * 1e9)
            assert row["computed_ns"] == now
            if iteration + 1 < iterations:
                assert (row["end_ns"], row["held_ns"]) == (now, 0)
    assert run.totals.applied == run.totals.windows == len(table) * iterations
    (histogram,) = run.totals.staleness.values()
    assert sum(histogram.values()) == run.totals.applied
    # A gradient is given to the next all-reduce, which begins when the last is seen to be over.
    assert max(histogram) <= (1 if sync.commit == "immediate" else 2)
    assert histogram[0] >= len(table)  # the first of each


TOGETHER = Hpsgd(start_together=True)


@settings(max_examples=60)
@given(table=timings(), network=networks(), tie_seed=st.none() | st.integers(0, 99))
def test_workers_start_together_when_the_slowest_has_computed(table, network, tie_seed):
    run = PeerRun(TOGETHER, table, network=network, tie_seed=tie_seed)
    iterations = len(table[0])
    starts, now = [], 0
    for of_all in zip(*table, strict=True):
        starts.append(now)
        now += max(round(seconds * 1e9) for seconds in of_all)
    for worker in range(len(table)):
        assert [row["start_ns"] for row in run.rows("iteration", worker=worker)] == starts
        assert digits(-run.parameters[worker].item(), iterations) == [1] * iterations


def plain_diloco(every, overlap=True):
    """Return a DiLoCo whose outer step equals the mean of the workers' changes."""
    return DiLoCo(every, outer_lr=1.0, outer_momentum=0.0, overlap=overlap)


@settings(max_examples=150)
@given(
    table=timings(),
    network=networks(),
    every=st.integers(1, 5),
    tie_seed=st.none() | st.integers(0, 99),
)
def test_overlapped_diloco_commits_every_gradient_exactly_once(table, network, every, tie_seed):
    run = PeerRun(plain_diloco(every), table, network=network, tie_seed=tie_seed)
    iterations = len(table[0])
    for worker in range(len(table)):
        assert digits(-run.parameters[worker].item(), iterations) == [1] * iterations
    assert run.totals.applied == len(table) * iterations


@settings(max_examples=60)
@given(
    sync=st.sampled_from([Ssgd(), Ssgd(all_reduce="tree"), LocalSgd(every=1)]),
    table=timings(),
    network=networks(),
)
def test_those_who_synchronise_in_every_step_wait_for_the_slowest_in_each(sync, table, network):
    run = PeerRun(sync, table, network=network)
    for iteration in range(len(table[0])):
        rows = run.rows("iteration", iteration=iteration)
        began = max(row["computed_ns"] for row in rows)
        for row in rows:
            assert row["held_ns"] == began - row["computed_ns"]
            assert row["end_ns"] >= began
        for row in run.rows("all-reduce", iteration=iteration):
            assert row["computed_ns"] == began
            assert row["clock"] == len(table)
            assert row["version"] == iteration


LONG = NetworkLaw(latency_s=0.0125)  # an all-reduce of two takes 25 ms, steps here 10 ms
TWO = [[0.01] * 6] * 2


@pytest.mark.parametrize(
    ("sync", "after_it"),
    [(HPSGD["immediate"], [-1.0, -1.0]), (HPSGD["delayed"], [0.0, 0.0])],
    ids=HPSGD,
)
def test_gradients_are_at_the_model_then_at_a_replica_that_is_given_up(sync, after_it):
    # lr is 2: a worker's replica takes steps of 2·4^i, a commit of (4^i of each worker)·2/2.
    read = PeerRun(sync, TWO, network=LONG).read
    assert read[0, 0] == [0, 0]
    assert read[0, 1] == [0, 0]  # the synchronization has begun: still the model
    assert read[0, 2] == [-2 * 4, 0]
    assert read[0, 3] == [-2 * (4 + 16), 0]
    # At 40 ms the first one is seen to be done. What P_s commits when it is woken for the
    # next, P_t does not see before it continues, but in the replica that it makes after that.
    assert read[0, 4] == after_it
    assert read[0, 5] == [-1 - 2 * 4**4, -1]
    assert read[1, 5] == [-1, -1 - 2 * 4**4]


# Gradients of the first of two parameters by worker and iteration. With the windows of LONG, 1, 3
# and 2 iterations, the mean of each commit is 2.
ADAM_GRADIENTS = [[1, 4, 4, 4, 2, 3], [3, -4, 2, 2, -1, 4]]


@pytest.mark.parametrize(
    ("sync", "after_it"), [(HPSGD["immediate"], -0.5), (HPSGD["delayed"], 0.0)], ids=HPSGD
)
def test_a_replica_takes_the_steps_of_a_copy_of_adamw(sync, after_it):
    """By hand, with both betas 1/2: m̂/√v̂ of gradients that are all equal is their sign."""
    run = PeerRun(
        sync,
        TWO,
        network=LONG,
        optimizer=AdamW(lr=0.5, betas=(0.5, 0.5), weight_decay=0.1),
        gradient_of=lambda worker, iteration: torch.tensor(
            [ADAM_GRADIENTS[worker][iteration], 0.0], dtype=torch.float64
        ),
    )
    found = {place: values[0] for place, values in run.read.items()}
    assert found[0, 1] == 0
    assert found[0, 2] == pytest.approx(-0.5)  # its first step, along 4
    assert found[1, 2] == pytest.approx(0.5)  # along −4
    assert found[0, 3] == pytest.approx(-0.5 * 0.95 - 0.5)
    # The first commit, along 2: m is 1, v is 2.
    assert found[0, 4] == found[1, 4] == pytest.approx(after_it)
    # Worker 0, along 2: m̂ = 1.5/0.75, v̂ = 3/0.75. Worker 1, along −1: m̂ = 0.
    assert found[0, 5] == pytest.approx(-0.5 * 0.95 - 0.5)
    assert found[1, 5] == pytest.approx(-0.5 * 0.95)
    # Two more commits along 2, of three and two iterations, at the same learning rate.
    end = (-0.5 * 0.95 - 0.5) * 0.95 - 0.5
    assert run.parameters.tolist() == pytest.approx([end, 0.0])


def test_an_all_reduce_that_ends_with_a_step_is_over_when_the_step_is():
    # 20 ms: exactly two steps. Whoever looks first must see it, so that all commit alike.
    run = PeerRun(Hpsgd(), [[0.01] * 7] * 3, network=NetworkLaw(latency_s=0.005))
    for worker in range(3):
        assert [row["iteration"] for row in run.rows("all-reduce", worker=worker)] == [0, 2, 4, 6]
        assert run.read[worker, 3] == [-1, -1, -1]


@pytest.mark.parametrize("contention", ["serialised", "fair"])
@pytest.mark.parametrize(
    "sync", [Ssgd(), LocalSgd(every=2), plain_diloco(every=2), *HPSGD.values()]
)
def test_who_stops_early_leaves_and_the_others_go_on(sync, contention):
    network = NetworkLaw(latency_s=0.001, bandwidth_bytes_per_s=1e4, contention=contention)
    run = PeerRun(sync, [[0.01] * 8] * 3, network=network, lasts={0: 3})
    done = {worker: len(run.rows("iteration", worker=worker)) for worker in range(3)}
    assert done == {0: 3, 1: 8, 2: 8}
    last = max(row["version"] for row in run.rows("all-reduce", worker=0))
    for row in run.rows("all-reduce"):
        assert row["clock"] == (3 if row["version"] <= last else 2)
    if isinstance(sync, Hpsgd):
        assert digits(-run.parameters[0].item(), 8) == [1] * 3 + [0] * 5
        assert digits(-run.parameters[1].item(), 8) == [1] * 8
    if isinstance(sync, Ssgd):  # a mean over the present workers
        assert run.parameters[0].item() == -sum(4**i for i in range(3))
        expected = sum(4**i for i in range(3)) + sum(4**i for i in range(3, 8)) * 3 / 2
        assert run.parameters[1].item() == -expected


@pytest.mark.parametrize(("rule", "growth"), [("linear", 4), ("sqrt", 2), ("constant", 1)])
def test_the_rate_of_a_commit_grows_with_its_window_as_asked_for(rule, growth):
    # Windows of 1, then 4 iterations of both workers: 10 ms steps, all-reduces of 40.
    sync, table, network = Hpsgd(rate_by_window=rule), [[0.01] * 5] * 2, NetworkLaw(latency_s=0.02)
    run = PeerRun(sync, table, network=network, lr=1.0)
    rest = growth / 4 * (4 + 4**2 + 4**3 + 4**4)
    assert run.parameters.tolist() == [-(1 + rest) / 2] * 2
    # Adam with β = 0 steps by lr along the sign.
    run = PeerRun(sync, table, network=network, optimizer=Adam(lr=1.0, betas=(0.0, 0.0)))
    assert run.parameters.tolist() == pytest.approx([-(1 + growth)] * 2)
