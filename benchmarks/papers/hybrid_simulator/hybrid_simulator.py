"""Zhang, Tanimura, Nakada: a hybrid simulator. See hybrid_simulator.yaml for what is open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve
from benchmarks.papers.sharpness import bound, initial_sharpness

from outpace.config.experiment import Experiment
from outpace.optim import Sgd

QUICK = ("task={kind: digits-mlp}", "stop={virtual_time_s: 6.0}")

LATENCIES = (0, 1, 10, 100)  # ms
MANY = (8, 16, 32, 64)  # workers
REMEDIES = {"mean": "the workers", "by staleness": "its staleness"}  # what gradients are divided by
TARGET = 0.8  # the loss to get down to: a third of the loss of guessing
GUESSING = math.log(10)
READINGS = ("transfers", "latency")  # of the paper's latency; the first is that of its text


def named(mode: str, workers: int, reading: str) -> list[str]:
    """Return the names of the variants at 0, 1, 10 and 100 ms."""
    word = "with transfers of" if reading == "transfers" else "at"
    later = [f"{mode} {workers} {word} {ms} ms" for ms in LATENCIES[1:]]
    return [f"{mode} {workers} at 0 ms", *later]


FIGURES = {  # names of variants, for reports of their own
    f"figures-{figures}-{reading}": [
        name for mode in ("sync", "async") for name in named(mode, workers, reading)
    ]
    for reading in READINGS
    for figures, workers in (("8-and-10", 2), ("9-and-11", 4))
} | {
    "figures-12-and-13": [f"{remedy} {n}" for remedy in REMEDIES for n in MANY],
    "figure-14": [f"naive {n}" for n in MANY],
}
ABOUT = 0.25  # curves that basically coincide get there within this share of each other


def claims(curves: Mapping[str, Curve], experiments: Mapping[str, Experiment]) -> list[Claim]:
    """Judge the paper's claims about its figures by these runs."""
    return [
        *(
            claim
            for reading in READINGS
            for claim in (*_by_time(curves, reading), *_by_iterations(curves, reading))
        ),
        *_many_workers(curves),
        *_explained(curves, experiments["naive 8"]),
    ]


def _of(curves: Mapping[str, Curve], mode: str, workers: int, reading: str) -> list[Curve]:
    return [curves[name] for name in named(mode, workers, reading)]


def _by_time(curves: Mapping[str, Curve], reading: str) -> list[Claim]:
    where = f"figures 8, 9, {reading}"
    times = {
        (mode, n): [curve.seconds_above(TARGET) for curve in _of(curves, mode, n, reading)]
        for mode in ("sync", "async")
        for n in (2, 4)
    }
    sync2, sync4, async2, async4 = times.values()
    alone = curves["1 worker"].seconds_above(TARGET)
    return [
        Claim(
            where,
            "synchronous: 4 workers converge faster than 2 in virtual time",
            f"s to a loss of {TARGET} at 0, 1, 10, 100 ms: {_list(sync4)} against {_list(sync2)}; "
            f"1 worker {alone:.1f}",
            all(four < two for four, two in zip(sync4, sync2, strict=True)),
        ),
        Claim(
            where,
            "synchronous: 0, 1 and 10 ms basically coincide, 100 ms does not",
            f"relative to 0 ms: 2 workers {_ratios(sync2)}; 4 workers {_ratios(sync4)}",
            all(_alike(row[:3]) and not _alike(row) for row in (sync2, sync4)),
        ),
        Claim(
            where,
            "at 0, 1 and 10 ms asynchronous converges as fast as synchronous",
            f"async: 2 workers {_list(async2[:3])}; 4 workers {_list(async4[:3])} s",
            all(
                _alike([a, s])
                for row in zip((async2, async4), (sync2, sync4), strict=True)
                for a, s in zip(row[0][:3], row[1][:3], strict=True)
            ),
        ),
        Claim(
            where,
            "at 100 ms asynchronous converges faster than synchronous",
            f"2 workers {async2[3]:.1f} against {sync2[3]:.1f} s; "
            f"4 workers {async4[3]:.1f} against {sync4[3]:.1f} s",
            async2[3] < sync2[3] and async4[3] < sync4[3],
        ),
    ]


