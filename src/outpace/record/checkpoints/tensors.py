"""Writes files of tensors, which are on the disk when a function here returns, and checksums."""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, load_file, save_file

from outpace.support.regular_files import inside, regular
from outpace.support.replacing import sync

_READ_BYTES: Final = 1 << 20


class Part(msgspec.Struct, frozen=True):
    """A file of a checkpoint; its values are bounded for messages. file: its name in the folder."""

    file: Annotated[str, msgspec.Meta(max_length=1000)]
    bytes: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    crc32: Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> Part:
    """Write a safetensors file and wait until it is on the disk.

    The tensors must not change while they are written, which happens without the interpreter's
    lock.

    Raises:
        OSError: if the file cannot be written.
    """
    _save(path, tensors)
    return written(path)


def _save(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(path))
    except SafetensorError as error:  # raised for a full disk, among others
        raise OSError(f"{path.name}: {error}") from error


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a file, in their own memory. Raises OSError."""
    try:
        # The library's tensors are views of the mapped file.
        return {name: tensor.clone() for name, tensor in load_file(str(regular(path))).items()}
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from error


def read_tensor(path: Path, name: str) -> torch.Tensor:
    """Return one tensor of a file, in its own memory. Raises OSError."""
    try:
        with safe_open(str(regular(path)), "pt") as file:
            tensor: torch.Tensor = file.get_tensor(name).clone()
            return tensor
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

    The content is written to a file without a name, because `safetensors.torch.save` would hold the
    interpreter's lock for three copies.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tensors"
        _save(path, tensors)
        with path.open("r+b") as file:
            return torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=torch.uint8)


def from_bytes(data: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the tensors in the content of a file. Raises OSError if it is not such a file."""
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
