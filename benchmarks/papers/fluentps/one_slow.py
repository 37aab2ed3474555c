"""FluentPS: the 1.38 times of PSSP over SSP, with one slow worker. See one-slow.yaml."""

from __future__ import annotations

from typing import Final

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curves, Experiments, of_case
from benchmarks.papers.fluentps.fig10 import APART
from benchmarks.papers.fluentps.table4 import PULLS_APART, TIMES_APART, published_rows
from benchmarks.papers.pace import listed, paces_of

QUICK = ("seeds=1", "stop.iterations=60")

CLUSTERS: Final = ("10 %", "20 %")  # how much slower one worker is
MODELS: Final = {"ASP": "asp", "PSSP": "soft 0.5", "SSP": "soft 1"}  # with rows of table IV


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge table IV's three rows by the runs of each cluster."""
    return [claim for cluster in CLUSTERS for claim in _of_cluster(cluster, curves)]


def _of_cluster(cluster: str, curves: Curves) -> list[Claim]:
    measured = paces_of(of_case(curves, cluster))
    seconds, pulls = (published_rows("64x1", column) for column in ("seconds", "delayed"))
    where = f"table IV, one worker {cluster} slower"
    faster = measured["PSSP"].faster_than(measured["SSP"])
    delayed, most = measured["PSSP"].delayed, measured["SSP"].delayed
    published = pulls["soft 0.5"] / pulls["soft 1"]
    times = {model: seconds[row] for model, row in MODELS.items()}
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
