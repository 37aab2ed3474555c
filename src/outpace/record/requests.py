"""Requests to a running run, as files in its folder.

A command writes a request under a name of its own, waits for the answer and removes it. The process
that leads the run looks for requests, and takes each by renaming it, so that none is done twice. A
command that waits no more removes the renamed file, and then no answer is written. The process
takes plain files of its own user only. So whoever may write the folder may ask, on any machine that
has it; no port is opened.
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
from outpace.support.regular_files import inside, read_text

_REQUEST, _TAKEN, _ANSWER = ".request.json", ".taken.json", ".answer.json"
_PREFIX: Final = "scale-"
_MOST_BYTES: Final = 4096


class ScaleRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What `outpace scale` asks for; None: as it is."""

    servers: int | None = None
    workers: int | None = None


class Answer(msgspec.Struct, forbid_unknown_fields=True):
    """What became of a request. is_done: False if it was refused. text: in words."""

    is_done: bool
    text: str


class Asked:
    """A request that this process has written, until `close`.

    Raises:
        ConfigError: if it cannot be written.
    """

    def __init__(self, folder: Path, request: ScaleRequest) -> None:
        self._base = folder / f"{_PREFIX}{secrets.token_hex(8)}"
        try:
            write_text(self._path(_REQUEST), msgspec.json.encode(request).decode())
        except OSError as error:
            raise ConfigError(f"cannot write {error.filename}: {error.strerror}") from error

    def answer(self) -> Answer | None:
        """Return the answer, once there is one."""
        try:
            return msgspec.json.decode(read_text(self._path(_ANSWER)), type=Answer)
        except (OSError, ValueError):
            return None

    @property
    def is_taken(self) -> bool:
        """True if the process that leads the run has the request, and has not answered yet."""
        return self._path(_TAKEN).exists()

    def close(self) -> None:
        """Remove the request and its answer. If it was not taken, it is not done any more."""
        for suffix in (_REQUEST, _TAKEN, _ANSWER):
            with contextlib.suppress(OSError):
                self._path(suffix).unlink()

    def _path(self, suffix: str) -> Path:
        return self._base.with_name(self._base.name + suffix)


class Requests:
    """The requests to the run in a folder, for the process that leads it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self) -> Iterator[tuple[str, ScaleRequest]]:
        """Yield the new requests, each with a name for its answer; those that are none go."""
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return
        for name in names:
            if not (name.startswith(_PREFIX) and name.endswith(_REQUEST)):
                continue
            base = name.removesuffix(_REQUEST)
            taken = self._folder / (base + _TAKEN)
            try:
                (self._folder / name).rename(taken)
            except OSError:
                continue  # withdrawn
            try:
                request = _read(taken)
            except OSError:  # a link, or of another user
                with contextlib.suppress(OSError):
                    taken.unlink()
                continue
            if request is None:
                self.answer(base, Answer(False, "the request cannot be read"))
            else:
                yield base, request

    def answer(self, name: str, answer: Answer) -> None:
        """Write the answer to a request; the command that waits for it removes it.

        If no command waits for it any more, nothing is written.
        """
        with contextlib.suppress(OSError):  # the command says that it got none
            (self._folder / (name + _TAKEN)).unlink()
            text = msgspec.json.encode(answer).decode()
            write_text(self._folder / (name + _ANSWER), text)


def _read(path: Path) -> ScaleRequest | None:
    """Return the request in a plain file of this user; None if it is none. Raises OSError."""
    with open(path, "rb", opener=inside) as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            return None
        content = file.read(_MOST_BYTES + 1)
    try:
        return msgspec.json.decode(content, type=ScaleRequest)
    except msgspec.DecodeError:
        return None
