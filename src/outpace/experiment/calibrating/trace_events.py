"""Reads what torch.profiler recorded of one rank of a data-parallel run.

Steps: annotations ProfilerStep#N, which `prof.step()` makes where the profiler has a schedule.
Without them each Optimizer.step#..., which every torch optimizer makes, ends a step.

Gloo: an annotation gloo:all_reduce lasts from the time at which Gloo's thread begins an all-reduce
until it has the result. Operations on the CPU, and on a GPU if there are any, are computation.

NCCL: an all-reduce is a kernel on the GPU, from the time at which the rank is ready for it, since
it waits for the others in the kernel. All other kernels, copies and fills of memory on the GPU are
computation; what the CPU does is not, since it runs ahead. A kernel belongs to the step in which it
was launched, which its correlation id tells. This follows what PyTorch, Kineto and Holistic Trace
Analysis document, and was not tried on a GPU.
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
_COALESCED: Final = "coalesced"  # several messages in one kernel, which says what they are
# Operations that begin a collective or wait for it: no computation.
_COMMUNICATION: Final = ("c10d::", "_c10d_functional::", "gloo:", "nccl:", _RECORD)
_KERNEL: Final = re.compile(r"^nccl(Dev)?Kernel_")
_NUMBER: Final = re.compile("[0-9]{1,15}")
_SHARDED: Final = ("reducescatter",)
_EXCHANGED: Final = ("alltoall", "send", "recv")


@dataclass(frozen=True, slots=True, eq=False)
class RankTrace:
    """The trace of one rank.

    Args:
        profile: Collectives and computation of the rank, in s since `began_s`.
        began_s, ended_s: Begin and end of the trace, in s of the rank's clock.
    """

    path: Path
    rank: int
    world_size: int
    backend: str
    profile: RankProfile
    began_s: float
    ended_s: float


class _Collective(NamedTuple):
    """A collective of a rank, in µs of the trace."""

    issued: float
    begin: float
    end: float
    kind: str  # in lower case, without underscores
    size_bytes: int | None
    group: int | None  # number of ranks in its group


def read_rank(path: Path) -> RankTrace:
    """Read the trace of a rank.

    Raises:
        ConfigError: with one line, if the file cannot be read or does not say enough.
    """
    document = read_document(path)
    info = document.distributed_info
    if info is None or info.rank is None or info.world_size is None:
        raise ConfigError(
            f"{path}: it does not say of which rank it is (distributedInfo); begin the profiler "
            "after torch.distributed.init_process_group"
        )
    events = [event for event in document.trace_events if event.ph == "X" and event.dur >= 0]
    found = sorted(_collectives(events), key=lambda each: each.begin)
    _require_data_parallel(path, found, info.world_size)
    if not any(each.kind == "allreduce" for each in found):
        raise ConfigError(
            f"{path}: it has no all-reduces of Gloo or NCCL: profile a run of "
            "DistributedDataParallel with at least 2 ranks"
        )
    steps = _steps(path, events, np.array([each.issued for each in found]))
    begin = min(event.ts for event in events)
    end = max(event.ts + event.dur for event in events)
    base = document.base_time_nanoseconds * 1e-9
    return RankTrace(
        path,
        info.rank,
        info.world_size,
        info.backend or "an unknown backend",
        _profile(info.rank, events, found, steps, begin),
        base + begin * _US,
        base + end * _US,
    )


# -- collectives ---------------------------------------------------------------------


def _collectives(events: Sequence[Event]) -> list[_Collective]:
    """Return the collectives of NCCL, or else those of Gloo."""
    kernels = [event for event in events if event.cat == "kernel" and _is_nccl(event.name)]
    return list(_of_nccl(events, kernels) if kernels else _of_gloo(events))


def _of_nccl(events: Sequence[Event], kernels: Sequence[Event]) -> Iterator[_Collective]:
    """Yield the collectives of kernels, whose arguments say what they are.

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
        name = _kind(str(found.get("Collective name") or _COALESCED))
        if name == _COALESCED:
            name = _kind(_KERNEL.sub("", kernel.name).partition("(")[0])
        size, group = _size(found), _group(found)
        yield _Collective(issued, kernel.ts, kernel.ts + kernel.dur, name, size, group)


