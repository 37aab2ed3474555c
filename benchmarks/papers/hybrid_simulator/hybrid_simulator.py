"""Zhang, Tanimura, Nakada: a hybrid simulator. hybrid_simulator.yaml lists the open questions.

The paper's figures are pictures; the claims are the sentences of section 4.4 about them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import truediv
from typing import Final

from benchmarks.papers.claims import UNDECIDED, Claim, Verdict
from benchmarks.papers.curves import Curve, Curves, Experiments
from benchmarks.papers.over_seeds import Spread, all_of, over_seeds
from benchmarks.papers.pace import listed

QUICK = ("seeds=1", "task={kind: digits-mlp}")

Rows = Mapping[int, Sequence[Spread]]  # by number of workers: one for each latency

LATENCIES: Final = (0, 1, 10, 100)  # ms
FEW: Final = (2, 4)  # workers
MANY: Final = (8, 16, 32, 64)  # workers
MODES: Final = ("sync", "async")
# Gradients are divided by the number of workers, or each by its staleness.
REMEDIES: Final = {"mean": MANY, "by staleness": (8, 64)}
TARGET: Final = 1.0  # the target loss: less than half of the loss of guessing
GUESSING: Final = math.log(10)
IMPROVED: Final = 0.9 * GUESSING  # a final loss below this has improved
EXPLODED: Final = 10 * GUESSING
# Curves that "basically coincide" reach TARGET within this share of each other. It is less than the
# differences that the paper calls faster: 4 workers take 1.3 to 1.5 times fewer iterations than 2
# here.
ABOUT: Final = 0.25
MARGIN: Final = f"within {ABOUT:.0%}"


def named(mode: str, workers: int) -> list[str]:
    """Return the names of the variants at 0, 1, 10 and 100 ms."""
    return [f"{mode} {workers}, {ms} ms" for ms in LATENCIES]


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge the paper's claims about its figures by these runs."""
    return [
        *_by_time(curves),
        *_by_iterations(curves),
        *_many_workers(curves),
    ]


def _by_time(curves: Curves) -> list[Claim]:
    where = "figures 8, 9: virtual time"
    sync, asynchronous = (_needed(curves, mode, Curve.seconds_above) for mode in MODES)
    alone = over_seeds(curves["1 worker"], lambda curve: curve.seconds_above(TARGET))
    return [
        Claim(
            where,
            "synchronous: four workers converge faster than two (0, 1, 10 ms)",
            f"s to a loss of {TARGET}: {listed(sync[4][:3])}; two workers {listed(sync[2][:3])}; "
            f"one worker {alone:.1f}",
            all_of(map(Spread.below, sync[4][:3], sync[2][:3])),
        ),
        Claim(
            where,
            "the same at 100 ms",
            f"{sync[4][3]:.1f} s; two workers {sync[2][3]:.1f} s",
            sync[4][3].below(sync[2][3]),
        ),
        Claim(
            where,
            "synchronous: the curves of 0, 1 and 10 ms basically coincide",
            f"1 and 10 ms relative to 0 ms: {_ratios(sync, slice(1, 3))}",
            all(_coincide(row[:3]) for row in sync.values()),
            MARGIN,
        ),
        Claim(
            where,
            "synchronous: 100 ms is not particularly desirable",
            f"relative to 0 ms: {_ratios(sync, slice(3, 4))}",
            all_of((row[0] * (1 + ABOUT)).below(row[3]) for row in sync.values()),
            f"more than {ABOUT:.0%} slower",
        ),
        Claim(
            where,
            "at 0, 1 and 10 ms asynchronous converges as fast as synchronous",
            "asynchronous / synchronous: "
            + "; ".join(
                f"{n} workers " + listed(map(truediv, asynchronous[n][:3], sync[n][:3]), 2)
                for n in FEW
            ),
            all(
                _coincide(pair)
                for n in FEW
                for pair in zip(asynchronous[n][:3], sync[n][:3], strict=True)
            ),
            MARGIN,
        ),
        Claim(
            where,
            "at 100 ms asynchronous converges faster than synchronous",
            _against({n: (asynchronous[n][3], sync[n][3]) for n in FEW}),
            all_of(asynchronous[n][3].below(sync[n][3]) for n in FEW),
        ),
    ]


