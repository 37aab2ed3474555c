"""Run experiments of papers and print what was published beside what was measured.

The variants of an experiment are in its YAML file, and the module beside that file judges their
runs. Folders of runs, reports and pictures go to runs/papers/NAME. A module with a function `run`
runs its experiment itself. `all` stands for every experiment, except those that need a machine of
their own. With `--quick` the module's QUICK reduces an experiment: its verdicts then say that the
experiment works, not what it shows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.papers.claims import Claim, show, write
from benchmarks.papers.curves import read_curve
from benchmarks.papers.experiments import EXPERIMENTS, judge_of

from outpace.cli.base import progress_bars
from outpace.experiment.comparison import compare, variants_from
from outpace.record.folder import REPORT, free_folder
from outpace.report import write_report
from outpace.support.yaml_files import read_yaml, with_overrides

RUNS = Path("runs/papers")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if a measurement differs from a claim, else 0."""
    parser = argparse.ArgumentParser(prog="benchmarks.papers", description=__doc__)
    parser.add_argument(
        "words",
        nargs="+",
        metavar="NAME | KEY=VALUE",
        help="experiments, and changes of their settings as in seed=1: all, "
        + ", ".join(EXPERIMENTS),
    )
    parser.add_argument("--quick", action="store_true", help="run the experiments reduced")
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="judge these runs, run none")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all claims there")
    options = parser.parse_intermixed_args(arguments)
    words = [word for word in options.words if "=" not in word]
    everything = [name for name in EXPERIMENTS if not hasattr(judge_of(name), "NEEDS")]
    names = [name for word in words for name in (everything if word == "all" else [word])]
    overrides = [word for word in options.words if "=" in word]
    if unknown := set(names) - set(EXPERIMENTS):
        known = ", ".join(EXPERIMENTS)
        parser.error(f"no experiment {', '.join(sorted(unknown))}; known: {known}")
    if options.judge and len(names) != 1:
        parser.error("--judge: name the one experiment that the runs are of")
    found: dict[str, Sequence[Claim]] = {}
    for name in names:
        quick = getattr(judge_of(name), "QUICK", ()) if options.quick else ()
        found[name] = _claims(name, [*quick, *overrides], options.judge)
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
    return 1 if any(each.agrees is False for some in found.values() for each in some) else 0


def _claims(name: str, overrides: Sequence[str], judged: Path | None) -> Sequence[Claim]:
    """Run an experiment, or read its runs from `judged`; show and return its claims."""
    path, paper = EXPERIMENTS[name], judge_of(name)
    data = with_overrides(read_yaml(path), overrides)
    claims: Sequence[Claim]
    if hasattr(paper, "run"):
        with free_folder(RUNS, name) as out:
            claims = paper.run(data, out)
        show(claims)
        return claims
    variants = variants_from(data, str(path), path.parent)
    if judged is None:
        with free_folder(RUNS, name) as out, progress_bars() as bar:
            compare(variants, out, progress=lambda variant: bar(variant.name))
    else:
        out = judged
    curves = {variant.name: read_curve(out / variant.name) for variant in variants}
    for figures, names in paper.FIGURES.items():
        write_report([out / name for name in names], out / f"{figures}.html")
    claims = paper.claims(curves, {variant.name: variant.experiment for variant in variants})
    show(claims)
    pictures = paper.draw(curves, out) if hasattr(paper, "draw") else []
    for report in (out / REPORT, *(out / f"{name}.html" for name in paper.FIGURES), *pictures):
        print(f"report: {report}")
    return claims


if __name__ == "__main__":
    sys.exit(main())