def _of_gloo(events: Sequence[Event]) -> Iterator[_Collective]:
    """Yield the collectives of Gloo's annotations."""
    for event in events:
        if event.cat in _ON_CPU and event.name.startswith("gloo:"):
            found = event.arguments()
            yield _Collective(
                event.ts,
                event.ts,
                event.ts + event.dur,
                _kind(event.name.removeprefix("gloo:")),
                _size(found),
                _group(found),
            )


def _size(arguments: Mapping[str, Any]) -> int | None:
    size = size_of_elements(arguments.get("In msg nelems"), arguments.get("dtype"))
    if size is not None:
        return size
    return size_of_dims(arguments.get("Input Dims"), arguments.get("Input type"))


def _group(arguments: Mapping[str, Any]) -> int | None:
    size = arguments.get("Group size")
    return size if type(size) is int else None


def _kind(name: str) -> str:
    """Return the name of a collective, which is the same for Gloo, NCCL and its kernels."""
    name = name.lower().replace("_", "")
    return "allreduce" if name.startswith("allreduce") else name


def _is_nccl(name: str) -> bool:
    return name.startswith("nccl")


def _require_data_parallel(path: Path, found: Sequence[_Collective], world_size: int) -> None:
    """Raise ConfigError if the collectives are not those of plain data parallelism."""
    only = "only DistributedDataParallel over all ranks can be calibrated"
    for each in found:
        if each.group is not None and each.group != world_size:
            raise ConfigError(
                f"{path}: it has collectives of a group of {each.group} of the {world_size} ranks; "
                f"{only}"
            )
        if each.kind.startswith(_SHARDED):
            raise ConfigError(
                f"{path}: it has collectives that share out the model ({each.kind}), as FSDP and "
                f"ZeRO have; {only}"
            )
        if each.kind.startswith(_EXCHANGED):
            raise ConfigError(
                f"{path}: it has messages from rank to rank ({each.kind}), as pipelines and "
                f"mixtures of experts have; {only}"
            )
        if each.kind == "allreduce" and each.size_bytes is None:
            raise ConfigError(
                f"{path}: it does not say how large its all-reduces are; profile with "
                "record_shapes=True"
            )


# -- steps and computation -----------------------------------------------------------


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


def _profile(
    rank: int,
    events: Sequence[Event],
    found: Sequence[_Collective],
    steps: NDArray[np.int64],
    origin: float,
) -> RankProfile:
    """Return the collectives within steps, and when the rank computed, in s since `origin`."""
    is_nccl = any(event.cat == "kernel" and _is_nccl(event.name) for event in events)
    computing = [event for event in events if _computes(event, on_cpu=not is_nccl)]
    begins = np.array([event.ts for event in computing])
    ends = np.array([event.ts + event.dur for event in computing])
    order = np.argsort(steps, kind="stable")
    order = order[steps[order] >= 0]
    columns = np.array([(found[n].begin, found[n].end) for n in order]).reshape(-1, 2)
    return RankProfile(
        rank,
        (merged(begins, ends) - origin) * _US,
        steps[order],
        (columns[:, 0] - origin) * _US,
        (columns[:, 1] - origin) * _US,
        np.array([found[n].size_bytes or 0 for n in order], np.int64),
        np.array([found[n].kind == "allreduce" for n in order], np.bool_),
        0.0 if is_nccl else LATE_S,
    )


def _computes(event: Event, *, on_cpu: bool) -> bool:
    if event.cat in _ON_GPU:
        return not _is_nccl(event.name)
    return on_cpu and event.cat == "cpu_op" and not event.name.startswith(_COMMUNICATION)
