"""Compare predictions in virtual time with real runs of the same experiments.

    python -m benchmarks.fidelity             # all parts
    python -m benchmarks.fidelity a --mb 1 --strategies SSP ASP --seeds 3

a: computation is a sleep drawn from a law, 8 workers, 2 servers, 1 and 25 MB of parameters.
b: real computation, 2 workers.
c: several hosts, which are network namespaces of this machine; 4 workers, 2 servers, one of which
   has a slow connection; needs root.

Each strategy is predicted with a cluster file that was calibrated on one run with BSP. Every real
run is written to runs/fidelity. The machine should be idle: its load is recorded with each result.
Exit code 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import date
from functools import partial
from pathlib import Path

import torch
from benchmarks.fidelity import judging, setups, showing
from benchmarks.fidelity.hosts import launcher
from benchmarks.fidelity.measuring import Plan, RunReal, measure
from benchmarks.fidelity.outcome import Outcome
from benchmarks.fidelity.setups import Setup

import outpace
from benchmarks import recorded
from outpace.errors import ConfigError, OutpaceError
from outpace.record.folder import free_folder

RUNS = Path("runs/fidelity")
RESULTS = Path(__file__).parent / "results"
COMMAND = "python -m benchmarks.fidelity --record"
PARTS = ("a", "b", "c")
SIZES_MB = (1.0, 25.0)
DRAWS = 20  # number of seeds of an interval


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a goal is missed, 2 for a wrong option, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.fidelity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--mb", type=float, nargs="+", default=list(SIZES_MB), help="sizes in a")
    parser.add_argument(
        "--strategies", nargs="+", default=[], metavar="NAME", help="parts of names"
    )
    parser.add_argument("--seeds", type=int, default=2, help="real runs of each strategy")
    parser.add_argument(
        "--real", type=Path, metavar="FOLDER", help="read these real runs, instead of running anew"
    )
    parser.add_argument("--quick", action="store_true", help="seconds: does it work at all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there")
    parser.add_argument(
        "--record", action="store_true", help="keep tables and outcomes in results/"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    if options.record and (options.quick or options.strategies):
        parser.error("--record: reduced results are not recorded")
    torch.set_num_threads(1)
    found: list[Outcome] = []
    try:
        with free_folder(RUNS, "-".join(options.parts) or "all") as out:
            for outcome in _outcomes(options, out, parser):
                found.append(outcome)
                if options.json:
                    _write(found, options.json)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        _conclude(found)
        return 130
    except OutpaceError as error:
        print(f"error: {error}", file=sys.stderr)
        _conclude(found)
        return 1
    return _conclude(found, record=options.record)


def _outcomes(
    options: argparse.Namespace, out: Path, parser: argparse.ArgumentParser
) -> Iterator[Outcome]:
    for setup in _setups(options):
        try:
            names = setups.chosen(options.strategies, setup, quick=options.quick)
        except ValueError as error:
            parser.error(str(error))
        place = out / _file_name(f"{setup.part}-{setup.name}")
        seeds = range(1, 2 if options.quick else 1 + options.seeds)
        earlier = options.real and options.real / place.name
        plan = Plan(seeds, 2 if options.quick else DRAWS, place, earlier)
        say = partial(print, f"{setup.part}, {setup.name}:", file=sys.stderr, flush=True)
        with ExitStack() as stack:
            run: RunReal = outpace.run
            try:
                if setup.hosts is not None and not earlier:
                    hosts = stack.enter_context(launcher.hosts(setup.hosts.links))
                    run = _running_on(hosts, setup.hosts)
            except ConfigError as error:
                say(f"left out: {error}")
                continue
            yield from measure(setup, names, plan, run, say)


def _setups(options: argparse.Namespace) -> Iterator[Setup]:
    parts = options.parts or PARTS
    if "a" in parts:
        yield from (setups.sleeping(mb, options.quick) for mb in options.mb)
    if "b" in parts:
        yield setups.computing(options.quick)
    if "c" in parts:
        yield setups.hosts(options.quick)


def _running_on(hosts: launcher.Hosts, places: setups.Places) -> RunReal:
    """Return a function that runs an experiment on hosts; hosts of missing servers are unused."""
    make = hosts.launcher(places.of_roles)
    return partial(outpace.run, launcher=make, address=hosts.address)


def _conclude(outcomes: Sequence[Outcome], *, record: bool = False) -> int:
    """Print the tables of each setup; `record` also saves them. Return 1 if a goal is missed."""
    missed = False
    when = recorded.origin() if record else {"date": date.today().isoformat(), "commit": "this"}
    for of_setup in _by_setup(outcomes):
        found = judging.judge(of_setup)
        text = showing.markdown(of_setup, found, when)
        print(text)
        missed |= any(each.met is False for each in found)
        if record:
            name = _file_name(f"{of_setup[0].part}-{of_setup[0].setup}")
            _write(of_setup, RESULTS / f"{name}.json")
            (RESULTS / f"{name}.md").write_text(text, "utf-8")
    if record:
        recorded.write_tables(COMMAND, goals())
    return int(missed)


def _by_setup(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    names = dict.fromkeys((each.part, each.setup) for each in outcomes)
    return [[o for o in outcomes if (o.part, o.setup) == name] for name in names]


def _write(outcomes: Sequence[Outcome], path: Path) -> None:
    recorded.write_json(path, [asdict(each) for each in outcomes])


def goals() -> str:
    """Return the goals of all setups that were recorded, each with a link to its figures."""
    return "\n".join(
        showing.goals_of(path.read_text("utf-8"), f"fidelity/results/{path.name}")
        for path in sorted(RESULTS.glob("*.md"))
    )


def _file_name(words: str) -> str:
    return "-".join(words.replace(",", "").split())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # hosts and cluster are removed
    sys.exit(main())
