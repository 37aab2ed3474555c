"""Sentences about a comparison: which run was sooner, and at what price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from outpace.report.best import apart
from outpace.report.columns import Value
from outpace.report.read.runs import Run, clock, on_one_clock
from outpace.report.read.variants import counted
from outpace.report.target import ReportTarget, evaluation_gap_s, same_task
from outpace.report.telling_apart import told_apart
from outpace.report.words import listed, number, percent, plural, seconds, times

_NAMED: Final = 3  # runs in one sentence
_NOTABLE: Final = 1.05  # a smaller ratio is not worth a sentence


def comparison(runs: Sequence[Run], target: ReportTarget | None) -> list[str]:
    """Return sentences about the complete runs, the most important first; some are empty."""
    ended = [run for run in runs if run.complete]
    first, *others = [said for said in _without_failures(runs, ended, target) if said] or [""]
    return [first, _resolution(ended, target), _failures(ended), *others]


def _without_failures(
    runs: Sequence[Run], ended: Sequence[Run], target: ReportTarget | None
) -> list[str]:
    rest = [_cut_offs(ended), _waiting(ended), _throughput(ended)]
    if runs[0].seeds:
        told = told_apart(runs, target)
        return [told, *rest] if told else rest[::-1]
    quality = [_accuracy_cost(ended), _sooner(ended, target)]
    if target is not None and target.given:
        quality.reverse()
    if quality[0]:
        return [*quality, *rest]
    derived = target is not None and not target.given
    return [*rest[::-1], *([] if derived and not any(rest) else quality[::-1])]


def _resolution(runs: Sequence[Run], target: ReportTarget | None) -> str:
    """Say which runs reached the target at their first log, before which nothing is known."""
    if target is None:
        return ""
    alone = [each for run in runs for each in counted(run)]
    reached = [(run, at) for run in alone if (at := target.reached_s(run))]
    early = [run for run, at in reached if at == _first_s(run)]
    if not early:
        return ""
    return (
        f"{len(early)} of {plural(len(alone), 'run')} reached {target.words} at the first log, so "
        "the resolution of the times is one log: log more often, or choose a harder target."
    )


def _first_s(run: Run) -> float:
    """Return the time of the first evaluation, or log, of a run."""
    return min(time_s for time_s in run.metrics["time_s"] if time_s is not None)


def _failures(runs: Sequence[Run]) -> str:
    """Say under which strategies simulated failures cost the most and the least."""
    cost = {
        run.name: max(0.0, 1 - goodput)
        for run in runs
        if (goodput := run.number("faults", "goodput")) is not None
    }
    if len(cost) < 2:
        return ""
    least, most = min(cost, key=cost.__getitem__), max(cost, key=cost.__getitem__)
    if percent(cost[least]) == percent(cost[most]):
        return f"Failures cost each run {percent(cost[most])} of its gradients per second."
    return (
        f"Failures cost {most} {percent(cost[most])} of its gradients per second, and {least} "
        f"{percent(cost[least])}."
    )


def _reference(best: Run, runs: Sequence[Run]) -> Run:
    """Return the run that the best one is compared with: BSP, or else the first other run.

    A run with as many workers as the best one is preferred.
    """
    others = [run for run in runs if run is not best]
    alike = [run for run in others if run.setting("workers") == best.setting("workers")] or others
    return next((run for run in alike if run.kind == "bsp"), alike[0])


def _sooner(runs: Sequence[Run], target: ReportTarget | None) -> str:
    """Say which run reached the target first, how much sooner, and which runs missed it."""
    runs = [run for run in runs if target is not None and target.applies_to(run)]
    if target is None or len(runs) < 2:
        return ""
    reached = {run.name: time_s for run in runs if (time_s := target.reached_s(run)) is not None}
    missed = [run.name for run in runs if run.name not in reached]
    if not reached:
        return f"No run reached {target.words}, the target."
    compared = on_one_clock([run for run in runs if run.name in reached])
    first = min(compared, key=lambda run: reached[run.name])
    alike = [run for run in runs if run.real == first.real]
    if len(alike) < 2:
        return ""
    if _reference(first, alike).name in reached:
        said = _against(compared, reached, target)
    else:
        same = listed([run.name for run in compared if reached[run.name] == reached[first.name]])
        said = f"{same} reached {target.words} after {seconds(reached[first.name])}"
        said = f"{said} of {clock([first])}."
    if missed:
        names = listed(missed) if len(missed) <= _NAMED else f"{len(missed)} other runs"
        said += f" {names} did not reach it."
    if not target.given:
        said += f" ({target.title} is derived from the results: every run reached it.)"
    return said


def _against(runs: Sequence[Run], reached: Mapping[str, float], target: ReportTarget) -> str:
    """Compare the run that reached the target first with the reference run."""
    order = sorted(runs, key=lambda run: reached[run.name])
    first, other = order[0], _reference(order[0], runs)

    def later(run: Run) -> bool:
        """True if the run still missed the target when, or after, the first run reached it."""
        time_s = reached[run.name]
        return time_s - evaluation_gap_s(run, time_s) >= reached[first.name] * (1 - 1e-9)

    if not later(other):
        others = [run for run in order[1:] if later(run)]
        if not others:
            names = listed([run.name for run in order])
            return f"{names} reached {target.words} within one evaluation of each other."
        other = others[-1]
    same = [run.name for run in order if reached[run.name] == reached[first.name]]
    said = (
        f"{listed(same)} reached {target.words} "
        f"{times(reached[other.name] / reached[first.name])} sooner than {other.name}: "
        f"{seconds(reached[first.name])} against {seconds(reached[other.name])} "
        f"of {clock([other])}."
    )
    if len(same) == 1 and (stale := first.number("staleness", "mean")):
        said += f" Its gradients were {number(stale)} updates stale on average."
    return said


def _accuracy_cost(runs: Sequence[Run]) -> str:
    ended = [(a, run.name) for run in runs if (a := run.number("accuracy")) is not None]
    if len(ended) < 2 or not same_task(runs):
        return ""
    worst, best = min(ended)[0], max(ended)[0]
    if best - worst < 0.01:
        if percent(worst) == percent(best):
            return f"All ended at an accuracy of {percent(best)}."
        return f"All ended at accuracies between {percent(worst)} and {percent(best)}."
    # several runs can end in the same parameters: a bound that was never reached, for example
    first, last = (
        same[0] if len(same) == 1 else listed(same) if len(same) <= _NAMED else f"{len(same)} runs"
        for same in ([name for a, name in ended if a == end] for end in (best, worst))
    )
    return (
        f"{first} ended at the highest accuracy, {percent(best)}, "
        f"{last} at the lowest, {percent(worst)}."
    )


def _throughput(runs: Sequence[Run]) -> str:
    timing = any(run.setting("task", "kind") == "timing" for run in runs)
    rate: Value = _iterations_per_s if timing else lambda run: run.gradients_per_s
    what = "iterations" if timing else "gradients"
    verb = "finished" if timing else "applied"
    rates = {run.name: value for run in runs if (value := rate(run))}
    compared = on_one_clock([run for run in runs if run.name in rates])
    order = sorted(compared, key=lambda r: -rates[r.name])
    if len(order) < 2:
        return ""
    first = order[0]
    other = _reference(first, compared)
    ratio = rates[first.name] / rates[other.name]
    if ratio < _NOTABLE or not apart(rate, first, other):
        return ""
    return (
        f"{first.name} {verb} {times(ratio)} as many {what} per second as {other.name}: "
        f"{number(rates[first.name])} against {number(rates[other.name])}."
    )


def _iterations_per_s(run: Run) -> float | None:
    """Iterations of all workers together, per second."""
    counts, time_s = run.summary.get("iterations"), run.time_s
    known = isinstance(counts, list) and all(isinstance(count, int | float) for count in counts)
    return float(sum(counts)) / time_s if known and counts and time_s else None


def _cut_offs(runs: Sequence[Run]) -> str:
    parts = [f"{counted} with {run.name}" for run in runs if (counted := counted_gradients(run))]
    return f"Gradients that counted per iteration: {listed(parts[:_NAMED])}." if parts else ""


def _waiting(runs: Sequence[Run]) -> str:
    shares = [(run.name, share) for run in runs if (share := run.waiting_share) is not None]
    if len(shares) < 2:
        return ""
    if not any(share for _, share in shares):
        return "No worker waited for another in any of the runs."
    if len(shares) > 4:
        shares.sort(key=lambda pair: -pair[1])
        shares = [shares[0], shares[-1]]
    parts = [f"{percent(share)} with {name}" for name, share in shares]
    return f"Workers waited for others in this share of their time: {listed(parts)}."


def counted_gradients(run: Run) -> str:
    """Return the mean number of gradients in a closed iteration, such as `28.1 of 32`."""
    mean, workers = run.number("cut_offs", "mean_count"), run.setting("workers")
    if mean is None:
        return ""
    return f"{number(mean)} of {workers}" if isinstance(workers, int) else number(mean)
