"""What the runs show, in one to three sentences.

Nothing is said that the numbers do not carry: a run was sooner at an accuracy if another
was evaluated, and had not reached it, after the first had; runs that did not end are not
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from outpace.report.read.runs import Run, clock, on_one_clock
from outpace.report.read.totals import TraceTotals
from outpace.report.target import ReportTarget, evaluation_gap_s, same_task
from outpace.report.words import listed, number, percent, plural, seconds, times

MOST = 3
_NAMED = 3  # runs in one sentence
_NOTABLE = 1.05  # a smaller ratio is not worth a sentence


def findings(
    runs: Sequence[Run], totals: Sequence[TraceTotals | None], target: ReportTarget | None
) -> list[str]:
    """At most MOST sentences or short groups of sentences, as plain text.

    The first one is about the target if the configurations give one. A target that was
    derived from the results is never in the first one.
    """
    if len(runs) == 1:
        (run,) = runs
        said = [f"{_reached(run, target)}{_outcome(run)}"]
        if run.complete:
            said += [_abstained(run), _waited_for(run, totals[0]), _staleness(run)]
    else:
        ended = [run for run in runs if run.complete]
        quality = [_accuracy_cost(ended), _sooner(ended, target)]
        if target is not None and target.given:
            quality.reverse()
        said = [*quality, _cut_offs(ended), _waiting(ended), _throughput(ended)]
        if not quality[0]:
            said.reverse()
    return [sentence for sentence in said if sentence][:MOST]


# -- one run -----------------------------------------------------------------------


def _reached(run: Run, target: ReportTarget | None) -> str:
    if target is None or not target.applies_to(run):
        return ""
    time_s = target.reached_s(run)
    if time_s is None:
        return f"Did not reach {target.words}, the target. "
    return f"Reached {target.words}, the target, after {seconds(time_s)} of {clock([run])}. "


def _outcome(run: Run) -> str:
    time_s, gradients = run.time_s, run.number("gradients_applied")
    if not run.complete:
        ended = "failed" if run.status == "failed" else f"did not end: it is {run.status}"
        done = f" It had applied {plural(int(gradients), 'gradient')}" if gradients else ""
        when = f" by {seconds(time_s)} of {clock([run])}" if done and time_s else ""
        return f"This run {ended}.{done}{when}{'.' if done else ''}"
    if not time_s or not gradients:
        return ""
    rate = f"{plural(int(gradients), 'gradient')} ({number(gradients / time_s)} per second)"
    accuracy = run.number("accuracy")
    if accuracy is not None:
        return (
            f"Ended at {percent(accuracy)} accuracy after {seconds(time_s)} of {clock([run])} "
            f"and {rate}."
        )
    return f"Applied {rate} in {seconds(time_s)} of {clock([run])}."


def _abstained(run: Run) -> str:
    count = run.number("pushes_abstained")
    if counted := _counted(run):
        cut = f"; {int(count):,} times a worker was cut off and stopped computing" if count else ""
        return f"An iteration ended with {counted} gradients on average{cut}."
    if not count:
        return ""
    return (
        f"{int(count):,} of the pushes carried no gradient: it was not finite, or the step was "
        "skipped."
    )


def _counted(run: Run) -> str:
    """`28.1 of 32`: gradients in an iteration, where iterations were closed."""
    mean, workers = run.number("cut_offs", "mean_count"), run.setting("workers")
    if mean is None:
        return ""
    return f"{number(mean)} of {workers}" if isinstance(workers, int) else number(mean)


def _waited_for(run: Run, totals: TraceTotals | None) -> str:
    share = run.waiting_share
    if share is None:
        return ""
    if not run.number("seconds", "wait"):
        return "No worker waited for another."
    sentence = f"Workers spent {percent(share)} of their time waiting for others."
    if run.number("cut_offs", "mean_count"):  # whoever came last, that was not what ended it
        return sentence
    if totals is None or (whole := float(totals.ended_s.sum())) <= 0:
        return sentence
    order = totals.ended_s.argsort()[::-1]
    workers = len(order)
    for count in (1, 2, 3):
        part = float(totals.ended_s[order[:count]].sum()) / whole
        if part >= 0.5 and part >= 2 * count / workers:
            names = sorted(int(worker) for worker in order[:count])
            words = " or ".join(f"worker {worker}" for worker in names)
            return f"{sentence} {percent(part, 0)} of that waiting ended when {words} pushed."
    return sentence


def _staleness(run: Run) -> str:
    mean, most = run.number("staleness", "mean"), run.number("staleness", "max")
    if mean is None or most is None:
        return ""
    if most == 0:
        return "Every gradient was applied to the very parameters that it was computed from."
    return (
        f"When a gradient was applied, the parameters had had {number(mean)} updates since it "
        f"read them on average, {plural(int(most), 'update')} at most."
    )


# -- several -----------------------------------------------------------------------


def _reference(best: Run, runs: Sequence[Run]) -> Run:
    """The run that the best one is compared with: BSP if it is there, else the first other one.

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
    if len(compared) > 1:
        said = _against(compared, reached, target)
    elif missed:
        (first,) = compared
        said = f"{first.name} reached {target.words} after {seconds(reached[first.name])}"
        said = f"{said} of {clock([first])}."
    else:
        return ""
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
        """True if the last evaluation without the target was not before the first one with it."""
        time_s = reached[run.name]
        return time_s - evaluation_gap_s(run, time_s) >= reached[first.name] * (1 - 1e-9)

    if not later(other):
        others = [run for run in order[1:] if later(run)]
        if not others:
            names = listed([run.name for run in order])
            return f"{names} reached {target.words} within one evaluation of each other."
        other = others[-1]
    said = (
        f"{first.name} reached {target.words} "
        f"{times(reached[other.name] / reached[first.name])} sooner than {other.name}: "
        f"{seconds(reached[first.name])} against {seconds(reached[other.name])} "
        f"of {clock([other])}."
    )
    if stale := first.number("staleness", "mean"):
        said += f" Its gradients were {number(stale)} updates stale on average."
    return said


