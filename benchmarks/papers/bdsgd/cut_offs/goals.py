"""The paper's claims about cut-offs, and our goals, compared with the measurements."""

from __future__ import annotations

from typing import Final

from benchmarks.papers.bdsgd.cut_offs.results import Rows
from benchmarks.papers.claims import Claim
from benchmarks.papers.over_seeds import INTERVAL, Spread, all_of

ROLLING: Final = ("last", "mean-5", "last-20", "last-5", "early-20")
HEDGES: Final = ("rolling hedge", "deep-markov hedge", "pooled hedge")
BDSGD: Final = "deep-markov count"
_CHEN: Final = "fixed"
_NAMES: Final = {"all": "waiting for all", _CHEN: "Chen", "elfving": "Elfving"}
_PAPERS: Final = {  # cluster -> figure, and the rules that it shows BDSGD above
    "i": ("figure 2", ("all", _CHEN, "elfving")),
    "ii-5.34": ("figure 4", ("all", _CHEN)),
    "ii-2.83": ("figure 4", ("all", _CHEN)),
    "ii-0.24": ("figure 4", ("all", _CHEN)),
}
# The network whose best cut-off is below Chen's, so that BDSGD saves the most time (figure 4).
_SAVES_MOST: Final = "ii-0.24"
_FILLED_IN: Final = 0.5  # points that BDSGD may lose because it does not see who was cut off


def goals(cluster: str, observation: str, rows: Rows) -> list[Claim]:
    """Return our own claims for one cluster and observation whose rules were measured."""
    title = f"{cluster}, {observation}"
    return [
        *_above_chen(title, cluster, rows),
        *_models(title, cluster, rows),
        *_replan(title, cluster, rows),
        *_hedges(title, rows),
    ]


def papers(cluster: str, rows: Rows) -> list[Claim]:
    """Return the paper's claims for a cluster with full observation.

    The paper compares cut-offs without early termination of workers (caption of figure 4).
    """
    if cluster not in _PAPERS or BDSGD not in rows:
        return []
    figure, below = _PAPERS[cluster]
    ours = rows[BDSGD]
    others = {rule: rows[rule] for rule in below if rule in rows}
    found = [
        _above(
            f"{figure}: {cluster}",
            f"BDSGD's throughput is above that of {_NAMES[rule]}",
            ours.omega,
            row.omega,
        )
        for rule, row in others.items()
    ]
    if figure == "figure 4":
        apart = {_NAMES[rule]: row.runs["apart"] for rule, row in others.items()}
        found.append(
            Claim(
                f"{figure}: {cluster}",
                "BDSGD is the nearest to the oracle's cut-off",
                f"gradients apart: BDSGD {ours.runs['apart']:.1f}, "
                + ", ".join(f"{name} {value:.1f}" for name, value in apart.items()),
                all_of(ours.runs["apart"].below(value) for value in apart.values()),
                margin=INTERVAL,
            )
        )
    if cluster == _SAVES_MOST and _CHEN in rows:
        found.append(
            _above(
                f"{figure}: {cluster}",
                "BDSGD saves more time than Chen, because its cut-off is lower",
                ours.runs["saved"],
                rows[_CHEN].runs["saved"],
                "waiting for all",
            )
        )
    return found


def filled_in(cluster: str, censored: Rows, full: Rows) -> list[Claim]:
    """Judge section 3.1.4: predictions are accurate if times beyond the cut-off are unknown."""
    if cluster not in _PAPERS or BDSGD not in censored or BDSGD not in full:
        return []
    cut, seen = censored[BDSGD].omega, full[BDSGD].omega
    return [
        Claim(
            f"section 3.1.4: {cluster}",
            "filling in the run times of workers that were cut off works well",
            f"with bounds only {_difference(cut, seen)}, in % of the oracle's",
            (seen - _FILLED_IN).below(cut),
            margin=f"at most {_FILLED_IN:g} below",
        )
    ]


def _above_chen(title: str, cluster: str, rows: Rows) -> list[Claim]:
    """Compare BDSGD with Chen, also if workers are cut off as in training (figure 5)."""
    if cluster not in _PAPERS or not {BDSGD, _CHEN} <= set(rows):
        return []
    what = "goal: deep-markov count is above Chen"
    return [_above(title, what, rows[BDSGD].omega, rows[_CHEN].omega)]


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
    ours = rows["pooled replan"].omega
    others = {rule for rule in rows if not rule.startswith(("true", "pooled replan"))}
    if others:
        found.append(_within(title, rows, "pooled replan", _best(rows, others), 0.3))
    rolling = {rule: rows[rule].omega for rule in (*ROLLING, "rolling hedge") if rule in rows}
    if rolling and cluster in ("iii", "bytedance-SE"):
        rule = max(rolling, key=lambda rule: rolling[rule].mean)
        found.append(
            Claim(
                title,
                "goal: pooled replan is above every rolling rule",
                f"{_difference(ours, rolling[rule])}, against {rule}",
                all_of(row.below(ours) for row in rolling.values()),
                margin=INTERVAL,
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


def _best(rows: Rows, among: set[str]) -> str:
    return max(among, key=lambda rule: rows[rule].omega.mean)


def _above(
    where: str, what: str, ours: Spread, theirs: Spread, than: str = "the oracle's"
) -> Claim:
    """Judge whether `ours` is more. than: what both are per cent of."""
    measured = f"{_difference(ours, theirs)}, in % of {than}"
    return Claim(where, what, measured, ours.above(theirs), margin=INTERVAL)


def _within(title: str, rows: Rows, rule: str, other: str, within: float | None) -> Claim:
    """Compare two rules. within: points that `rule` may be below, None for information only."""
    ours, theirs = rows[rule].omega, rows[other].omega
    return Claim(
        title,
        f"goal: {rule} is about as good as {other}",
        _difference(ours, theirs),
        None if within is None else (theirs - within).below(ours),
        margin=None if within is None else f"at most {within:g} % of the oracle's below",
    )


def _difference(ours: Spread, theirs: Spread) -> str:
    more = ours - theirs
    return f"{ours.mean:.2f} against {theirs.mean:.2f}: {more.mean:+.2f} ± {more.error:.2f}"
