"""The cost of membership and checkpoints in runs without failures.

A run with both is compared with a run with neither, pair by pair, one after the other. Membership
cannot be left out of a run: without a loss it is the heartbeats of the connections, the generation
number in each message (one byte, in both runs), and a state machine that nothing calls. So the
other run has no checkpoints, and a lease that is so long that there are no heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

from benchmarks.failures.windows import costs, in_window
from benchmarks.rows import Row

from outpace.real.run import RealRun

GOAL: Final = 0.01
EVERY_S: Final = 10.0  # between checkpoints
_NO_HEARTBEATS_S: Final = 3600.0  # a fifth of the lease is between two of them
_BEGIN_S: Final = 3.0
_CONFIG: Final[dict[str, Any]] = {  # steps sleep, so that other load matters little
    "task": {"kind": "digits-mlp"},
    "workers": 4,
    "servers": 2,
    "sync": {"kind": "ssp", "staleness": 3},
    "compute": {"kind": "constant", "mean_s": 0.05},
    "probe": False,
}


def failure_free(out: Path, say: Callable[[str], object], pairs: int, window_s: float) -> list[Row]:
    """Return the shares of iterations and of processor time that both cost."""

    def measured(folder: Path, with_both: bool) -> tuple[float, float]:
        config = {**_CONFIG, **({"checkpoint": {"every_s": EVERY_S}} if with_both else {})}
        lease = {} if with_both else {"lease_s": _NO_HEARTBEATS_S}
        with mock.patch.dict(RealRun.__init__.__kwdefaults__, lease):
            return in_window(config, folder, _BEGIN_S, window_s)

    name = f"membership, and a checkpoint each {EVERY_S:g} s, SSP, 4 workers"
    return costs(name, out, say, pairs, measured, (GOAL, GOAL))
