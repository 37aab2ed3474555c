"""Brings the folder of a run from a node of a cluster to this machine, whole or not at all."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Final

from outpace.experiment.resuming.command import resume_command
from outpace.experiment.trials.one import End
from outpace.real.process.ray.slot_news import NodeFiles
from outpace.record import folder as files

_PIECE: Final = 4 << 20  # bytes of a file that are in memory at a time


def bring(there: NodeFiles, written: str, folder: Path, end: End) -> None:
    """Copy the files of a run that has ended, and remove them there.

    They are written to a hidden folder beside `folder`, which is renamed when it is complete.

    Args:
        written: the folder on the node.
        folder: the one on this machine, new or empty.
        end: of the run; the command in its summary that goes on with it is changed to the folder
            on this machine.

    Raises:
        OSError: the files cannot be written here, or read there, or the node names one outside the
            folder; a ConnectionError if the node is lost.
    """
    files.require_new(folder)
    coming = folder.parent / f".{folder.name}.part"
    shutil.rmtree(coming, ignore_errors=True)  # of a command that was killed
    try:
        coming.mkdir(parents=True)
        for name, size in there.list(written):
            path = coming / name
            if not path.resolve().is_relative_to(coming.resolve()):
                raise OSError(f"the node names a file outside its folder: {name!r}")
            if size < 0:
                path.mkdir(parents=True, exist_ok=True)
            else:
                _copy(there, f"{written}/{name}", size, path)
        if end.summary.get("resume") is not None:
            end.summary["resume"] = resume_command("simulate", folder.absolute())
            files.write_summary(coming, end.summary)
        coming.rename(folder)
    finally:
        shutil.rmtree(coming, ignore_errors=True)
        with contextlib.suppress(OSError):
            there.remove(written)


def _copy(there: NodeFiles, source: str, size: int, path: Path) -> None:
    with path.open("wb") as file:
        while file.tell() < size:
            piece = there.read(source, file.tell(), min(_PIECE, size - file.tell()))
            if not piece:
                raise OSError(f"{source} has become shorter than {size} bytes")
            file.write(piece)
