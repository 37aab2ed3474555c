"""Sentences about real runs of the recommended strategy, from the content of advice.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from outpace.report.words import factor, plural, seconds
from outpace.support.estimates import Estimate

_COARSE: Final = 0.1  # of the time to the target: a gap between evaluations that is mentioned


def estimate(found: Mapping[str, Any] | None) -> Estimate:
    return Estimate(**found) if found else Estimate(None)


def one_run(advice: Mapping[str, Any]) -> list[str]:
    """Say how long one real run may take, and how much sooner than one of BSP it is."""
    found = advice["one_run"]
    intervals = _intervals(found, seconds)
    if intervals is None:
        return []
    why = found["no_error"] or "it is not known"
    unknown = f"this is the spread over seeds alone, without the prediction error ({why})"
    whole, parts = intervals
    said = [f"One run takes {whole} until then, with a probability of 90 %: {parts or unknown}."]
    over = _intervals(found.get("speedup_over_bsp") or {}, factor)
    if over is not None:
        whole, parts = over
        more = f": {parts}" if parts else ""
        said.append(
            f"For real, a run should be {whole} times as fast as one of BSP, with a probability "
            f"of 90 %{more}."
        )
    gap, mean = found.get("evaluated_every_s"), estimate(found["both"]).mean
    if gap and mean and gap > _COARSE * mean:
        said.append(
            f"A run shows the target only when it evaluates, or logs: every {seconds(gap)} here. "
            "These intervals contain that, and are narrower if it is more often."
        )
    return said


def _intervals(found: Mapping[str, Any], written: Callable[[float], str]) -> tuple[str, str] | None:
    """Return an interval and the parts that it has, in words.

    Returns:
        None without an interval; no parts if the error of the calibration is not known.
    """
    both, own, alone = (estimate(found.get(key)) for key in ("both", "seeds", "prediction"))

    def span_of(each: Estimate) -> str:
        return f"from {written(each.low or 0.0)} to {written(each.high or 0.0)}"

    if both.low is None or own.low is None:
        return None
    if alone.low is None:
        return span_of(both), ""
    return span_of(both), (
        f"{span_of(own)} by the spread over seeds, and {span_of(alone)} by the error of the "
        "calibration"
    )


def leaving(advice: Mapping[str, Any]) -> list[str]:
    """Warn if simulated runs of the strategy left the target again."""
    likely = advice.get("likely")
    name = advice["name"] if likely is None else likely["name"]
    every = {each["name"]: each.get("after_target") or {} for each in advice["candidates"]}
    found = every.get(name, {})
    if not found.get("left"):
        return []
    what = "accuracy" if "accuracy" in advice["target"] else "training loss"
    return [
        f"Warning: {name} left the target again in {found['left']} of "
        f"{plural(found['runs'], 'simulated run')} that continued after it, to a {what} of "
        f"{found['worst']:.3g} at the end: keep the model from when the target is reached, or try "
        "a lower learning rate."
    ]
