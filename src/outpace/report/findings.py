"""Sums up the results of a report in one to three sentences.

A run counts as sooner than another run at an accuracy only if the other run still missed that
accuracy in an evaluation after the first run had reached it. Runs that did not end are not
compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpace.report.comparing import comparison, counted_gradients
from outpace.report.read.interruptions import interruptions
from outpace.report.read.runs import Run, clock
from outpace.report.read.totals import TraceTotals
from outpace.report.target import ReportTarget
from outpace.report.words import number, percent, plural, seconds

MOST: Final = 3
_MOST_LOSSES: Final = 3  # that are named
_MOST_SCALINGS: Final = 4
_NOTABLE: Final = 0.05  # share of the time from which the script's own collectives are named


def findings(
    runs: Sequence[Run], totals: Sequence[TraceTotals | None], target: ReportTarget | None
) -> list[str]:
    """Return at most MOST sentences or short groups of sentences, as plain text.

    The first sentence is about the target if the configurations give one. A target that was
    derived from the results is never in the first sentence.
    """
    if len(runs) == 1 and not runs[0].seeds:
        (run,) = runs
        said = [f"{_reached(run, target)}{_outcome(run)}"]
        said += [_scaled(run), _interrupted(run)]
        if run.complete:
            said += [_abstained(run), _skipped(run)]
            said += [_collectives(run), _waited_for(run, totals[0]), _staleness(run)]
    else:
        said = comparison(runs, target)
    return [sentence for sentence in said if sentence][:MOST]


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
        ended = "failed" if run.status == "failed" else f"did not end: its status is {run.status}"
        done = f" It had applied {plural(int(gradients), 'gradient')}" if gradients else ""
        when = f" by {seconds(time_s)} of {clock([run])}" if done and time_s else ""
        return f"This run {ended}.{done}{when}{'.' if done else ''}{_resume(run)}"
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


def _resume(run: Run) -> str:
    """Say how to resume a run that did not end."""
    command, name = run.summary.get("resume"), run.summary.get("checkpoint")
    return "" if not command else f" It is resumed from {name} with: {command}"


def _scaled(run: Run) -> str:
    """Say that the run has not had the numbers of its configuration throughout."""
    said = run.summary.get("scalings")
    if not isinstance(said, list) or not said:
        return ""
    parts = []
    for each in said[:_MOST_SCALINGS]:
        match each:
            case [int(workers), int(servers)]:
                of_servers = f" and {plural(servers, 'server')}" if servers else ""
                parts.append(f"to {plural(workers, 'worker')}{of_servers}")
            case _:
                return ""  # another program wrote it
    more = len(said) - _MOST_SCALINGS
    rest = f", and {plural(more, 'more time')}" if more > 0 else ""
    return f"Scaled {', then '.join(parts)}{rest}; the head has the numbers of the configuration."


def _interrupted(run: Run) -> str:
    """Say which processes were lost, when, and what that cost."""
    found = interruptions(run)
    if not found:
        return ""
    parts = []
    for each in found[:_MOST_LOSSES]:
        if not each.who:
            parts.append(f"resumed from checkpoint {each.checkpoint} at {seconds(each.at_s)}")
            continue
        part = f"{each.who} was lost at {seconds(each.at_s)}"
        if each.away_s is None:
            part += " for good"
        elif each.checkpoint is None:
            part += f" and back after {seconds(each.away_s)}"
        else:
            part += (
                f", and all began again from checkpoint {each.checkpoint} after "
                f"{seconds(each.away_s)}"
            )
            if each.anew:
                part += f", {plural(each.anew, 'script')} anew"
            else:
                part += f", to repeat {seconds(each.repeated_s)}"
        parts.append(part)
    more = len(found) - _MOST_LOSSES
    rest = f"; {plural(more, 'more interruption')}" if more > 0 else ""
    lost = int(run.number("updates_lost") or 0)
    cost = f" {plural(lost, 'update')} of workers {'was' if lost == 1 else 'were'} lost."
    return f"Interrupted: {'; '.join(parts)}{rest}.{cost if lost else ''}"


def _abstained(run: Run) -> str:
    count = run.number("pushes_abstained")
    if counted := counted_gradients(run):
        cut = f"; {int(count):,} times a worker was cut off and stopped computing" if count else ""
        return f"An iteration ended with {counted} gradients on average{cut}."
    if not count:
        return ""
    return (
        f"{int(count):,} of the pushes carried no gradient, because it was not finite or the step "
        "was skipped."
    )


def _skipped(run: Run) -> str:
    pushes, pulls = (int(run.number(f"{what}_skipped") or 0) for what in ("pushes", "pulls"))
    if not pushes and not pulls:
        return ""
    return f"Workers chose to skip {pushes:,} pushes and {pulls:,} pulls."


def _collectives(run: Run) -> str:
    spent, time_s = run.number("collectives", "seconds"), run.time_s
    if not spent or not time_s or spent < _NOTABLE * time_s:
        return ""
    return (
        f"The script's own collectives, such as barriers, took a worker {seconds(spent)} on "
        f"average, {percent(spent / time_s)} of the time."
    )


def _waited_for(run: Run, totals: TraceTotals | None) -> str:
    share = run.waiting_share
    if share is None:
        return ""
    if not run.number("seconds", "wait"):
        return "No worker waited for another."
    sentence = f"Workers spent {percent(share)} of their time waiting for others."
    if run.number("cut_offs", "mean_count"):  # the scheduler ended those waits
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
        return "Every gradient was applied to the parameters that it was computed from."
    return (
        f"Between reading the parameters and applying the gradient there were {number(mean)} "
        f"updates on average, and {plural(int(most), 'update')} at most."
    )
