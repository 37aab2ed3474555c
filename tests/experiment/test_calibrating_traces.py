"""Makes cluster files from traces of torch.profiler whose times are chosen by hand."""

from __future__ import annotations

import gzip
import json
import shutil

import numpy as np
import pytest
from tests.support.command import outpace, refused
from tests.support.profiles import gloo, nccl

from outpace.cluster.calibration.profiles import RankProfile, profiled
from outpace.cluster.calibration.waits import LATE_S, total_before, waits
from outpace.experiment.calibrating import trace_files
from outpace.experiment.running import simulate
from outpace.support.yaml_files import read_yaml

STEPS = 25


def written(folder, *traces):
    folder.mkdir(exist_ok=True)
    return [str(trace.write(folder / f"rank{trace.rank}.json")) for trace in traces]


def two_ranks(marks="steps", steps=STEPS, **clock):
    return [
        gloo(0, 80, steps, slowest=100, marks=marks),
        gloo(1, 100, steps, slowest=100, marks=marks, **clock),
    ]


def calibrated(folder, paths):
    assert outpace("calibrate", *paths, "-o", str(folder / "cluster.yaml")) == 0
    return read_yaml(folder / "cluster.yaml")


@pytest.mark.parametrize("marks", ["steps", "optimizer"])
def test_run_times_and_all_reduces_of_a_run_over_gloo_are_found(tmp_path, capsys, marks):
    ranks = two_ranks(marks, ahead_ms=5000.0, drift=1e-4)
    found = calibrated(tmp_path, reversed(written(tmp_path / "traces", *ranks)))
    # A rank computes for 80 or 100 ms, pause included, and 5 ms after the first all-reduce. An
    # iteration takes 116 ms: 11 ms more than the slowest rank computes.
    assert found["compute"]["kind"] == "constant"
    assert found["compute"]["mean_s"] == pytest.approx(0.095, rel=1e-3)
    assert found["compute"]["factors"] == pytest.approx([85 / 95, 105 / 95], rel=1e-3)
    said, of = found["calibrated"], found["calibrated"]["all_reduces"]
    assert (said["workers"], said["backend"], of["bytes"]) == (2, "gloo", [4_000_004])
    assert said["iteration_s"] == pytest.approx(0.116, rel=1e-3)
    assert of["recorded_mean_s"] == pytest.approx([0.011], rel=0.01)
    # 4 bytes take 1 ms and 4 MB 10 ms: 1 ms of latency and 9 ms for 4 MB.
    assert of["latency_s"] == pytest.approx(1e-3, rel=0.02)
    assert of["s_per_byte"] == pytest.approx(9e-3 / 4e6, rel=0.02)
    # Two kinds of periods determine latency and bandwidth, so their error is always 0.
    assert of["testable"] is False
    said = capsys.readouterr()
    assert "fit not testable: it has as many parameters as times" in said.out
    assert "median error" not in said.out
    assert "task: {kind: timing, parameters: 1000001}" in said.out
    assert "clocks of the ranks differ by up to 5" in said.err
    assert "iterations are few: do not trust" in said.err
    assert "times and no losses" in said.err


def test_the_profiled_run_is_predicted(tmp_path):
    calibrated(tmp_path, written(tmp_path / "traces", *two_ranks()))
    config = {
        "include": str(tmp_path / "cluster.yaml"),
        "task": {"kind": "timing", "parameters": 1_000_001},
        "workers": 2,
        "stop": {"iterations": 40},
    }

    def step_s(**changes):
        return simulate({**config, **changes}).summary["virtual_time_s"] / 40

    # 105 ms of the slowest rank and 11 ms of all-reduces.
    assert step_s(sync={"kind": "ssgd"}) == pytest.approx(0.116, rel=1e-3)
    assert step_s(sync={"kind": "ssp", "staleness": 3}, servers=2) < 0.2


@pytest.mark.parametrize("arguments", ["kernel", "record", "annotation"])
def test_buckets_over_nccl_overlap_with_the_backward_pass(tmp_path, capsys, arguments):
    ranks = [nccl(rank, 15 * rank, STEPS, arguments=arguments) for rank in range(2)]
    found = calibrated(tmp_path, written(tmp_path / "traces", *ranks))
    # From the end of B to the next: 75 ms of kernels, or 90 in the slow rank, of 100.
    assert found["compute"]["mean_s"] == pytest.approx((0.075 + 0.090) / 2, rel=1e-3)
    assert found["compute"]["factors"] == pytest.approx([75 / 82.5, 90 / 82.5], rel=1e-3)
    said = found["calibrated"]["all_reduces"]
    assert said["recorded_mean_s"] == pytest.approx([0.010], rel=1e-3)
    # 15 ms for 6 MB and 10 ms for 1 MB: 9 ms of latency and 1 ms per MB; 7 MB at once 16 ms.
    assert said["latency_s"] == pytest.approx(9e-3, rel=0.01)
    assert said["s_per_byte"] == pytest.approx(1e-9, rel=0.01)
    assert said["times_slower_in_training"] == pytest.approx(10 / 16, abs=0.01)
    notes = capsys.readouterr().err
    assert "they overlapped with computation" in notes
    assert "not tried on a GPU" in notes


