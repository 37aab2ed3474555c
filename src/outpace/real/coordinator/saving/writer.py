"""Writes files of checkpoints that processes have sent. In a thread beside the coordinator."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import BinaryIO

import torch

from outpace.record.checkpoints import Part
from outpace.record.checkpoints.tensors import checked, write_bytes


def written_to(path: Path, data: torch.Tensor) -> Part | OSError:
    """Write bytes, a uint8 tensor, to a file; return the file, or why it cannot be written."""
    try:
        write_bytes(path, data.numpy().data)
        return checked(path)
    except OSError as error:
        return error


class FilesInPieces:
    """Files of one process, whose pieces are written one after the other.

    Attributes:
        parts: the files that are complete, which are on the disk.
        is_given_up: no more is written: the folder may be another checkpoint's soon.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self._crc32 = self._size = 0
        self.is_given_up = False
        self.parts: list[Part] = []

    def add(self, name: str, data: torch.Tensor, *, is_last: bool) -> OSError | None:
        """Write the next piece, of the file of this name; return why it cannot be written.

        is_last: it ends the file.
        """
        if self.is_given_up:
            return OSError("the checkpoint was given up")
        try:
            if self._file is None:
                self._file = (self._folder / name).open("xb")
                self._crc32 = self._size = 0
            content = data.numpy().data
            self._file.write(content)
            self._crc32, self._size = zlib.crc32(content, self._crc32), self._size + len(content)
            if is_last:
                self._file.flush()
                os.fsync(self._file.fileno())
                self.close()
                self.parts.append(Part(name, self._size, self._crc32))
        except OSError as error:
            self.close()
            return error
        return None

    def close(self) -> None:
        """Close the file that is not complete, if there is one."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
