"""Laws and fits as the plain data of a cluster file, with rounded numbers."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from outpace.cluster.calibration.run_times import RunTimeFit
from outpace.config.reading import plain

_BLOCKS: Final = 10  # of recorded times, of which blocks are drawn with draw_cluster
_DIGITS: Final = 5  # significant ones
_SHORT_S: Final = 10.0  # of a recording, below which it is too short to judge
_SHORT_STEP_S: Final = 0.01  # of an iteration, below which the clock and the system's pauses count


def too_short(seconds: float, step_s: float) -> str:
    """Return in words that a recording is too short to judge; empty if it is long enough.

    Args:
        seconds: Length of the recording.
        step_s: Mean length of an iteration.
    """
    found = []
    if seconds < _SHORT_S:
        found.append(f"{seconds:.2g} s are recorded")
    if step_s < _SHORT_STEP_S:
        found.append(f"an iteration takes {1e3 * step_s:.2g} ms")
    if not found:
        return ""
    return (
        f"too short to judge: {' and '.join(found)}, so that pauses of the machine count as "
        "much as what differs between strategies; record at least "
        f"{_SHORT_S:g} s, with iterations of {1e3 * _SHORT_STEP_S:g} ms or more"
    )


def compute_data(fit: RunTimeFit, run_times: str) -> dict[str, Any]:
    """Return the key `compute`.

    Args:
        run_times: Path of the file of recorded run times, for a `trace` law.
    """
    if fit.law is None:
        return {"kind": "trace", "path": run_times, "wrap": True}
    return law_data(fit.law)


def fit_data(fit: RunTimeFit) -> dict[str, Any]:
    """Return what the cluster file says about the goodness of the fit."""
    goodness = fit.goodness
    said: dict[str, Any] = {}
    if fit.law is None:
        said = {"best_law": fit.tried.kind, "why_replayed": fit.reasons}
    said |= {
        "kolmogorov_distance": rounded(goodness.distance),
        "largest_distance_of_a_worker": rounded(float(goodness.of_worker.max())),
        "recorded_order_statistics_s": numbers(goodness.recorded_order),
        "fitted_order_statistics_s": numbers(goodness.fitted_order),
        "recorded_correlation": rounded(goodness.recorded_correlation),
        "fitted_correlation": rounded(goodness.fitted_correlation),
    }
    if fit.errors is not None:
        said["errors"] = law_data(fit.errors)
    elif fit.law is None:
        iterations = goodness.count // len(goodness.of_worker)
        said["block"] = -(-iterations // _BLOCKS)
        said |= {"speed_cv": rounded(fit.speed_cv)} if fit.speed_cv else {}
    return said


def law_data(law: Any) -> dict[str, Any]:
    """Return a law as plain data without the keys that have their defaults, kind first."""
    found = {}
    for entry in dataclasses.fields(law):
        value = getattr(law, entry.name)
        usual = entry.default
        if entry.default_factory is not dataclasses.MISSING:
            usual = entry.default_factory()
        if entry.name == "kind" or value != usual:
            found[entry.name] = rounded(plain(_plain(value)))
    kind = {"kind": found.pop("kind")} if "kind" in found else {}
    return kind | found


def rounded(value: Any) -> Any:
    """Return plain data with numbers rounded."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _plain(value: Any) -> Any:
    """Return dataclasses within a value as mappings without empty entries."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = {
            entry.name: getattr(value, entry.name)
            for entry in dataclasses.fields(value)
            if getattr(value, entry.name) != entry.default
        }
        return {key: _plain(part) for key, part in given.items()}
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def numbers(values: NDArray[np.float64]) -> list[float]:
    """Return the numbers, rounded."""
    found: list[float] = rounded(values.tolist())
    return found