def test_messages_between_ranks_over_nccl_are_refused_by_their_kernel(tmp_path, capsys):
    kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    ranks = [nccl(rank, 15, STEPS, arguments="kernel") for rank in range(2)]
    for trace in ranks:
        trace.add("kernel", kernel, 150, 151, **{"Collective name": "coalesced"})
    paths = written(tmp_path / "traces", *ranks)
    message = refused(capsys, "calibrate", *paths, "-o", str(tmp_path / "c.yaml"))
    assert "messages from rank to rank, as pipelines and MoE models have (sendrecv)" in message


# -- waiting -------------------------------------------------------------------------


def test_only_the_gap_in_which_a_collective_ends_is_a_wait():
    # The all-reduce lasts from 1 to 9. The rank computes until 2, pauses until 3, computes until 6,
    # and then waits. The next, from 10 to 12, ends 0.1 ms after the rank has continued.
    busy = np.array([[0.0, 2.0], [3.0, 6.0], [9.0, 11.0], [11.9999, 13.0]])
    begins, ends = np.array([1.0, 10.0]), np.array([9.0, 12.0])
    found = waits(busy, begins, ends, LATE_S)
    assert found == pytest.approx(np.array([[6.0, 9.0], [11.0, 11.9999]]))
    assert total_before(found, np.array([5.0, 7.0, 10.0, 20.0])) == pytest.approx(
        [0.0, 1.0, 3.0, 3.9999]
    )


def test_a_gap_between_kernels_just_before_the_end_of_a_collective_is_no_wait_over_nccl():
    busy = np.array([[0.0, 5.0], [5.0003, 9.0]])  # an all-reduce overlaps, until 5.0005
    begins, ends = np.array([1.0]), np.array([5.0005])
    assert len(waits(busy, begins, ends, 0.0)) == 0
    assert waits(busy, begins, ends, LATE_S) == pytest.approx(np.array([[5.0, 5.0003]]))


def profile(rank, step, ends, sizes):
    count = len(step)
    times = np.array(ends, dtype=np.float64)
    sizes = np.array(sizes, dtype=np.int64)
    of_all = np.ones(count, np.bool_)
    name, busy = f"rank {rank}", np.zeros((0, 2))
    return RankProfile(name, busy, np.array(step), times - 1, times, sizes, of_all, 0.0)


def test_a_step_without_an_all_reduce_belongs_to_the_next_iteration():
    # Steps 2 and 4 of 1 to 5 only accumulate: two iterations, each of two steps.
    ranks = [profile(rank, [1, 3, 5], [2.0, 6.0, 12.0], [8, 8, 8]) for rank in range(2)]
    found = profiled(ranks)
    assert found.seconds == pytest.approx([4.0, 6.0])
    assert found.compute == pytest.approx(np.array([[3.0, 3.0], [5.0, 5.0]]))


def test_the_first_and_the_last_step_may_be_recorded_in_part():
    whole = [1, 1, 2, 2, 3, 3, 4, 4]
    ends = [float(n) for n in range(2, 10)]
    ranks = [
        profile(0, whole, ends, [4] * 8),
        profile(1, whole[1:-1], ends[1:-1], [4] * 6),
    ]
    assert profiled(ranks).iterations == 1  # from step 2 to step 3
    ranks[1] = profile(1, [*whole[:3], *whole[4:]], [*ends[:3], *ends[4:]], [4] * 7)
    with pytest.raises(ValueError, match="of 4, 4 bytes in rank 0, and of 4 bytes in rank 1"):
        profiled(ranks)


# -- refusals ------------------------------------------------------------------------


def traced(buckets, partial=(0, 0), flips=None):
    """Return two ranks with such buckets in each step, and the profile of their collectives.

    Args:
        buckets: sizes of the buckets of each step.
        partial: number of collectives that rank 1 lacks at the beginning and at the end.
        flips: a source of random numbers: buckets of a step begin in any order in either rank.
    """
    rows = []
    for step, sizes in enumerate(buckets):
        for place, size in enumerate(sizes):
            begin = step + 0.5 + 1e-4 * place
            rows.append((step, size, begin, begin + 0.05 * (place + 1)))
    step, size, begins, ends = (np.array(column) for column in zip(*rows, strict=True))
    ranks = []
    for rank in range(2):
        mine = begins.copy()
        for number in range(len(buckets)) if flips is not None else ():
            mine[step == number] = flips.permutation(mine[step == number])
        order = np.argsort(mine, kind="stable")
        order = order[partial[0] * rank : len(order) - partial[1] * rank]
        is_all, busy = np.ones(len(order), np.bool_), np.zeros((0, 2))
        parts = mine[order], ends[order], size[order], is_all, 0.0
        ranks.append(RankProfile(f"rank {rank}", busy, step[order], *parts))
    return profiled(ranks)


