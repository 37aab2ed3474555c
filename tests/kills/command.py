"""A real run, started by the command line in a separate process, and its processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.kills.checking import Broken

from outpace.record.status import Status, read_status
from outpace.support.yaml_files import write_yaml

_STEP_S: Final = 0.05
LIMIT_S: Final = 90.0  # limit of every wait of a test


class Command:
    """`outpace run` in a folder, and again with `--resume` after it was killed."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder, self.out = folder, folder / "run"
        # For sockets, whose paths must be short.
        self.temporary = Path(tempfile.mkdtemp(prefix="kills-"))
        (folder / "config.yaml").write_text(write_yaml(config))
        self._process: subprocess.Popen[bytes] | None = None
        self.known: set[int] = set()  # all processes that were seen

    def start(self) -> None:
        """Begin the run, or resume it in the same folder."""
        if self._process is not None:
            self._process.wait(LIMIT_S)
        options = ["--resume", "run"] if self.out.exists() else ["config.yaml", "--out", "run"]
        with (self.folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "outpace", "run", *options, "--quiet"],
                cwd=self.folder,
                env={**os.environ, "TMPDIR": str(self.temporary)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while the command is running."""
        assert self._process is not None
        return self._process.poll()

    def processes(self) -> dict[str, int]:
        """Return the process of each name, such as worker-0, that has one."""
        children = descendants(self.pid)
        self.known |= children.keys()
        return {name: pid for pid, name in children.items() if name[:6] in ("worker", "server")}

    def status(self) -> Status | None:
        """Return the status of the run, if the command that continues has written one."""
        found = read_status(self.out)
        return found if found is not None and found.process == self.pid else None

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "summary.json").read_text())
        return found

    def wait_until(self, what: str, is_there: Callable[[], object], ends: bool = False) -> None:
        """Wait for something. Raises Broken after a limit, or if the command ends before that.

        Args:
            ends: the command may end.
        """
        until = time.monotonic() + LIMIT_S
        while not is_there():
            if not ends and self.exit_code is not None:
                raise Broken(f"the command ended with {self.exit_code} before {what}: {self.said}")
            if time.monotonic() > until:
                raise Broken(f"{LIMIT_S:.0f} s passed without {what}: {self.said}")
            time.sleep(_STEP_S)

    @property
    def said(self) -> str:
        """The last lines of the command's output."""
        return "\n".join((self.folder / "output.txt").read_text().splitlines()[-12:])

    def end(self) -> None:
        """Kill the remaining processes, so that none remains after a broken promise."""
        for pid in self.known | {self.pid}:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        assert self._process is not None
        self._process.wait(LIMIT_S)
        shutil.rmtree(self.temporary, ignore_errors=True)


def descendants(pid: int) -> dict[int, str]:
    """Return the processes below this one that have not ended, with their names."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (found := _stat(int(entry))) is not None and found[1] not in "ZX":
            parents[int(entry)] = found[0], found[2]
    below: dict[int, str] = {}
    for each, (_, name) in parents.items():
        above = each
        while above in parents and above != pid:
            above = parents[above][0]
        if above == pid and each != pid:
            below[each] = name
    return below


def is_alive(pid: int) -> bool:
    """True if the process exists and is no zombie."""
    found = _stat(pid)
    return found is not None and found[1] not in "ZX"


def _stat(pid: int) -> tuple[int, str, str] | None:
    """Return parent, state and name of a process; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name = text[text.index("(") + 1 : text.rindex(")")]
    state, parent = text[text.rindex(")") + 2 :].split()[:2]
    return int(parent), state, name
