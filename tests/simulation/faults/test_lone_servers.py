"""With `server_alone` a server that dies comes back alone under relaxed strategies."""

import pyarrow.compute as pc
import pytest
from tests.simulation.faults.ledger import RELAXED, Ran, experiment, random_faults

from outpace.errors import RunError

CRASHES = {
    "once": [(1.03, 1)],
    "before the second checkpoint": [(0.21, 0)],
    "both, one after the other": [(0.8, 0), (1.25, 1)],
    "both at once": [(1.0, 0), (1.005, 1)],
    "again while it comes back": [(1.0, 0), (1.15, 0), (1.3, 0)],
    "at the end": [(2.0, 0), (2.3, 1)],
}


def ran(strategy: str, crashes: list[tuple[float, int]], *more: dict, **changes) -> Ran:
    """Let servers die at these times (s), and have the parameters count the gradients."""
    faults = [{"kind": "crash", "at_s": at_s, "server": server} for at_s, server in crashes]
    return Ran(experiment(strategy, {"schedule": [*faults, *more]}, **changes), copies=2)


def rows(found: Ran, event: str) -> list[dict]:
    return found.trace.filter(pc.equal(found.trace["event"], event)).to_pylist()


def missing(found: Ran) -> int:
    """Return how many gradients some server lacks."""
    return int((found.counts == 0).any(dim=0).sum())


@pytest.mark.parametrize("crashes", CRASHES.values(), ids=CRASHES)
@pytest.mark.parametrize("strategy", RELAXED)
def test_the_workers_go_on_and_what_is_lost_is_counted_exactly(strategy, crashes):
    found = ran(strategy, crashes)
    assert found.counts.max() == 1
    happened = found.costs["happened"]["crash"]
    assert found.recovery.restarts == found.costs["server_losses"] == happened
    assert found.costs["worker_losses"] == 0
    assert list(found.totals.iterations.values()) == [20, 20, 20]
    assert missing(found) == found.recovery.updates_lost
    assert found.recovery.updates_lost == sum(row["clock"] for row in rows(found, "gap"))
    began = [(row["worker"], row["iteration"]) for row in rows(found, "iteration")]
    assert len(began) == len(set(began)) == 60  # none is repeated


@pytest.mark.parametrize("strategy", RELAXED)
def test_without_the_key_all_begin_again_as_in_a_real_run(strategy):
    found = ran(strategy, CRASHES["once"], server_alone=False)
    assert found.counts.min() == found.counts.max() == 1
    assert (found.recovery.restarts, found.recovery.updates_lost) == (1, 0)
    assert found.costs["lost_s"]["repeated"] > 0
    assert rows(found, "gap") == []


@pytest.mark.parametrize("seed", [3, 5, 8, 11])
@pytest.mark.parametrize("strategy", RELAXED)
def test_whatever_fails_all_that_is_missing_is_counted_once(strategy, seed):
    faults = random_faults(1000 * seed + 7, workers=3, servers=2, until_s=2.5)
    found = Ran(experiment(strategy, {"schedule": faults}, seed=seed), tie_seed=seed, copies=2)
    assert found.counts.max() == 1
    assert missing(found) == found.recovery.updates_lost


def test_nothing_but_the_updates_since_the_checkpoint_is_lost():
    found = ran("asp", [(1.03, 1)])
    (restart,) = rows(found, "restart")
    assert (restart["worker"], restart["shard"], restart["held_ns"]) == (None, 1, None)
    assert restart["start_ns"] == 1_030_000_000
    assert restart["end_ns"] == 1_240_000_000  # known after 10 ms, ready 200 ms later
    saved_ns = 900_000_000  # the last checkpoint
    # Server 1 lacks what it had applied from then on, and what was sent until it was back.
    lost = {
        (row["worker"], row["iteration"])
        for row in rows(found, "iteration")
        if saved_ns < row["computed_ns"] <= restart["end_ns"]
    }
    lacks = (found.counts[1] == 0).nonzero().tolist()
    assert {tuple(each) for each in lacks} <= lost
    applied = {
        (row["worker"], row["iteration"])
        for row in rows(found, "push")
        if row["shard"] == 1 and saved_ns < row["end_ns"] < restart["start_ns"]
    }
    assert applied <= {tuple(each) for each in lacks}
    assert found.counts[0].eq(1).all()


def test_workers_and_servers_that_die_lose_no_more_than_is_counted():
    workers = [{"kind": "crash", "at_s": 0.43 + 0.37 * n, "worker": n % 3} for n in range(5)]
    for strategy in ("ssp", "asp"):
        found = ran(strategy, [(0.9, 1), (1.5, 0)], *workers)
        assert found.counts.max() == 1
        assert found.recovery.restarts == 7
        # A worker's push on the way is computed again if it has reached no server.
        assert missing(found) == found.recovery.updates_lost


def test_a_worker_that_is_not_replaced_is_counted_too():
    crash = {"kind": "crash", "at_s": 0.7, "worker": 2}
    found = ran("asp", [(0.88, 0)], crash, on_worker_loss="continue")
    assert found.recovery.restarts == 1
    done = max(row["iteration"] for row in rows(found, "push") if row["worker"] == 2)
    in_part = int((found.counts[:, 2, : done + 1] == 0).any(dim=0).sum())
    others = int((found.counts[:, :2] == 0).any(dim=0).sum())
    assert in_part + others == found.recovery.updates_lost > 0


@pytest.mark.parametrize("server", [0, 1])
def test_goodput_has_only_what_is_in_the_result(server):
    found = ran("asp", [(1.03, server)])
    plain = Ran(experiment("asp", None), copies=2)
    rate = 60 / plain.time_s
    kept = 60 - found.recovery.updates_lost
    assert found.costs["goodput"] == pytest.approx(kept / found.time_s / rate, rel=1e-6)
    assert found.costs["lost_s"]["repeated"] == 0
    assert found.costs["lost_s"]["lost"] > 0
    # Each of three workers waits for at most 10 ms until the loss is known, and 200 ms after it.
    assert 0 < found.costs["lost_s"]["detection"] + found.costs["lost_s"]["restart"] <= 0.21


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"on_server_loss": "stop"}, "server-1 was killed by SIGKILL .after 1.04"),
        ({"checkpoint": None}, "server-1 was killed by SIGKILL; set checkpoint"),
    ],
)
def test_a_run_that_cannot_go_on_ends_with_the_loss(changes, message):
    with pytest.raises(RunError, match=message):
        ran("asp", [(1.03, 1)], **changes)


def test_a_server_that_dies_again_and_again_ends_the_run():
    with pytest.raises(RunError, match="the 5th loss since checkpoint 1; the run ends"):
        ran("asp", [(0.5 + 0.3 * n, 1) for n in range(8)], checkpoint={"every_s": 100.0})


@pytest.mark.parametrize("strategy", ["bsp", "drop-stragglers", "cutoff", "global barrier"])
def test_where_workers_wait_for_each_iteration_all_begin_again(strategy):
    found = ran(strategy, [(1.03, 1)])
    (restart,) = rows(found, "restart")
    assert restart["held_ns"] > 0
    assert rows(found, "gap") == []
