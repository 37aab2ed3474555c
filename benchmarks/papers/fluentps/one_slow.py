"""FluentPS: the 1.38 times of PSSP over SSP, with one slow worker. See one-slow.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curves, Experiments
from benchmarks.papers.fluentps.fig10 import APART
from benchmarks.papers.fluentps.table4 import PUBLISHED, PULLS_APART, ROWS, TIMES_APART
from benchmarks.papers.pace import Pace, listed, pace

QUICK = ("seeds=1", "stop.iterations=60")

CLUSTERS: Final = ("10 %", "20 %")  # how much slower one worker is
MODELS: Final = {"ASP": "asp", "PSSP": "soft 0.5", "SSP": "soft 1"}  # with rows of table IV
_SECONDS, _DELAYED = (
    dict(zip(ROWS, PUBLISHED["64x1"][column], strict=True)) for column in ("seconds", "delayed")
)


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge table IV's three rows by the runs of each cluster."""
    paces = {name: pace(runs) for name, runs in curves.items()}
    return [
        claim
        for cluster in CLUSTERS
        for claim in judged(cluster, {model: paces[f"{cluster} {model}"] for model in MODELS})
    ]


def judged(cluster: str, measured: Mapping[str, Pace]) -> list[Claim]:
    """Judge one cluster."""
    where = f"table IV, one worker {cluster} slower"
    faster = measured["PSSP"].faster_than(measured["SSP"])
    delayed, most = measured["PSSP"].delayed, measured["SSP"].delayed
    published = _DELAYED["soft 0.5"] / _DELAYED["soft 1"]
    times = {model: _SECONDS[row] for model, row in MODELS.items()}
    left = PULLS_APART["soft"]
    near_times = all(measured[model].seconds.near(s, TIMES_APART * s) for model, s in times.items())
    return [
        Claim(
            where,
            "PSSP (P = 0.5) is 1.38 times faster than SSP",
            f"{faster:.2f} times",
            faster.near(times["SSP"] / times["PSSP"], APART),
            margin=f"within {APART} times",
        ),
        Claim(
            where,
            f"ASP, PSSP, SSP: {listed(times.values(), 2)} s per 100 iterations",
            f"{listed((each.seconds for each in measured.values()), 2)} s",
            near_times,
            margin=f"each within {TIMES_APART:.0%}",
        ),
        Claim(
            where,
            f"PSSP (P = 0.5) delays {100 * published:.1f} % as many pulls as SSP",
            f"{delayed:.0f} against {most:.0f} per 100 iterations",
            most.mean > 0 and 1 / left <= delayed.mean / most.mean / published <= left,
            margin=f"within a factor of {left:g}",
        ),
    ]
