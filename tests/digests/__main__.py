"""Compare digests of this working tree with those of another commit, on one machine.

    python -m tests.digests --against COMMIT [PATTERN ...]   # name what differs
    python -m tests.digests --store                          # store what `make test` compares
    python -m tests.digests --list [PATTERN ...]

Parameters are compared as well as traces: they differ between processors, so they are not stored,
and both commits are run here. A pattern selects names, for instance 'ssp-*/fair/*'. The commit's
source is unpacked into a temporary folder; configurations, scripts and this program come from the
working tree for both. `--source FOLDER` is another folder with `outpace` in it, in place of a
commit.

A digest changes only with a stated reason in the message of the commit that changes it.
"""

from __future__ import annotations

import argparse
import fnmatch
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.digests.comparing import differences
from tests.digests.configurations import Configuration, configurations
from tests.digests.running import Digests, run_all
from tests.digests.storing import store

ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 1800.0  # for all configurations of one commit, on a busy machine


def main() -> int:
    """Return 0 if nothing differs, 1 if something does, 2 if a commit could not be run."""
    parser = argparse.ArgumentParser(prog="python -m tests.digests", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--against", metavar="COMMIT")
    what.add_argument("--source", metavar="FOLDER", type=Path)
    what.add_argument("--store", action="store_true")
    what.add_argument("--list", action="store_true")
    what.add_argument("--compute", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    given = parser.parse_args()
    chosen = _chosen(given.patterns)
    if not chosen:
        parser.error(f"no configuration is called {' or '.join(given.patterns)}")
    if given.compute:
        return _compute(chosen, given.compute)
    if given.store:
        return store()
    if given.list:
        _say(*chosen)
        return 0
    if given.source:
        return _compare(given.source.resolve(), str(given.source), given.patterns)
    with _unpacked(given.against) as source:
        return _compare(source, given.against, given.patterns)


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _chosen(patterns: list[str]) -> dict[str, Configuration]:
    return {
        name: configuration
        for name, configuration in configurations().items()
        if not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }


def _compute(chosen: Mapping[str, Configuration], file: Path) -> int:
    """Write a line of JSON for each configuration: its name, its digests, its seconds."""
    began = time.perf_counter()
    with file.open("w", buffering=1) as out:

        def tell(name: str, digests: Digests) -> None:
            nonlocal began
            now = time.perf_counter()
            out.write(json.dumps([name, digests, round(now - began, 3)]) + "\n")
            began = now

        run_all(chosen, tell)
    return 0


@contextmanager
def _unpacked(commit: str) -> Iterator[Path]:
    """Return a folder with the source of a commit."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", commit, "src"],
        check=False,
        capture_output=True,
    )
    if archive.returncode:
        sys.exit(archive.stderr.decode().strip())
    with tempfile.TemporaryDirectory(prefix="digests-source-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(folder, filter="data")
        yield Path(folder) / "src"


def _compare(before: Path, called: str, patterns: list[str]) -> int:
    """Run both sources at the same time, and print the differences."""
    with tempfile.TemporaryDirectory(prefix="digests-") as folder:
        sources = {called: before, "the working tree": ROOT / "src"}
        started = [
            _started(source, Path(folder) / f"{number}.jsonl", patterns)
            for number, source in enumerate(sources.values())
        ]
        found = []
        for number, (name, process) in enumerate(zip(sources, started, strict=True)):
            _, errors = process.communicate(timeout=LIMIT_S)
            if process.returncode:
                _say(f"{name} could not be run:\n{errors[-2000:]}")
                return 2
            lines = (Path(folder) / f"{number}.jsonl").read_text().splitlines()
            rows = [json.loads(line) for line in lines]
            took = sum(seconds for *_, seconds in rows)
            _say(f"{name}: {len(rows)} configurations in {took:.0f} s")
            found.append({row[0]: row[1] for row in rows})
    compared = differences(*found, called)
    _say(*compared.lines)
    return 1 if compared.differ else 0


def _started(source: Path, file: Path, patterns: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
    check = f"import outpace; assert outpace.__file__.startswith({str(source)!r}), outpace.__file__"
    subprocess.run([sys.executable, "-c", check], env=environment, check=True, cwd=ROOT)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.digests", "--compute", str(file), *patterns],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


if __name__ == "__main__":
    sys.exit(main())
