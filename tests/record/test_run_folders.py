"""Run times from the folders of runs: as servers see them, and as computed."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.tables import assert_same, table

from outpace.errors import ConfigError
from outpace.experiment.running import simulate
from outpace.record import folder as files
from outpace.record.recorder import Recorder
from outpace.record.run_times import Meaning, read_source
from outpace.record.trace import Trace, trace_table
from outpace.sync.messages import Push
from outpace.sync.observer import Outcome

NAN = float("nan")
S = 10**9  # ns
LATENCY = 0.125

TIMES = {0: [1.0, 2.0, 1.0, 1.0], 1: [3.0, 1.0, 1.0, 1.0], 2: [0.5, 0.5, 4.0, 0.5]}


def simulated(folder, sync, **more):
    path = folder / "times.csv"
    rows = (f"{w},{i},{t}\n" for w, mine in TIMES.items() for i, t in enumerate(mine))
    path.write_text("worker,iteration,seconds\n" + "".join(rows))
    config = {
        "task": {"kind": "timing", "parameters": 10},
        "workers": 3,
        "servers": 2,
        "sync": sync,
        "compute": {"kind": "trace", "path": str(path)},
        "network": {"latency_s": LATENCY},
        "stop": {"iterations": 4},
        **more,
    }
    simulate(config, folder / "run")
    return folder / "run"


def by_iteration(times) -> np.ndarray:
    return np.array([times[worker] for worker in sorted(times)]).T


def handmade(folder, pushes, kind, *, iterations=(), workers=2):
    """pushes: worker, shard, iteration, arrived s, settled s, outcome."""
    folder.mkdir()
    files.write_config(folder, {"sync": {"kind": kind}, "workers": workers})
    cut = {"cut_offs": {"iterations": 1}} if kind == "cutoff" else {}
    files.write_summary(folder, {"lockstep": kind != "asp", **cut})
    sink = trace_table(folder / files.TRACE)
    trace = Trace(sink)
    recorder = Recorder(trace)
    for worker, shard, iteration, arrived, settled, outcome in pushes:
        push = Push(worker, iteration, 0)
        recorder.push_settled(shard, push, round(arrived * S), round(settled * S), outcome, 0)
    for worker, iteration, began, computed in iterations:
        recorder.iteration_finished(
            worker, iteration, round(began * S), round(computed * S), round(computed * S), 0, 0
        )
    trace.flush()
    sink.close()
    return folder


def test_servers_see_the_computation_and_both_transfers(tmp_path):
    found = read_source(simulated(tmp_path, {"kind": "bsp"}))
    # The first iteration has parameters already; for the others they come from the servers.
    expected = by_iteration(TIMES) + np.array([[LATENCY]] + 3 * [[2 * LATENCY]])
    np.testing.assert_allclose(found.times.seconds, expected, rtol=0, atol=1e-8)
    assert not found.times.censored.any()
    assert "until the gradient is at the last server" in found.definition


@pytest.mark.parametrize("kind", ["bsp", "asp"])
def test_computing_alone_is_the_law_itself(tmp_path, kind):
    found = read_source(simulated(tmp_path, {"kind": kind}), Meaning.COMPUTE)
    assert found.times.seconds.tolist() == by_iteration(TIMES).tolist()
    assert found.definition == "computing alone"


def test_where_workers_do_not_begin_together_computing_is_the_default_and_all_there_is(tmp_path):
    run = simulated(tmp_path, {"kind": "ssp", "staleness": 1})
    assert read_source(run).definition == "computing alone"
    with pytest.raises(ConfigError, match=r"do not start iterations together.*use --of compute"):
        read_source(run, Meaning.SERVER)


def test_who_came_too_late_has_its_time_and_who_skipped_an_iteration_was_not_there(tmp_path):
    late = Outcome.DROPPED
    pushes = [
        (0, 0, 0, 1, 1, Outcome.APPLIED),
        (0, 0, 1, 3, 3, Outcome.APPLIED),
        (1, 0, 0, 2.5, 2.5, late),
        (0, 0, 2, 5, 7, Outcome.APPLIED),
        (1, 0, 2, 7, 7, Outcome.APPLIED),
    ]
    found = read_source(handmade(tmp_path / "run", pushes, "drop-stragglers"))
    assert_same(found.times, table([[1.0, 2.5], [2.0, NAN], [2.0, 4.0]]))


def test_an_iteration_begins_when_the_last_shard_has_closed_the_one_before(tmp_path):
    applied = Outcome.APPLIED
    pushes = [
        (0, 0, 0, 1, 2, applied),
        (1, 0, 0, 2, 2, applied),
        (0, 1, 0, 1.5, 3, applied),
        (1, 1, 0, 3, 3, applied),
        (0, 0, 1, 4, 5, applied),
        (1, 0, 1, 5, 5, applied),
        (0, 1, 1, 4.5, 5, applied),
        (1, 1, 1, 5, 5, applied),
    ]
    found = read_source(handmade(tmp_path / "run", pushes, "bsp"))
    assert_same(found.times, table([[1.5, 3.0], [1.5, 2.0]]))


def test_an_iteration_that_the_end_of_the_run_cut_short_is_left_out(tmp_path):
    pushes = [
        (0, 0, 0, 1, 2, Outcome.APPLIED),
        (1, 0, 0, 2, 2, Outcome.APPLIED),
        (0, 0, 1, 3, 4, Outcome.PENDING),
    ]
    found = read_source(handmade(tmp_path / "run", pushes, "bsp"))
    assert_same(found.times, table([[1.0, 2.0]]))


def test_who_was_cut_off_is_censored_when_the_iteration_ended(tmp_path):
    pushes = [
        (0, 0, 0, 1, 1, Outcome.APPLIED),
        (1, 0, 0, 1.25, 1.25, Outcome.ABSTAINED),
        (0, 0, 1, 3, 4, Outcome.APPLIED),
        (1, 0, 1, 4, 4, Outcome.APPLIED),
    ]
    rows = [(0, 0, 0, 1), (1, 0, 0, 1.25), (0, 1, 1, 3), (1, 1, 1, 4)]
    run = handmade(tmp_path / "run", pushes, "cutoff", iterations=rows)
    cut = [[False, True], [False, False]]
    assert_same(read_source(run).times, table([[1.0, 1.0], [2.0, 3.0]], censored=cut))
    computing = read_source(run, Meaning.COMPUTE).times
    assert_same(computing, table([[1.0, 1.25], [2.0, 3.0]], censored=cut))


def test_nodes_are_those_of_the_law_or_those_one_says(tmp_path):
    regimes = [{"factor": 1, "dwell_s": 60}, {"factor": 3, "dwell_s": 10}]
    law = {"kind": "regimes", "mean_s": 1.0, "regimes": regimes, "workers_per_node": 2}
    run = simulated(tmp_path, {"kind": "bsp"}, compute=law)
    assert read_source(run).times.node.tolist() == [0, 0, 1]
    assert read_source(run, workers_per_node=1).times.node.tolist() == [0, 1, 2]


def test_what_is_no_source_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no file or folder"):
        read_source(tmp_path / "nothing")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ConfigError, match="there are no run times in it; give the folder of a"):
        read_source(empty)
    strange = tmp_path / "times.txt"
    strange.write_text("1 2 3")
    with pytest.raises(ConfigError, match="give the folder of a run"):
        read_source(strange)
    strange.rename(tmp_path / "times.csv")
    with pytest.raises(ConfigError, match="--of is for the folder of a run"):
        read_source(tmp_path / "times.csv", Meaning.COMPUTE)
