"""The names and shapes of parameters, with which flat parameters become a plain state_dict."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from outpace.blocks.block import Block, parts
from outpace.blocks.packing import DTYPES, dtype_name, unpacked_by_name


def layout_of(
    parameters: Iterable[tuple[str, torch.Tensor]],
    aliases: Sequence[tuple[str, str]] = (),
    buffers: Sequence[tuple[str, list[int], str]] = (),
    **others: Any,
) -> str:
    """Return the layout of a model as JSON.

    Args:
        parameters: names and tensors, in the order of the flat parameters.
        aliases: further names of tensors, each with the tensor's first name.
        buffers: names, shapes and dtypes of tensors that are saved but not exchanged.
        others: further entries.
    """
    named = [(name, list(p.shape), dtype_name(p.dtype)) for name, p in parameters]
    return json.dumps({"parameters": named, "buffers": buffers, "aliases": aliases, **others})


def aliases_in(
    saved: Mapping[str, torch.Tensor], named: Mapping[str, torch.Tensor]
) -> list[tuple[str, str]]:
    """Return (alias, name) for each second name of a shared tensor, such as a tied weight.

    Args:
        saved: the entries of a `state_dict`, which has a shared tensor under each of its names.
        named: the same tensors, each under one name only.
    """
    first = {id(tensor): name for name, tensor in named.items()}
    return [
        (name, first[id(tensor)])
        for name, tensor in saved.items()
        if name not in named and id(tensor) in first
    ]


def state_dict_of(
    layout: str, blocks: Sequence[Block], buffers: Block | None = None
) -> dict[str, torch.Tensor]:
    """Return parameters and model buffers by name; empty if there are no parameters.

    Args:
        layout: layout of the model, see `layout_of`.
        blocks: the flat parameters in blocks.
        buffers: the bytes of the model buffers and of the parameters' names, both at the end of
            the run (see `packed_by_name`); None: leave the buffers out.
    """
    tensors = [tensor for block in blocks for tensor in parts(block)]
    if not tensors:
        return {}
    known = json.loads(layout)
    flat = torch.cat(tensors)
    others: dict[str, torch.Tensor] = {}
    names: list[str] = []
    if isinstance(buffers, torch.Tensor) and buffers.numel():
        others, names = unpacked_by_name(buffers)
    found, place = {}, 0
    for number, (first_name, shape, dtype) in enumerate(known["parameters"]):
        name = names[number] if number < len(names) else first_name
        size = math.prod(shape)
        found[name] = flat[place : place + size].reshape(shape).to(DTYPES[dtype]).clone()
        place += size
    for name in known.get("complex", ()):  # the last dimension is real and imaginary part
        found[name] = torch.view_as_complex(found[name])
    found.update(others)
    for name, first in known["aliases"]:
        if first in found:
            found[name] = found[first].clone()  # contiguous, as the file format requires
    return {name: tensor for name, tensor in found.items() if name not in known.get("unsaved", ())}
