"""Take the place of functions of torch, or do a part of what they do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from outpace.engine.distributed.where import innermost, where
from outpace.errors import ConfigError
from outpace.support.place import HERE


def register_builtin_comm_hook(self: Any, comm_hook_type: Any) -> None:
    """Take the place of `DistributedDataParallel._register_builtin_comm_hook`.

    torch's C++ hooks accept no results of a group in Python. Its Python hooks do the same.
    """
    shared: Any = dist
    is_half = comm_hook_type == shared.BuiltinCommHookType.FP16_COMPRESS
    hook = default_hooks.fp16_compress_hook if is_half else default_hooks.allreduce_hook
    self.register_comm_hook(None, hook)


def begin_alike(model: Any, group: Any) -> None:
    """Give all processes the model of process 0, as DistributedDataParallel does."""
    c10d: Any = dist
    parameters = [p for p in model._module_parameters if p.requires_grad]
    c10d._verify_params_across_processes(group, parameters, None)
    utils: Any = dist.utils
    utils._sync_module_states(
        module=model.module,
        process_group=group,
        broadcast_bucket_size=model.broadcast_bucket_size,
        src=0,
        params_and_buffers_to_ignore=model.parameters_to_ignore,
        broadcast_buffers=model.broadcast_buffers,
    )


@contextlib.contextmanager
def join(self: Any, *_: Any, **__: Any) -> Iterator[None]:
    """Take the place of `DistributedDataParallel.join`: a script that ends leaves the run."""
    yield


def spawn(
    fn: Callable[..., None], args: tuple[Any, ...] = (), nprocs: int = 1, *_: Any, **__: Any
) -> None:
    """Take the place of `torch.multiprocessing.spawn`: the processes are there already."""
    if nprocs != HERE.workers:
        raise ConfigError(
            f"{where(innermost())}: the script starts {nprocs} processes, but the run has "
            f"{HERE.workers} workers: run it with --workers {nprocs}"
        )
    fn(HERE.number, *args)
