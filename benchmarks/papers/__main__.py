"""Run experiments of papers and print published together with measured results.

The variants of an experiment are in its YAML file, as a list or as grids, and the module in the
same folder judges their runs: its function `claims` gets the curves of all variants. A module with
a function `run` runs its experiment itself. Folders of runs and reports go to runs/papers/NAME. If
one of several experiments fails, the others are still run.

With `--quick` the module's QUICK reduces an experiment: its verdicts then only say that the
experiment works. `seeds: N` in a YAML file runs every variant on N seeds, and the judge gets the
runs of all seeds. `--record` keeps each result in results/NAME.json as soon as it is measured and
writes the tables of all results (RESULTS.md). With `--missing` the experiments that have a result
of the present code are left out, so `all --record --missing` continues after an interrupted
command. `table` alone writes only the tables.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

import torch
from benchmarks.papers import results
from benchmarks.papers.claims import Claim, show, write
from benchmarks.papers.curves import curves_of
from benchmarks.papers.experiments import EXPERIMENTS, judge_of, variants_of
from benchmarks.recorded import origin

from outpace.errors import ConfigError, OutpaceError
from outpace.experiment.comparison import seeds_from
from outpace.record.folder import free_folder
from outpace.support.yaml_files import read_yaml, with_overrides

RUNS = Path("runs/papers")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all measurements agree or are not decided.

    Otherwise 1 if one differs or an experiment failed, 2 if a setting is wrong, 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.papers", description=__doc__)
    parser.add_argument(
        "words",
        nargs="+",
        metavar="NAME | KEY=VALUE",
        help="experiments, and changes of their settings as in seed=1: table, all, "
        + ", ".join(EXPERIMENTS),
    )
    parser.add_argument("--quick", action="store_true", help="run the experiments reduced")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all claims there")
    parser.add_argument(
        "--record", action="store_true", help="keep the results, and write their tables"
    )
    parser.add_argument(
        "--missing", action="store_true", help="leave out what has a result of the present code"
    )
    options = parser.parse_intermixed_args(arguments)
    if options.words == ["table"]:
        results.write_table()
        return 0
    words = [word for word in options.words if "=" not in word]
    overrides = [word for word in options.words if "=" in word]
    names = [name for word in words for name in (EXPERIMENTS if word == "all" else [word])]
    if unknown := set(names) - set(EXPERIMENTS):
        known = ", ".join(EXPERIMENTS)
        parser.error(f"no experiment {', '.join(sorted(unknown))}; known: {known}")
    if options.record and (options.quick or overrides):
        parser.error("--record: results of changed or reduced experiments are not recorded")
    if options.record:
        origin()  # before hours of runs
    if options.missing:
        names = [name for name in names if not results.is_current(name)]
    return _all_of(names, overrides, options)


def _all_of(names: Sequence[str], overrides: Sequence[str], options: argparse.Namespace) -> int:
    """Carry out the experiments, show all their claims, and return the exit code."""
    found: dict[str, Sequence[Claim]] = {}
    failed: dict[str, str] = {}
    code = 0
    for place, name in enumerate(names, 1):
        print(f"{name}: experiment {place} of {len(names)}", file=sys.stderr)
        begun = monotonic()
        try:
            quick = judge_of(name).QUICK if options.quick else ()
            found[name] = _claims(name, [*quick, *overrides], record=options.record)
        except KeyboardInterrupt:
            left = ", ".join(names[place - 1 :])
            print(f"interrupted; without a result: {left}", file=sys.stderr)
            code = 130
            break
        except (OutpaceError, OSError) as error:
            failed[name] = str(error)
            code = max(code, 2 if isinstance(error, ConfigError) else 1)
        except Exception as error:  # an error in a judge must not lose the results of hours
            traceback.print_exc()
            failed[name] = f"{type(error).__name__}: {error}"
            code = max(code, 1)
        print(f"{name}: ended after {monotonic() - begun:.0f} s", file=sys.stderr)
        if options.json:
            write(found, options.json)
    if len(names) > 1:
        show(
            [
                replace(each, where=f"{name}: {each.where}")
                for name, of in found.items()
                for each in of
            ]
        )
    for name, text in failed.items():
        print(f"error: {name}: {text}", file=sys.stderr)
    differs = any(each.agrees is False for some in found.values() for each in some)
    return code or int(differs)


def _claims(name: str, overrides: Sequence[str], *, record: bool) -> Sequence[Claim]:
    """Run an experiment; show and return its claims."""
    path, paper = EXPERIMENTS[name], judge_of(name)
    data = with_overrides(read_yaml(path), overrides)
    made = origin() if record else {}
    seeds = seeds_from(data, str(path))
    claims: Sequence[Claim]
    with free_folder(RUNS, name) as out:
        if hasattr(paper, "run"):
            torch.set_num_threads(1)
            claims = paper.run(data, out)
        else:
            variants = variants_of(name, data)
            curves = curves_of(variants, out, seeds=seeds)
            claims = paper.claims(curves, {each.name: each.experiment for each in variants})
        print(f"runs: {out}")
    show(claims)
    if record:
        results.record(name, claims, seeds, made)
        results.write_table()
    return claims


if __name__ == "__main__":
    sys.exit(main())
