"""Real processes against bare pyzmq and against DDP on Gloo, over TCP on 127.0.0.1.

*whole*: what a user gets. Kernel, sockets and wire messages on both sides; the worker's program
pushes a gradient that is there already, and pulls; the server checks that the gradient is finite,
takes a step (SGD without momentum), checks that the parameters are finite, and copies them for its
readers. Compared with pyzmq under ASP, because the gradients of one worker need no sum.
*shared memory*: the same with the blocks in memory that the processes share.
*outpace run*: an iteration of a run by the command as it is installed, whose gradient costs
nothing, beside a copy of its 25 MB by one thread. The worker copies the parameters into the model
and the gradient out of it, and looks whether it is finite. *Adam / SGD*: the same with another
optimizer.
*plain*: DEALER and ROUTER, one message of one frame each way, copy=False, no keys; the bytes stay
where ZeroMQ put them.

All processes are forked from the same server and use one torch thread. A step lasts from its start
in the worker to the start of the next one.
"""

from __future__ import annotations

import multiprocessing
from functools import partial
from multiprocessing import forkserver

from benchmarks.micro.real.command import from_command
from benchmarks.micro.real.ddp import ddp
from benchmarks.micro.real.idle import idle_percent
from benchmarks.micro.real.installed import installed, of_adam
from benchmarks.micro.real.plain import plain
from benchmarks.micro.real.whole import whole
from benchmarks.rows import Row, in_turn, ratio, row, times_note

from outpace.support.processes import forking

MB = 250_000  # float32 elements
SMALL = 1024  # 4 KB


def measure(quick: bool) -> list[Row]:
    # A process that has to import torch and this package first takes seconds to start.
    forking.preload(__name__)
    multiprocessing.set_forkserver_preload(forking.PRELOADED)
    forkserver.ensure_running()
    repetitions, few, idle_s = (1, 1, 1) if quick else (7, 3, 5)
    nodes = (2, 1) if quick else (8, 2)  # workers and servers of the starts
    size, steps = (1, 4) if quick else (25, 30)
    larger = [] if quick else _against_pyzmq(100 * MB, "100 MB", 8, repetitions, memory=0.25)
    return [
        *_against_pyzmq(size * MB, f"{size} MB", steps, repetitions, memory=0.45),
        *larger,
        *_against_pyzmq(SMALL, "4 KB", 20 if quick else 2000, repetitions),
        *_against_ddp(size, steps, repetitions),
        installed(size * MB, few if quick else 100, few, workers=1, servers=1, goal=10),
        installed(size * MB, few if quick else 50, few, workers=4, servers=2, goal=12),
        *of_adam(size * MB, few if quick else 50, few),
        row(
            f"idle server in a run, share of a core over {idle_s} s",
            [idle_percent(SMALL, idle_s) for _ in range(few)],
            unit="% of a core",
            goal=1,
        ),
        *from_command(few, *nodes),
    ]


def _against_pyzmq(
    elements: int,
    size: str,
    steps: int,
    repetitions: int,
    *,
    memory: float | None = None,
) -> list[Row]:
    """Compare with plain pyzmq. memory: the goal with shared memory; None: without it."""
    programs = [
        partial(plain, elements, steps),
        partial(whole, elements, steps, sync="asp"),
    ]
    if memory is not None:
        programs.append(partial(whole, elements, steps, sync="asp", memory=True))
    theirs, ours, *shared = in_turn(programs, repetitions)

    def line(name: str, above: list[float], below: list[float], goal: float | None) -> Row:
        return ratio(f"{size} there and back: {name}", above, below, goal=goal, note=times_note)

    return [
        line("whole with CURVE / plain pyzmq", ours, theirs, None),
        *(
            line("whole with CURVE, in shared memory / plain pyzmq", column, theirs, memory)
            for column in shared
        ),
    ]


def _against_ddp(size: int, steps: int, repetitions: int) -> list[Row]:
    elements = size * MB
    ours, shared, theirs = in_turn(
        [
            partial(whole, elements, steps, workers=2, servers=2),
            partial(whole, elements, steps, workers=2, servers=2, memory=True),
            partial(ddp, elements, steps),
        ],
        repetitions,
    )

    def line(how: str, above: list[float], goal: float | None) -> Row:
        name = f"BSP step of {size} MB, 2 workers, 2 servers{how} / DDP on Gloo"
        return ratio(name, above, theirs, goal=goal, note=times_note)

    return [line(", CURVE", ours, None), line(", CURVE, shared memory", shared, 0.55)]
