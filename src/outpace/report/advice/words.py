"""The advice as text: sentences, the most important first, and the table of the candidates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from outpace.report.advice.result import ALL_REDUCE, BSP, AdviceResult, CandidateResult
from outpace.report.words import (
    factor,
    interval,
    listed,
    percent,
    plural,
    seconds,
    target_words,
    times,
)
from outpace.support.estimates import Estimate

# share of the time to the target from which a gap between evaluations is mentioned
_COARSE: Final = 0.1


def gain(found: Estimate) -> str:
    """Return a speed-up with its interval, as in `1.9× [1.70, 2.20]`; a dash is an unknown end."""
    if found.mean is None:
        return "not known"
    if found.low is None and found.high is None:
        return times(found.mean)
    low, high = ("-" if end is None else factor(end) for end in (found.low, found.high))
    return f"{times(found.mean)} [{low}, {high}]"


def sentences(advice: AdviceResult) -> list[str]:
    """Return the advice in sentences, the most important first."""
    return [_main(advice), *_doubts(advice), *_one_run(advice), *_reasons(advice), *_more(advice)]


def _main(advice: AdviceResult) -> str:
    rate = advice.learning_rate
    use = f"se {advice.name}" + ("" if rate is None else f" with learning rate {rate:g}")
    if len(advice.seeds) < 2:
        return f"No strategy was compared with BSP on two fresh seeds: u{use}, or give more time."
    if not advice.distinguishable:
        least = percent(advice.min_gain, 0)
        return f"Nothing is reliably better than BSP by {least} or more here: u{use}."
    text = f"U{use}: to {target_words(advice.target)} it is {gain(advice.speedup_over_bsp)}"
    if advice.speedup_over_all_reduce.mean is not None and advice.name != ALL_REDUCE:
        text += f" as fast as BSP, and {gain(advice.speedup_over_all_reduce)} as fast as all-reduce"
    else:
        text += " as fast as BSP"
    among = sum(each.fresh for each in advice.candidates) - 1
    over = plural(len(advice.seeds), "fresh seed")
    return f"{text} (95 % intervals over {over}, for the choice among {among})."


def _doubts(advice: AdviceResult) -> Iterator[str]:
    """Return sentences about uncertain and unknown results."""
    if advice.best != advice.name:
        over, low = gain(advice.best_speedup), advice.best_speedup.low
        why = f"less than the {percent(advice.min_gain, 0)} for which a change is recommended"
        if low is None or low <= 1 or advice.distinguishable:
            why = "which may be chance"
        seeds = plural(len(advice.seeds), "fresh seed") if advice.seeds else "the search's seeds"
        yield f"{advice.best} is ahead, {over} as fast as BSP on {seeds}, {why}."
    if advice.status != "complete":
        missing = sum(not each.runs for each in advice.candidates)
        candidates = plural(len(advice.candidates), "candidate")
        untried = f" {missing:,} of {candidates} have not been tried." if missing else ""
        yield (
            f"The study ended early ({advice.status}), and this is the answer so far.{untried} It "
            f"needs about {seconds(advice.more_s or 0.0)} more at the pace of its runs."
        )
    if advice.at_edge:
        yield (
            f"The learning rate of {listed(advice.at_edge)} is at an end of the rates that were "
            "tried: configure it, and ask again."
        )
    if advice.short is not None:
        yield (
            f"Too short to judge: under BSP the target takes {seconds(advice.short[0])} and a step "
            f"{seconds(advice.short[1])}, and no simulation has the start of a real run and other "
            "work of its machines: choose a harder target, or a larger model or batch."
        )
    if advice.first_log:
        yield (
            f"{plural(advice.first_log, 'run')} reached the target at the first log, so the "
            "resolution of the times is one log: log more often, or choose a harder target."
        )
    for each in advice.candidates:
        if each.lowered_from is not None:
            yield (
                f"{each.name} diverged on a fresh seed with learning rate {each.lowered_from:g}, "
                f"which was the best of the search: it was run with {each.learning_rate:g} on all."
            )
    for note in advice.notes:
        yield f"About the cluster file: {note}."


def _one_run(advice: AdviceResult) -> Iterator[str]:
    """Say how long one real run may take, and how much sooner it ends than a run of BSP."""
    one = advice.one_run
    if takes := interval(one.time_s, seconds):
        yield f"One real run reaches the target after {takes}, with 90 % probability."
    if times_as_fast := interval(one.speedup_over_bsp, factor):
        yield f"It is {times_as_fast} times as fast as a run of BSP, with 90 % probability."
    gap, mean = one.evaluated_every_s, one.time_s.mean
    if gap and mean and gap > _COARSE * mean:
        yield (
            f"A run shows the target only when it evaluates, or logs: every {seconds(gap)} here. "
            "The intervals contain that, and are narrower if it is more often."
        )


def _reasons(advice: AdviceResult) -> Iterator[str]:
    """Say where the time goes."""
    for name, shares in advice.time_goes.items():
        waits, sends = percent(shares["wait"]), percent(shares["communicate"])
        yield f"Under {name} a worker waits {waits} of the time, and communicates {sends}."


def _more(advice: AdviceResult) -> Iterator[str]:
    """Return the paragraphs that say how times are meant."""
    if advice.evaluated_every_s is not None and advice.seeds:
        every = seconds(advice.evaluated_every_s)
        yield (
            f"Times are of the first evaluation that shows the target, every {every} on fresh "
            "seeds; an interval configured under evaluate is not used."
        )


def rows(advice: AdviceResult) -> list[list[str]]:
    """Return the table of the candidates as text; the first row has the titles."""
    found = [["", "learning rate", "runs", "time to target s", "as fast as BSP", ""]]
    for each in advice.in_order:
        rate = "-" if each.learning_rate is None else f"{each.learning_rate:g}"
        over = gain(each.speedup_over_bsp) if each.fresh and each.name != BSP else ""
        found.append([each.name, rate, str(each.runs), _time(each), over, _notes(each)])
    return found


def _notes(each: CandidateResult) -> str:
    if not each.runs:
        return "no time for it"
    if each.error:
        return f"failed: {each.error.splitlines()[0][:60]}"
    missed = f"{each.missed} missed" if each.missed else ""
    return missed if each.fresh else ", ".join(filter(None, ["search only", missed]))


def _time(each: CandidateResult) -> str:
    found = each.time_to_target_s
    if found.mean is None or each.error:
        return "-"
    if not each.reached:
        return f"at least {found.mean:.4g}"
    shown = interval(found, "{:.4g}".format) if each.fresh else ""
    return f"{found.mean:.4g}" + (f" [{shown.replace(' to ', ', ')}]" if shown else "")
