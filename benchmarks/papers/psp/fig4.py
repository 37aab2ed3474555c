"""PSP-SGD, figure 4: error against time with delayed replies. See fig4.yaml."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve
from benchmarks.papers.psp.settings import (
    LEAST,
    PULL,
    PUSH,
    SETTINGS,
    SYNC,
    final_error,
    seconds_to_error,
)

from outpace.config.experiment import Experiment

QUICK = ("stop.iterations=30",)

FIGURES = {"figure-4": [setting.name for setting in SETTINGS]}
ABOVE = 0.02  # the error to get down to is so much above the worst final one of the first three
SAVED = 0.5  # of the share of the time that was saved in table 1, at least
ALMOST = 0.05  # 28/90 takes almost the same time as without delays


def claims(curves: Mapping[str, Curve], experiments: Mapping[str, Experiment]) -> list[Claim]:
    """Judge the claims of the figure and its text by these runs."""
    del experiments
    runs = {setting: curves[setting.name] for setting in SETTINGS}
    target = max(final_error(runs[setting]) for setting in (SYNC, PUSH, PULL)) + ABOVE
    times = {setting: seconds_to_error(run, target) for setting, run in runs.items()}
    ends = {name: curve.seconds[-1] for name, curve in curves.items()}
    prolonged = ends[SYNC.name] / ends[f"{SYNC.name} without delays"]
    undelayed = ends[f"{PULL.name} without delays"]
    return [
        *(
            Claim(
                "figure 4",
                f"{setting.name} gets to a given error earlier than {SYNC.name}: it saves "
                f"{1 - setting.seconds / SYNC.seconds:.0%} of the time",
                f"{1 - times[setting] / times[SYNC]:.0%} of the time to an error of {target:.3f}: "
                f"{times[setting]:.0f} against {times[SYNC]:.0f} s",
                1 - times[setting] / times[SYNC] >= SAVED * (1 - setting.seconds / SYNC.seconds),
                margin="at least half of that",
            )
            for setting in (PUSH, PULL)
        ),
        Claim(
            "figure 4",
            f"{LEAST.name} ends at a high error, {LEAST.error:.4f}",
            f"at {final_error(runs[LEAST]):.4f}, and gets to {target:.3f} in {times[LEAST]:.0f} s",
            None,
        ),
        Claim(
            "section 4.4",
            "delays prolong synchronous training by nearly 30 %",
            f"by {prolonged - 1:.0%}",
            None,
        ),
        Claim(
            "section 4.3",
            "28/90 takes almost the same time as if nothing were delayed",
            f"{ends[PULL.name]:.0f} against {undelayed:.0f} s",
            abs(ends[PULL.name] / undelayed - 1) <= ALMOST,
            margin=f"within {ALMOST:.0%}",
        ),
    ]
