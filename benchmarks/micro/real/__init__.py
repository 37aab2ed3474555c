"""Runs of the command as it is installed, over TCP on 127.0.0.1 and through shared memory.

*an iteration / a copy of memory*: an iteration of `outpace run` whose gradient costs nothing,
compared with a copy of its 25 MB by one thread. The worker copies the parameters into the model and
the gradient out of it, and checks whether it is finite. *Adam / SGD*: the same with another
optimizer. **start*, *run of one iteration*: compared with `import torch`. Comparisons with steps of
DDP are in `collectives`.
"""

from __future__ import annotations

from benchmarks.micro.real.command import from_command
from benchmarks.micro.real.installed import installed, of_adam
from benchmarks.rows import Row

MB = 250_000  # float32 elements


def measure(quick: bool) -> list[Row]:
    few, nodes = (1, (2, 1)) if quick else (3, (8, 2))  # workers and servers of the starts
    elements = (1 if quick else 25) * MB
    return [
        installed(elements, few if quick else 100, few, workers=1, servers=1, goal=10),
        installed(elements, few if quick else 50, few, workers=4, servers=2, goal=12),
        *of_adam(elements, few if quick else 50, few),
        *from_command(few, *nodes),
    ]
