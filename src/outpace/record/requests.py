"""Requests to a running run, written as files in its folder.

A command writes a request under a unique name. The process that leads the run looks for requests,
and takes a request by removing its file, so that no request is carried out twice. The answer is an
event in the run's log with the name of the request. The process takes only regular files of its own
user. So everyone who may write to the folder may send a request, on any machine that has the
folder; no port is opened.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from outpace.errors import ConfigError
from outpace.record.folder import write_text
from outpace.support.regular_files import inside

_PATTERN: Final = "scale-*.json"
_MOST_BYTES: Final = 4096


class ScaleRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The numbers of processes that `outpace scale` asks for; None: the number does not change."""

    servers: int | None = None
    workers: int | None = None


def ask(folder: Path, request: ScaleRequest) -> Path:
    """Write a request and return its file, which exists until the request is taken.

    Raises:
        ConfigError: if it cannot be written.
    """
    path = folder / _PATTERN.replace("*", secrets.token_hex(8))
    try:
        write_text(path, msgspec.json.encode(request).decode())
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename}: {error.strerror}") from error
    return path


def taken(folder: Path) -> Iterator[tuple[str, ScaleRequest | None]]:
    """Remove the requests in the folder of a run; yield each request with its name.

    Yields None in place of a request that cannot be read. A link or a file of another user is
    removed and skipped.
    """
    for path in sorted(folder.glob(_PATTERN)):
        with contextlib.suppress(OSError):  # the request was withdrawn
            try:
                with open(path, "rb", opener=inside) as file:
                    is_own = os.fstat(file.fileno()).st_uid == os.geteuid()
                    content = file.read(_MOST_BYTES + 1)
            finally:
                path.unlink()
            if not is_own:
                continue
            try:
                yield path.name, msgspec.json.decode(content, type=ScaleRequest)
            except msgspec.DecodeError:
                yield path.name, None