def _by_iterations(curves: Curves) -> list[Claim]:
    where = "figures 10, 11: iterations"
    sync, asynchronous = (_needed(curves, mode, Curve.gradients_above) for mode in MODES)
    found = [
        Claim(
            where,
            f"{mode}: four workers converge faster than two",
            f"iterations to a loss of {TARGET} at 0, 1, 10, 100 ms: {listed(row[4])}; "
            f"two workers {listed(row[2])}",
            all_of(map(Spread.below, row[4], row[2])),
        )
        for mode, row in (("synchronous", sync), ("asynchronous", asynchronous))
    ]
    return [
        *found,
        Claim(
            where,
            "the curves of the four latencies basically coincide, in both modes",
            "1, 10, 100 ms relative to 0 ms: "
            + "; ".join(
                f"{mode} {_ratios(row, slice(1, 4))}"
                for mode, row in zip(MODES, (sync, asynchronous), strict=True)
            ),
            all(_coincide(row) for rows in (sync, asynchronous) for row in rows.values()),
            MARGIN,
        ),
    ]


def _many_workers(curves: Curves) -> list[Claim]:
    where = "figure 14"
    finals = {n: over_seeds(curves[f"naive {n}"], lambda curve: curve.final) for n in (8, 16)}
    highest = {n: over_seeds(curves[f"naive {n}"], _highest) for n in (16, 32, 64)}
    found = [
        Claim(
            where,
            "the update as it was works for 8 workers",
            f"loss at the end by seed: {_figures(finals[8])}",
            _in_all(value < TARGET for value in finals[8].values),
            f"below {TARGET}",
        ),
        Claim(
            where,
            "it does not improve the loss for 16",
            f"loss at the end by seed: {_figures(finals[16])}; highest {_figures(highest[16])}",
            _in_all(
                final > IMPROVED and high < EXPLODED
                for final, high in zip(finals[16].values, highest[16].values, strict=True)
            ),
            f"above {IMPROVED:.2f}, never {EXPLODED:.0f}",
        ),
        Claim(
            where,
            "gradients explode for 32 and 64",
            f"highest loss by seed: {_figures(highest[32])}; {_figures(highest[64])}",
            _in_all(value > EXPLODED for n in (32, 64) for value in highest[n].values),
            f"above {EXPLODED:.0f}",
        ),
    ]
    for remedy, sizes in REMEDIES.items():
        counts = [
            over_seeds(curves[f"{remedy} {n}"], lambda curve: curve.gradients_above(TARGET))
            for n in sizes
        ]
        found.append(
            Claim(
                "figures 12, 13",
                f"a modified update ({remedy}): 8 to 64 workers have basically the same curve "
                "by iterations",
                f"{', '.join(map(str, sizes))} workers: {listed(counts)} iterations to {TARGET}",
                _coincide(counts),
                MARGIN,
            )
        )
    ended = [curve.error is None for remedy in REMEDIES for curve in curves[f"{remedy} 64"]]
    return [
        *found,
        Claim(
            "section 5",
            "at least 64 workers can be run",
            f"{sum(ended)} of {len(ended)} runs of 64 workers ended without an error",
            all(ended),
        ),
    ]


def _needed(curves: Curves, mode: str, needed: Callable[[Curve, float], float]) -> Rows:
    """Return how much 2 and 4 workers need to reach TARGET, at each latency."""
    return {
        n: [
            over_seeds(curves[name], lambda curve: needed(curve, TARGET)) for name in named(mode, n)
        ]
        for n in FEW
    }


def _coincide(row: Sequence[Spread]) -> bool:
    """True if the means over seeds are within ABOUT of each other."""
    means = [each.mean for each in row]
    return max(means) < math.inf and max(means) <= (1 + ABOUT) * min(means)


def _highest(curve: Curve) -> float:
    """Return the highest loss; infinite if the run ended because it was not finite."""
    return max(curve.loss) if curve.error is None else math.inf


def _in_all(held: Iterable[bool]) -> Verdict:
    """Return True if it held in all runs, False if in none, else UNDECIDED."""
    found = set(held)
    return UNDECIDED if len(found) == 2 else found.pop()


def _figures(value: Spread) -> str:
    return ", ".join(f"{each:.3g}" for each in value.values)


def _ratios(rows: Rows, which: slice) -> str:
    """Say how much longer it takes at these latencies than at 0 ms."""
    return "; ".join(
        f"{n} workers {listed((each / row[0] for each in row[which]), 2)}"
        for n, row in rows.items()
    )


def _against(pairs: Mapping[int, tuple[Spread, Spread]]) -> str:
    return "; ".join(
        f"{n} workers {this:.1f} against {other:.1f} s" for n, (this, other) in pairs.items()
    )
