"""Real runs with a slow worker, what its repair is promised to gain, and reruns without it.

A step sleeps until the time that a law draws for it, so that the load of the machine matters
little. Both runs draw the same noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import outpace

GOAL: Final = 0.1
_SLOW: Final = 1
_CASES: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "BSP, 1.5 times as slow": ({"kind": "bsp"}, {"factors": [1, 1.5, 1, 1]}),
    "BSP, 3 times as slow from 2 to 4 s": (
        {"kind": "bsp"},
        {"slow": [{"workers": [_SLOW], "factor": 3, "from_s": 2, "until_s": 4}]},
    ),
    "SSP 2, 1.5 times as slow": ({"kind": "ssp", "staleness": 2}, {"factors": [1, 1.5, 1, 1]}),
    "all-reduce, 1.5 times as slow": ({"kind": "ssgd"}, {"factors": [1, 1.5, 1, 1]}),
}


@dataclass(frozen=True)
class Repair:
    """A real run, the promised time of the run without its cause, and that of a real rerun."""

    case: str
    found: str  # what was named
    run_s: float
    promised_s: float
    rerun_s: float

    @property
    def error(self) -> float:
        return self.promised_s / self.rerun_s - 1

    @property
    def met(self) -> bool:
        return abs(self.error) <= GOAL


def repairs(
    out: Path,
    say: Callable[[str], None],
    iterations: int = 80,
    mean_s: float = 0.08,
    most: int = 99,
) -> list[Repair]:
    """Return the outcome of each case; the runs are kept in `out`."""
    found = []
    for number, (case, (sync, slow)) in enumerate(list(_CASES.items())[:most]):
        data = {
            "task": {"kind": "digits-mlp"},
            "workers": 4,
            "sync": sync,
            "stop": {"iterations": iterations},
            "evaluate": {"every_s": 1000},
        }
        law = {"kind": "lognormal", "mean_s": mean_s, "cv": 0.05}
        say(case)
        first = outpace.run(data, out / f"{number}-slow", compute={**law, **slow})
        explanation = outpace.explain(out / f"{number}-slow")
        again = outpace.run(data, out / f"{number}-repaired", compute=law)
        promised = [gain for gain in explanation.gains if gain.cause == f"worker {_SLOW}"]
        named = ", ".join(f"{cause.name} {cause.pattern}" for cause in explanation.causes)
        found.append(
            Repair(
                case,
                named or "nobody",
                first.summary["wall_time_s"],
                promised[0].run_s if promised else first.summary["wall_time_s"],
                again.summary["wall_time_s"],
            )
        )
    return found
