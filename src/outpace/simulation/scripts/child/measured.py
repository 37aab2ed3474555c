"""A script that is run only to measure its steps ends before it writes to a file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import torch

from outpace.simulation.scripts.child.pipe import ScriptPipe
from outpace.simulation.scripts.messages import Left, Wrote


class EndBeforeWrite:
    """Ends the measuring of a script's steps when the script is about to change a file.

    A snapshot, say, would make the run that follows resume from it. Processes that the script
    forks are not watched.

    Args:
        least: steps before which files may be written: there are too few without them.
        files: the folder of `outpace.output_dir` while steps are measured.
    """

    def __init__(self, pipe: ScriptPipe, least: int, files: Path | None) -> None:
        self._pipe, self._least, self._pid = pipe, least, os.getpid()
        self._files = None if files is None else f"{files}/"
        self._told: set[str] = set()

    def __call__(self, path: str, is_file: bool) -> None:
        """Be called before a change of a file or a folder, in any thread; see `Written`."""
        is_own = self._files is not None and path.startswith(self._files)
        if is_own or os.getpid() != self._pid:
            return
        if self._pipe.steps >= self._least:
            self._pipe.send(Left(False, torch.empty(0)))
            threading.Event().wait()  # until this process is ended
        elif is_file and path not in self._told:
            self._told.add(path)
            self._pipe.send(Wrote(path))
