"""The checkpoints that a run has committed, and the beginnings of their indexes.

`outpace status` needs only this part; importing torch for it would take two seconds.
"""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec

from outpace.errors import ConfigError
from outpace.record.folder import CHECKPOINTS
from outpace.support.regular_files import read_text, require_no_link
from outpace.support.units import Time
from outpace.support.version import __version__

INDEX: Final = "index.json"
VERSION: Final = 3


class Damaged(Exception):
    """Raised if a file of a checkpoint is missing or changed; the message names the file."""


class Head(msgspec.Struct, kw_only=True):
    """The part that every index contains.

    Attributes:
        number: number of the checkpoint.
        now: time of the run.
        version: version of the format.
        outpace: the version of Outpace that wrote it.
    """

    number: int
    now: Annotated[Time, msgspec.Meta(ge=0, le=2**62)]
    version: int = VERSION
    outpace: str = __version__


IndexT = TypeVar("IndexT", bound=Head)


def committed(run: Path) -> list[int]:
    """Return the numbers of the checkpoints in the folder of a run, ascending.

    Raises ConfigError if the folder, or the folder of a checkpoint, is a link.
    """
    folder = run / CHECKPOINTS
    require_no_link(folder)
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if re.fullmatch(r"[0-9]{6,18}", path.name)]
    for path in found:
        require_no_link(path)
    return sorted(int(path.name) for path in found)


def name_of(number: int) -> str:
    """Return the folder of a checkpoint below the folder of the run, such as checkpoints/000012."""
    return f"{CHECKPOINTS}/{number:06d}"


def index_json(index: Head) -> bytes:
    """Return the content of index.json."""
    plain = msgspec.to_builtins(index, str_keys=True)
    return json.dumps({"crc32": _checksum(plain), "index": plain}).encode()


def _checksum(plain: Any) -> int:
    # The standard library's module can write numbers that are not finite, such as a loss.
    return zlib.crc32(json.dumps(plain).encode())


def read_index(folder: Path, kind: type[IndexT]) -> IndexT:
    """Return the index in the folder of a checkpoint, or its head alone.

    Raises:
        Damaged: if the index is missing, differs from the written one, or belongs to another
            checkpoint.
        ConfigError: if another version of Outpace wrote it, with another format.
    """
    path = folder / INDEX
    try:
        found = json.loads(read_text(path))
        plain = found["index"]
        head = msgspec.convert(plain, Head)
        if head.version != VERSION:
            raise ConfigError(
                f"{path} has format {head.version} of Outpace {head.outpace}, and this one, "
                f"{__version__}, reads format {VERSION}: use that version, or begin the run again"
            )
        if found["crc32"] != _checksum(plain):
            raise ValueError("its CRC-32 is wrong")
        index = msgspec.convert(plain, kind, str_keys=True)
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise Damaged(f"{path} is damaged: {error}") from error
    if folder.name.isdecimal() and int(folder.name) != index.number:
        raise Damaged(f"{folder} is damaged: it has the files of checkpoint {index.number}")
    return index
