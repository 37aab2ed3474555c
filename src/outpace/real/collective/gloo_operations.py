"""A collective of a script as operations of Gloo."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import torch

from outpace.engine.distributed.call import Call
from outpace.real.collective.group import dist

c10d: Any = dist.distributed_c10d  # has all options of collectives

_OPERATIONS: Final = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.SUM,  # Gloo has no mean: `_divided` divides the sum
    "product": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}


def begun(group: Any, call: Call, size: int) -> tuple[Any, Callable[[], None] | None]:
    """Begin a collective of a group of Gloo with `size` members.

    Returns:
        Its `Work`, and a function that makes the outputs once it is over; None: they are made.
    """
    if any(tensor.device.type != "cpu" for tensor in (*call.inputs, *call.outputs)):
        return _begun_on_copies(group, call, size)
    inputs, outputs, kind = list(call.inputs), list(call.outputs), call.kind
    if kind == "all_reduce":
        options = _options(c10d.AllreduceOptions(), call)
        works = [group.allreduce([tensor], options) for tensor in outputs]
        return _all(works), _divided(outputs, size) if call.operation == "avg" else None
    if kind == "broadcast":
        options = _options(c10d.BroadcastOptions(), call)
        return _all([group.broadcast([tensor], options) for tensor in outputs]), None
    if kind == "all_gather":
        return group.allgather([outputs], inputs, _options(c10d.AllgatherOptions(), call)), None
    if kind == "reduce":
        options = _options(c10d.ReduceOptions(), call)
        then = _divided(outputs, size) if call.operation == "avg" else None
        return _all([group.reduce([tensor], options) for tensor in inputs]), then
    if kind == "gather":
        options = _options(c10d.GatherOptions(), call)
        return group.gather([outputs] if outputs else [], inputs, options), None
    if kind == "scatter":
        options = _options(c10d.ScatterOptions(), call)
        return group.scatter(outputs, [inputs] if inputs else [], options), None
    if kind == "reduce_scatter":  # Gloo has none: add everything up, and keep a part
        (output,), values = outputs, torch.stack(inputs)
        work = group.allreduce([values], _options(c10d.AllreduceOptions(), call))
        divisor = size if call.operation == "avg" else 1
        rank = group.rank()
        return work, lambda: _keep(output, values[rank], divisor)
    if kind == "all_to_all":
        return _all_to_all(group, call, inputs, outputs)
    if kind == "barrier":
        return group.barrier(_options(c10d.BarrierOptions(), call)), None
    if kind == "send":
        return group.send(inputs, call.root, call.tag), None
    if call.root < 0:
        return group.recv_anysource(outputs, call.tag), None
    return group.recv(outputs, call.root, call.tag), None


def _begun_on_copies(group: Any, call: Call, size: int) -> tuple[Any, Callable[[], None]]:
    """Begin a collective of tensors on a GPU, with copies of them on the CPU.

    Gloo can neither send nor receive from a GPU. Where it takes tensors of one, in an all-reduce,
    it copies them itself.
    """
    copies = {id(tensor): tensor.detach().cpu() for tensor in call.inputs}
    for tensor in call.outputs:
        if id(tensor) not in copies:
            copies[id(tensor)] = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    inputs, outputs = (
        tuple(copies[id(tensor)] for tensor in each) for each in (call.inputs, call.outputs)
    )
    work, then = begun(group, replace(call, inputs=inputs, outputs=outputs), size)

    def take() -> None:
        if then is not None:
            then()
        for tensor, copy in zip(call.outputs, outputs, strict=True):
            tensor.copy_(copy)

    return work, take


def _options(options: Any, call: Call) -> Any:
    options.timeout = timedelta(seconds=call.timeout_s)
    with contextlib.suppress(AttributeError):
        options.reduceOp = _OPERATIONS[call.operation]
    if call.root >= 0:
        options.rootRank = call.root
    return options


def _all_to_all(
    group: Any, call: Call, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
) -> tuple[Any, Callable[[], None]]:
    given = torch.cat([tensor.reshape(-1) for tensor in inputs])
    into = torch.cat([torch.empty_like(tensor).reshape(-1) for tensor in outputs])
    sizes = [[tensor.numel() for tensor in tensors] for tensors in (outputs, inputs)]
    work = group.alltoall_base(into, given, *sizes, _options(c10d.AllToAllOptions(), call))

    def take() -> None:
        for tensor, values in zip(outputs, torch.split(into, sizes[0]), strict=True):
            tensor.copy_(values.view(tensor.shape))

    return work, take


def _divided(outputs: list[torch.Tensor], size: int) -> Callable[[], None]:
    def divide() -> None:
        for tensor in outputs:
            tensor.div_(size)

    return divide


def _keep(output: torch.Tensor, values: torch.Tensor, divisor: int) -> None:
    output.copy_(values.view(output.shape))
    if divisor != 1:
        output.div_(divisor)


class _All:
    """Several works as one."""

    def __init__(self, works: list[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def get_future(self) -> torch.futures.Future[Any]:
        return torch.futures.collect_all([work.get_future() for work in self._works])


def _all(works: list[Any]) -> Any:
    return works[0] if len(works) == 1 else _All(works)
