"""The promises of an experiment tracker."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch

from outpace.record.trackers import require_tracker
from outpace.testing.promises import no_error, require

_CONFIG: Final = {
    "workers": 2,
    "sync": {"kind": "ssp", "staleness": 3},
    "compute": {"kind": "constant", "mean_s": 0.1, "factors": [1.0, 2.5]},
    "network": None,
}
_POINTS: Final = (
    ("log", {"time_s": 0.0, "updates": 0, "train_loss": 2.3}, 0),
    ("log", {"time_s": 0.4, "updates": 4, "train_loss": 1.1, "accuracy": 0.5}, 4),
    ("log", {"worker-1/time_s": 0.3, "worker-1/iteration": 1, "worker-1/my loss": 1.2}, 5),
    ("log", {"time_s": 0.9, "iteration": 9, "train_loss": float("nan"), "lr": float("inf")}, 9),
)


def check_tracker(make: Callable[[], object]) -> None:
    """Check that a tracker accepts everything that a run passes to it.

    The tracker accepts the configuration, points with different names, values that are not finite,
    and each status, including the status of a run without points. It raises no error, does not
    change its arguments, and draws no random number from a global generator, which would change the
    run.

        check_tracker(MyTracker)

    Args:
        make: returns a new tracker for one run: the class, or a function.

    Raises:
        AssertionError: for the first promise that is broken.
        ConfigError: if the object is not a tracker.
    """
    for status in ("complete", "partial", "failed"):
        _check_run(make, [("config", _CONFIG), *_POINTS, ("finish", status)])
        _check_run(make, [("config", _CONFIG), ("finish", status)])


def _check_run(make: Callable[[], object], calls: Sequence[tuple[Any, ...]]) -> None:
    given = make()
    tracker, name, before = require_tracker(given), type(given).__name__, _random_state()
    for method, *arguments in copy.deepcopy(calls):
        kept = repr(arguments)
        case = f"{name}.{method}({kept[1:-1]}), a call of {len(calls)}"
        remedy = "handle the error in the tracker: after an exception it gets no more of the run"
        with no_error("a tracker takes every call", case, remedy):
            getattr(tracker, method)(*arguments)
        require(
            repr(arguments) == kept,
            "a tracker does not change what it is given: other trackers get the same",
            case,
            "copy the values before you change them",
        )
        require(
            _random_state() == before,
            "a tracker draws no random number from a global generator: the run would change",
            case,
            "use a separate generator, such as random.Random()",
        )


def _random_state() -> str:
    """Return the states of the global generators of Python, NumPy and torch, to compare."""
    legacy: Any = np.random.get_state()
    return repr((random.getstate(), legacy[1].tolist(), legacy[2], torch.get_rng_state().tolist()))
