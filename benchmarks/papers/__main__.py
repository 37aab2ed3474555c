"""Run experiments of papers and print what was published beside what was measured.

The variants of an experiment are in its YAML file, and the module beside that file judges their
runs. Folders of runs, reports and pictures go to runs/papers/NAME. A module with a function `run`
runs its experiment itself. `all` stands for every experiment, except those that need a machine of
their own. If one of several experiments fails, the others are run all the same.

With `--quick` the module's QUICK reduces an experiment: its verdicts then say that the experiment
works, not what it shows. `seeds: N` in a YAML file runs every variant on N seeds, and the judge
gets the runs of all seeds. `--record` keeps each result in results/NAME.json as soon as it is
measured and writes the tables of all results (RESULTS.md). With `--missing` the
experiments that have a result of the present code are left out, so `all --record --missing` goes
on with what an interrupted command has left. `table` alone writes only the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from benchmarks.papers import results
from benchmarks.papers.claims import Claim, show, write
from benchmarks.papers.comparing import compare_with_bars
from benchmarks.papers.curves import read_curve
from benchmarks.papers.experiments import EXPERIMENTS, judge_of
from benchmarks.recorded import origin

from outpace.errors import ConfigError, OutpaceError
from outpace.experiment.compared import Variant
from outpace.experiment.comparison import seeds_from, variants_from
from outpace.record.folder import REPORT, free_folder
from outpace.report.page import write_report
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
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="judge these runs, run none")
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
    everything = [name for name in EXPERIMENTS if not hasattr(judge_of(name), "NEEDS")]
    names = [name for word in words for name in (everything if word == "all" else [word])]
    overrides = [word for word in options.words if "=" in word]
    if unknown := set(names) - set(EXPERIMENTS):
        known = ", ".join(EXPERIMENTS)
        parser.error(f"no experiment {', '.join(sorted(unknown))}; known: {known}")
    if options.judge and len(names) != 1:
        parser.error("--judge: name the one experiment that the runs are of")
    if options.record and (options.quick or overrides):
        parser.error("--record: results of changed or reduced experiments are not recorded")
    if options.record:
        origin()  # before hours of runs
    if options.missing:
        names = [name for name in names if not results.is_current(name)]
    return _all_of(names, overrides, options)


def _all_of(names: Sequence[str], overrides: Sequence[str], options: argparse.Namespace) -> int:
    """Carry the experiments out, show what all of them found, and return the exit code."""
    found: dict[str, Sequence[Claim]] = {}
    failed: dict[str, str] = {}
    code = 0
    for place, name in enumerate(names, 1):
        print(f"{name}: experiment {place} of {len(names)}", file=sys.stderr)
        begun = monotonic()
        try:
            quick = getattr(judge_of(name), "QUICK", ()) if options.quick else ()
            found[name] = _claims(name, [*quick, *overrides], options.judge, record=options.record)
        except KeyboardInterrupt:
            left = ", ".join(names[place - 1 :])
            print(f"interrupted; without a result: {left}", file=sys.stderr)
            code = 130
            break
        except (OutpaceError, OSError) as error:
            failed[name] = str(error)
            code = max(code, 2 if isinstance(error, ConfigError) else 1)
        except Exception as error:  # a judge's fault must not cost the results of hours
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


def _claims(
    name: str, overrides: Sequence[str], judged: Path | None, *, record: bool
) -> Sequence[Claim]:
    """Run an experiment, or read its runs from `judged`; show and return its claims."""
    path, paper = EXPERIMENTS[name], judge_of(name)
    data = with_overrides(read_yaml(path), overrides)
    seeds = seeds_from(data, str(path))
    claims: Sequence[Claim]
    if hasattr(paper, "run"):
        if judged is None:
            made = origin() if record else {}
            with free_folder(RUNS, name) as out:
                if record:
                    (out / results.ORIGIN).write_text(json.dumps(made), "utf-8")
                claims = paper.run(data, out)
        elif hasattr(paper, "judge"):
            made = _origin(judged) if record else {}
            claims = paper.judge(judged)
        else:
            raise SystemExit(
                f"--judge: {name} runs and judges in one, so it cannot be judged alone"
            )
        show(claims)
        if record:
            results.record(name, claims, data.get("repeats", 1), made)
            results.write_table()
        return claims
    variants = variants_from(data, str(path), path.parent)
    if judged is None:
        made = origin() if record else {}
        with free_folder(RUNS, name) as out:
            compare_with_bars(variants, out, seeds=seeds)
        if record:
            (out / results.ORIGIN).write_text(json.dumps(made), "utf-8")
    else:
        out = judged
        made = _origin(out) if record else {}
    curves = {
        variant.name: [read_curve(folder, variant.name) for folder in _folders(out, variant, seeds)]
        for variant in variants
    }
    for figures, names in paper.FIGURES.items():
        write_report(
            [run.folder for name in names for run in curves[name] if run.folder is not None],
            out / f"{figures}.html",
        )
    claims = paper.claims(curves, {variant.name: variant.experiment for variant in variants})
    show(claims)
    if record:
        results.record(name, claims, seeds, made)
        results.write_table()
    pictures = paper.draw(curves, out) if hasattr(paper, "draw") else []
    for report in (out / REPORT, *(out / f"{name}.html" for name in paper.FIGURES), *pictures):
        print(f"report: {report}")
    return claims


def _origin(folder: Path) -> dict[str, str]:
    """Return when and with which code the runs in this folder were made."""
    made: dict[str, str] = json.loads((folder / results.ORIGIN).read_text("utf-8"))
    return made


def _folders(out: Path, variant: Variant, seeds: int) -> list[Path]:
    """Return the folders of a variant's runs, as `compare` names them."""
    folder, first = out / variant.name, variant.experiment.seed
    return [folder / f"seed-{first + k}" for k in range(seeds)] if seeds > 1 else [folder]


if __name__ == "__main__":
    sys.exit(main())
