"""The paper's claims about cut-offs, and our goals, against what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.papers.bdsgd.cut_offs.results import Row
from benchmarks.papers.claims import Claim

ROLLING: Final = ("last", "mean-5", "last-20", "last-5")
PAPERS: Final = ("i", "ii-5.34", "ii-2.83", "ii-0.24")  # clusters
HEDGES: Final = ("rolling hedge", "deep-markov hedge", "pooled hedge")
_PAPERS_MODEL: Final = "deep-markov count"
LARGE: Final = 512  # workers, above
_FIT_S: Final = 60.0

Rows = Mapping[str, Row]  # by rule


def goals(title: str, cluster: str, workers: int, rows: Rows) -> list[Claim]:
    """Return the claims for one cluster and observation whose rules were measured."""
    return [
        *(_papers(title, rows) if cluster in PAPERS else []),
        *_models(title, cluster, rows),
        *_replan(title, cluster, rows),
        *_hedges(title, rows),
        *_speed(title, workers, rows),
    ]


def _papers(title: str, rows: Rows) -> list[Claim]:
    others = {rule: rows[rule] for rule in ("elfving", "fixed", "all") if rule in rows}
    if _PAPERS_MODEL not in rows or not others:
        return []
    ours = rows[_PAPERS_MODEL]
    listed = ", ".join(f"{rule} {row.of_oracle:.1f}" for rule, row in others.items())
    return [
        Claim(
            title,
            "figures 2 to 4: BDSGD is above Elfving, Chen and waiting for all",
            f"{_PAPERS_MODEL} {ours.of_oracle:.1f}, {listed}",
            all(ours.of_oracle > row.of_oracle for row in others.values()),
        )
    ]


def _models(title: str, cluster: str, rows: Rows) -> list[Claim]:
    """Compare the count of a model with the count of the true law."""
    wanted = {"deep-markov": 0.3} if cluster != "iii" else {"deep-markov": None, "pooled": 1.0}
    return [
        _within(title, rows, f"{model} count", "true count", within)
        for model, within in wanted.items()
        if {f"{model} count", "true count"} <= set(rows)
    ]


def _replan(title: str, cluster: str, rows: Rows) -> list[Claim]:
    if "pooled replan" not in rows:
        return []
    found = []
    others = {rule for rule in rows if not rule.startswith(("true", "pooled replan"))}
    if others:
        found.append(_within(title, rows, "pooled replan", _best(rows, others), 0.3))
    rolling = [rule for rule in (*ROLLING, "rolling hedge") if rule in rows]
    if rolling and cluster in ("iii", "bytedance-SE"):
        ahead = {rule: rows["pooled replan"].more_than(rows[rule]) for rule in rolling}
        rule = min(ahead, key=lambda rule: ahead[rule][0])
        found.append(
            Claim(
                title,
                "goal: pooled replan above every rolling rule, beyond the standard error",
                f"{ahead[rule][0]:+.2f} ± {ahead[rule][1]:.2f} against {rule}",
                all(points > error for points, error in ahead.values()),
            )
        )
    return found


def _hedges(title: str, rows: Rows) -> list[Claim]:
    rolling = {rule for rule in ROLLING if rule in rows}
    return [
        _within(title, rows, hedge, _best(rows, rolling), 0.3)
        for hedge in HEDGES
        if hedge in rows and rolling
    ]


def _speed(title: str, workers: int, rows: Rows) -> list[Claim]:
    """Judge median times of one core, which are longer on a busy machine."""
    ready_ms, all_ms = (3, 30) if workers <= LARGE else (15, 100)
    learned = [f"{model} {plan}" for model in ("deep-markov", "pooled") for plan in _PLANS]
    ready = {rule: rows[rule].numbers["ready ms"] for rule in learned if rule in rows}
    found = []
    if ready:
        found.append(_quick(title, "ready within {} ms, {} workers", ready, ready_ms, workers))
    replan = {rule: rows[rule].numbers["in all ms"] for rule in rows if rule == "pooled replan"}
    if replan:
        what = "all decisions of an iteration within {} ms, {} workers"
        found.append(_quick(title, what, replan, all_ms, workers))
    fits = {rule.split()[0]: row.numbers["fit s"] for rule, row in rows.items()}
    fits = {model: seconds for model, seconds in fits.items() if seconds == seconds}
    if fits:
        found.append(_quick(title, "fit within {} s", fits, _FIT_S))
    return found


_PLANS: Final = ("count", "deadline")


def _quick(title: str, what: str, taken: Mapping[str, float], bound: float, *more: object) -> Claim:
    listed = ", ".join(f"{name} {value:.3g}" for name, value in taken.items())
    agrees = all(value <= bound for value in taken.values())
    return Claim(title, f"goal: {what.format(f'{bound:g}', *more)}", listed, agrees)


def _best(rows: Rows, among: set[str]) -> str:
    return max(among, key=lambda rule: rows[rule].of_oracle)


def _within(title: str, rows: Rows, rule: str, other: str, within: float | None) -> Claim:
    """Compare two rules. within: points that `rule` may be below, None for information only."""
    points, error = rows[rule].more_than(rows[other])
    goal = "compared with" if within is None else f"at most {within:g} below"
    both = f"{rows[rule].of_oracle:.2f} against {rows[other].of_oracle:.2f}"
    return Claim(
        title,
        f"goal: {rule} {goal} {other}",
        f"{both}: {points:+.2f} ± {error:.2f}",
        None if within is None else points >= -within,
    )
