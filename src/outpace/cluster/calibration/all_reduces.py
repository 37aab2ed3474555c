"""The cost of a round of an all-reduce, from real runs without servers.

An all-reduce is timed from its last arrival: from the time at which all workers had joined it until
a worker continues with the result, or, if the worker computes meanwhile, until the sum is there.
What comes before is waiting, which follows from the strategy.

A ring among N workers has 2(N−1) rounds of L + m/(N·B) seconds for m bytes. A run begins with a
probe of several sizes, and its training most often has one. A line through the medians of all of
them gives the ratio of L and 1/B. Both are then multiplied by a factor, so that the all-reduces of
the training have their mean, since the length of a run is a sum.

Without such a run the protocol of Gloo gives the cost (`assumed_all_reduce`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outpace.cluster.calibration import Floats
from outpace.cluster.calibration.transits import Line, line_through, rounded
from outpace.cluster.network import AllReduceLaw, LinkLaw, NetworkLaw
from outpace.sync.messages import worker_name


@dataclass(frozen=True, slots=True, eq=False)
class AllReduceTimes:
    """All-reduces of one run, each timed from its last arrival.

    Args:
        probe_bytes, probe_s: Size and duration of those of the probe, shape (n,).
        size_bytes, seconds: Of those of the training, a row for each worker in each of them.
    """

    probe_bytes: Floats
    probe_s: Floats
    size_bytes: Floats
    seconds: Floats


@dataclass(frozen=True, slots=True, eq=False)
class AllReduceFit:
    """The cost of a round, and how well it describes the recorded all-reduces.

    Args:
        law: Of the training.
        workers: N, in all runs.
        sizes, medians: Sizes in bytes and median durations in s, of the probe and the training of
            each run, shape (k,).
        line: Through them.
        training: For each run the size in bytes, the mean recorded and the mean fitted duration in
            s, and the number of durations, shape (runs, 4).
        slower: The factor by which the training's all-reduces take longer than the line says.
    """

    law: AllReduceLaw
    workers: int
    sizes: Floats
    medians: Floats
    line: Line
    training: Floats
    slower: float

    @property
    def error(self) -> float:
        """Median of the relative errors of the line."""
        return float(np.median(np.abs(self.line.at(self.sizes) / self.medians - 1)))

    @property
    def testable(self) -> bool:
        """True if there are more medians than the line has parameters: otherwise it meets all."""
        return len(self.sizes) > 2

    @property
    def training_testable(self) -> bool:
        """True if there are several runs: `slower` alone lets the law meet the mean of one."""
        return len(self.training) > 1

    def seconds(self, size_bytes: Floats) -> Floats:
        """Return how long all-reduces of these sizes take in the training, in s."""
        return self.slower * self.line.at(size_bytes)


def fit_all_reduces(runs: Sequence[AllReduceTimes], workers: int) -> AllReduceFit:
    """Return the cost of a round that describes these runs best.

    Raises:
        ValueError: all all-reduces are of about one size, so latency and bandwidth cannot be told
            apart.
    """
    points: list[tuple[float, float]] = []
    for run in runs:
        for size in np.unique(run.probe_bytes):
            times = run.probe_s[run.probe_bytes == size]
            points.append((size, float(np.median(times[1:] if len(times) > 1 else times))))
        points.append((float(np.median(run.size_bytes)), float(np.median(run.seconds))))
    sizes, medians = np.array(points).T
    if sizes.max() < 4 * sizes.min():
        raise ValueError("all all-reduces are of about one size")
    line = line_through(sizes, medians)
    recorded = sum(float(run.seconds.sum()) for run in runs)
    slower = recorded / sum(float(line.at(run.size_bytes).sum()) for run in runs)
    rounds = 2 * (workers - 1)
    law = AllReduceLaw(
        rounded(slower * line.latency_s / rounds),
        rounded(rounds / (workers * slower * line.s_per_byte)),
    )
    training = [
        (
            float(run.size_bytes.mean()),
            float(run.seconds.mean()),
            slower * float(line.at(run.size_bytes).mean()),
            float(len(run.seconds)),
        )
        for run in runs
    ]
    return AllReduceFit(law, workers, sizes, medians, line, np.array(training), slower)


def assumed_all_reduce(law: NetworkLaw, workers: int, size_bytes: int) -> AllReduceLaw | None:
    """Return the cost of a round of Gloo's ring; None without latency or a second worker.

    Gloo sends a chunk of c bytes as two segments, which overlap, and a segment when the receiver
    has said that it has a buffer for it. With latency L and bandwidth B of the links, the reduction
    and the distribution, each of N−1 rounds, take the longer of 2L + (N−1)·c/B, where the links are
    always busy, and (N−1)·(2L + c/2B) + c/2B, where they wait for the receivers.

    Workers on one machine share its connection, over which the messages of a round to other
    machines go; the machine with most of them counts.

    Args:
        law: Of messages. The slowest worker counts.
        size_bytes: For which the cost is right; 0 if unknown. Very short all-reduces have two
            latencies per round at any size.
    """
    own = [link for name, link in law.nodes.items() if name.startswith("worker")]
    links = [LinkLaw(law.latency_s, law.bandwidth_bytes_per_s), *own]
    at_once = _leaving(law, workers)
    if not at_once:  # all workers are on one machine
        links, at_once = [law.loopback], workers
    latency_s = max(link.latency_s or 0.0 for link in links)
    if not latency_s or workers < 2:
        return None
    bandwidth = min(link.bandwidth_bytes_per_s or math.inf for link in links) / at_once
    chunk_s = size_bytes / workers / bandwidth
    if not chunk_s:
        return AllReduceLaw(rounded(2 * latency_s))
    rounds = workers - 1
    phase_s = max(
        2 * latency_s + rounds * chunk_s,
        rounds * (2 * latency_s + chunk_s / 2) + chunk_s / 2,
    )
    per_round_s = phase_s / rounds - 2 * latency_s  # of the bytes
    return AllReduceLaw(rounded(2 * latency_s), rounded(size_bytes / workers / per_round_s))


def _leaving(law: NetworkLaw, workers: int) -> int:
    """Return how many messages of a round of a ring leave a machine, at most."""
    places, names = law.places, [worker_name(n) for n in range(workers)]
    at = [places.get(name, name) for name in names]
    leaving = Counter(one for one, other in zip(at, [*at[1:], at[0]], strict=True) if one != other)
    return max(leaving.values(), default=0)
