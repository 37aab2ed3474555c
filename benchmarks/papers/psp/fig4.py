"""PSP-SGD, figure 4: error against time with delayed replies. See fig4.yaml."""

from __future__ import annotations

from functools import partial

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve, Curves, Experiments
from benchmarks.papers.over_seeds import over_seeds
from benchmarks.papers.psp.settings import PULL, PUSH, SETTINGS, SYNC, end

QUICK = ("stop.iterations=30", "seeds=1")

TARGET = 0.2  # top-1 error, fixed before the runs
SAVED = 0.05  # largest difference between the saved share of the time and the published one
ALMOST = 0.05  # 28/90 takes almost the same time as without delays
PROLONGED = 0.3  # the share of the time that delays add: section 4.4


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge the claims of the figure and its text by these runs."""
    to_target = partial(Curve.seconds_to_error, error=TARGET)
    times = {setting: over_seeds(curves[setting.name], to_target) for setting in SETTINGS}
    ends = {name: over_seeds(runs, end) for name, runs in curves.items()}
    prolonged = ends[SYNC.name] / ends[f"{SYNC.name} without delays"] - 1
    undelayed = ends[f"{PULL.name} without delays"]
    return [
        *(
            Claim(
                "figure 4",
                f"{setting.name}: training time reduced by nearly {published:.0%}",
                f"by {saved * 100:.1f} %",
                saved.near(published, SAVED),
                margin=f"within {SAVED}",
            )
            for setting, published in ((PUSH, 0.17), (PULL, 0.3))
            for saved in [ends[setting.name] / ends[SYNC.name] * -1 + 1]
        ),
        *(
            Claim(
                "figure 4",
                f"{setting.name} gets to a given error earlier than {SYNC.name}",
                f"to {TARGET:.2f} in {times[setting]:.0f} against {times[SYNC]:.0f} s",
                times[setting].below(times[SYNC]),
            )
            for setting in (PUSH, PULL)
        ),
        Claim(
            "section 4.4",
            f"delays prolong synchronous training by nearly {PROLONGED:.0%}",
            f"by {prolonged * 100:.1f} %",
            prolonged.near(PROLONGED, SAVED),
            margin=f"within {SAVED}",
        ),
        Claim(
            "section 4.4",
            f"{PULL.name} takes almost the same time as if nothing were delayed",
            f"{ends[PULL.name]:.0f} against {undelayed:.0f} s",
            (ends[PULL.name] / undelayed).near(1, ALMOST),
            margin=f"within {ALMOST:.0%}",
        ),
    ]