@pytest.mark.parametrize("equal", [True, False], ids=["of one size", "of different sizes"])
@pytest.mark.parametrize("partial", [(0, 0), (1, 0), (0, 1), (3, 5)])
def test_buckets_are_matched_in_whatever_order_ranks_begin_them(equal, partial):
    flips = np.random.default_rng(partial)
    for _ in range(5):
        count = int(flips.integers(1, 5))
        sizes = [8] * count if equal else flips.choice(range(1, 9), count).tolist()
        buckets = [[1000, *sizes]] + [sizes] * 8  # DDP has other buckets in its first step
        found, expected = traced(buckets, partial, flips), traced(buckets, partial)
        assert found.spread_s == expected.spread_s == pytest.approx(0, abs=1e-12)
        assert found.iterations == expected.iterations >= 1
        assert found.size_bytes.tolist() == [sum(sizes)] * found.iterations
        np.testing.assert_allclose(found.compute, expected.compute, atol=1e-9)
        np.testing.assert_allclose(found.alone.seconds, expected.alone.seconds, atol=1e-3)


def test_a_collective_that_one_rank_began_in_the_next_step_is_matched():
    steps, late = [1, 1, 2, 2, 3, 3, 4, 4], [1, 1, 2, 3, 3, 3, 4, 4]
    ends = [float(n) for n in range(2, 10)]
    found = profiled([profile(0, steps, ends, [8, 4] * 4), profile(1, late, ends, [8, 4] * 4)])
    assert found.size_bytes.tolist() == [12, 12, 12]
    unlike = profile(1, steps, ends, [8, 4, 8, 6, 8, 4, 8, 4])
    with pytest.raises(ValueError, match="of 4, 8 bytes in rank 0, and of 6, 8"):
        profiled([profile(0, steps, ends, [8, 4] * 4), unlike])


def edited(change):
    """Return the folder of traces in which the document of rank 1 was changed."""

    def edit(paths):
        with open(paths[1]) as file:
            document = json.load(file)
        change(document)
        with open(paths[1], "w") as file:
            json.dump(document, file)

    return edit


def info(**values):
    return edited(lambda document: document["distributedInfo"].update(values))


def events(keep):
    return edited(lambda each: each.update(traceEvents=list(filter(keep, each["traceEvents"]))))


def all_reduces(name="gloo:all_reduce", **arguments):
    """Give the all-reduces of rank 1 another name, or other arguments."""

    def change(document):
        for event in document["traceEvents"]:
            if event["name"] == "gloo:all_reduce":
                event["name"] = name
                event["args"].update(arguments)

    return edited(change)


def later(document):
    document["baseTimeNanoseconds"] += 3600 * 10**9


def truncated(paths):
    with open(paths[1], "r+") as file:
        file.truncate(3000)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (truncated, "it is damaged: "),
        (edited(lambda document: document.pop("traceEvents")), "not a trace of torch.profiler"),
        (edited(lambda document: document.pop("distributedInfo")), "after torch.distributed.init"),
        (info(rank=0), "is also of this rank"),
        (info(world_size=4), "with 4 ranks over gloo"),
        (events(lambda event: event["name"] != "gloo:all_reduce"), "no all-reduces"),
        (all_reduces(**{"Input Dims": []}), "rank 1, step 3: it does not say how large"),
        (all_reduces(**{"Group size": 1}), "collectives of a group of 1 of the 2 ranks"),
        (
            all_reduces(**{"Input Dims": [[7]]}),
            "4, 4,000,000 bytes in rank 0 (rank0.json), and of 28",
        ),
        (all_reduces("gloo:reduce_scatter"), "as FSDP and ZeRO have (reducescatter)"),
        (
            all_reduces("gloo:all_to_all"),
            "as pipelines and MoE models have (alltoall)",
        ),
        (events(lambda event: not event["name"].startswith("Profiler")), "call prof.step()"),
        (edited(later), "of different runs: the ends of an all-reduce differ"),
        (lambda paths: paths.pop(), "there is no trace of rank 1"),
        (lambda paths: paths.append("runs"), "is not a trace, and"),
    ],
)
def test_traces_that_cannot_be_calibrated_are_refused_in_a_line(tmp_path, capsys, change, words):
    paths = written(tmp_path / "traces", *two_ranks())
    change(paths)
    before = sorted(tmp_path.rglob("*"))
    message = refused(capsys, "calibrate", *paths, "-o", str(tmp_path / "c.yaml"))
    assert words in message
    assert len(message.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_short_and_large_traces_are_refused(tmp_path, capsys, monkeypatch):
    out = str(tmp_path / "c.yaml")
    paths = written(tmp_path / "short", *two_ranks(steps=20))
    message = refused(capsys, "calibrate", *paths, "-o", out)
    assert "19 iterations with an all-reduce, and a calibration needs at least 20" in message
    monkeypatch.setattr(trace_files, "LARGEST", 1000)
    assert "GB of JSON, which is too large" in refused(capsys, "calibrate", *paths, "-o", out)


def test_packed_traces_are_read(tmp_path):
    for path in written(tmp_path / "traces", *two_ranks()):
        with open(path, "rb") as plain, gzip.open(f"{path}.gz", "wb") as packed:
            shutil.copyfileobj(plain, packed)
    calibrated(tmp_path, [str(path) for path in (tmp_path / "traces").glob("*.gz")])
