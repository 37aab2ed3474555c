"""Sentences about a comparison over several seeds: which variants can be told apart, and how far.

Ratios, intervals and whether a variant can be told apart from the first are those of
comparison.json.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outpace.report.columns import missed
from outpace.report.read.runs import Run, clock
from outpace.report.target import ReportTarget
from outpace.report.words import factor, interval, listed, percent, plural, seconds, times
from outpace.support.estimates import Estimate


def told_apart(variants: Sequence[Run], target: ReportTarget | None) -> str:
    """Say how the variants compare with the first one; empty if comparison.json does not say.

    They are compared by the time to the target if the configurations give one, else by accuracy.
    """
    if not variants[0].compared:
        return ""
    if target is not None and target.given:
        return _by_time(variants, target)
    return _by_accuracy(variants)


def _by_time(variants: Sequence[Run], target: ReportTarget) -> str:
    first, *others = variants
    if all(target.reached_s(each) is None for run in variants for each in run.seeds):
        return f"No run reached {target.words}, the target."
    if not others:
        ends = interval(first.estimate("time_to_target_s"), seconds)
        within = f" ({ends}, {_over(first, first)})" if ends else ""
        return (
            f"{first.name} reached {target.words} after {_mean_time(first)}{within} of "
            f"{clock([first])} on average."
        )
    sooner = sorted((r for r in others if _apart(r) and _ratio(r) < 1), key=_ratio)
    later = [run for run in others if _apart(run) and _ratio(run) > 1]
    alike = [run for run in others if run.distinguishable is False]
    unknown = [run.name for run in alike if not _ratio(run)]
    alike = [run for run in alike if _ratio(run)]
    said = []
    if sooner:
        best, *next_ones = sooner
        said.append(
            f"{best.name} reached {target.words} {_gain(best, first)} sooner than {first.name} "
            f"({_gains(best)}, {_over(best, first)}): {_mean_time(best)} against "
            f"{_mean_time(first)} of {clock([best])} on average."
        )
        if next_ones:
            gains = [f"{run.name} ({_gain(run, first)})" for run in next_ones]
            said.append(f"Also sooner than {first.name}: {listed(gains)}.")
    for runs, how in (
        (alike, "{names} cannot be told apart from {first} by the time to {target}"),
        (later, "{first} reached {target} sooner than {names}"),
    ):
        if runs:
            words = how.format(
                names=listed([run.name for run in runs]), first=first.name, target=target.words
            )
            ratios = listed([_ratio_words(run, first) for run in runs])
            over = "" if said else f" ({_over(runs[0], first)})"
            said.append(f"{words}: ratio of the times {ratios}{over}.")
    if unknown:
        said.append(
            f"{listed(unknown)} cannot be told apart from {first.name}: runs of both missed "
            f"{target.words}."
        )
    few = [run.name for run in others if run.distinguishable is None]
    if few:
        said.append(
            f"{listed(few)} cannot be told apart from {first.name} yet: that takes at least two "
            "seeds in common."
        )
    late = [run for run in variants if missed(run)]
    if said and late:
        parts = [f"{run.missed} of {len(run.seeds)} with {run.name}" for run in late]
        said.append(f"Runs that missed it: {listed(parts)}.")
    return " ".join(said)


def _by_accuracy(variants: Sequence[Run]) -> str:
    first, *others = variants
    if _ratio(first):
        return ""  # the configurations have different targets, to which the variants were compared
    reached = {run.name: run.estimate("accuracy").mean or 0.0 for run in variants}
    apart = [run.name for run in others if _apart(run)]
    said = []
    for names, how in (
        ([n for n in apart if reached[n] > reached[first.name]], "ended at a higher accuracy than"),
        ([n for n in apart if reached[n] < reached[first.name]], "ended at a lower accuracy than"),
        (
            [run.name for run in others if run.distinguishable is False],
            "cannot be told apart by the accuracy at the end from",
        ),
    ):
        if names:
            numbers = listed([percent(reached[name]) for name in names])
            said.append(
                f"{listed(names)} {how} {first.name}: {numbers} against "
                f"{percent(reached[first.name])} on average ({plural(len(first.seeds), 'seed')})."
            )
    return " ".join(said)


def _apart(run: Run) -> bool:
    return run.distinguishable is True


def _ratio(run: Run) -> float:
    return run.estimate("ratio_to_first").mean or 0.0


def _ratio_words(run: Run, first: Run) -> str:
    ratio = run.estimate("ratio_to_first")
    bound = "at least " if missed(run) else "at most " if missed(first) else ""
    return f"{bound}{factor(_ratio(run))} [{_ends(ratio, factor)}]"


def _gain(run: Run, first: Run) -> str:
    return f"{'at least ' if missed(first) else ''}{times(1 / _ratio(run))}"


def _gains(run: Run) -> str:
    """Return the interval of the gain."""
    ratio = run.estimate("ratio_to_first")
    low, high = (None if not end else 1 / end for end in (ratio.high, ratio.low))
    return _ends(Estimate(None, low, high), times)


def _ends(estimate: Estimate, show: Callable[[float], str]) -> str:
    """Return the interval, or the end of it that is known."""
    if estimate.high is None and estimate.low is not None:
        return f"at least {show(estimate.low)}"
    if estimate.low is None and estimate.high is not None:
        return f"at most {show(estimate.high)}"
    return interval(estimate, show)


def _over(run: Run, first: Run) -> str:
    seeds = {each.setting("seed") for each in run.seeds}
    common = seeds.intersection(each.setting("seed") for each in first.seeds)
    return f"95 % interval over {plural(len(common), 'seed')}"


def _mean_time(run: Run) -> str:
    mean = run.estimate("time_to_target_s").mean or 0.0
    return f"{'at least ' if missed(run) else ''}{seconds(mean)}"
