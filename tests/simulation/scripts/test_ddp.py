"""Scripts with DistributedDataParallel in virtual time, unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.paths import SCRIPTS

from outpace.errors import OutpaceWarning, RunError
from outpace.experiment.results import Result
from outpace.experiment.running import simulate

MS = 1_000_000  # ns
# A bucket of 1.2 MB takes 2(1 ms + 0.6 MB / (3 MB/s)) = 402 ms in a ring of two workers.
NETWORK = {"latency_s": 0.001, "bandwidth_bytes_per_s": 3e6}
BUCKET = 402 * MS


def simulated(script: str, *arguments: object, out: Path | None = None, **changes: Any) -> Result:
    task = {"kind": "script", "path": str(SCRIPTS / script), "arguments": [*map(str, arguments)]}
    law = {"kind": "constant", "mean_s": 0.6}
    base = {"task": task, "workers": 2, "sync": {"kind": "ssgd"}, "compute": law}
    return simulate({**base, **changes}, out)


def test_scripts_are_not_saved_which_is_said(tmp_path):
    with pytest.warns(OutpaceWarning, match="checkpoint: in virtual time scripts are not saved"):
        simulated("ddp_trains.py", tmp_path, checkpoint={"every_s": 1}, out=tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


def rows(result: Result, event: str, worker: int) -> list[dict[str, Any]]:
    found = [row for row in result.trace.to_pylist() if row["event"] == event]
    return [row for row in found if row["worker"] == worker]


def notes(folder: Path, rank: int) -> list[str]:
    return (folder / f"notes-{rank}").read_text().splitlines()


def test_buckets_overlap_with_backward_and_follow_each_other(tmp_path):
    result = simulated("ddp_vectors.py", "steps", tmp_path, network=NETWORK)
    # DistributedDataParallel makes one bucket in the first iteration. From the second on there are
    # two. Forward takes a third of 600 ms. The first bucket, with half of the gradients, is ready
    # half of backward later, at 400 ms, and done at 802 ms; the second is ready at 600 ms.
    first, _, last = rows(result, "iteration", 0)
    assert (first["end_ns"], first["held_ns"]) == (600 * MS + 2 * BUCKET - 2 * MS, 0)
    begun = last["start_ns"]
    assert last["computed_ns"] == begun + 600 * MS
    assert (last["end_ns"], last["held_ns"]) == (begun + 400 * MS + 2 * BUCKET, 0)
    *_, reduced = rows(result, "all-reduce", 0)
    span = [reduced[key] - begun for key in ("start_ns", "computed_ns", "end_ns")]
    assert span == [400 * MS, 600 * MS, 400 * MS + 2 * BUCKET]
    assert result.summary["synchronizations"] == 3
    assert result.summary["overlap_fraction"] == pytest.approx(400 / (802 + 2 * 804))
    gradients = sum((1 + n + 2 + n) / 2 for n in range(3))  # the mean of both workers, lr 1
    assert notes(tmp_path, 0) == notes(tmp_path, 1) == [str(-gradients)]


def test_gradients_accumulate_under_no_sync(tmp_path):
    result = simulated("ddp_vectors.py", "accumulates", tmp_path, network=NETWORK)
    # Two passes in 600 ms; backward of the second lasts from 400 to 600 ms.
    ends = [reduced["start_ns"] for reduced in rows(result, "all-reduce", 0)]
    begins = [iteration["start_ns"] for iteration in rows(result, "iteration", 0)]
    assert ends[2] - begins[2] == 500 * MS
    assert len(ends) == len(begins) == 3
    mean = 2 * ((1 + 3) + (2 + 4)) / 2  # of both workers
    assert notes(tmp_path, 0) == notes(tmp_path, 1) == [str(-3 * mean)]


@pytest.mark.parametrize("sync", ["ssgd", "asp"])
def test_collectives_of_the_script_have_the_right_values(sync, tmp_path):
    result = simulated("ddp_vectors.py", "collects", tmp_path, sync={"kind": sync}, network=NETWORK)
    objects = "[['from 1'], [{'rank': 0}, {'rank': 1}]]"
    for rank, (part, given) in enumerate([(3.0, 7.0), (10.0, 8.0)]):
        values = [[1.0, 2.0], [3.0], [0.5], [0.0, 1.0], [part], [given]]
        assert notes(tmp_path, rank) == [str(values), objects]
    found = result.summary["collectives"]
    assert found["count"] == len(rows(result, "collective", 0))
    seconds = sum(row["end_ns"] - row["start_ns"] for row in rows(result, "collective", 0)) / 1e9
    assert found["seconds"] >= seconds / 2 > 0


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            "differs",
            r"worker-0 called all_reduce sum of 10 elements float32 at ddp_vectors.py:\d+, but "
            r"worker-1 called barrier at ddp_vectors.py:\d+: call the same collectives",
        ),
        ("leaves", r"worker-1 left the run before collective \d+; worker-0 called all_red"),
        (
            "before",
            r"worker-0 called barrier at ddp_vectors.py:\d+; worker-1 did not, but began",
        ),
    ],
)
def test_scripts_whose_collectives_do_not_match_are_told_so(case, words, tmp_path):
    with pytest.raises(RunError, match=words):
        simulated("ddp_vectors.py", case, tmp_path)


def test_a_strategy_and_a_barrier_that_wait_for_each_other_are_told_apart():
    words = r"^nothing can happen after \d\.\d+ s.*\n.*worker-0 called barrier at .*take a strategy"
    with pytest.raises(RunError, match=rf"(?s){words}"):
        simulated("ddp_cases.py", "crossed", sync={"kind": "bsp"})


ONE_LATE = {"kind": "constant", "mean_s": 1.0, "factors": [1, 1, 2.5]}
QUORUMS = {
    "drop-stragglers": {"kind": "drop-stragglers", "quorum": 2},
    "partial-push": {"kind": "partial-push", "quorum": 2},
    "cutoff": {"kind": "cutoff", "model": "fixed", "share": 2 / 3},
}


@pytest.mark.parametrize("kind", QUORUMS)
def test_who_waits_in_a_collective_is_not_missing_from_a_quorum(kind, tmp_path):
    changes = {"sync": QUORUMS[kind], "workers": 3, "compute": ONE_LATE}
    result = simulated("ddp_vectors.py", "rounds", tmp_path, 4, **changes)
    # Workers 0 and 1 are the quorum: their four steps are iterations 0 to 3. They wait from 4 s on.
    # Worker 2 ends its steps at 2.5, 5.0, 7.5 and 10.0 s. The first two, of iterations 0 and 2, are
    # late. The others are iterations 4 and 5, of this worker alone. At 10.0 s all continue. The
    # first steps of workers 0 and 1 still belong to iteration 4, so they are also late.
    spans = {(row["start_ns"], row["end_ns"]) for row in rows(result, "collective", 0)}
    assert (4000 * MS, 10_000 * MS) in spans
    numbers = [[row["iteration"] for row in rows(result, "iteration", n)] for n in range(3)]
    assert numbers[0] == numbers[1] == [0, 1, 2, 3, 4, 6, 7, 8]
    assert numbers[2] == [0, 2, 4, 5, 6, 7, 9, 10]
    late = {
        (r["worker"], r["iteration"])
        for n in range(3)
        for r in rows(result, "push", n)
        if r["outcome"] == "dropped"
    }
    assert {(2, 0), (2, 2), (0, 4), (1, 4), (2, 7)} <= late
    # Iteration 6 begins while workers 0 and 1 wait, so a scheduler of cut-offs waits for all in it:
    # until 12.5 s instead of 12.0 s, and worker 2's gradient counts.
    waits_for_all = kind == "cutoff"
    assert len(late) == 6 - waits_for_all
    second = 14_500 * MS if waits_for_all else 14_000 * MS
    assert (second, 20_000 * MS) in spans
    assert result.summary["virtual_time_s"] == 20.0
    found = result.summary["collectives"]
    assert found["seconds"] == pytest.approx(2 * (6 + (20 - second / (1000 * MS))) / 3)
    assert [notes(tmp_path, rank) for rank in range(3)] == [["3.0", "3.0"]] * 3
