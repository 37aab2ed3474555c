"""Stores the state of a user's objects, such as a `state_dict`, as a file of tensors.

One entry of the file has the tree of dicts, lists and plain values as JSON; the other entries are
the tensors. Nothing is pickled, so a file from elsewhere cannot run code.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from outpace.errors import ConfigError
from outpace.record.checkpoints.tensors import Part, read_tensor, read_tensors, write_tensors

_TREE: Final = "tree"  # the name of the JSON among the tensors
_MAPPINGS: Final[dict[type, str]] = {dict: "dict", OrderedDict: "ordered", Counter: "counter"}
_SEQUENCES: Final[dict[type, str]] = {tuple: "tuple", torch.Size: "tuple", set: "set"}
_MAKE: Final[dict[str, Any]] = {
    "dict": dict,
    "ordered": OrderedDict,
    "counter": lambda items: Counter(dict(items)),
    "tuple": tuple,
    "set": set,
}


class Unfit(ConfigError):
    """Raised for a value that a checkpoint cannot store; the message names its place and type."""


def write_tree(path: Path, tree: Any, where: str = "it") -> Part:
    """Write a tree and wait until it is on the disk.

    Args:
        where: name of the tree in errors.

    Raises:
        Unfit: if it contains a value that is not a plain value, tensor, array, or container of
            them.
        OSError: if the file cannot be written.
    """
    return write_tensors(path, packed_tree(tree, where))


def read_tree(path: Path) -> Any:
    """Return the tree that `write_tree` wrote; tensors are on the CPU. Raises OSError."""
    return tree_of(read_tensors(path))


def read_branch(path: Path, *keys: str) -> Any:
    """Return the part of a written tree below dicts with these keys; it has no tensors.

    This reads no tensors. Raises KeyError if there is no such part, and OSError.
    """
    plain = json.loads(read_tensor(path, _TREE).numpy().tobytes())
    for key in keys:
        plain = next((value for name, value in plain["dict"] if name == key), None)
        if plain is None:
            raise KeyError(key)
    return _value(plain, {})


def packed_tree(tree: Any, where: str = "it", *, copies: bool = True) -> dict[str, torch.Tensor]:
    """Return a tree as tensors. Raises Unfit.

    copies: False if the tensors of the tree do not change until they are written, so that copies
    are not needed.
    """
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(_plain(tree, where, tensors)).encode()
    if copies:
        tensors = {name: tensor.cpu().clone() for name, tensor in tensors.items()}
    tensors[_TREE] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return tensors


def tree_of(tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return the tree from which `packed_tree` made these tensors."""
    return _value(json.loads(tensors[_TREE].numpy().tobytes()), tensors)


def _plain(value: Any, where: str, tensors: dict[str, torch.Tensor]) -> Any:
    """Return the JSON of a value; move its tensors to `tensors`. In it a dict has one key."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return _plain(value.item(), where, tensors)
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized:
            raise Unfit(_unfit(where, f"a {value.layout} tensor"))
        return {"tensor": _put(value.detach(), tensors)}
    if kind is np.ndarray and value.dtype.kind in "biufc":
        data = torch.frombuffer(bytearray(value.tobytes() or b"\0"), dtype=torch.uint8)
        return {"array": [_put(data, tensors), value.dtype.str, list(value.shape)]}
    if kind is list:
        return [_plain(each, f"{where}[{n}]", tensors) for n, each in enumerate(value)]
    if kind is deque:
        return {"deque": [value.maxlen, _plain(list(value), where, tensors)]}
    if kind in _SEQUENCES:
        return {_SEQUENCES[kind]: _plain(list(value), where, tensors)}
    if kind in _MAPPINGS:
        items = [
            [_plain(key, f"a key of {where}", tensors), _plain(v, f"{where}[{key!r}]", tensors)]
            for key, v in value.items()
        ]
        return {_MAPPINGS[kind]: items}
    raise Unfit(_unfit(where, f"a {kind.__module__}.{kind.__qualname__}"))


def _value(plain: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(plain, list):
        return [_value(each, tensors) for each in plain]
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "array":
        name, dtype, shape = content
        array = np.frombuffer(tensors[name].numpy().tobytes(), dtype=np.uint8)
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return array[:size].view(dtype).reshape(shape).copy()
    if kind == "deque":
        return deque(_value(content[1], tensors), content[0])
    return _MAKE[kind](_value(content, tensors))


def _put(tensor: torch.Tensor, tensors: dict[str, torch.Tensor]) -> str:
    name = str(len(tensors))
    tensors[name] = tensor
    return name


def _unfit(where: str, what: str) -> str:
    return (
        f"{where} is {what}, which a checkpoint cannot keep: it keeps numbers, texts, tensors, "
        "arrays, and dicts, lists, tuples and sets of them"
    )
