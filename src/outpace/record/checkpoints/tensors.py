"""Files of tensors that are on the disk when a function here returns, and their checksums."""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import torch
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.torch import load, load_file, save, save_file

from outpace.support.regular_files import inside, regular
from outpace.support.replacing import sync

_READ_BYTES: Final = 1 << 20
_ALIGNED: Final = 8  # bytes, of the header and its length


class Part(msgspec.Struct, frozen=True):
    """A file of a checkpoint, bounded as it comes over the wire. file: its name in the folder."""

    file: Annotated[str, msgspec.Meta(max_length=1000)]
    bytes: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    crc32: Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> Part:
    """Write a safetensors file and wait until it is on the disk.

    The tensors must not change meanwhile: they are written without the interpreter's lock.

    Raises:
        OSError: if the file cannot be written.
    """
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(path))
    except SafetensorError as error:  # of a full disk, among others
        raise OSError(f"{path.name}: {error}") from error
    return written(path)


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a file, in memory of their own. Raises OSError."""
    try:
        # The library's tensors are views of the mapped file.
        return {name: tensor.clone() for name, tensor in load_file(str(regular(path))).items()}
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from error


def read_tensor(path: Path, name: str) -> torch.Tensor:
    """Return one tensor of a file, in memory of its own. Raises OSError."""
    try:
        with safe_open(str(regular(path)), "pt") as file:
            tensor: torch.Tensor = file.get_tensor(name).clone()
            return tensor
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from error


def size_of(path: Path, name: str) -> int:
    """Return the number of elements of a tensor in a file. Raises OSError."""
    try:
        with safe_open(str(regular(path)), "pt") as file:
            return math.prod(file.get_slice(name).get_shape())
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from error


def written(path: Path) -> Part:
    """Wait until a file is on the disk; return its size and checksum. Raises OSError."""
    sync(path)
    return checked(path)


def checked(path: Path) -> Part:
    """Return the size and checksum of a file. Raises OSError."""
    crc32 = size = 0
    buffer = bytearray(_READ_BYTES)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0, opener=inside) as file:
        while count := file.readinto(buffer):
            crc32, size = zlib.crc32(view[:count], crc32), size + count
    return Part(path.name, size, crc32)


def to_bytes(tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the content of a file as `write_tensors` writes it; shape (bytes,), uint8.

    As `safetensors.torch.save`, which holds the interpreter's lock for three copies; here it is
    free while the tensors are copied.
    """
    header: dict[str, Any] = {}
    size = 0
    ordered = sorted(tensors.items(), key=lambda item: -item[1].itemsize)  # so each is aligned
    for name, tensor in ordered:
        end = size + tensor.nbytes
        shape, places = list(tensor.shape), [size, end]
        header[name] = {"dtype": _name_of(tensor.dtype), "shape": shape, "data_offsets": places}
        size = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNED)
    head = bytearray(len(text).to_bytes(_ALIGNED, "little") + text)
    data = torch.empty(len(head) + size, dtype=torch.uint8, device="cpu")
    data[: len(head)].copy_(torch.frombuffer(head, dtype=torch.uint8))
    rest = data[len(head) :]
    for name, tensor in ordered:
        low, high = header[name]["data_offsets"]
        if high > low:
            rest[low:high].copy_(tensor.contiguous().reshape(-1).view(torch.uint8))
    return data


@cache
def _name_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype in a file."""
    found: Any = deserialize(save({"x": torch.empty(0, dtype=dtype, device="cpu")}))  # type: ignore[no-untyped-call]
    ((_, entry),) = found
    name: str = entry["dtype"]
    return name


def from_bytes(data: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the tensors of the content of a file. Raises OSError if it is none."""
    try:
        return load(data.numpy().tobytes())
    except SafetensorError as error:
        raise OSError(f"it is no safetensors file: {error}") from error


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Write a file and wait until it is on the disk. Raises OSError."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
