"""`late: stop` in every runtime: whoever is late stops, and nobody stops whose gradient counts."""

from __future__ import annotations

import math

import pytest
from tests.support.runtimes import ITERATIONS, WORKERS, config, every_runtime, rows

from outpace.errors import ConfigError
from outpace.experiment.running import simulate
from outpace.sync import DropStragglers, PartialPush
from outpace.sync.programs.context import Stopped
from outpace.sync.programs.stopping import StoppingWorker

STOP = {"kind": "drop-stragglers", "quorum": 4, "late": "stop"}
GRACE = {"kind": "partial-push", "quorum": 1, "timeout_s": 0.5, "enough": 2, "late": "stop"}
SECOND = 10**9


def law(*factors, mean_s=1.0):
    slow = [{"workers": [worker], "factor": factor} for worker, factor in enumerate(factors)]
    return {"kind": "constant", "mean_s": mean_s, "slow": slow}


def by_hand(sync, *factors, servers=1, **changes):
    """Return a run without a network, of workers that take so many seconds."""
    workers = len(factors)
    beside = {"workers": workers, "servers": servers, "network": None, **changes}
    return simulate(config("bsp", compute=law(*factors), **beside) | {"sync": sync})


def times(result, worker):
    """Return (iteration, start, computed, end, expected end of the computation) in s."""
    names = ("start_ns", "computed_ns", "end_ns", "bound")
    return [
        (row["iteration"], *(None if row[n] is None else row[n] / SECOND for n in names))
        for row in rows(result, "iteration")
        if row["worker"] == worker
    ]


@every_runtime
def test_a_worker_that_is_always_late_stops_each_time_and_tells_what_it_would_have_taken(run):
    compute = law(1, 20, 1, 1, 1, mean_s=0.05)
    summary = (result := run(config("bsp", compute=compute) | {"sync": STOP})).summary
    late = [row for row in rows(result, "iteration") if row["worker"] == 1]
    assert late  # few on a busy computer, if its first gradient takes long
    assert summary["stopped"]["count"] == len(late)
    assert summary["iterations"][1] == 0
    assert max(summary["iterations"]) == ITERATIONS
    for row in late:
        if row["computed_ns"] - row["start_ns"] > 0.02 * SECOND:
            assert row["bound"] - row["start_ns"] == pytest.approx(SECOND, rel=0.2)
            assert row["computed_ns"] < row["bound"]
    took_s = sum(row["computed_ns"] - row["start_ns"] for row in late) / SECOND
    assert summary["stopped"]["seconds"] == pytest.approx(took_s / WORKERS)
    pushes = [row for row in rows(result, "push") if row["worker"] == 1]
    assert {row["outcome"] for row in pushes} == {"abstained"}


@every_runtime
def test_nobody_stops_without_the_option(run):
    compute = law(1, 4, 1, 1, 1, mean_s=0.05)
    result = run(config("bsp", compute=compute) | {"sync": {**STOP, "late": "finish"}})
    assert "stopped" not in result.summary
    assert {row["bound"] for row in rows(result, "iteration")} == {None}


def test_a_late_worker_begins_with_the_next_iteration_at_once():
    result = by_hand({**STOP, "quorum": 2}, 1, 2, 4)
    assert result.summary["virtual_time_s"] == 2 * ITERATIONS
    assert result.summary["iterations"] == [ITERATIONS, ITERATIONS, 0]
    assert result.summary["gradients_applied"] == 2 * ITERATIONS
    assert times(result, 2)[:3] == [(0, 0, 2, 2, 4), (1, 2, 4, 4, 6), (2, 4, 6, 6, 8)]
    assert {row[-1] for row in times(result, 0)} == {None}


def test_a_worker_that_is_late_for_a_while_is_in_time_again_afterwards():
    """Worker 2 takes 3 s in what begins before 2.4 s, and the others wait 0.25 s for it."""
    slow = [{"workers": [2], "factor": 3.0, "until_s": 2.4}]
    compute = {"kind": "constant", "mean_s": 1.0, "slow": slow}
    changes = {"compute": compute, "workers": 3, "servers": 1, "network": None}
    sync = {"kind": "partial-push", "quorum": 2, "timeout_s": 0.25, "late": "stop"}
    stops = simulate(config("bsp", **changes) | {"sync": sync})
    assert times(stops, 2)[:4] == [
        *((0, 0, 1.25, 1.25, 3), (1, 1.25, 2.5, 2.5, 4.25)),
        *((2, 2.5, 3.5, 3.5, None), (3, 3.5, 4.5, 4.5, None)),
    ]
    assert stops.summary["stopped"] == {"count": 2, "seconds": pytest.approx(2.5 / 3)}
    assert stops.summary["iterations"] == [ITERATIONS, ITERATIONS, ITERATIONS - 2]


