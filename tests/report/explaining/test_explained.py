"""Tests of explanations of recorded runs."""

from __future__ import annotations

import re
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import outpace
from outpace.errors import ConfigError
from outpace.record import folder as files
from outpace.record.timing import SCHEMA
from outpace.report.explaining import explained
from outpace.report.explaining.words import sentences
from outpace.support.yaml_files import read_yaml, write_yaml

FACTORS = (1, 1, 1.3, 1, 1)


def run(folder, iterations=40, **changes):
    """Make a run of 5 workers, of which worker 2 takes 1.3 times as long; return its summary."""
    data = {
        "task": {"kind": "timing", "parameters": 1000},
        "workers": 5,
        "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.03, "factors": FACTORS},
        "stop": {"iterations": iterations},
        **changes,
    }
    return outpace.simulate(data, folder).summary


@pytest.mark.parametrize(
    "sync",
    [
        {"kind": "bsp"},
        {"kind": "local-sgd", "every": 4},
        {"kind": "asp"},
    ],
    ids=lambda sync: sync["kind"],
)
def test_the_seconds_lost_are_those_that_the_run_takes_less_without_the_slow_worker(tmp_path, sync):
    slow = run(tmp_path / "slow", sync=sync)
    even = run(
        tmp_path / "even", sync=sync, compute={"kind": "lognormal", "mean_s": 0.1, "cv": 0.03}
    )
    found = explained(tmp_path / "slow")
    (cause,) = found.causes
    assert (cause.name, cause.pattern, cause.named < 20) == ("worker 2", "steady", True)
    assert cause.factor == pytest.approx(1.3, abs=0.04)
    gained = slow["virtual_time_s"] - even["virtual_time_s"]
    assert cause.lost_s == pytest.approx(gained, abs=0.03 * slow["virtual_time_s"])
    if sync["kind"] == "bsp":
        assert found.lost_s <= found.waiting_s * 5 / 4  # the other four waited
    assert not explained(tmp_path / "even").causes


def test_without_waits_a_slow_worker_costs_a_share_of_its_own_time(tmp_path):
    """By hand: in 4 s it does 30 iterations, each 0.03 s longer, a fifth of which is 0.18 s."""
    run(tmp_path / "asp", sync={"kind": "asp"}, stop={"virtual_time_s": 4})
    (cause,) = explained(tmp_path / "asp").causes
    assert cause.lost_s == pytest.approx(0.18, rel=0.1)


def test_a_slow_link_is_told_from_a_slow_worker(tmp_path):
    network = {
        "latency_s": 0.001,
        "pairs": [{"between": ["worker-3", "server-1"], "latency_s": 0.05}],
    }
    even = {"kind": "lognormal", "mean_s": 0.1, "cv": 0.03}
    slow = run(tmp_path / "slow", sync={"kind": "bsp"}, servers=2, network=network, compute=even)
    usual = run(
        tmp_path / "usual",
        sync={"kind": "bsp"},
        servers=2,
        network={"latency_s": 0.001},
        compute=even,
    )
    (cause,) = explained(tmp_path / "slow").causes
    assert cause.name == "link of worker 3 to server 1"
    gained = slow["virtual_time_s"] - usual["virtual_time_s"]
    assert cause.lost_s == pytest.approx(gained, rel=0.1)


