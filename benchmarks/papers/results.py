"""The recorded results of all experiments, and the table of them at the head of the README.

`results/NAME.json` holds what `--record` measured last: the date, the commit of the code, the
number of seeds and the claims of one experiment.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

from benchmarks.papers.claims import Claim, rows
from benchmarks.papers.experiments import EXPERIMENTS

FOLDER: Final = Path(__file__).parent / "results"
README: Final = Path(__file__).parent.parent / "README.md"
BEGIN: Final = "<!-- python -m benchmarks.papers table -->"
END: Final = "<!-- end of the table -->"
# In an experiment's folder of runs: when and with which code it was run.
ORIGIN: Final = "origin.json"
_CODE: Final = ("src", "benchmarks", "pyproject.toml")


def origin() -> dict[str, str]:
    """Return today's date and the commit of this code, with "+" if files differ from it."""
    root = README.parent.parent
    commit = _git(root, "rev-parse", "--short", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", *_CODE)
    lines = [line for line in changed.splitlines() if "papers/results/" not in line]
    return {"date": date.today().isoformat(), "commit": f"{commit}{'+' if lines else ''}"}


def _git(root: Path, *words: str) -> str:
    ended = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"--record needs the commit of this code: {ended.stderr.strip()}")
    return ended.stdout.strip()


def record(name: str, claims: Sequence[Claim], seeds: int, run: dict[str, str]) -> None:
    """Write the result of an experiment. run: see `origin`."""
    FOLDER.mkdir(exist_ok=True)
    data = {**run, "seeds": seeds, "claims": rows(name, claims)}
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")


def table() -> str:
    """Return all recorded results in Markdown, and the names of experiments without one."""
    found = {
        name: json.loads(path.read_text("utf-8"))
        for name in EXPERIMENTS
        if (path := FOLDER / f"{name}.json").is_file()
    }
    verdicts = [row["verdict"] for each in found.values() for row in each["claims"]]
    counts = ", ".join(
        f"{verdicts.count(word)} {text}"
        for word, text in (
            ("agrees", "agree"),
            ("differs", "differ"),
            ("undecided", "are not decided by the seeds"),
        )
    )
    lines = [f"Of {len(verdicts) - verdicts.count(None)} claims that are judged, {counts}."]
    if missing := [name for name in EXPERIMENTS if name not in found]:
        lines.append(f"Without a recorded result: {', '.join(missing)}.")
    lines += ["", "| experiment | claim | published | measured | margin | |"]
    lines.append("|---|---|---|---|---|---|")
    for name, each in found.items():
        for place, row in enumerate(each["claims"]):
            seeds = f", {each['seeds']} seeds" if each["seeds"] > 1 else ""
            first = f"{name} ({each['date']}, {each['commit']}{seeds})" if place == 0 else ""
            lines.append(_line(first, row))
    return "\n".join(lines)


def _line(first: str, row: dict[str, Any]) -> str:
    verdict = row["verdict"] or ""
    cells = [
        first,
        row["claim"],
        row["published"],
        row["measured"],
        row["margin"] or "",
        verdict if verdict in ("", "agrees") else f"**{verdict}**",
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def readme_with(generated: str) -> str:
    """Return the README with this table in the place of the one that it has."""
    text = README.read_text("utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{generated}\n\n{END}{after}"


def write_table() -> None:
    README.write_text(readme_with(table()), "utf-8")
