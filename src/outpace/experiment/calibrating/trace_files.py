"""Reads a Chrome trace that torch.profiler exported, .json or .json.gz, and sizes of tensors in it.

msgspec decodes the whole file, but not the arguments of an event, which are decoded when they are
needed. This takes two to three times the uncompressed size of the file in memory, for one rank at a
time.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any, Final

import msgspec

from outpace.errors import ConfigError
from outpace.support.regular_files import named

LARGEST: Final = 2 << 30  # largest number of bytes of JSON, uncompressed
_MOST: Final = 10**15  # bytes; larger numbers are not the size of a tensor
# Sizes by c10's names of types, which collectives have, and by C++'s names, which operations have.
_BYTES: Final = {
    "byte": 1, "char": 1, "bool": 1, "unsigned char": 1, "signed char": 1,
    "short": 2, "half": 2, "bfloat16": 2, "short int": 2, "c10::half": 2, "c10::bfloat16": 2,
    "int": 4, "float": 4,
    "long": 8, "double": 8, "long int": 8, "complexfloat": 8,
}  # fmt: skip


class Event(msgspec.Struct, gc=False):
    """An event. Complete events (ph "X") have a beginning and a duration.

    Args:
        ph: Kind of the event.
        cat: Category, such as cpu_op, kernel or user_annotation.
        ts: Beginning, in µs.
        dur: Duration, in µs.
        args: A JSON object.
    """

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: msgspec.Raw = msgspec.Raw(b"{}")

    def arguments(self) -> dict[str, Any]:
        """Return `args` as a mapping; empty if it is not one."""
        try:
            found = msgspec.json.decode(self.args)
        except UnicodeDecodeError:  # names in other encodings are in parts that are not used
            found = msgspec.json.decode(bytes(self.args).decode("utf-8", "replace"))
        return found if isinstance(found, dict) else {}


class DistributedInfo(msgspec.Struct, gc=False):
    """The process group as torch.profiler describes it; missing values are None."""

    backend: str | None = None
    rank: int | None = None
    world_size: int | None = None


class Document(msgspec.Struct, gc=False, rename="camel"):
    """The parts of a trace that are used.

    Args:
        base_time_nanoseconds: Offset from the times of events to the rank's clock.
    """

    trace_events: list[Event]
    distributed_info: DistributedInfo | None = None
    base_time_nanoseconds: int = 0


def read_document(path: Path) -> Document:
    """Read a trace.

    Raises:
        ConfigError: with one line, if it cannot be read, is too large or is damaged.
    """
    try:
        with open(path, "rb", opener=named) as file:
            packed = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            content = packed.read(LARGEST + 1)
        if len(content) <= LARGEST:
            return msgspec.json.decode(content, type=Document)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{path}: it is not a trace of torch.profiler: {error}; pass the files that "
            "prof.export_chrome_trace wrote"
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except (EOFError, zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: it is damaged: {error}; copy or export it again") from error
    raise ConfigError(
        f"{path}: it has more than {LARGEST / 1e9:.2g} GB of JSON, which is too large; record "
        "fewer steps, with schedule=torch.profiler.schedule(..., active=100), and without "
        "with_stack and profile_memory"
    )


def size_of_elements(count: Any, dtype: Any) -> int | None:
    """Return the size of `count` elements of a dtype in bytes; None if either is unknown."""
    each = _bytes(dtype)
    if type(count) is not int or each is None or not 0 < count * each <= _MOST:
        return None
    return count * each


def size_of_dims(dims: Any, types: Any) -> int | None:
    """Return the size of all tensors of an operation in bytes; None if it is unknown.

    Args:
        dims: Shapes of the inputs; a list of tensors has a list of shapes.
        types: The types of the inputs.
    """
    if not isinstance(dims, list) or not isinstance(types, list) or not dims:
        return None
    total = 0
    for shape, dtype in zip(dims, types, strict=False):
        each = _bytes(dtype)
        if each is None or not isinstance(shape, list):
            continue
        total += each * _elements(shape)
    return total if 0 < total <= _MOST else None


def _elements(shape: list[Any]) -> int:
    if any(isinstance(part, list) for part in shape):
        return sum(_elements(part) for part in shape if isinstance(part, list))
    return math.prod(part for part in shape if isinstance(part, int))


def _bytes(dtype: Any) -> int | None:
    if not isinstance(dtype, str):
        return None
    name = dtype.lower()
    return 1 if name.startswith("float8") else _BYTES.get(name)
