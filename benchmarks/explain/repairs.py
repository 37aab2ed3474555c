"""Real runs with a slow worker or server, what its repair is promised to gain, and reruns without.

A step sleeps until the time that a law draws for it, so that the load of the machine matters
little. Both runs draw the same noise. A server is stopped by signals to its process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.parts import Cells

import outpace

GOAL: Final = 0.1
_SLOW: Final = 1
_CASES: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "BSP, 1.5 times as slow": ({"kind": "bsp"}, {"factors": [1, 1.5, 1, 1]}),
    "BSP, 3 times as slow from 2 to 4 s": (
        {"kind": "bsp"},
        {"slow": [{"workers": [_SLOW], "factor": 3, "from_s": 2, "until_s": 4}]},
    ),
    "SSP 2, 1.5 times as slow": ({"kind": "ssp", "staleness": 2}, {"factors": [1, 1.5, 1, 1]}),
    "all-reduce, 1.5 times as slow": ({"kind": "ssgd"}, {"factors": [1, 1.5, 1, 1]}),
    "BSP, a server stops for 40 of each 50 ms": ({"kind": "bsp"}, {}),
    "SSP 2, a server stops for 40 of each 50 ms": ({"kind": "ssp", "staleness": 2}, {}),
}
_STOPS: Final = {"50 ms": (0.0, 0.04, 0.01)}


def repairs(
    out: Path,
    say: Callable[[str], object],
    iterations: int = 80,
    mean_s: float = 0.08,
    most: int = 99,
) -> list[Cells]:
    """Return the outcome of each case; the runs are kept in `out`."""
    found = []
    for number, (case, (sync, slow)) in enumerate(list(_CASES.items())[:most]):
        stop = next((times for words, times in _STOPS.items() if case.endswith(words)), None)
        data: dict[str, Any] = {
            "task": {"kind": "digits-mlp"},
            "workers": 4,
            "sync": sync,
            "stop": {"iterations": iterations},
            "evaluate": {"every_s": 1000},
        }
        if stop is not None:
            data["servers"] = 2
        law = {"kind": "lognormal", "mean_s": mean_s, "cv": 0.05}
        say(case)
        with _stopping(stop):
            first = outpace.run(data, out / f"{number}-slow", compute={**law, **slow})
        explanation = outpace.explain(out / f"{number}-slow")
        again = outpace.run(data, out / f"{number}-repaired", compute=law)
        promised = [gain for gain in explanation.gains if gain.cause]
        gradients = [run.summary["gradients_applied"] for run in (first, again)]
        named = ", ".join(f"{cause.name} {cause.pattern}" for cause in explanation.causes)
        run_s = first.summary["wall_time_s"]
        promised_s = promised[0].run_s if promised else run_s
        rerun_s = again.summary["wall_time_s"] * gradients[0] / gradients[1]
        error = promised_s / rerun_s - 1
        found.append(
            {
                "run": case,
                "named": named or "nobody",
                "took": f"{run_s:.2f} s",
                "promised": f"{promised_s:.2f} s",
                "rerun": f"{rerun_s:.2f} s",
                "error": f"{100 * error:+.1f} %",
                "goal": f"{100 * GOAL:.0f} %",
                "met": abs(error) <= GOAL,
            }
        )
    return found


@contextmanager
def _stopping(times: tuple[float, float, float] | None) -> Iterator[None]:
    """Stop the process of server 1 again and again while the context is open.

    Args:
        times: Seconds until the first stop, of a stop, and from then to the next.
    """
    if times is None:
        yield
        return
    over = threading.Event()

    def stop() -> None:
        before_s, stop_s, run_s = times
        while not over.wait(0.1):
            for process in multiprocessing.active_children():
                if process.name == "server-1" and (number := process.pid) is not None:
                    over.wait(before_s)
                    with contextlib.suppress(ProcessLookupError):
                        while not over.is_set():
                            os.kill(number, signal.SIGSTOP)
                            over.wait(stop_s)
                            os.kill(number, signal.SIGCONT)
                            over.wait(run_s)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
