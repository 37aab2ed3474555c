"""A device `pretend`, whose tensors are stored on the CPU; it finds code that would fail on a GPU.

As on a GPU, operations on tensors of both devices, except for copies, and `numpy()` are errors.
DistributedDataParallel runs on it. It cannot do all that a GPU can: no convolutions, no autocast,
no fused steps. A worker's process imports it, and it is valid until that process ends.

torch's interface for devices in Python (`torch.utils.backend_registration`) is experimental.
"""

from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_COPIES = {"aten::copy_", "aten::_copy_from", "aten::_to_copy", "aten::_foreach_copy_"}
_VIEWS = {"aten::view", "aten::_unsafe_view"}
_values: dict[int, torch.Tensor] = {}  # on the CPU, by the address of the storage


def _is_here(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.device.type == "pretend"


def _on_cpu(given: Any) -> Any:
    if isinstance(given, torch.device):
        return torch.device("cpu")
    return _values[given.untyped_storage()._cdata] if _is_here(given) else given


def _made(value: torch.Tensor) -> torch.Tensor:
    tensor = torch._C._acc.create_empty_tensor(value.shape, value.dtype)
    _values[tensor.untyped_storage()._cdata] = value
    return tensor


def _computed(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Carry out an operation on the CPU."""
    name, given = op._schema.name, tree_flatten((args, kwargs))[0]
    here = [each for each in given if _is_here(each)]
    others = [each for each in given if isinstance(each, torch.Tensor) and not _is_here(each)]
    mixes = here and any(each.dim() for each in others)
    if mixes and name not in _COPIES and not name.startswith(("aten::index", "aten::_index")):
        raise RuntimeError(f"{name}: tensors on pretend and on the CPU")
    to_cpu = torch.device(kwargs.get("device") or "pretend").type == "cpu"
    arguments, settings = tree_map(_on_cpu, args), tree_map(_on_cpu, kwargs)
    try:
        found = op(*arguments, **settings)
    except RuntimeError:
        # a gradient may be transposed, but its tensor here is not transposed
        if name not in _VIEWS:
            raise
        found = arguments[0].contiguous().view(*arguments[1:], **settings)
    known = {id(_on_cpu(each)): each for each in here}
    places = {_on_cpu(each).untyped_storage().data_ptr() for each in here}

    def back(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or to_cpu:
            return value
        if id(value) in known:  # changed in place
            return known[id(value)]
        is_view = value.untyped_storage().data_ptr() in places
        return _made(value if is_view else value.contiguous())

    return tree_map(back, found)


def _copied(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    _on_cpu(target).copy_(_on_cpu(source))
    return target


def _empty(size: Any, *, dtype: Any = None, **_: Any) -> torch.Tensor:
    return _made(torch.empty(size, dtype=dtype or torch.get_default_dtype(), device="cpu"))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> torch.Tensor:
    kind = dtype or torch.get_default_dtype()
    return _made(torch.empty_strided(size, stride, dtype=kind, device="cpu"))


_setup_privateuseone_for_python_backend("pretend")
_ALL = torch.library.Library("_", "IMPL")
_ALL.fallback(_computed, dispatch_key="PrivateUse1")
_ATEN = torch.library.Library("aten", "IMPL")
# Otherwise torch would compute these views from strides, which tensors of the device do not have.
for _name in (
    "alias",
    "expand",
    "permute",
    "select.int",
    "slice.Tensor",
    "split.Tensor",
    "split_with_sizes",
    "squeeze.dim",
    "t",
    "transpose.int",
    "unbind.int",
    "unsqueeze",
    "view.dtype",
):
    _packet, _, _overload = _name.partition(".")
    _view = getattr(getattr(torch.ops.aten, _packet), _overload or "default")
    _ATEN.impl(_name, partial(_computed, _view), "PrivateUse1")
for _name, _call in (
    ("_copy_from", _copied),
    ("empty.memory_format", _empty),
    ("empty_strided", _empty_strided),
    ("_local_scalar_dense", lambda tensor: _on_cpu(tensor).item()),
    ("abs", lambda tensor: _made(_on_cpu(tensor).abs())),
):
    _ATEN.impl(_name, _call, "PrivateUse1")
