"""PSP-SGD, sections 1 and 4.4: time-outs, and messages that are not sent. See discussion.yaml."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve, Curves, Experiments
from benchmarks.papers.over_seeds import all_of, over_seeds
from benchmarks.papers.psp.settings import end, final_error
from benchmarks.papers.psp.table1 import NEAR

QUICK = ("stop.iterations=20", "seeds=1")

TAUS: Final = ("tau 0", "tau 0.2", "tau 0.5", "tau 3")
FEWER: Final = ("fewer pushes", "fewer pulls")
NOT_SENT: Final = 0.25  # of the pushes, or of the pulls; either carry half of the bytes
BYTES: Final = 0.01  # of all bytes: the shares are random


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge both claims."""
    return [*_time_outs(curves), *(_not_sent(curves, name) for name in FEWER)]


def _time_outs(curves: Curves) -> list[Claim]:
    quantities = {"time": end, "gradients that count": _applied}
    found = {
        what: {name: over_seeds(curves[name], quantity) for name in (*TAUS, "sync")}
        for what, quantity in quantities.items()
    }
    return [
        Claim(
            f"section 4.4, {what}",
            "with larger τ1 and τ2 the performance is closer to synchronous SGD",
            ", ".join(f"{name} {value:.0f}" for name, value in of.items()),
            all_of(
                (of["sync"] - of[near]).below(of["sync"] - of[far]) for far, near in pairwise(TAUS)
            ),
            margin="in this order",
        )
        for what, of in found.items()
    ]


def _applied(run: Curve) -> float:
    return float(run.summary["gradients_applied"])


def _not_sent(curves: Curves, name: str) -> Claim:
    sync = curves["sync"]
    left = over_seeds(curves[name], _bytes) / over_seeds(sync, _bytes)
    worse = over_seeds(curves[name], final_error) - over_seeds(sync, final_error)
    expected = 1 - NOT_SENT / 2
    return Claim(
        "section 1, not sending",
        f"{name}: less communication (closed form: {expected:.3f} of the bytes); section 4.4: the "
        "validation error stays low",
        f"{left:.3f} of the bytes, error {worse:+.4f} apart",
        left.near(expected, BYTES) and worse.near(0, NEAR),
        margin=f"within {BYTES:g} and {NEAR:g}",
    )


def _bytes(run: Curve) -> float:
    return float(run.summary["bytes_sent"])
