"""Sentences about advice, from the content of advice.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from outpace.report.advice.promise import estimate, leaving, one_run
from outpace.report.words import SPACE, factor, listed, percent, plural, seconds, times
from outpace.support.estimates import Estimate

BSP: Final = "BSP"
ALL_REDUCE: Final = "all-reduce"
_ENDED: Final = {
    "budget": "The budget was over before the study was complete: this is the answer so far.",
    "interrupted": "The study was interrupted: this is the answer so far.",
}
_PATTERNS: Final = {"steady": "always", "once": "once", "bursts": "in bursts"}


def target_words(advice: Mapping[str, Any]) -> str:
    target = advice["target"]
    if "accuracy" in target:
        return f"accuracy {target['accuracy']:g}"
    return f"a training loss of {target['loss']:g}"


def gain(found: Estimate) -> str:
    """Return a speed-up with its interval: `1.9× as soon [1.7, 2.2]`."""
    if found.mean is None:
        return "unknown"
    if found.high is None and found.low is not None:
        return f"at least {times(found.mean)} [from {factor(found.low)}]"
    if found.low is None and found.high is not None:
        return f"at most {times(found.mean)} [up to {factor(found.high)}]"
    if found.low is None or found.high is None:
        return times(found.mean)
    return f"{times(found.mean)} [{factor(found.low)}, {factor(found.high)}]"


def sentences(advice: Mapping[str, Any]) -> list[str]:
    """Return what the advice says, the main thing first."""
    said = [_main(advice), *leaving(advice), *_alternatives(advice), *one_run(advice)]
    said += _why(advice)
    said += [*_sensitivity(advice), *_lowered(advice), *_grid(advice)]
    said += [f"About the cluster file: {text}." for text in advice.get("recorded_busy", ())]
    if advice["status"] in _ENDED:
        said.insert(0, _ENDED[advice["status"]])
    return said


def _main(advice: Mapping[str, Any]) -> str:
    target, seeds = target_words(advice), len(advice["seeds"])
    rate = advice["learning_rate"]
    with_rate = "" if rate is None else f" with learning rate {rate:g}"
    if advice.get("likely") is not None:
        return _likely(advice)
    if seeds < 2:
        ahead = f" In the search {advice['ahead']}." if advice["ahead"] else ""
        return (
            "No strategy has been compared with BSP on two fresh seeds yet, so none can be told "
            f"apart from it: use BSP{with_rate}, or give more time.{ahead}{_rest(advice)}"
        )
    if not advice["distinguishable"]:
        best = advice["best"]
        more = ""
        if best != BSP:
            found = estimate(_candidate(advice, best)["speedup_over_bsp"])
            more = f" To {target}, {best} was {gain(found)} as fast, which may be chance."
        rest = _rest(advice)
        return f"Nothing is reliably better than BSP here: use BSP{with_rate}.{more}{rest}"
    over = estimate(advice["speedup_over_bsp"])
    text = f"Use {advice['name']}{with_rate}: to {target} it is {gain(over)} as fast as BSP"
    to_all = estimate(advice["speedup_over_all_reduce"])
    if to_all.mean is not None and advice["name"] != ALL_REDUCE:
        text += f", and {gain(to_all)} as fast as all-reduce"
    ends = f"95 % intervals over {plural(seeds, 'fresh seed')}"
    if (advice["one_run"].get("speedup_over_bsp") or {}).get("error") is not None:
        ends += " and the errors of the calibration"
    ends += ", for the choice among "
    others = sum(each["fresh"] for each in advice["candidates"]) - 1
    among = plural(others, "strategy", "strategies")
    return f"{text} ({ends}{among}).{_rest(advice)}"


def _likely(advice: Mapping[str, Any]) -> str:
    """Name the leader of a study that ended before it could be sure."""
    found = advice["likely"]
    rate, over = found["learning_rate"], found["speedup_over_bsp"]
    text = f"Probably {found['name']}" + ("" if rate is None else f" with learning rate {rate:g}")
    if over is not None:
        text += f", about {over:.1f} times as fast as BSP to {target_words(advice)}"
    seeds = "one seed" if found["seeds"] == 1 else f"{found['seeds']} seeds"
    which = "" if found["fresh"] else " of the search"
    return (
        f"{text} ({seeds}{which}, not sure). Its configuration is likely.yaml; recommended.yaml "
        f"stays with BSP until a strategy is reliably better.{_rest(advice)}"
    )


def _rest(advice: Mapping[str, Any]) -> str:
    """Say what an unfinished study left out, and how long it would take."""
    if advice["status"] == "complete":
        return ""
    text, missing = "", advice.get("not_tried")
    if missing:
        verb = "was" if missing == 1 else "were"
        text = f" {missing} of {plural(len(advice['candidates']), 'candidate')} {verb} not tried."
    if advice.get("untuned"):
        text += " Strategies other than BSP and all-reduce ran with one learning rate only."
    if advice.get("more_s"):
        text += (
            f" To be complete, it needs about {span(advice['more_s'])} more at the pace so far; "
            "later runs are mostly shorter."
        )
    return text


def span(value: float) -> str:
    """Return seconds, or minutes or hours from a minute and a half and from 90 minutes on."""
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if value >= 1.5 * size:
            return f"{value / size:.0f}{SPACE}{unit}"
    return f"{value:.0f}{SPACE}s"


def _grid(advice: Mapping[str, Any]) -> list[str]:
    """Say at which times models were evaluated."""
    fresh, searched = advice.get("evaluated_every_s"), advice.get("searched_every_s")
    parts = (
        [f"every {seconds(fresh)} on fresh seeds"] if fresh is not None and advice["seeds"] else []
    )
    if searched is not None:
        parts.append(f"every {seconds(searched)} at most in the search")
    if not parts:
        return []
    replaced = (
        "; the interval configured under evaluate is not used"
        if advice.get("evaluate_replaced")
        else ""
    )
    return [f"Times are of the first evaluation that shows the target: {listed(parts)}{replaced}."]


def _alternatives(advice: Mapping[str, Any]) -> list[str]:
    known = {n: p for n, p in advice["probability_best"].items() if p is not None and p >= 0.01}
    if not known:
        return []
    order = sorted(known, key=lambda name: -known[name])
    parts = [f"{name} {percent(known[name], 0)}" for name in order]
    return [f"Probability of being the fastest: {listed(parts)}."]


def _why(advice: Mapping[str, Any]) -> list[str]:
    """Say where the time goes."""
    goes, said = advice["time_goes"], []
    if goes.get(BSP):
        own = goes[BSP]
        took = estimate(_candidate(advice, BSP)["time_to_target_s"]).mean
        text = f"Under BSP a worker waits {percent(own['wait'])} of the time for others"
        if took is not None:
            text += f", {seconds(own['wait'] * took)} of the {seconds(took)} until the target"
        text += f", and communicates {percent(own['communicate'])}"
        said.append(f"{text}.")
    name = advice["name"]
    if name != BSP and goes.get(name):
        own = goes[name]
        said.append(
            f"Under {name} it waits {percent(own['wait'])} and communicates "
            f"{percent(own['communicate'])}."
        )
    causes = [
        f"{each['name']} ({factor(each['factor'])} times slower, {_PATTERNS[each['pattern']]}) "
        f"{seconds(each['lost_s'])}, {percent(each['share'])} of the run"
        for each in advice.get("causes", ())
    ]
    if causes:
        said.append(f"Slow under BSP, and what it cost: {'; '.join(causes)}.")
    return said


def _sensitivity(advice: Mapping[str, Any]) -> list[str]:
    """Say what would change the advice."""
    same, other = [], []
    for each in advice["sensitivity"]:
        if "best" not in each:
            continue
        if each["best"] == advice["name"]:
            same.append(each["change"])
        else:
            found = estimate(each["speedup_over_bsp"].get(each["best"]))
            shown = "" if found.mean is None else f" ({gain(found)} as fast as BSP)"
            other.append(f"{each['change']}: {each['best']}{shown}")
    said = []
    if same:
        said.append(f"{advice['name']} stays first with {listed(same)}.")
    if other:
        said.append(f"Another strategy comes first with {'; '.join(other)}.")
    return said


def _lowered(advice: Mapping[str, Any]) -> list[str]:
    """Say which strategies diverged with the learning rate that was chosen for them."""
    return [
        f"{each['name']} diverged on a fresh seed with learning rate {each['lowered_from']:g}, "
        f"which was the best of the search; it was then run with {each['learning_rate']:g} on all."
        for each in advice["candidates"]
        if each.get("lowered_from") is not None
    ]


def _candidate(advice: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next(each for each in advice["candidates"] if each["name"] == name)


def rows(advice: Mapping[str, Any]) -> list[list[str]]:
    """Return the table of the candidates as text; the first row has the titles."""
    tuned = advice["learning_rate"] is not None
    rate_title = ["learning rate"] if tuned else []
    found = [["", *rate_title, "runs", "time to target s", "as fast as BSP", ""]]
    for each in in_order(advice):
        if not each["runs"]:
            notes = "no time for it"
        elif each["error"]:
            notes = f"failed: {each['error'].splitlines()[0][:60]}"
        elif each["fresh"]:
            notes = f"{each['missed']} missed" if each["missed"] else ""
        else:
            notes = "search only" + (", stopped: cannot win" if not each["reached"] else "")
        rate = each["learning_rate"]
        found.append(
            [
                each["name"],
                *(["-" if rate is None else f"{rate:g}"] if tuned else []),
                str(each["runs"]),
                _time(each),
                gain(estimate(each["speedup_over_bsp"]))
                if each["fresh"]
                and each["name"] != BSP
                and estimate(each["speedup_over_bsp"]).mean is not None
                else "",
                notes,
            ]
        )
    return found


def in_order(advice: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the candidates: those on fresh seeds first, then by their time."""

    def key(each: Mapping[str, Any]) -> tuple[Any, ...]:
        mean = each["time_to_target_s"]["mean"]
        return not each["fresh"], not each["reached"], mean is None, mean or 0.0

    return sorted(advice["candidates"], key=key)


def _time(each: Mapping[str, Any]) -> str:
    found = estimate(each["time_to_target_s"])
    if found.mean is None or each["error"]:
        return "-"
    if not each["reached"]:
        return f"at least {found.mean:.4g}"
    if found.low is None or found.high is None or not each["fresh"]:
        return f"{found.mean:.4g}"
    return f"{found.mean:.4g} [{found.low:.4g}, {found.high:.4g}]"