def _by_iterations(curves: Mapping[str, Curve], reading: str) -> list[Claim]:
    where = f"figures 10, 11, {reading}"
    counts = {
        (mode, n): [curve.gradients_above(TARGET) for curve in _of(curves, mode, n, reading)]
        for mode in ("sync", "async")
        for n in (2, 4)
    }
    averaged = [curves[f"sync {n} averaged"].gradients_above(TARGET) for n in (2, 4)]
    sync2, sync4 = counts["sync", 2], counts["sync", 4]
    return [
        Claim(
            where,
            "by iterations: 4 workers converge faster than 2",
            f"iterations to {TARGET}: {_list(sync4)} against {_list(sync2)}; "
            f"if gradients were averaged {averaged[1]:.0f} against {averaged[0]:.0f}",
            all(four < two for four, two in zip(sync4, sync2, strict=True)),
        ),
        Claim(
            where,
            "by iterations: the four latencies basically coincide, in both modes",
            "; ".join(f"{mode} {n}: {_list(row)}" for (mode, n), row in counts.items()),
            all(map(_alike, counts.values())),
        ),
    ]


def _many_workers(curves: Mapping[str, Curve]) -> list[Claim]:
    naive = [curves[f"naive {n}"] for n in MANY]
    eight, sixteen, *more = naive
    found = [
        Claim(
            "figure 14",
            "the update as it was works for 8 workers, does not improve for 16, "
            "explodes for 32 and 64",
            "; ".join(f"{c.workers}: {_fate(c)}" for c in naive),
            eight.final < TARGET
            and min(sixteen.loss) > 0.75 * GUESSING
            and all(c.error is not None or max(c.loss) > 2 * GUESSING for c in more),
        )
    ]
    for remedy, divisor in REMEDIES.items():
        modified = [curves[f"{remedy} {n}"] for n in MANY]
        counts = [curve.gradients_above(TARGET) for curve in modified]
        found.append(
            Claim(
                "figures 12, 13",
                "a modified update: 8 to 64 workers have basically the same curve by iterations",
                f"each gradient divided by {divisor}: iterations to {TARGET}: {_list(counts)}; "
                f"final losses {', '.join(f'{c.final:.2f}' for c in modified)}",
                _alike(counts),
            )
        )
    return found


def _explained(curves: Mapping[str, Curve], experiment: Experiment) -> list[Claim]:
    """Explain it by delayed gradient descent along the steepest direction of the initial loss."""
    largest = initial_sharpness(experiment)
    assert isinstance(experiment.optimizer, Sgd)
    rate = experiment.optimizer.lr * largest
    # Everybody's gradient is about as stale as there are other workers.
    beyond = [rate / bound(n - 1) for n in MANY]
    naive = [curves[f"naive {n}"] for n in MANY]
    remedied = [curves[f"{remedy} {n}"] for remedy in REMEDIES for n in MANY]
    trained = [curve.workers for curve in naive if curve.final < TARGET]
    return [
        Claim(
            "why (not in the paper)",
            "delayed descent on a quadratic loss is stable only if ηλ < 2 sin(π/(2(2τ+1))), "
            "here with τ = N − 1",
            f"λ = {largest:.2f} at the start, ηλ = {rate:.2f}: {_list(beyond)} times the bound for "
            f"8, 16, 32, 64 workers. Below twice the bound trained: {trained}. Divided by N, "
            f"{_list([x / n for x, n in zip(beyond, MANY, strict=True)])} times: all train",
            all((x < 2) == (c.workers in trained) for x, c in zip(beyond, naive, strict=True))
            and all(curve.final < TARGET for curve in remedied),
        )
    ]


def _fate(curve: Curve) -> str:
    if curve.error is not None:
        return f"exploded after {curve.gradients[-1] * curve.workers:.0f} updates"
    return f"loss {curve.loss[0]:.2f} to {curve.final:.2f}"


def _alike(values: Sequence[float]) -> bool:
    return max(values) < math.inf and max(values) <= (1 + ABOUT) * min(values)


def _ratios(values: Sequence[float]) -> str:
    return ", ".join(f"{value / values[0]:.2f}" for value in values)


def _list(values: Sequence[float]) -> str:
    return ", ".join("never" if value == math.inf else f"{value:.1f}" for value in values)
