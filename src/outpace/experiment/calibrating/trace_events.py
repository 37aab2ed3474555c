"""Reads the data that torch.profiler recorded about one rank of a data-parallel run.

Steps: annotations ProfilerStep#N, which `prof.step()` makes if the profiler has a schedule. Without
them, each Optimizer.step#..., which every torch optimizer makes, ends a step.

Gloo: an annotation gloo:all_reduce lasts from the time at which Gloo's thread begins an all-reduce
until it has the result. Operations on the CPU, and on a GPU if there are any, are computation.

NCCL: an all-reduce is a kernel on the GPU. It begins when the rank is ready, since the rank waits
for the others in the kernel. All other kernels, copies and fills of memory on the GPU are
computation; work of the CPU is not, since the CPU runs ahead. A kernel belongs to the step in which
it was launched, which follows from its correlation id. This is based on the documentation of
PyTorch, Kineto and Holistic Trace Analysis, and was not tried on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outpace.cluster.calibration.profiles import RankProfile
from outpace.cluster.calibration.waits import LATE_S, merged
from outpace.errors import ConfigError
from outpace.experiment.calibrating.trace_files import (
    Event,
    read_document,
    size_of_dims,
    size_of_elements,
)

_US: Final = 1e-6
_STEP: Final = "ProfilerStep#"
_OPTIMIZER: Final = "Optimizer.step#"
_ON_GPU: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES: Final = ("cuda_runtime", "cuda_driver", "hip_runtime")
_ON_CPU: Final = ("user_annotation", "cpu_op")
_RECORD: Final = "record_param_comms"
_COALESCED: Final = "coalesced"  # several messages in one kernel, whose arguments say what they are
# Operations that begin a collective or wait for it, and so are not computation.
_COMMUNICATION: Final = ("c10d::", "_c10d_functional::", "gloo:", "nccl:", _RECORD)
_KERNEL: Final = re.compile(r"^nccl(Dev)?Kernel_")
_NUMBER: Final = re.compile("[0-9]{1,15}")
# Kinds of collectives that plain data parallelism does not have.
_OTHERS: Final = {
    ("reducescatter",): "collectives that share out the model, as FSDP and ZeRO have",
    ("alltoall", "send", "recv"): "messages from rank to rank, as pipelines and MoE models have",
}


@dataclass(frozen=True, slots=True, eq=False)
class RankTrace:
    """The trace of one rank.

    Args:
        profile: Collectives and computation of the rank, in s since `began_s`.
        began_s: Beginning of the trace, in s of the rank's clock.
    """

    path: Path
    rank: int
    world_size: int
    backend: str
    profile: RankProfile
    began_s: float


class _Collective(NamedTuple):
    """A collective of a rank, in µs of the trace."""

    issued: float
    begin: float
    end: float
    kind: str  # in lower case, without underscores
    size_bytes: int | None
    group: int | None  # number of ranks in its group

    @staticmethod
    def of(event: Event, issued: float, name: str, arguments: Mapping[str, Any]) -> _Collective:
        """Return the collective of an event; the name is the same for Gloo, NCCL and kernels."""
        kind = name.lower().replace("_", "")
        size = size_of_elements(arguments.get("In msg nelems"), arguments.get("dtype"))
        if size is None:
            size = size_of_dims(arguments.get("Input Dims"), arguments.get("Input type"))
        group = arguments.get("Group size")
        return _Collective(
            issued,
            event.ts,
            event.ts + event.dur,
            "allreduce" if kind.startswith("allreduce") else kind,
            size,
            group if type(group) is int else None,
        )


def read_rank(path: Path) -> RankTrace:
    """Read the trace of a rank.

    Raises:
        ConfigError: with one line, if the file cannot be read or lacks data.
    """
    document = read_document(path)
    info = document.distributed_info
    if info is None or info.rank is None or info.world_size is None:
        raise ConfigError(
            f"{path}: it does not say from which rank it comes (distributedInfo); begin the "
            "profiler after torch.distributed.init_process_group"
        )
    events = [event for event in document.trace_events if event.ph == "X" and event.dur >= 0]
    kernels = [event for event in events if event.cat == "kernel" and _is_nccl(event.name)]
    collectives = _of_nccl(events, kernels) if kernels else _of_gloo(events)
    found = sorted(collectives, key=lambda each: each.begin)
    steps = _steps(path, events, np.array([each.issued for each in found]))
    for each, step in zip(found, steps.tolist(), strict=True):
        if problem := _problem(each, info.world_size):
            raise ConfigError(f"{path}: rank {info.rank}, step {step}: {problem}")
    if not any(each.kind == "allreduce" for each in found):
        raise ConfigError(
            f"{path}: it has no all-reduces of Gloo or NCCL: profile a run of "
            "DistributedDataParallel with at least 2 ranks"
        )
    computing = [event for event in events if _computes(event, on_cpu=not kernels)]
    begin = min(event.ts for event in events)
    busy = merged(
        np.array([event.ts for event in computing]),
        np.array([event.ts + event.dur for event in computing]),
    )
    order = np.argsort(steps, kind="stable")
    order = order[steps[order] >= 0]
    chosen = [found[place] for place in order]
    profile = RankProfile(
        f"rank {info.rank} ({path.name})",
        (busy - begin) * _US,
        steps[order],
        (np.array([each.begin for each in chosen]) - begin) * _US,
        (np.array([each.end for each in chosen]) - begin) * _US,
        np.array([each.size_bytes or 0 for each in chosen], np.int64),
        np.array([each.kind == "allreduce" for each in chosen], np.bool_),
        0.0 if kernels else LATE_S,
    )
    backend = info.backend or "an unknown backend"
    began_s = document.base_time_nanoseconds * 1e-9 + begin * _US
    return RankTrace(path, info.rank, info.world_size, backend, profile, began_s)


def _of_nccl(events: Sequence[Event], kernels: Sequence[Event]) -> Iterator[_Collective]:
    """Yield the collectives of kernels, which are described by the kernels' arguments.

    Older versions of torch have these arguments only in operations on the CPU: `record_param_comms`
    has the external id of the kernel, and an annotation such as nccl:all_reduce, which has the
    shapes of the tensors, lasts while the kernel is launched.
    """
    records = (event.arguments() for event in events if event.name == _RECORD)
    by_id = {found.get("External id"): found for found in records}
    annotations = sorted(
        (event for event in events if event.name.startswith("nccl:") and event.cat in _ON_CPU),
        key=lambda event: event.ts,
    )
    begins = np.array([event.ts for event in annotations])
    arguments = [kernel.arguments() for kernel in kernels]
    wanted = {found.get("correlation") for found in arguments}
    launched: dict[Any, float] = {}
    for event in events:
        if event.cat in _LAUNCHES and (number := event.arguments().get("correlation")) in wanted:
            launched.setdefault(number, event.ts)
    for kernel, own in zip(kernels, arguments, strict=True):
        issued = launched.get(own.get("correlation"), kernel.ts)
        found = {**by_id.get(own.get("External id"), {}), **own}
        place = int(np.searchsorted(begins, issued, side="right")) - 1
        if place >= 0 and issued <= annotations[place].ts + annotations[place].dur:
            name = annotations[place].name.removeprefix("nccl:")
            found = {"Collective name": name, **annotations[place].arguments(), **found}
        name = str(found.get("Collective name") or _COALESCED)
        if name == _COALESCED:
            name = _KERNEL.sub("", kernel.name).partition("(")[0]
        yield _Collective.of(kernel, issued, name, found)


def _of_gloo(events: Sequence[Event]) -> Iterator[_Collective]:
    """Yield the collectives of Gloo's annotations."""
    for event in events:
        if event.cat in _ON_CPU and event.name.startswith("gloo:"):
            name = event.name.removeprefix("gloo:")
            yield _Collective.of(event, event.ts, name, event.arguments())


