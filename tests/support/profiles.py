"""Traces as torch.profiler writes them, of runs whose times are chosen. Times are in ms."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Trace:
    """The trace of a rank, whose clock is ahead by `ahead_ms` and gains `drift` per time."""

    rank: int
    world_size: int
    backend: str = "gloo"
    ahead_ms: float = 0.0
    drift: float = 0.0
    events: list[dict[str, Any]] = field(default_factory=list)

    def add(self, cat: str, name: str, begin: float, end: float, **args: Any) -> None:
        ts = 1e3 * (begin * (1 + self.drift) + self.ahead_ms)
        dur = 1e3 * (end - begin) * (1 + self.drift)
        event = {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur}
        self.events.append({**event, "args": args})

    def text(self) -> str:
        """Return the file's content."""
        info = {"backend": self.backend, "rank": self.rank, "world_size": self.world_size}
        # Entries without a duration, and other keys, must be ignored.
        self.events.append({"ph": "M", "name": "thread_name", "pid": "Spans", "ts": 1, "args": {}})
        document = {
            "schemaVersion": 1,
            "distributedInfo": info,
            "baseTimeNanoseconds": 1_790_857_026_000_000_000,
            "traceEvents": self.events,
        }
        return json.dumps(document)

    def write(self, path: Path) -> Path:
        path.write_text(self.text())
        return path


def gloo(
    rank: int, compute: float, steps: int, *, slowest: float, marks: str = "steps", **clock: float
) -> Trace:
    """Return the trace of a rank in a run over Gloo with 2 ranks.

    An iteration: computing for `compute`, with a pause of 10; an all-reduce of 4 MB that takes 10
    from the last arrival, at `slowest`; 5 of computing; an all-reduce of 4 bytes that takes 1.

    Args:
        marks: Kind of the marks of steps: steps, optimizer, or nothing.
        clock: ahead_ms, drift.
    """
    trace = Trace(rank, 2, **clock)
    length = slowest + 16
    for step in range(steps):
        at = step * length
        if marks == "steps":
            trace.add("user_annotation", f"ProfilerStep#{step + 3}", at, at + length - 1e-3)
        trace.add("user_annotation", "backward", at + 1, at + slowest + 10)
        trace.add("cpu_op", "aten::mm", at, at + 30)
        trace.add("cpu_op", "aten::addmm", at + 40, at + compute - 0.2)
        trace.add("cpu_op", "c10d::allreduce_", at + compute - 0.2, at + compute)
        shapes = {"Input Dims": [[1_000_000]], "Input type": ["float"]}
        end = at + slowest + 10
        trace.add("user_annotation", "gloo:all_reduce", at + compute, end, **shapes)
        if marks == "optimizer":
            trace.add("user_annotation", "Optimizer.step#SGD.step", end + 5.5, end + 5.8)
        # The thread that waited continues a moment before the end is noted.
        trace.add("cpu_op", "aten::add_", end - 0.01, end + 5)
        shapes = {"Input Dims": [[]], "Input type": ["float"]}
        trace.add("user_annotation", "gloo:all_reduce", end + 5, end + 6, **shapes)
    return trace


def nccl(rank: int, slower: float, steps: int, *, arguments: str) -> Trace:
    """Return the trace of a rank in a run over NCCL with 2 ranks; an iteration takes 100.

    Kernels of the GPU: 30 forward and 20 backward, of which the slow rank needs `slower` more;
    bucket A of 6 MB; 20 backward; bucket B of 1 MB; 5 of an update. A takes 15 from the last
    arrival, at 65, and B 10 from 85. The CPU is 60 ahead.

    Args:
        slower: 15 for one rank, 0 for the other.
        arguments: Where the name of a kernel's collective is: in the kernel, in the record of the
            operation that begins it, or in old traces in an annotation with the shapes of the
            tensors.
    """
    trace = Trace(rank, 2, "nccl")
    number = 0

    def kernel(step: int, name: str, begin: float, end: float, elements: int = 0) -> None:
        nonlocal number
        number += 1
        at, launched = 100.0 * step, 100.0 * step - 60 + 40 * begin / 100
        ids = {"External id": number, "correlation": 1000 + number}
        trace.add("cuda_runtime", "cudaLaunchKernel", launched, launched + 0.1, **ids)
        said: dict[str, Any] = {}
        if elements:
            said = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": elements}
            shapes = {"Input Dims": [[elements]], "Input type": ["float"]}
            span = launched, launched + 0.1
            if arguments == "annotation":
                trace.add("user_annotation", "nccl:all_reduce", *span, **shapes)
            args = said if arguments == "record" else {}
            ids_of_record = {"External id": number, "Group size": 2, **args}
            trace.add("cpu_op", "record_param_comms", *span, **ids_of_record)
        args = said if arguments == "kernel" else {}
        trace.add("kernel", name, at + begin, at + end, stream=7, **ids, **args)

    reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    for step in range(1, steps + 1):
        at = 100.0 * step
        trace.add("user_annotation", f"ProfilerStep#{step}", at - 60, at + 39.999)
        kernel(step, "gemm_forward", 0, 30 + slower)
        kernel(step, "gemm_backward", 30 + slower, 50 + slower)
        kernel(step, reduce, 50 + slower, 80, 1_500_000)
        kernel(step, "gemm_backward", 50 + slower, 70 + slower)
        kernel(step, reduce, max(80, 70 + slower), 95, 250_000)
        kernel(step, "multi_tensor_apply", 95, 100)
    return trace
