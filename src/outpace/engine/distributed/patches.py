"""Connects torch.distributed and DistributedDataParallel in a worker's process with the run.

`install` is called before the script starts, only in processes that Outpace has started. The script
is then unchanged: `init_process_group` makes an `OutpaceGroup`, and the first forward pass of
DistributedDataParallel with gradients begins the run.

- If the run follows the script's own collectives (`HERE.follow`), DistributedDataParallel
  all-reduces the gradients through that group, and the script's optimizer takes its own steps.
- Otherwise the strategy exchanges gradients or parameters. DistributedDataParallel gets a group of
  this process alone, and the optimizer is taken over as in `outpace.attach`. The script's own
  collectives still involve all processes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NoReturn

import torch
import torch.distributed as dist
from torch._compile import _disable_dynamo
from torch.distributed import distributed_c10d, rpc
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel, distributed
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from outpace.engine.distributed.backward import BackwardPass
from outpace.engine.distributed.call import Alone
from outpace.engine.distributed.environment import (
    calls_attach,
    require_own_place,
    set_environment,
)
from outpace.engine.distributed.group import OutpaceGroup
from outpace.engine.distributed.optimizers import Optimizers, require_one
from outpace.engine.distributed.where import SUPPORTED, innermost, where
from outpace.engine.scripts.ending import letting_it_end
from outpace.errors import ConfigError
from outpace.support.place import HERE

_NAME = "outpace"
# FSDP, tensor and pipeline parallelism need no entry: their models are not in
# DistributedDataParallel, and without it no script can train.
_MESSAGES: Final = "messages between two processes"
_REFUSED: Final[dict[Callable[..., Any], str]] = {
    distributed_c10d.split_group: "groups of some of the processes",
    distributed_c10d.send: _MESSAGES,
    distributed_c10d.isend: _MESSAGES,
    distributed_c10d.recv: _MESSAGES,
    distributed_c10d.irecv: _MESSAGES,
    rpc.init_rpc: "remote procedure calls",
}


def install(strategy: str, path: str, *, is_outside: bool = False) -> None:
    """Patch torch in this process. `HERE` is set already.

    Args:
        strategy: `sync.kind` of the run.
        path: path of the script.
        is_outside: True: another launcher has started this process, so its variables are kept.
    """
    if not calls_attach(Path(path)):
        set_environment(HERE.number, HERE.workers, keeps=is_outside)
    script = _Script(strategy)
    script.optimizers.install()
    c10d: Any = dist.distributed_c10d
    c10d.Backend.register_backend(_NAME, script.make_group, devices=["cpu", "cuda"])
    init = c10d.init_process_group
    _replace_everywhere(init, _wrapped(init, script.init_process_group))
    for function, what in _REFUSED.items():
        _replace_everywhere(function, _refused(function, what))
    processes: Any = torch.multiprocessing
    processes.spawn = spawn
    model: Any = DistributedDataParallel
    model.__init__ = _wrapped(model.__init__, script.make_model)
    model.forward = _wrapped(model.forward, script.forward)
    model._register_builtin_comm_hook = register_builtin_comm_hook
    if HERE.follow is None:
        model.register_comm_hook = script.refuse_comm_hook
        model.join = join
        # A copy of a model has no process group; it gets the group that all models have.
        module: Any = distributed
        module._get_default_group = script.alone
    else:
        register_optimizer_step_pre_hook(script.require_model)
        register_optimizer_step_post_hook(script.after_step)


def _wrapped(original: Callable[..., Any], by: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of a function of torch: `by`, called with the original first."""

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        return by(original, *args, **kwargs)

    return called


