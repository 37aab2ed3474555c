"""FluentPS, table IV, the rows for CIFAR-100: judged as those for CIFAR-10.

See table4-cifar100.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve
from benchmarks.papers.fluentps.table4 import ON_CIFAR100, ROWS, judged
from benchmarks.papers.pace import pace

from outpace.config.experiment import Experiment

NEEDS = "CIFAR-100 and a machine with a GPU"

FIGURES = {cluster: [f"{cluster} {row}" for row in ROWS] for cluster in ON_CIFAR100}


def claims(
    curves: Mapping[str, Sequence[Curve]], experiments: Mapping[str, Experiment]
) -> list[Claim]:
    """Judge the rows of the table and the relations between them."""
    return [
        claim
        for cluster in ON_CIFAR100
        for claim in judged(cluster, {row: pace(curves[f"{cluster} {row}"]) for row in ROWS})
    ]
