"""The checkpoints that a run has committed, and their indexes as plain data.

`outpace status` needs no more of them, and importing torch for it would take two seconds.
"""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any, Final

from outpace.errors import ConfigError
from outpace.record.folder import CHECKPOINTS
from outpace.support.regular_files import read_text, require_no_link
from outpace.support.version import __version__

INDEX: Final = "index.json"
VERSION: Final = 2


class Damaged(Exception):
    """A file of a checkpoint is missing, or not as it was written. The message names it."""


def committed(run: Path) -> list[int]:
    """Return the numbers of the checkpoints in the folder of a run, ascending.

    Raises ConfigError if the folder, or that of a checkpoint, is a link.
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


def index_text(plain: dict[str, Any]) -> str:
    """Return the content of index.json."""
    return json.dumps({"crc32": _checksum(plain), "index": plain}, indent=1)


def read_plain_index(folder: Path) -> dict[str, Any]:
    """Return what index.json in the folder of a checkpoint says, as plain data.

    Raises:
        Damaged: if it is missing, not as it was written, or of another checkpoint.
        ConfigError: if a newer or an earlier version of Outpace wrote it.
    """
    path = folder / INDEX
    try:
        found = json.loads(read_text(path))
        plain: dict[str, Any] = found["index"]
        if found["crc32"] != _checksum(plain):
            raise ValueError("its CRC-32 is wrong")
        if plain["version"] > VERSION:
            raise ConfigError(
                f"{path} was written by Outpace {plain['outpace']}, and this is {__version__}: use "
                "that version, or a newer one"
            )
        if plain["version"] < VERSION:
            raise ConfigError(
                f"{path} has format {plain['version']} of an earlier Outpace, and this one reads "
                f"format {VERSION}: begin the run again"
            )
        number = plain["number"]
        if type(plain["now"]) is not int or not 0 <= plain["now"] < 2**63:
            raise ValueError(f"now: {plain['now']!r} is no time of a run")
    except KeyError as error:
        raise Damaged(f"{path} is damaged: its entry {error} is missing") from error
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{path} is damaged: {error}") from error
    if folder.name.isdecimal() and int(folder.name) != number:
        raise Damaged(f"{folder} is damaged: it has the files of checkpoint {number}")
    return plain


def _checksum(plain: Any) -> int:
    """Return the CRC-32 of data as JSON without spaces."""
    return zlib.crc32(json.dumps(plain, separators=(",", ":")).encode())