def test_what_is_not_a_recorded_run_is_said_in_one_line(tmp_path):
    run(tmp_path / "short", iterations=5, sync={"kind": "bsp"})
    with pytest.raises(ConfigError, match="has 5 iterations, and 8 are needed"):
        explained(tmp_path / "short")
    (tmp_path / "short" / "trace.parquet").unlink()
    with pytest.raises(ConfigError, match=r"has no trace.parquet.*choose a run that ended"):
        explained(tmp_path / "short")
    with pytest.raises(ConfigError, match="there is no such folder of a run"):
        explained(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is not the folder of a run"):
        explained(tmp_path)


def recorded(folder, servers, times_of, sync=None, late_s=0.0):
    """Record a run of 5 workers as if it were real: only the times of `times_of` are slow.

    Args:
        times_of: Function of iteration, worker and server that returns seconds of the request on
            the network, and of its handling.
        late_s: Additional latency of the link of worker 2, in each direction.
    """
    run(
        folder,
        sync=sync or {"kind": "bsp"},
        servers=servers,
        network={"latency_s": 0.005, "nodes": {"worker-2": {"latency_s": 0.005 + late_s / 2}}},
        compute={"kind": "lognormal", "mean_s": 0.1, "cv": 0.03},
    )
    summary = files.read_summary(folder)
    summary["wall_time_s"] = 3 * summary.pop("virtual_time_s")  # with evaluations
    files.write_summary(folder, summary)
    rows = []
    for iteration, worker, server in product(range(40), range(5), range(servers)):
        way, handling = (round(1e9 * part) for part in times_of(iteration, worker, server))
        handling += iteration % 3 + server
        row = dict.fromkeys(SCHEMA.names)
        row |= {"what": "push", "worker": worker, "server": server, "iteration": iteration}
        row |= {"sent_bytes": 1, "answer_bytes": 1, "sent_ns": 0, "received_ns": way // 2}
        row |= {"begun_ns": 0, "done_ns": handling, "arrived_ns": way}
        row |= {"answer_begun_ns": way // 2, "answered_ns": way // 2}
        rows.append(row)
    files.write_table(folder / files.TIMING, pa.Table.from_pylist(rows, SCHEMA))


def test_a_server_that_handles_requests_slowly_is_noted_and_no_link_to_it_named(tmp_path):
    """Requests of worker 4 are the last at server 1, and wait for the other workers' requests."""

    def times_of(_, worker, server):
        return 0.001 + 0.02 * worker * (server == 1), 0.03 if server == 1 else 0.01

    recorded(tmp_path / "run", 3, times_of)
    found = explained(tmp_path / "run")
    assert not found.causes
    (note,) = found.notes
    assert note.startswith("server 1 handles requests 3 times as slowly as the others")


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_slow_period_whose_iterations_have_no_times_is_between_those_before_and_after(tmp_path):
    """The last work of a killed process is missing in the trace, but its messages are recorded."""
    missing = (20, 21, 22, 23, 24)

    def times_of(iteration, worker, server):
        slow = worker == 2 and (iteration in missing or iteration >= 33)
        return 0.3 if slow else 0.01, 0.001

    recorded(tmp_path / "run", 3, times_of, {"kind": "asp"})
    trace = files.read_table(tmp_path / "run" / files.TRACE)
    mine = [row for row in trace.to_pylist() if (row["event"], row["worker"]) == ("iteration", 2)]
    lost = [
        row["event"] == "iteration" and row["worker"] == 2 and row["iteration"] in missing
        for row in trace.to_pylist()
    ]
    files.write_table(tmp_path / "run" / files.TRACE, trace.filter(pc.invert(pa.array(lost))))
    (cause,) = explained(tmp_path / "run").causes
    assert cause.name == "link of worker 2"
    period, _ = cause.periods
    assert (period.first, period.last) == (20, 24)
    assert period.start_s == pytest.approx(mine[19]["end_ns"] / 1e9)
    assert period.end_s == pytest.approx(mine[25]["start_ns"] / 1e9)


def test_half_of_the_workers_and_more_are_said_to_be_slow(tmp_path):
    law = {"kind": "lognormal", "mean_s": 0.1, "cv": 0.03}
    for slow, words in (
        (2, r"2 of 4 workers \(0 and 1\) are 1\.[23]\d times as slow as the others, and cost "),
        (3, r"3 of 4 workers \(0, 1 and 2\) are 1\.[23]\d times as slow as the others\."),
    ):
        factors = [1.3] * slow + [1] * (4 - slow)
        folder = tmp_path / str(slow)
        run(folder, workers=4, sync={"kind": "bsp"}, compute={**law, "factors": factors})
        assert re.match(words, sentences(explained(folder))[0])


def test_a_slow_worker_that_is_cut_off_is_steadily_slow(tmp_path):
    sync = {"kind": "cutoff", "model": "last-5", "decision": "deadline", "warmup": 10}
    run(tmp_path / "run", iterations=60, sync=sync)
    found = explained(tmp_path / "run")
    (cause,) = found.causes
    assert (cause.name, cause.pattern) == ("worker 2", "steady")
    assert cause.factor == pytest.approx(1.3, abs=0.05)
    assert "workers were cut off" in found.notes[0]


@pytest.mark.parametrize(("steps", "ends_by_itself"), [(38, True), (20, False)])
def test_workers_of_such_a_script_may_have_slightly_different_numbers_of_steps(
    tmp_path, steps, ends_by_itself
):
    """At half of the others' steps, worker 0 must have ended after a given time."""
    run(tmp_path / "run", sync={"kind": "asp"})
    (limited,) = explained(tmp_path / "run").causes
    path = tmp_path / "run" / files.CONFIG
    path.write_text(write_yaml({**read_yaml(path), "stop": {"iterations": None}}))
    rows = pq.read_table(tmp_path / "run" / files.TRACE)
    late = pc.and_(pc.equal(rows["worker"], 0), pc.greater_equal(rows["iteration"], steps))
    late = pc.fill_null(pc.and_(late, pc.equal(rows["event"], "iteration")), False)
    pq.write_table(rows.filter(pc.invert(late)), tmp_path / "run" / files.TRACE)
    (cause,) = explained(tmp_path / "run").causes
    assert (cause.lost_s == pytest.approx(limited.lost_s, rel=0.1)) is ends_by_itself


@pytest.mark.parametrize(("wall_time_s", "names"), [(4.0, []), (10.5, ["link of worker 2"])])
def test_links_of_a_run_of_some_seconds_are_not_judged(tmp_path, wall_time_s, names):
    recorded(
        tmp_path / "run",
        3,
        lambda _, worker, __: (0.03 if worker == 2 else 0.01, 1e-4),
        late_s=0.02,
    )
    summary = files.read_summary(tmp_path / "run")
    files.correct_summary(tmp_path / "run", {**summary, "wall_time_s": wall_time_s})
    found = explained(tmp_path / "run")
    assert [cause.name for cause in found.causes] == names
    assert any("too short to judge" in note for note in found.notes) is (not names)
