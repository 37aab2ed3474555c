"""The most important findings about the runs of a report, each in one plain sentence.

A comparison has a reference: the first variant over several seeds, else the first run with BSP, or
the first run. Only complete runs on the clock of the reference are compared, because virtual time
and wall time are not comparable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

from outpace.report.read.runs import Run, clock
from outpace.report.read.traces import interruptions
from outpace.report.target import ReportTarget
from outpace.report.words import factor, interval, listed, percent, plural, seconds
from outpace.support.words import shortened

_MOST: Final = 5
_NAMED: Final = 3  # number of runs in one sentence, besides the reference


def findings(runs: Sequence[Run], target: ReportTarget | None) -> list[str]:
    """Return at most _MOST findings, the most important first."""
    complete = [run for run in runs if run.complete]
    found: list[Iterator[str]] = []
    if target is not None:
        judged = [run for run in complete if target.applies_to(run)]
        found += [_reached(judged, target), _resolution(judged, target), _missed(judged, target)]
    found += [_incomplete(runs), _scaled(runs), _interrupted(runs)]
    return list(islice(chain(*found, _waiting(complete)), _MOST))


def _reached(runs: Sequence[Run], target: ReportTarget) -> Iterator[str]:
    """Say how soon the runs reached the target: the soonest first, and the reference last."""
    if not runs:
        return
    reference = _reference(runs)
    alike = [run for run in runs if run.real == reference.real]
    times = {run.name: time_s for run in alike if (time_s := _time_to(run, target)) is not None}
    others = [run for run in alike if run.name in times and run is not reference]
    shown = sorted(others, key=lambda run: times[run.name])[:_NAMED]
    shown += [reference] if reference.name in times else []
    if not shown:
        return
    parts = [
        f"{run.name} {'at least ' * bool(run.compared.missed)}{seconds(times[run.name])}"
        f"{_against(run, reference, target)}"
        for run in shown
    ]
    said = f"Time to {target.words}, in {clock(shown)}: {listed(parts)}."
    if reference.seeds:
        said += f" Means and 95 % intervals are over {plural(len(reference.seeds), 'seed')}."
    if not target.given:
        said += f" {target.title} is derived from the results: every run reached it."
    yield said


def _reference(runs: Sequence[Run]) -> Run:
    return runs[0] if runs[0].seeds else next((run for run in runs if run.kind == "bsp"), runs[0])


def _time_to(run: Run, target: ReportTarget) -> float | None:
    """Return the time to the target; a lower bound if some seeds missed the target."""
    bound = run.compared.time_to_target_s.mean if target.given else None
    return target.reached_s(run) if bound is None else bound


def _against(run: Run, reference: Run, target: ReportTarget) -> str:
    """Return, in brackets, how the time of a run compares with the reference's time."""
    if run is reference:
        return ""
    if not run.seeds:
        one_evaluation = f" (within one evaluation of {reference.name})"
        return one_evaluation if _within_one_evaluation(run, reference, target) else ""
    ratio = run.compared.ratio_to_first
    if not target.given or ratio.mean is None:
        return ""
    bound = "at least " if run.compared.missed else "at most " if reference.compared.missed else ""
    said = [f"{bound}{factor(ratio.mean)} times that of {reference.name}", interval(ratio, factor)]
    said += {False: ["not distinguishable"], None: ["with one seed in common"]}.get(
        run.compared.distinguishable, []
    )
    return f" ({', '.join(filter(None, said))})"


def _within_one_evaluation(run: Run, other: Run, target: ReportTarget) -> bool:
    """True if the run that was later at the target may in fact have reached it first."""
    reached = [(at, each) for each in (run, other) if (at := target.reached_s(each)) is not None]
    if len(reached) < 2:
        return False
    (first_s, _), (last_s, last) = sorted(reached, key=lambda pair: pair[0])
    return (target.evaluated_before_s(last, last_s) or 0.0) < first_s * (1 - 1e-9)


def _resolution(runs: Sequence[Run], target: ReportTarget) -> Iterator[str]:
    """Say how many runs reached the target at their first log, before which nothing is known."""
    alone = [each for run in runs for each in run.counted()]
    reached = [(run, at) for run in alone if (at := target.reached_s(run)) is not None]
    early = [run for run, at in reached if target.evaluated_before_s(run, at) is None]
    if early:
        yield (
            f"{len(early)} of {plural(len(alone), 'run')} reached {target.words} at the first log, "
            "so the resolution of the times is one log: log more often, or choose a harder target."
        )


def _missed(runs: Sequence[Run], target: ReportTarget) -> Iterator[str]:
    names = []
    for run in runs:
        alone = run.counted()
        late = sum(target.reached_s(each) is None for each in alone)
        if late:
            of_seeds = f" ({late} of {plural(len(alone), 'run')})" if run.seeds else ""
            names.append(f"{run.name}{of_seeds}")
    if names:
        yield f"{target.words} was not reached by {listed(names)}."


def _incomplete(runs: Sequence[Run]) -> Iterator[str]:
    """Say which runs failed or did not end, and how to resume the first that can be resumed."""
    found = [run for run in runs if not run.complete]
    if found:
        names = shortened([f"{run.name} ({run.status})" for run in found])
        commands = (
            f" Resume {run.name} with: {command}"
            for run in found
            if (command := run.summary.get("resume"))
        )
        yield f"Not complete: {names}.{next(commands, '')}"


def _scaled(runs: Sequence[Run]) -> Iterator[str]:
    """Warn that the head of the page has other numbers of processes than the run had at its end."""
    if names := [run.name for run in runs if run.summary.get("scalings")]:
        yield (
            f"The number of processes of {listed(names)} changed during the run: the head of this "
            "page has the numbers of the configuration."
        )


def _interrupted(runs: Sequence[Run]) -> Iterator[str]:
    """Say how often the processes of a run were lost, and the cost of that."""
    for run in runs:
        found = [] if run.seeds else interruptions(run)
        if not found:
            continue
        away_s = sum(each.away_s or 0.0 for each in found)
        repeated_s = sum(each.repeated_s for each in found)
        lost, gone = run.number("updates_lost") or 0, sum(each.away_s is None for each in found)
        anew = sum(each.anew for each in found)
        costs = [f"processes were away for {seconds(away_s)}"]
        costs += [f"{seconds(repeated_s)} of the run was repeated"] if repeated_s else []
        costs += [f"{plural(int(lost), 'update')} lost"] if lost else []
        costs += [f"{plural(gone, 'worker')} lost for good"] if gone else []
        costs += [f"{plural(anew, 'script')} begun anew"] if anew else []
        first = f"{seconds(found[0].at_s)} ({found[0].who or 'the run was resumed'})"
        yield (
            f"{run.name} was interrupted {plural(len(found), 'time')}, first at {first}: "
            f"{listed(costs)}."
        )


def _waiting(runs: Sequence[Run]) -> Iterator[str]:
    shares = [(share, run.name) for run in runs if (share := run.waiting_share)]
    if shares:
        share, name = max(shares)
        of, most = (f" of {name}", ", the largest share of all runs") if len(runs) > 1 else ("", "")
        yield f"Workers{of} waited for others in {percent(share)} of their time{most}."
