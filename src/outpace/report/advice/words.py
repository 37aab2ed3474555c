"""The advice in words: sentences, the main thing first, and the table of the candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from outpace.report.advice.result import (
    ALL_REDUCE,
    BSP,
    AdviceResult,
    CandidateResult,
    Promise,
)
from outpace.report.words import (
    SPACE,
    duration,
    factor,
    listed,
    percent,
    plural,
    seconds,
    times,
)
from outpace.support.estimates import Estimate

_ENDED: Final = {
    "budget": "The budget was over before the study was complete: this is the answer so far.",
    "interrupted": "The study was interrupted: this is the answer so far.",
}
_PATTERNS: Final = {"steady": "always", "once": "once", "bursts": "in bursts"}
_COARSE: Final = 0.1  # of the time to the target: a gap between evaluations that is mentioned
_PROBABLE: Final = 0.01  # a probability of being the fastest that is mentioned


def target_words(advice: AdviceResult) -> str:
    what = "a training loss of" if advice.target.accuracy is None else "accuracy"
    return f"{what} {advice.target.value:g}"


def gain(found: Estimate) -> str:
    """Return a speed-up with its interval: `1.9× [1.70, 2.20]`."""
    if found.mean is None:
        return "unknown"
    if found.high is None and found.low is not None:
        return f"at least {times(found.mean)} [from {factor(found.low)}]"
    if found.low is None and found.high is not None:
        return f"at most {times(found.mean)} [up to {factor(found.high)}]"
    if found.low is None or found.high is None:
        return times(found.mean)
    return f"{times(found.mean)} [{factor(found.low)}, {factor(found.high)}]"


def sentences(advice: AdviceResult) -> list[str]:
    """Return what the advice says, the main thing first."""
    ended = _ENDED.get(advice.status)
    return [
        _main(advice) + _rest(advice),
        *([ended] if ended else []),
        *_doubts(advice),
        *_leaving(advice),
        *_probabilities(advice),
        *_one_run(advice),
        *_time_goes(advice),
        *_sensitivity(advice),
        *_lowered(advice),
        *_evaluations(advice),
        *(f"About the cluster file: {note}." for note in advice.notes),
    ]


def _main(advice: AdviceResult) -> str:
    rate = advice.learning_rate
    with_rate = "" if rate is None else f" with learning rate {rate:g}"
    if not advice.distinguishable:
        return _nothing_better(advice, with_rate)
    text = (
        f"Use {advice.name}{with_rate}: to {target_words(advice)} it is "
        f"{gain(advice.speedup_over_bsp)} as fast as BSP"
    )
    if advice.speedup_over_all_reduce.mean is not None and advice.name != ALL_REDUCE:
        text += f", and {gain(advice.speedup_over_all_reduce)} as fast as all-reduce"
    ends = f"95 % intervals over {plural(len(advice.seeds), 'fresh seed')}"
    if advice.one_run.speedup_over_bsp.error is not None:
        ends += " and the errors of the calibration"
    among = plural(len(advice.fresh) - 1, "strategy", "strategies")
    return f"{text} ({ends}, for the choice among {among})."


def _nothing_better(advice: AdviceResult, with_rate: str) -> str:
    """Say that BSP is recommended, and why what is ahead of it is not."""
    if len(advice.seeds) < 2:
        text = (
            "No strategy has been compared with BSP on two fresh seeds yet, so none can be told "
            f"apart from it: use BSP{with_rate}, or give more time."
        )
        if (ahead := advice.ahead) is None:
            return text
        over = ahead.speedup_over_bsp
        much = "" if over is None else f", about {over:.2g} times as fast as BSP"
        where = plural(ahead.seeds, "fresh seed" if ahead.fresh else "seed")
        which = "" if ahead.fresh else " of the search"
        return f"{text} So far {ahead.name} is ahead{much} ({where}{which}, not sure)."
    enough = f" by {percent(advice.min_gain, 0)} or more" if advice.min_gain else ""
    text = f"Nothing is reliably better than BSP{enough} here: use BSP{with_rate}."
    if advice.best == BSP:
        return text
    over_bsp = gain(advice.candidate(advice.best).speedup_over_bsp)
    why = _why_not(advice, advice.best)
    return f"{text} To {target_words(advice)}, {advice.best} was {over_bsp} as fast, which {why}."


def _why_not(advice: AdviceResult, name: str) -> str:
    """Return why a strategy that is ahead is not recommended."""
    low = advice.candidate(name).speedup_over_bsp.low
    if low is None or low <= 1:
        known = advice.one_run.speedup_over_bsp.error is not None
        return "may be chance" + (", or an error of the calibration" if known else "")
    return f"is less than the {percent(advice.min_gain, 0)} for which a change is recommended"


def _rest(advice: AdviceResult) -> str:
    """Say what an unfinished study left out, and how long it would take."""
    text = ""
    if missing := advice.not_tried:
        verb = "was" if missing == 1 else "were"
        text = f" {missing} of {plural(len(advice.candidates), 'candidate')} {verb} not tried."
    if advice.more_s:
        text += (
            f" To be complete, it needs about {_span(advice.more_s)} more at the pace so far; "
            "later runs are mostly shorter."
        )
    return text


def _span(value: float) -> str:
    """Return seconds, or minutes or hours from a minute and a half and from 90 minutes on."""
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if value >= 1.5 * size:
            return f"{value / size:.0f}{SPACE}{unit}"
    return f"{value:.0f}{SPACE}s"


def _doubts(advice: AdviceResult) -> list[str]:
    """Say that runs are too short to judge by, or that times are known to one log only."""
    said = []
    if advice.short is not None:
        run_s, step_s = advice.short
        said.append(
            f"Too short to judge: under BSP the target takes {seconds(run_s)} and a step "
            f"{duration(step_s)}. The start of a real run and other work of its machines take a "
            "large part of so short a time, and no simulation has them: choose a harder target, "
            "or a larger model or batch."
        )
    if advice.first_log:
        own = {BSP, advice.name}
        runs = sum(each.runs for each in advice.candidates if each.name in own and each.fresh)
        gap = advice.one_run.evaluated_every_s
        every = f", {seconds(gap)}" if gap else ""
        said.append(
            f"{advice.first_log} of {plural(runs, 'run')} reached the target at the first log, so "
            f"the resolution of the times is one log{every}: log more often, or choose a harder "
            "target."
        )
    return said


def _leaving(advice: AdviceResult) -> list[str]:
    """Warn if simulated runs of the strategy left the target again."""
    name = advice.name if advice.ahead is None else advice.ahead.name
    found = advice.candidate(name).after_target
    if not found.left:
        return []
    what = "training loss" if advice.target.accuracy is None else "accuracy"
    return [
        f"Warning: {name} left the target again in {found.left} of "
        f"{plural(found.runs, 'simulated run')} that continued after it, to a {what} of "
        f"{found.worst:.3g} at the end: keep the model from when the target is reached, or try "
        "a lower learning rate."
    ]


def _probabilities(advice: AdviceResult) -> list[str]:
    """Say which strategies may be the fastest, and why another one is recommended."""
    known = {n: p for n, p in advice.probability_best.items() if p is not None and p >= _PROBABLE}
    if not known:
        return []
    order = sorted(known, key=lambda name: -known[name])
    parts = [f"{name} {percent(known[name], 0)}" for name in order]
    said = f"Probability of being the fastest: {listed(parts)}."
    first = order[0]
    if first != advice.name:
        over = gain(advice.candidate(first).speedup_over_bsp)
        said += (
            f" {advice.name} is recommended all the same: the gain of {first} over BSP, {over}, "
            f"{_why_not(advice, first)}."
        )
    return [said]


def _one_run(advice: AdviceResult) -> list[str]:
    """Say how long one real run may take, and how much sooner than one of BSP it is."""
    found, said = advice.one_run, []
    if (whole := _interval(found.both, seconds)) is not None:
        why = found.no_error or "it is not known"
        unknown = f"this is the spread over seeds alone, without the prediction error ({why})"
        said.append(
            f"One run takes {whole} until then, with a probability of 90 %: "
            f"{_parts(found, seconds) or unknown}."
        )
    if (whole := _interval(found.speedup_over_bsp.both, factor)) is not None:
        parts = _parts(found.speedup_over_bsp, factor)
        said.append(
            f"For real, a run should be {whole} times as fast as one of BSP, with a probability "
            f"of 90 %{f': {parts}' if parts else ''}."
        )
    gap, mean = found.evaluated_every_s, found.both.mean
    if said and gap and mean and gap > _COARSE * mean:
        said.append(
            f"A run shows the target only when it evaluates, or logs: every {seconds(gap)} here. "
            "These intervals contain that, and are narrower if it is more often."
        )
    return said


def _interval(found: Estimate, written: Callable[[float], str]) -> str | None:
    if found.low is None or found.high is None:
        return None
    return f"from {written(found.low)} to {written(found.high)}"


def _parts(found: Promise, written: Callable[[float], str]) -> str:
    """Return the parts of an interval; empty if the error of the calibration is not known."""
    seeds, prediction = _interval(found.seeds, written), _interval(found.prediction, written)
    if seeds is None or prediction is None:
        return ""
    return f"{seeds} by the spread over seeds, and {prediction} by the error of the calibration"


def _time_goes(advice: AdviceResult) -> list[str]:
    """Say where the time goes, and what slows BSP."""
    said = []
    if own := advice.time_goes.get(BSP):
        took = advice.candidate(BSP).time_to_target_s.mean
        text = f"Under BSP a worker waits {percent(own['wait'])} of the time for others"
        if took is not None:
            text += f", {seconds(own['wait'] * took)} of the {seconds(took)} until the target"
        said.append(f"{text}, and communicates {percent(own['communicate'])}.")
    if advice.name != BSP and (own := advice.time_goes.get(advice.name)):
        said.append(
            f"Under {advice.name} it waits {percent(own['wait'])} and communicates "
            f"{percent(own['communicate'])}."
        )
    if advice.causes:
        causes = "; ".join(
            f"{each.name} ({factor(each.factor)} times slower, {_PATTERNS[each.pattern]}) "
            f"{seconds(each.lost_s)}, {percent(each.share)} of the run"
            for each in advice.causes
        )
        said.append(f"Slow under BSP, and what it cost: {causes}.")
    return said


def _sensitivity(advice: AdviceResult) -> list[str]:
    """Say what would change the advice."""
    same, other = [], []
    for each in advice.sensitivity:
        if each.best == advice.name:
            same.append(each.change)
        elif each.best is not None:
            found = each.speedup_over_bsp.get(each.best)
            shown = "" if found is None else f" ({gain(found)} as fast as BSP)"
            other.append(f"{each.change}: {each.best}{shown}")
    said = [f"{advice.name} stays first with {listed(same)}."] if same else []
    return [*said, *([f"Another strategy comes first with {'; '.join(other)}."] if other else [])]


def _lowered(advice: AdviceResult) -> list[str]:
    """Say which strategies diverged with the learning rate that was chosen for them."""
    return [
        f"{each.name} diverged on a fresh seed with learning rate {each.lowered_from:g}, "
        f"which was the best of the search; it was then run with {each.learning_rate:g} on all."
        for each in advice.candidates
        if each.lowered_from is not None
    ]


def _evaluations(advice: AdviceResult) -> list[str]:
    """Say at which times models were evaluated."""
    every_s, parts = advice.evaluated_every_s, []
    if every_s is not None and advice.seeds:
        parts.append(f": every {seconds(every_s)} on fresh seeds")
    if advice.evaluate_replaced:
        parts.append("; the interval configured under evaluate is not used")
    text = f"Times are of the first evaluation that shows the target{''.join(parts)}."
    return [text] if parts else []


def rows(advice: AdviceResult) -> list[list[str]]:
    """Return the table of the candidates as text; the first row has the titles."""
    tuned = advice.learning_rate is not None
    later = any(each.after_target.final.mean is not None for each in advice.candidates)
    what = "loss" if advice.target.accuracy is None else "accuracy"
    titles = ["", *(["learning rate"] if tuned else []), "runs", "time to target s"]
    found = [[*titles, "as fast as BSP", *([f"{what} later"] if later else []), ""]]
    for each in advice.in_order:
        rate = "-" if each.learning_rate is None else f"{each.learning_rate:g}"
        final = each.after_target.final.mean
        over = each.speedup_over_bsp
        shows_gain = each.fresh and each.name != BSP and over.mean is not None
        found.append(
            [
                each.name,
                *([rate] if tuned else []),
                str(each.runs),
                _time(each),
                gain(over) if shows_gain else "",
                *(["" if final is None else f"{final:.4g}"] if later else []),
                _notes(each),
            ]
        )
    return found


def _notes(each: CandidateResult) -> str:
    if not each.runs:
        return "no time for it"
    if each.error:
        return f"failed: {each.error.splitlines()[0][:60]}"
    if each.fresh:
        return f"{each.missed} missed" if each.missed else ""
    return "search only" + (", stopped: cannot win" if not each.reached else "")


def _time(each: CandidateResult) -> str:
    found = each.time_to_target_s
    if found.mean is None or each.error:
        return "-"
    if not each.reached:
        return f"at least {found.mean:.4g}"
    if found.low is None or found.high is None or not each.fresh:
        return f"{found.mean:.4g}"
    return f"{found.mean:.4g} [{found.low:.4g}, {found.high:.4g}]"