def test_a_grace_ends_an_iteration_for_those_that_compute():
    result = by_hand(GRACE, 1, 3, 3)  # half a second after the first
    assert result.summary["virtual_time_s"] == 1.5 * ITERATIONS
    assert times(result, 1)[:2] == [(0, 0, 1.5, 1.5, 3), (1, 1.5, 3, 3, 4.5)]


def test_a_worker_goes_on_while_a_server_still_waits_for_it():
    """Server 0 ends iterations after 2 s, and server 1 with the third worker."""
    servers = [{**STOP, "quorum": 2}, {**STOP, "quorum": 3}]
    result = by_hand(servers, 1, 2, 4, servers=2)
    assert "stopped" not in result.summary
    assert result.summary["virtual_time_s"] == 4 * ITERATIONS
    outcomes = {
        shard: {
            r["outcome"] for r in rows(result, "push") if (r["worker"], r["shard"]) == (2, shard)
        }
        for shard in (0, 1)
    }
    assert outcomes == {0: {"dropped"}, 1: {"applied"}}


def test_the_order_to_stop_takes_as_long_as_a_message():
    result = by_hand({**STOP, "quorum": 2}, 1, 2, 9, network={"latency_s": 0.25})
    # The second gradient arrives at 2.25 s. Its worker has the answer at 2.5 s, when the third
    # stops; that one has an answer of its own half a second later.
    assert times(result, 2)[:2] == [(0, 0, 2.5, 3.0, 9), (1, 3.0, 5.0, 5.5, 12)]


def test_servers_may_change_to_it_in_mid_run():
    slow = law(1, 2, 4)
    change = {"at_s": 9.0, "sync": {**STOP, "quorum": 2}}
    beside = {"workers": 3, "servers": 2, "network": None, "sync_changes": [change]}
    result = simulate(config("bsp", compute=slow, **beside) | {"sync": {**STOP, "quorum": 3}})
    # The third iteration begins at 8 s and ends at 10 s.
    assert [row[3] for row in times(result, 0)][:5] == [4, 8, 10, 12, 14]
    assert times(result, 2)[2:4] == [(2, 8, 10, 10, 12), (3, 10, 12, 12, 14)]


def test_a_global_barrier_is_refused():
    with pytest.raises(ConfigError, match="barrier: with barrier: global workers report"):
        simulate(config("bsp", barrier="global") | {"sync": STOP})


@pytest.mark.parametrize("policy", [DropStragglers, PartialPush])
def test_a_value_that_there_is_not_is_refused(policy):
    with pytest.raises(ValueError, match=r"^late must be finish or stop"):
        policy(2, late="wait")


def test_a_server_that_comes_back_alone_is_heard_of_during_a_computation():
    """Found by a review: the worker took the message, and sent the server nothing any more."""
    crash = {"kind": "crash", "server": 0, "at_s": 4.5}
    result = by_hand(
        {**STOP, "quorum": 2},
        *(1, 1, 4),
        servers=2,
        pull={"quorum_percent": 50},
        checkpoint={"every_s": 3},
        faults={"schedule": [crash]},
    )
    assert result.summary["status"] == "complete"
    assert result.summary["iterations"][:2] == [ITERATIONS] * 2
    assert result.summary["stopped"]["count"] > 0


def test_a_worker_that_stood_still_says_how_much_was_left():
    """It computes for 0.5 s, stands still for 3 s, and stops then, 3.5 s before its end."""
    pause = {"kind": "pause", "worker": 2, "at_s": 0.5, "for_s": 3.0}
    result = by_hand({**STOP, "quorum": 2}, 1, 2, 4, faults={"schedule": [pause]})
    assert times(result, 2)[0] == (0, 0, 3.5, 3.5, 7.0)


class Told:
    """The part of a worker's context that `StoppingWorker` uses: computations that it is told."""

    worker, servers, first_iteration = 0, ("server-0",), None
    initial_parameters = coin = must_stop = send = None

    def __init__(self, *computations):
        self._computations, self.now, self.found = list(computations), 0, []

    async def execute_until(self, parameters, iteration, ends_it):
        took, made = self._computations.pop(0)
        self.now += took
        return made

    def iteration_finished(self, iteration, *times):
        self.found.append(times[-1])


def test_what_is_left_of_a_computation_follows_from_earlier_ones_if_it_is_unknown():
    unknown = Stopped(math.nan)
    me = Told((3, []), (1, unknown), (5, unknown), (2, Stopped(0.5, 4)), (1, unknown))
    worker = StoppingWorker(me)

    async def work():
        for iteration in range(5):
            await worker.execute([], iteration)
            worker.iteration_finished(iteration, 0, 0, 0, 0, 0)

    with pytest.raises(StopIteration):
        work().send(None)
    # 3 of the one before; twice as long as 5; what is told; 6, as the one before.
    assert me.found == [None, 2, 5, 4, 5]
