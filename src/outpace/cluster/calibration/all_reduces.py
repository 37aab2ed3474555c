"""The cost of a round of an all-reduce, from runs without servers and from profiler traces.

An all-reduce is timed from its last arrival, when all workers have joined it; the time before is
waiting, which follows from the strategy. A ring of N workers has 2(N−1) rounds of L + m/(N·B)
seconds for m bytes. L and 1/B come from a line that is fitted to the medians of all-reduces that
had the network to themselves: in the probe at the beginning of a run, or in the periods of a trace.
Both are then multiplied by one factor, so that the all-reduces of the training have their recorded
mean, since the length of a run is a sum.

If there is no such run, the cost follows from Gloo's protocol (`assumed_all_reduce`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from outpace.cluster.calibration import Floats, Ints, Rows
from outpace.cluster.calibration.transits import Line, fit_line, rounded
from outpace.cluster.network import AllReduceLaw, LinkLaw, NetworkLaw
from outpace.sync.messages import worker_name

# ratio of the largest to the smallest all-reduce from which a latency is fitted
_LEAST_RATIO: Final = 2.0
_FASTEST: Final = 1e16  # bytes/s


@dataclass(frozen=True, slots=True, eq=False)
class Alone(Rows):
    """Kinds of periods in which nothing but all-reduces was under way, shape (k,) each.

    Args:
        count: Number of all-reduces in a period.
        size_bytes: Size of all these all-reduces together.
        seconds: The median length of such a period.
        often: The number of such periods.
    """

    count: Ints
    size_bytes: Floats
    seconds: Floats
    often: Ints

    @staticmethod
    def of(count: Ints, size_bytes: Floats, seconds: Floats) -> Alone:
        """Group periods by number and size of their all-reduces; all arrays have shape (P,)."""
        keys = np.stack([count, size_bytes], axis=1)
        groups, which, often = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
        medians = [np.median(seconds[which.ravel() == kind]) for kind in range(len(groups))]
        return Alone(groups[:, 0].astype(np.int64), groups[:, 1], np.array(medians), often)


@dataclass(frozen=True, slots=True, eq=False)
class AllReduceTimes:
    """All-reduces of one run.

    Args:
        training_bytes, training_s: Size of each all-reduce of the training, and the seconds by
            which it delayed the next computation of a worker; shape (n,) each.
    """

    alone: Alone
    training_bytes: Floats
    training_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class AllReduceFit:
    """The cost of a round, and how well it describes the recorded all-reduces.

    Args:
        law: Cost in the training.
        law_alone: Cost if an all-reduce overlaps with nothing.
        alone: Periods that the line was fitted to.
        line: The line. Its latency is 0 if all all-reduces have about the same size.
        training: For each run the mean size in bytes, the mean recorded and the mean fitted
            seconds, shape (runs, 3).
        slower: Factor by which the training's all-reduces take longer than the line predicts.
    """

    law: AllReduceLaw
    law_alone: AllReduceLaw
    alone: Alone
    line: Line
    training: Floats
    slower: float

    @property
    def fitted(self) -> Floats:
        """Lengths of the periods according to the line, in s."""
        return self.line.at(self.alone.size_bytes, self.alone.count)

    @property
    def error(self) -> float:
        """Median of the relative errors of the fitted lengths of the periods."""
        return float(np.median(np.abs(self.fitted / self.alone.seconds - 1)))

    @property
    def testable(self) -> bool:
        """True if there are more medians than the line has parameters: else it fits all of them."""
        return len(self.fitted) > (2 if self.line.latency_s else 1)

    @property
    def training_testable(self) -> bool:
        """True if there are several runs; with one run, `slower` makes the law fit its mean."""
        return len(self.training) > 1


def fit_all_reduces(runs: Sequence[AllReduceTimes], workers: int) -> AllReduceFit:
    """Return the cost of a round that describes these runs best."""
    alone = Alone.joined([run.alone for run in runs])
    weight = np.sqrt(alone.often / alone.often.max())
    each = alone.size_bytes / alone.count
    if each.max() < _LEAST_RATIO * max(each.min(), 1):
        slopes = alone.seconds / np.maximum(alone.size_bytes, 1)
        line = Line(0.0, float(np.average(slopes, weights=alone.often)))
    else:
        line = fit_line(alone.size_bytes, alone.seconds, alone.count, weight)
    recorded = sum(float(run.training_s.sum()) for run in runs)
    slower = recorded / sum(float(line.at(run.training_bytes).sum()) for run in runs)
    training = [
        (
            float(run.training_bytes.mean()),
            float(run.training_s.mean()),
            slower * float(line.at(run.training_bytes).mean()),
        )
        for run in runs
    ]
    laws = _round(line, workers, slower), _round(line, workers, 1.0)
    return AllReduceFit(*laws, alone, line, np.array(training), slower)


def _round(line: Line, workers: int, slower: float) -> AllReduceLaw:
    """Return the cost of a ring's round. slower: factor of the duration of all-reduces."""
    rounds = 2 * (workers - 1)
    bandwidth = rounds / (workers * slower * line.s_per_byte)
    return AllReduceLaw(
        rounded(slower * line.latency_s / rounds), rounded(min(bandwidth, _FASTEST))
    )


def assumed_all_reduce(law: NetworkLaw, workers: int, size_bytes: int) -> AllReduceLaw | None:
    """Return the cost of a round of Gloo's ring; None without latency or a second worker.

    Gloo sends a chunk of c bytes as two segments, which overlap, and a segment when the receiver
    has said that it has a buffer for it. With latency L and bandwidth B of the links, the reduction
    and the distribution, each of N−1 rounds, take the longer of 2L + (N−1)·c/B, where the links are
    always busy, and (N−1)·(2L + c/2B) + c/2B, where they wait for the receivers.

    Workers on one machine share its connection, over which the messages of a round to other
    machines go; the machine with most of them counts.

    Args:
        law: The law of messages. The link of the slowest worker counts.
        size_bytes: Size at which the cost is right; 0 if unknown. Very short all-reduces have two
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
    per_round_s = phase_s / rounds - 2 * latency_s  # messages per share of the bytes
    return AllReduceLaw(rounded(2 * latency_s), rounded(size_bytes / workers / per_round_s))


def _leaving(law: NetworkLaw, workers: int) -> int:
    """Return the number of messages of a ring's round that leave a machine, at most."""
    places, names = law.places, [worker_name(n) for n in range(workers)]
    at = [places.get(name, name) for name in names]
    leaving = Counter(one for one, other in zip(at, [*at[1:], at[0]], strict=True) if one != other)
    return max(leaving.values(), default=0)