def _is_nccl(name: str) -> bool:
    return name.startswith("nccl")


def _problem(found: _Collective, world_size: int) -> str:
    """Return why a collective does not belong to plain data parallelism; empty if it does."""
    only = "only DistributedDataParallel over all ranks can be calibrated"
    if found.group is not None and found.group != world_size:
        return f"it has collectives of a group of {found.group} of the {world_size} ranks; {only}"
    for kinds, what in _OTHERS.items():
        if found.kind.startswith(kinds):
            return f"it has {what} ({found.kind}); {only}"
    if found.kind == "allreduce" and found.size_bytes is None:
        return "it does not say how large its all-reduces are; profile with record_shapes=True"
    return ""


def _steps(path: Path, events: Sequence[Event], issued: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the step in which each collective was issued; -1 for none."""
    annotations = [event for event in events if event.cat == "user_annotation"]
    steps = sorted(
        (event.ts, event.ts + event.dur, int(number))
        for event in annotations
        if event.name.startswith(_STEP) and _NUMBER.fullmatch(number := event.name[len(_STEP) :])
    )
    if steps:
        begins, ends, numbers = (np.array(column) for column in zip(*steps, strict=True))
        place = np.searchsorted(begins, issued, side="right") - 1
        inside = (place >= 0) & (issued <= ends[place])
        return np.where(inside, numbers[place], -1).astype(np.int64)
    names = {event.name for event in annotations if event.name.startswith(_OPTIMIZER)}
    if len(names) != 1:
        why = "several optimizers" if names else "no optimizer of torch"
        raise ConfigError(
            f"{path}: it does not say where a step ends: it has no ProfilerStep, and {why}; give "
            "the profiler a schedule and call prof.step() after each step"
        )
    marks = np.sort([event.ts for event in annotations if event.name in names])
    return np.searchsorted(marks, issued, side="right")


def _computes(event: Event, *, on_cpu: bool) -> bool:
    if event.cat in _ON_GPU:
        return not _is_nccl(event.name)
    return on_cpu and event.cat == "cpu_op" and not event.name.startswith(_COMMUNICATION)
