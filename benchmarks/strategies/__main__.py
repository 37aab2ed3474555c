"""Compare all strategies on six clusters and three tasks, each with its own learning rate.

    python -m benchmarks.strategies                                # what is recorded, what is not
    python -m benchmarks.strategies --record --missing             # hours: all that has no result
    python -m benchmarks.strategies --record --cells digits-cnn    # a task, a cluster, TASK/CLUSTER
    python -m benchmarks.strategies --quick                        # one tiny cell, in seconds
    python -m benchmarks.strategies table                          # tables of the results
    python -m benchmarks.strategies --regret [--record]            # of outpace advise

For each strategy of a cell the learning rate is chosen first, with the same number of runs for
every strategy; then it is run on fresh seeds. Results are kept in results/TASK.CLUSTER.json. After
Ctrl-C, `--record --missing` continues with what is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from typing import Final

from benchmarks.strategies.measuring import quick, record
from benchmarks.strategies.outcome import FOLDER, Outcome, read, results
from benchmarks.strategies.regret import Regret, advised, goal_met, judged, keep, kept, regret
from benchmarks.strategies.suite import RUNS, Cell, cells, with_data
from benchmarks.strategies.table import COMMAND, PAGE, page, summary

from benchmarks import recorded
from outpace.errors import ConfigError, OutpaceError
from outpace.record.folder import free_folder
from outpace.simulation.executors.processes import cores

QUICK: Final = RUNS / "quick"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0; 1 if a run failed, 2 if an option is wrong, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.strategies",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", choices=["table"])
    parser.add_argument(
        "--record", action="store_true", help="measure, keep the results, write the tables"
    )
    parser.add_argument("--missing", action="store_true", help="only what has no result")
    parser.add_argument("--quick", action="store_true", help="one cell, much reduced")
    parser.add_argument("--cells", nargs="+", default=["*"], metavar="PATTERN")
    parser.add_argument("--regret", action="store_true", help="how good outpace advise is")
    parser.add_argument("--budget", help="of outpace advise for each cell; default: no limit")
    parser.add_argument("--processes", type=int, default=cores(), help="strategies at a time")
    options = parser.parse_args(arguments)
    try:
        return _carry_out(options)
    except OutpaceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept; continue with --missing", file=sys.stderr)
        return 130


def _carry_out(options: argparse.Namespace) -> int:
    code = 0
    chosen = cells(options.cells)
    if options.quick:
        QUICK.mkdir(parents=True, exist_ok=True)
        reduced = {"date": date.today().isoformat(), "commit": "not recorded"}
        record([quick(chosen[0])], reduced, QUICK, options.processes)
        print(page(results([quick(chosen[0])], QUICK)))
    elif options.regret:
        code = regrets(chosen, options)
    elif options.record:
        record(chosen, recorded.origin(), FOLDER, options.processes, missing=options.missing)
    elif options.what is None:
        show(chosen)
    if options.record or options.what == "table":
        write_tables()
    return code


def show(chosen: Sequence[Cell]) -> None:
    """Print the cells, and how many strategies of each are recorded."""
    for cell in chosen:
        found = read(cell) or Outcome(cell, {})
        cpu_s = sum(each.cpu_s for each in found.strategies)
        missing = f"{len(found.missing)} strategies missing"
        print(f"{cell.name:32} {cpu_s:6.0f} s of processor time, {missing}")


def regrets(chosen: Sequence[Cell], options: argparse.Namespace) -> int:
    """Ask `outpace advise` about each complete cell; return 1 if the goal is missed."""
    complete = [each for each in results(chosen) if each.complete]
    if not complete:
        raise ConfigError("--regret: no complete result; record the cells first")
    known = {each.cell for each in kept(chosen)} if options.missing else set()
    found: list[Regret] = []
    with free_folder(RUNS, "regret") as out:
        for each in complete:
            if each.cell.name in known:
                continue
            cell = with_data(each.cell)
            recommended = advised(cell, out / cell.task / cell.cluster, options.budget)
            found.append(regret(each, recommended, cell, options.processes))
            print(*found[-1].row, sep=", ", file=sys.stderr)
            if options.record:
                keep(found[-1], each.cell, recorded.origin())
    found = kept(chosen) if options.record else found
    print(judged(found))
    return int(goal_met(found) is False)


def write_tables() -> None:
    """Write the page of all results, and a summary of them into the README."""
    everything = cells()
    outcomes, regrets_kept = results(everything), kept(everything)
    PAGE.write_text(page(outcomes, regrets_kept), "utf-8")
    names = [cell.name for cell in everything]
    recorded.write_tables(COMMAND, summary(outcomes, names, regrets_kept))


if __name__ == "__main__":
    sys.exit(main())