def _accuracy_cost(runs: Sequence[Run]) -> str:
    ended = [(a, run.name) for run in runs if (a := run.number("accuracy")) is not None]
    if len(ended) < 2 or not same_task(runs):
        return ""
    (worst, last), (best, first) = min(ended), max(ended)
    if best - worst < 0.01:
        if percent(worst) == percent(best):
            return f"All ended at an accuracy of {percent(best)}."
        return f"All ended at accuracies between {percent(worst)} and {percent(best)}."
    return (
        f"{first} ended at the highest accuracy, {percent(best)}, "
        f"{last} at the lowest, {percent(worst)}."
    )


def _throughput(runs: Sequence[Run]) -> str:
    timing = any(run.setting("task", "kind") == "timing" for run in runs)
    rate: Callable[[Run], float | None] = iterations_per_s if timing else _gradients_per_s
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
    if ratio < _NOTABLE:
        return ""
    return (
        f"{first.name} {verb} {times(ratio)} as many {what} per second as {other.name}: "
        f"{number(rates[first.name])} against {number(rates[other.name])}."
    )


def iterations_per_s(run: Run) -> float | None:
    """Of all workers together."""
    counts, time_s = run.summary.get("iterations"), run.time_s
    known = isinstance(counts, list) and all(isinstance(count, int) for count in counts)
    return float(sum(counts)) / time_s if known and counts and time_s else None


def _gradients_per_s(run: Run) -> float | None:
    return run.gradients_per_s


def _cut_offs(runs: Sequence[Run]) -> str:
    parts = [f"{counted} with {run.name}" for run in runs if (counted := _counted(run))]
    return f"Gradients in an iteration, on average: {listed(parts[:_NAMED])}." if parts else ""


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
    return f"Share of their time that workers waited for others: {listed(parts)}."
