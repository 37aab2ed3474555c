"""PSP-SGD, figure 2: the density of the delay of pulls. See fig2.yaml."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pyarrow as pa
from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve, Curves, Experiments
from benchmarks.papers.over_seeds import Spread, over_seeds
from benchmarks.papers.psp.settings import late_replies

NORMAL, DELAYED = SCENARIOS = ("normal", "4 s delay")
QUICK = ("seeds=1",)
_ERRORS = 3  # standard errors

Seconds = np.ndarray[tuple[int], np.dtype[np.float64]]


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge the delays of pulls, from request to response, by the messages of these runs."""
    normal, delayed = ([pull_delays(run) for run in curves[name]] for name in SCENARIOS)
    law, iterations = late_replies(experiments[DELAYED]), experiments[DELAYED].stop.iterations
    longest = over_seeds(normal, lambda run: float(run.max()))
    share = Spread(
        tuple(float((run > most).mean()) for run, most in zip(delayed, longest.values, strict=True))
    )
    # No reply precedes the first iteration, and iterations are late independently of each other.
    expected = law.of_pulls * (iterations - 1) / iterations
    error = sqrt(law.of_all * (1 - law.of_all) / iterations / len(delayed))
    usual, median = (
        over_seeds(runs, lambda run: float(np.median(run))) for runs in (normal, delayed)
    )
    return [
        Claim(
            "figure 2, normal",
            "no pull takes as long as a delay",
            f"the slowest of {sum(len(run) for run in normal):,} took {max(longest.values):.2f} s",
            max(longest.values) < law.seconds,
            margin=f"below {law.seconds:g} s",
        ),
        Claim(
            "figure 2, 4 s delay (closed form; the figure is not legible in the text at hand)",
            f"{expected:.1%} of the pulls take longer than any without delays: a server answers "
            "when all workers have pushed",
            f"{share * 100:.1f} % of {sum(len(run) for run in delayed):,}",
            share.near(expected, _ERRORS * error),
            margin=f"within {_ERRORS} standard errors of {error:.1%}",
        ),
        Claim(
            "figure 2, 4 s delay",
            f"rare but large: half of the pulls take up to {law.seconds:g} s longer",
            f"median {median:.2f} against {usual:.2f} s",
            0.5 * law.seconds < (median - usual).mean <= law.seconds,
            margin=f"{0.5 * law.seconds:g} to {law.seconds:g} s longer",
        ),
    ]


def pull_delays(run: Curve) -> Seconds:
    """Return the seconds from each pull between machines to its reply.

    run: each pull is answered before the next pull of its worker.
    """
    pulls = _in_order(run.messages("pull"), "sender", "receiver")
    replies = _in_order(run.messages("reply"), "receiver", "sender")
    if len(pulls) != len(replies):
        raise ValueError(f"{len(pulls)} pulls have {len(replies)} replies")
    between = _machine(pulls["sender"]) != _machine(pulls["receiver"])
    return _seconds(pulls["requested_ns"], replies["delivered_ns"])[between]


def _in_order(messages: pa.Table, worker: str, server: str) -> pa.Table:
    """Sort messages by worker, server and time."""
    keys = [(worker, "ascending"), (server, "ascending"), ("requested_ns", "ascending")]
    return messages.sort_by(keys)


def _machine(names: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """Return the machine of each node: server m is on the machine of worker m."""
    return np.array([name.rpartition("-")[2] for name in names.to_pylist()])


def _seconds(starts: pa.ChunkedArray, ends: pa.ChunkedArray) -> Seconds:
    return (ends.to_numpy() - starts.to_numpy()) * 1e-9