class _Script:
    """The process groups, models and optimizers that the script of this process makes."""

    def __init__(self, strategy: str) -> None:
        self._strategy = strategy
        self._follows = HERE.follow is not None
        self.optimizers = Optimizers(None if self._follows else self.before_step)
        self._backward = BackwardPass()
        self._backend: str | None = None  # backend that the script has named
        self._numbers = itertools.count()  # numbers of calls
        self._exchanges_nothing = Alone()
        # Elements of each DistributedDataParallel model: see `_elements_of`; 0: not counted.
        self._models = weakref.WeakKeyDictionary[Any, int]()
        self._trained: Any = None  # the optimizer with which the run has begun
        self._followed: torch.optim.Optimizer | None = None

    # -- process groups ---------------------------------------------------------------------

    def init_process_group(
        self,
        original: Callable[..., None],
        backend: str | None = None,
        init_method: str | None = None,
        timeout: timedelta | None = None,
        world_size: int = -1,
        rank: int = -1,
        *_: Any,
        **__: Any,
    ) -> None:
        """Make the default group. Takes the arguments of torch's function.

        Raises:
            ConfigError: rank or world size are not the launcher's, or the script has called
                `outpace.attach`.
        """
        line = where(innermost())
        if HERE.worker is not None and not HERE.is_distributed:
            raise ConfigError(_both(line))
        for name, given, here in (
            ("world_size", world_size, HERE.workers),
            ("rank", rank, HERE.number),
        ):
            require_own_place(line, name, given, here)
        c10d: Any = dist.distributed_c10d
        shared: Any = dist
        HERE.is_distributed, HERE.begin = True, self.attach
        self._backend = backend
        original(
            _NAME,
            store=shared.HashStore(),
            rank=HERE.number,
            world_size=HERE.workers,
            timeout=timeout or c10d.default_pg_timeout,
        )
        group = c10d._get_default_group()
        # `get_backend` returns the backend that the script has asked for.
        store = c10d._world.pg_map[group][1]
        c10d._world.pg_map[group] = c10d.Backend(backend or "gloo"), store

    def make_group(self, _store: Any, _rank: int, _size: int, timeout: timedelta) -> OutpaceGroup:
        """Return the default group; called by torch."""
        assert HERE.collectives is not None
        seconds = timeout.total_seconds()
        collectives = HERE.collectives(seconds, self._backend)
        return OutpaceGroup(collectives, seconds, self._backward, self._numbers)

    @functools.cache  # noqa: B019  # there is one script in a process
    def alone(self) -> OutpaceGroup:
        """Return the group of models whose gradients the strategy exchanges."""
        return OutpaceGroup(self._exchanges_nothing, 1.0, BackwardPass(), itertools.count())

    # -- DistributedDataParallel ------------------------------------------------------------

    def make_model(self, init: Callable[..., None], model: Any, *args: Any, **kwargs: Any) -> None:
        """Make an object of DistributedDataParallel."""
        self._models[model] = 0
        given = inspect.signature(init).bind(model, *args, **kwargs)
        if self._follows:
            init(*given.args, **given.kwargs)
            self._elements_of(model)
            return
        if given.arguments.get("mixed_precision") is not None:
            raise self._no_gradients("mixed_precision of DistributedDataParallel")
        everyone = given.arguments.get("process_group")
        mesh = given.arguments.pop("device_mesh", None)
        if everyone is None and mesh is not None:
            everyone = mesh.get_group(mesh_dim=0)
        if everyone is None:
            everyone = dist.group.WORLD
            if everyone is None:
                init(*given.args, **given.kwargs)  # torch's own error
        given.arguments["process_group"] = self.alone()
        init(*given.args, **given.kwargs)
        if given.arguments.get("init_sync", True):
            begin_alike(model, everyone)

    def refuse_comm_hook(self, *_: Any, **__: Any) -> NoReturn:
        """Replace `DistributedDataParallel.register_comm_hook`, and refuse it."""
        raise self._no_gradients("a communication hook")

    def _no_gradients(self, what: str) -> ConfigError:
        """Return the error about a feature that needs the script to exchange the gradients."""
        return ConfigError(
            f"{what} at {where(innermost())}: with sync.kind={self._strategy} "
            "DistributedDataParallel exchanges no gradients; leave it out, or take sync.kind=ssgd"
        )

    def forward(self, forward: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        """Carry out a forward pass of DistributedDataParallel."""
        self.before_forward(model)
        return forward(model, *args, **kwargs)

    @_disable_dynamo
    def before_forward(self, model: Any) -> None:
        """Note that a DDP model's forward pass begins; the first one begins the run."""
        if not torch.is_grad_enabled():
            return
        if HERE.worker is None:
            self._begin_run(model)
        elif model is not self._trained and not self._follows and self.optimizers.of(model.module):
            raise ConfigError(
                f"{where(innermost())}: the script trains two models with "
                f"DistributedDataParallel, but sync.kind={self._strategy} exchanges one: put them "
                "into one module, or take sync.kind=ssgd"
            )
        if not self._follows:
            return
        if HERE.worker is not None:
            HERE.worker.forward()
        if model.require_backward_grad_sync:
            elements = self._elements_of(model)
            is_static = model.static_graph and not model._static_graph_delay_allreduce_enqueued
            self._backward.forward(id(model), elements, waits_at_last=is_static)

    def _elements_of(self, model: Any) -> int:
        """Return the number of elements in all gradient buckets of a model.

        The buckets contain the parameters that required a gradient when the model was made. The
        elements are counted once, because counting 300 parameters takes 25 µs.
        """
        if not self._models.get(model):
            elements = sum(p.numel() for p in model._module_parameters if p.requires_grad)
            self._models[model] = elements
        return self._models[model]

    def _begin_run(self, model: Any) -> None:
        """Begin the run with this model, if its optimizer has been made."""
        found = self.optimizers.of(model.module)
        has_reduced = self._exchanges_nothing.has_reduced or self._backward.passes > 0
        if found:
            self._begin_with(model, found[0], found)
        elif has_reduced and not self.optimizers.alive():
            raise ConfigError(
                f"{where(innermost())}: the model in DistributedDataParallel is trained without an "
                "optimizer, and an iteration of a run is a step of one: make one, of the model's "
                "parameters, before the training loop"
            )

    def attach(self, model: Any, optimizer: torch.optim.Optimizer) -> None:
        """Begin the run with a model and its optimizer, because the script calls `attach`.

        Raises:
            ConfigError: if the model is not in DistributedDataParallel with this optimizer.
        """
        line = where(innermost())
        if not isinstance(model, DistributedDataParallel):
            raise ConfigError(_both(line))
        found = self.optimizers.of(model.module)
        if optimizer not in found:
            raise ConfigError(
                f"{line}: outpace.attach got an optimizer that has no parameters of the model: "
                "give it the optimizer of the model in DistributedDataParallel"
            )
        self._begin_with(model, optimizer, found)

    def _begin_with(
        self, model: Any, optimizer: torch.optim.Optimizer, found: list[torch.optim.Optimizer]
    ) -> None:
        """Begin the run with a model and its optimizer. found: all optimizers of the model."""
        if not self._follows:
            require_one(found, self._strategy)
        self._trained = model
        self._begin(model.module, optimizer)

    def _begin(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Begin the run with a model and its optimizer, which have been checked."""
        begin = HERE.follow or HERE.attach
        assert begin is not None
        self._followed = optimizer
        HERE.worker = begin(module, optimizer)
        HERE.worker.start()

    # -- steps of optimizers ------------------------------------------------------------------

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Attach the optimizer if no forward pass came before: a closure may run it later."""
        self.require_model()
        if HERE.worker is None and HERE.is_distributed:
            for model in self._models:
                if optimizer in self.optimizers.of(model.module):
                    self._begin_run(model)
                    return

    @_disable_dynamo
    def require_model(self, *_: Any) -> None:
        """Raise ConfigError at a step of a script that has no model in DistributedDataParallel."""
        if HERE.worker is None and HERE.is_distributed and not self._models:
            raise ConfigError(
                f"{where(innermost())}: the script trains a model that is not in "
                "DistributedDataParallel (FSDP, tensor or pipeline parallelism, or it averages "
                f"gradients itself): {SUPPORTED}"
            )

    @_disable_dynamo
    def after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Count an iteration."""
        if optimizer is self._followed and HERE.worker is not None:
            with letting_it_end():
                HERE.worker.stepped()


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


def _both(line: str) -> str:
    """Return the message about a script that uses both `attach` and a process group."""
    return (
        f"{line}: this script calls outpace.attach and torch.distributed.init_process_group: use "
        "one of them. With init_process_group and DistributedDataParallel nothing else is needed "
        "(for checkpoints give outpace.attach the model in DistributedDataParallel); with "
        "outpace.attach leave both out"
    )


# -- what takes the place of functions of torch ------------------------------------------------


def register_builtin_comm_hook(self: Any, comm_hook_type: Any) -> None:
    """Replace `DistributedDataParallel._register_builtin_comm_hook`.

    torch's C++ hooks do not accept results of a group that is written in Python. torch's equivalent
    Python hooks are used.
    """
    shared: Any = dist
    is_half = comm_hook_type == shared.BuiltinCommHookType.FP16_COMPRESS
    hook = default_hooks.fp16_compress_hook if is_half else default_hooks.allreduce_hook
    self.register_comm_hook(None, hook)


@contextlib.contextmanager
def join(self: Any, *_: Any, **__: Any) -> Iterator[None]:
    """Replace `DistributedDataParallel.join`: a script that ends leaves the run."""
    yield


def spawn(
    fn: Callable[..., None], args: tuple[Any, ...] = (), nprocs: int = 1, *_: Any, **__: Any
) -> None:
    """Replace `torch.multiprocessing.spawn`: the processes exist already."""
    if nprocs != HERE.workers:
        raise ConfigError(
            f"{where(innermost())}: the script starts {nprocs} processes, but the run has "
            f"{HERE.workers} workers: run it with --workers {nprocs}"
        )
    fn(HERE.number, *args)


def _replace_everywhere(original: Callable[..., Any], by: Callable[..., Any]) -> None:
    """Replace a function of torch.distributed in all torch modules that have imported it."""
    for path, module in list(sys.modules.items()):
        if path.startswith("torch.distributed"):
            for name in [name for name, value in vars(module).items() if value is original]:
                setattr(module, name, by)


def _refused(original: Callable[..., Any], what: str) -> Callable[..., NoReturn]:
    @functools.wraps(original)
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ConfigError(
            f"{original.__name__} at {where(innermost())}: Outpace does not run scripts with "
            f"{what}: {SUPPORTED}"
        )

    return refuse
