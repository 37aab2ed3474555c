"""Tries random failures: `python -m tests.simulation.faults.search --seeds 2000`."""

from __future__ import annotations

import argparse
import sys

from tests.simulation.faults.ledger import LOSES, PEERS, STRATEGIES, Ran, experiment, random_faults

from outpace.errors import OutpaceError

ON_LOSS = ("restart", "continue")
WORKERS, SERVERS = 3, 2


def broken_promise(strategy: str, seed: int, on_loss: str = "restart") -> str:
    """Return the promise that a run with the random failures of a seed has broken; "": none.

    Each gradient is at most once on each server. A gradient that the strategy itself does not leave
    out is missing only if it is counted as lost, or had not arrived when its worker died. Without
    servers all begin again from a checkpoint, so none is missing.
    """
    has_servers = strategy in STRATEGIES
    faults = random_faults(1000 * seed, WORKERS, SERVERS, until_s=2.5)
    if not has_servers:
        faults = [fault for fault in faults if "worker" in fault]
    if on_loss == "continue":
        # one worker stays to the end
        faults = [fault for fault in faults if fault.get("worker") != 0]
    changes = {"on_worker_loss": on_loss, "seed": seed}
    given = experiment(strategy, {"schedule": faults}, **changes)
    found = Ran(given, tie_seed=seed, copies=SERVERS if has_servers else 1)
    if not has_servers:
        return "" if found.counts.eq(1).all() else "a gradient is not in the result once"
    if not set(found.counts.flatten().tolist()) <= {0.0, 1.0}:
        return "a gradient is in the result more than once"
    if strategy in LOSES:
        return ""
    most, least, lost = found.counts.amax(0), found.counts.amin(0), found.recovery.updates_lost
    if int(((most > 0) & (least == 0)).sum()) > lost:
        return "more gradients are on some servers only than are counted"
    on_the_way = 4 if strategy in ("ssptable", "skipped pulls") else 1  # of each worker that dies
    if on_loss == "restart":
        missing = int((least == 0).sum())
        if missing > lost + on_the_way * found.costs["worker_losses"]:
            return f"{missing} gradients are missing, and {lost} are counted"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    kinds = [*((name, on_loss) for name in STRATEGIES for on_loss in ON_LOSS)]
    kinds += [(name, "restart") for name in PEERS]
    for seed in range(options.first, options.first + options.seeds):
        strategy, on_loss = kinds[seed % len(kinds)]
        try:
            problem = broken_promise(strategy, seed, on_loss)
        except (AssertionError, OutpaceError, ArithmeticError, LookupError, TypeError) as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            sys.stdout.write(f"seed {seed}, {strategy}, on_worker_loss={on_loss}: {problem}\n")
            return 1
    sys.stdout.write(f"{options.seeds} seeds from {options.first}: none failed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
