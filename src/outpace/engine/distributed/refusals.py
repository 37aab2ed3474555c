"""Refuses the parts of torch.distributed that Outpace does not run, where a script uses them.

Libraries import these parts without using them, and a plain script imports none of them. So nothing
is imported here: a module is changed when it is imported.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from operator import attrgetter
from types import ModuleType
from typing import Any, Final, NoReturn

from outpace.engine.distributed.where import SUPPORTED, innermost, where
from outpace.errors import ConfigError

_FSDP: Final = "FSDP"
_TENSOR: Final = "tensor parallelism"
_PIPELINES: Final = "pipeline parallelism"
_GROUPS: Final = "groups of some of the processes"
_MESSAGES: Final = "messages between two processes"
# By the module that defines them: functions and classes, and what they are part of.
_REFUSED: Final[dict[str, dict[str, str]]] = {
    "torch.distributed.distributed_c10d": {
        "split_group": _GROUPS,
        **dict.fromkeys(("send", "isend", "recv", "irecv"), _MESSAGES),
    },
    "torch.distributed.fsdp.fully_sharded_data_parallel": {"FullyShardedDataParallel": _FSDP},
    "torch.distributed.fsdp._fully_shard._fully_shard": {"fully_shard": _FSDP},
    "torch.distributed.tensor._api": {
        "distribute_tensor": _TENSOR,
        "distribute_module": _TENSOR,
        "DTensor.from_local": _TENSOR,
        **dict.fromkeys(("ones", "empty", "full", "rand", "randn", "zeros"), _TENSOR),
    },
    "torch.distributed.tensor.parallel.api": {"parallelize_module": _TENSOR},
    "torch.distributed.pipelining.stage": {"_PipelineStageBase": _PIPELINES},
    "torch.distributed.pipelining._IR": {"pipeline": _PIPELINES},
    "torch.distributed.rpc": {"init_rpc": "remote procedure calls"},
}


def install_refusals() -> None:
    """Refuse these parts in this process, also those that are imported later."""
    for name in _REFUSED.keys() & sys.modules.keys():
        _refuse_in(sys.modules[name])
    sys.meta_path.insert(0, _Finder())


def replace_everywhere(original: Callable[..., Any], by: Callable[..., Any]) -> None:
    """Replace a function of torch.distributed in all of its modules that have imported it."""
    for path, module in list(sys.modules.items()):
        if path.startswith("torch.distributed"):
            for name in [name for name, value in vars(module).items() if value is original]:
                setattr(module, name, by)


class _Finder(MetaPathFinder):
    """Finds the modules of `_REFUSED`, to change them after their import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _REFUSED:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Changing(spec.loader.name, spec.loader.path)
        return spec


class _Changing(SourceFileLoader):
    """Loads a module, then changes it."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _refuse_in(module)


def _refuse_in(module: ModuleType) -> None:
    for path, what in _REFUSED[module.__name__].items():
        holder, _, name = path.rpartition(".")
        owner = attrgetter(holder)(module) if holder else module
        found = getattr(owner, name)
        if isinstance(found, type):
            owner, name, found = found, "__init__", found.__init__  # type: ignore[misc]
        refused = _refused(found, path.lstrip("_"), what)
        setattr(owner, name, refused)
        if owner is module:
            replace_everywhere(found, refused)


def _refused(original: Callable[..., Any], name: str, what: str) -> Callable[..., NoReturn]:
    @functools.wraps(original)
    def refuse(*args: Any, **_: Any) -> NoReturn:
        is_method = original.__name__ == "__init__"
        called = type(args[0]).__name__ if is_method else name
        raise ConfigError(
            f"{called} at {where(innermost())}: Outpace does not run scripts with {what}: "
            f"{SUPPORTED}"
        )

    return refuse
