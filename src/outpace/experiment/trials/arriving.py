"""The files of a run go from a node of a cluster to this machine, all of them or none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outpace.experiment.resuming.command import resume_command
from outpace.experiment.trials.one import Ended
from outpace.record import folder as files

_PIECE: Final = 4 << 20  # bytes of a file that are in memory at a time


@dataclass(frozen=True, slots=True)
class Piece:
    """The next bytes of a file of the run. name: in its folder. data: None for a folder."""

    name: str
    data: bytes | None


def pieces_of(folder: Path) -> Iterator[Piece]:
    """Yield the folders and the files in a folder, these in pieces."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir():
            yield Piece(name, None)
        elif path.is_file():
            with path.open("rb") as file:
                data = file.read(_PIECE)
                yield Piece(name, data)
                while data := file.read(_PIECE):
                    yield Piece(name, data)


class Arriving:
    """The folder of a run, whose files arrive one after the other.

    They are written to a hidden folder beside it, which is renamed when it is complete.

    Args:
        folder: new or empty.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._coming = folder.parent / f".{folder.name}.part"
        self._has_begun = False

    def add(self, piece: Piece) -> None:
        """Write a piece of a file behind those before.

        Raises OSError if it cannot be written, or would be outside the folder.
        """
        if not self._has_begun:
            files.require_new(self._folder)
            self.abandon()  # of a command that was killed
            self._coming.mkdir(parents=True)
            self._has_begun = True
        path = self._coming / piece.name
        if not path.resolve().is_relative_to(self._coming.resolve()):
            raise OSError(f"the node names a file outside its folder: {piece.name!r}")
        if piece.data is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            with path.open("ab") as file:
                file.write(piece.data)

    def complete(self, ended: Ended) -> None:
        """Rename the hidden folder to that of the run, if files have arrived.

        ended: of the run. The command in its summary that resumes it is changed to name this
            folder.

        Raises OSError if that cannot be.
        """
        if not self._has_begun:
            return
        if ended.summary.get("resume") is not None:
            ended.summary["resume"] = resume_command("simulate", self._folder.absolute())
            files.write_summary(self._coming, ended.summary)
        self._coming.rename(self._folder)

    def abandon(self) -> None:
        """Remove what has come."""
        shutil.rmtree(self._coming, ignore_errors=True)
