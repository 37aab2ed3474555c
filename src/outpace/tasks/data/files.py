"""Finds the files of a data set.

They are in the folder that the configuration names, or else in the data set's folder in
OUTPACE_DATA. A file is used only if its checksum is right.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from outpace.errors import ConfigError

DATA: Final = "OUTPACE_DATA"  # environment variable with the folder of data sets


@dataclass(frozen=True, slots=True)
class DataSet:
    """The files of a data set.

    Attributes:
        checksums: SHA-256 of each file, by name.
        url: the folder that the files can be downloaded from.
    """

    name: str
    checksums: Mapping[str, str]
    url: str

    def find(self, folder: str | None = None) -> dict[str, Path]:
        """Return the files by name.

        Raises:
            ConfigError: names the missing files and where to put them, or a damaged file.
        """
        place = self._place(folder)
        if place is None:
            raise self._missing(self.checksums, f"{self.name}/ of a folder that {DATA} names")
        found = {name: place / name for name in self.checksums}
        if missing := [name for name, path in found.items() if not path.is_file()]:
            raise self._missing(missing, place)
        for name, path in found.items():
            self._verify(name, path)
        return found

    def _missing(self, names: Iterable[str], where: Path | str) -> ConfigError:
        return ConfigError(
            f"{self.name}: missing: {', '.join(names)}. Put them into {where} (from {self.url})"
        )

    def _place(self, folder: str | None) -> Path | None:
        if folder is not None:
            return Path(folder).expanduser()
        return Path(os.environ[DATA]).expanduser() / self.name if os.environ.get(DATA) else None

    def _verify(self, name: str, path: Path) -> None:
        try:
            status = path.stat()
            checksum = _checksum(path, status.st_size, status.st_mtime_ns)
        except OSError as error:
            raise ConfigError(f"{self.name}: cannot read {path}: {error.strerror}") from error
        if checksum != self.checksums[name]:
            raise ConfigError(
                f"{self.name}: {path} is damaged or another file: its SHA-256 is "
                f"{checksum}, not {self.checksums[name]}"
            )


@cache
def _checksum(path: Path, size: int, changed_ns: int) -> str:
    """Return the SHA-256 of a file, which is read again only if its size or time has changed."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
