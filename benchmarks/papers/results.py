"""The recorded results of all experiments, and their page.

`results/NAME.json` has the last results of `--record`: the date, the commit of the code, the number
of seeds and the claims of one experiment. RESULTS.md has all of them as tables, and the README of
the benchmarks their summary.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.papers.claims import Claim, rows
from benchmarks.papers.experiments import EXPERIMENTS

from benchmarks import recorded

FOLDER: Final = Path(__file__).parent / "results"
PAGE: Final = Path(__file__).parent / "RESULTS.md"
COMMAND: Final = "python -m benchmarks.papers table"
_MOST_MET: Final = 10
_OWN: Final = "goal: "  # prefix of a claim that no paper makes
PAPERS: Final = {  # by folder
    "bdsgd": "Bayesian Distributed SGD",
    "fluentps": "FluentPS",
    "hpsgd": "HPSGD",
    "hybrid_simulator": "A hybrid simulator",
    "psp": "PSP-SGD",
}


def record(name: str, claims: Sequence[Claim], seeds: int, run: dict[str, str]) -> None:
    """Write the result of an experiment. run: see `recorded.origin`."""
    data = {**run, "seeds": seeds, "claims": rows(name, claims)}
    recorded.write_json(FOLDER / f"{name}.json", data)


def is_current(name: str) -> bool:
    """True if the result of an experiment was measured with the present code.

    Code of other papers does not count.
    """
    path, root = FOLDER / f"{name}.json", recorded.ROOT
    if not path.is_file():
        return False
    commit = json.loads(path.read_text("utf-8"))["commit"]
    paper = EXPERIMENTS[name].parent.relative_to(root).as_posix()
    code = ("src", "pyproject.toml", ":(glob)benchmarks/papers/*.py", paper)
    same = subprocess.run(["git", "-C", root, "diff", "--quiet", commit, "--", *code], check=False)
    return same.returncode == 0


def summary(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how many claims agree, and which experiments have no result."""
    all_rows = [row for each in found.values() for row in each["claims"]]
    own = [row["verdict"] for row in all_rows if _is_own(row)]
    lines = [
        _counted("claims", [row["verdict"] for row in all_rows if not _is_own(row)]),
        _counted("goals of this project", own),
    ]
    if missing := [name for name in EXPERIMENTS if name not in found]:
        lines.append(f"Without a recorded result: {', '.join(missing)}.")
    return "\n".join(lines)


def page(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return all recorded results in Markdown, by paper."""
    lines = [
        "# Results of the papers' experiments",
        "",
        "`python -m benchmarks.papers all --record` writes this page;",
        "[Benchmarks](../README.md#papers) says what the columns mean.",
        "",
        summary(found),
    ]
    for paper, title in PAPERS.items():
        of_paper = {name: found[name] for name in found if EXPERIMENTS[name].parent.name == paper}
        if of_paper:
            lines += ["", f"## {title}", "", *_paper(of_paper)]
    return "\n".join(lines) + "\n"


def kept() -> dict[str, dict[str, Any]]:
    """Return the recorded results by experiment."""
    return {
        name: json.loads(path.read_text("utf-8"))
        for name in EXPERIMENTS
        if (path := FOLDER / f"{name}.json").is_file()
    }


def write_table() -> None:
    """Write the page of all results, and their summary into the README."""
    found = kept()
    PAGE.write_text(page(found), "utf-8")
    recorded.write_tables(COMMAND, summary(found))


def _is_own(row: Mapping[str, Any]) -> bool:
    return str(row["published"]).startswith(_OWN)


def _counted(what: str, verdicts: Sequence[str | None]) -> str:
    counts = ", ".join(
        f"{verdicts.count(word)} {text}"
        for word, text in (
            ("agrees", "agree"),
            ("differs", "differ (bold)"),
            ("undecided", "are not decided by the seeds"),
        )
    )
    return f"Of {len(verdicts) - verdicts.count(None)} {what} that are judged, {counts}."


def _paper(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a table for each experiment, below a line that says when it was measured.

    If more than `_MOST_MET` of our own goals are met, only their number is given.
    """
    lines = []
    for name, each in found.items():
        seeds = f", {each['seeds']} seeds" if each["seeds"] > 1 else ""
        met = [row for row in each["claims"] if _is_own(row) and row["verdict"] == "agrees"]
        left_out = met if len(met) > _MOST_MET else []
        where = f" {len(left_out)} goals that are met are left out here." if left_out else ""
        lines += [f"`{name}`, {each['date']}, commit {each['commit']}{seeds}:{where}", ""]
        lines += ["| where | published | measured | margin | |", "|---|---|---|---|---|"]
        lines += [*(_line(row) for row in each["claims"] if row not in left_out), ""]
    return lines[:-1]


def _line(row: Mapping[str, Any]) -> str:
    cells = [row["claim"], row["published"], row["measured"], row["margin"] or ""]
    cells = [
        cell.replace("|", "\\|").replace("\n", "<br>") for cell in (*cells, row["verdict"] or "")
    ]
    if row["verdict"] == "differs":
        cells[1], cells[-1] = f"**{cells[1]}**", f"**{cells[-1]}**"
    return "| " + " | ".join(cells) + " |"
