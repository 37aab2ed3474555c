"""Finds the files of a data set, or downloads them.

Files are looked for in the folder that the configuration names. If it names none, they are looked
for in the data set's folder in OUTPACE_DATA and in the user's cache, and missing files are
downloaded into the cache. A file is used only if its checksum is right.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from outpace.errors import ConfigError

DATA: Final = "OUTPACE_DATA"  # environment variable with the folder of data sets


@dataclass(frozen=True, slots=True)
class DataSet:
    """The files of a data set.

    Attributes:
        checksums: name -> SHA-256.
        url: the folder that the files are downloaded from.
    """

    name: str
    checksums: Mapping[str, str]
    url: str

    def find(self, folder: str | None = None) -> dict[str, Path]:
        """Return the files by name. Without `folder`, missing files are downloaded.

        Raises:
            ConfigError: names the missing files and where to put them, or the damaged files.
        """
        places = self.places(folder)
        if folder is not None:
            return self._all_in(places)
        try:
            import pooch  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            return self._all_in(places, "; with pip install 'outpace[data]' they are downloaded")
        kept = Path(pooch.os_cache("outpace")) / self.name
        found = {name: path for name in self.checksums if (path := _first(places, name))}
        pooch.get_logger().setLevel("WARNING")  # there is a progress bar
        for name in self.checksums:
            if name not in found:
                found[name] = self._fetched(name, kept, pooch)
        return self._verified(found)

    def places(self, folder: str | None = None) -> list[Path]:
        """Return the folders that are searched before files are downloaded."""
        if folder is not None:
            return [Path(folder).expanduser()]
        return [Path(os.environ[DATA]).expanduser() / self.name] if os.environ.get(DATA) else []

    def _fetched(self, name: str, kept: Path, pooch: Any) -> Path:
        path = kept / name
        if path.is_file():
            return path
        try:
            pooch.retrieve(
                f"{self.url}/{name}",
                f"sha256:{self.checksums[name]}",
                fname=name,
                path=kept,
                downloader=pooch.HTTPDownloader(progressbar=_ProgressBar(name), timeout=30),
            )
        except Exception as error:  # from requests, urllib3 or pooch
            raise ConfigError(
                f"{self.name}: cannot download {self.url}/{name} ({type(error).__name__}). "
                f"Put {', '.join(self.checksums)} into {kept}, or into "
                f"{self.name}/ of a folder that {DATA} names"
            ) from error
        return path

    def _all_in(self, places: Sequence[Path], hint: str = "") -> dict[str, Path]:
        found = {name: path for name in self.checksums if (path := _first(places, name))}
        missing = [name for name in self.checksums if name not in found]
        if missing:
            where = " or ".join(map(str, places)) or f"{self.name}/ of a folder that {DATA} names"
            raise ConfigError(
                f"{self.name}: missing: {', '.join(missing)}. Put them into {where} "
                f"(from {self.url}){hint}"
            )
        return self._verified(found)

    def _verified(self, found: dict[str, Path]) -> dict[str, Path]:
        for name, path in found.items():
            try:
                status = path.stat()
                checksum = _checksum(path, status.st_size, status.st_mtime_ns)
            except OSError as error:
                raise ConfigError(f"{self.name}: cannot read {path}: {error.strerror}") from error
            if checksum != self.checksums[name]:
                raise ConfigError(
                    f"{self.name}: {path} is damaged or another file: its SHA-256 is "
                    f"{checksum}, not {self.checksums[name]}. Remove it to download it again"
                )
        return found


@cache
def _checksum(path: Path, size: int, changed_ns: int) -> str:
    """Return the SHA-256 of a file, which is read again only if its size or time has changed."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _first(places: Sequence[Path], name: str) -> Path | None:
    return next((path for place in places if (path := place / name).is_file()), None)


class _ProgressBar:
    """Shows the progress of a download, with the interface that pooch expects."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        self.total = 0
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("downloading {task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(name, total=None)
        self._progress.start()

    def update(self, count: int) -> None:
        self._progress.update(self._task, total=self.total or None, advance=count)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop()
