"""The data that `--record` saves: date and commit of a measurement, and tables in the README."""

from __future__ import annotations

import json
import subprocess
from datetime import date
from pathlib import Path
from typing import Final

from outpace.support.replacing import replace_file

HERE: Final = Path(__file__).parent
README: Final = HERE / "README.md"
ROOT: Final = HERE.parent
END: Final = "<!-- end of what was recorded -->"
_CODE: Final = ("src", "benchmarks", "pyproject.toml")
# Written by `--record`, so a change of these files does not change the code.
_WRITTEN: Final = ("papers/results/", "RESULTS.md", "strategies/results", "benchmarks/README.md")


def origin() -> dict[str, str]:
    """Return today's date and the commit of this code, with "+" if files differ from it."""
    commit = git("rev-parse", "--short", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *_CODE)
    lines = [line for line in changed.splitlines() if not any(part in line for part in _WRITTEN)]
    return {"date": date.today().isoformat(), "commit": f"{commit}{'+' if lines else ''}"}


def git(*words: str) -> str:
    """Return the output of git about this checkout; end the program if it is not a checkout."""
    command = ["git", "-C", str(ROOT), *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"--record needs the commit of this code: {ended.stderr.strip()}")
    return ended.stdout.strip()


def write_json(path: Path, data: object) -> None:
    """Write the data into a file, which is whole at any time; make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    replace_file(path, lambda part: part.write_text(text, "utf-8"))


def with_tables(text: str, command: str, tables: str) -> str:
    """Return a page with these tables between the comment that names the command and `END`."""
    begin = f"<!-- {command} -->"
    before, _, rest = text.partition(begin)
    _, ended, after = rest.partition(END)
    if not ended:
        raise ValueError(f"the page has no place for the tables of {command}")
    return f"{before}{begin}\n\n{tables.strip()}\n\n{END}{after}"


def write_tables(command: str, tables: str) -> None:
    """Write the tables of a command into the README."""
    README.write_text(with_tables(README.read_text("utf-8"), command, tables), "utf-8")
