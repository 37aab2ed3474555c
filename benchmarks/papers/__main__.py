"""Runs a paper's experiments and prints what was published beside what was measured.

The variants are those of benchmarks/papers/NAME.yaml, the judge is the module of that name
(with underscores for dashes); the folders of the runs, a report over all of them, one for
each group of figures and what the judge draws go to runs/papers/NAME. A module with `run`
runs by itself what that file says, and writes there what it found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers.claims import Claim, show
from benchmarks.papers.curves import read_curve
from benchmarks.papers.experiments import EXPERIMENTS, judge_of

from outpace.cli.base import progress_bars
from outpace.experiment.comparison import compare, variants_from
from outpace.record.folder import REPORT, free_folder
from outpace.report import write_report
from outpace.support.yaml_files import read_yaml, with_overrides


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.papers", description=__doc__)
    parser.add_argument("name", choices=EXPERIMENTS)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as in seed=1")
    parser.add_argument("--judge", type=Path, help="a folder of such runs: only compare, run none")
    options = parser.parse_args()
    path = EXPERIMENTS[options.name]
    data = with_overrides(read_yaml(path), options.overrides)
    paper = judge_of(options.name)
    if hasattr(paper, "run"):
        with free_folder(Path("runs/papers"), options.name) as out:
            return _verdict(paper.run(data, out))
    variants = variants_from(data, str(path), path.parent)
    if options.judge is None:
        with free_folder(Path("runs/papers"), options.name) as out, progress_bars() as bar:
            compare(variants, out, progress=lambda variant: bar(variant.name))
    else:
        out = options.judge
    curves = {variant.name: read_curve(out / variant.name) for variant in variants}
    for figures, names in paper.FIGURES.items():
        write_report([out / name for name in names], out / f"{figures}.html")
    claims = paper.claims(curves, {variant.name: variant.experiment for variant in variants})
    verdict = _verdict(claims)
    pictures = paper.draw(curves, out) if hasattr(paper, "draw") else []
    for report in (out / REPORT, *(out / f"{name}.html" for name in paper.FIGURES), *pictures):
        print(f"report: {report}")
    return verdict


def _verdict(claims: Sequence[Claim]) -> int:
    show(claims)
    return 1 if any(claim.agrees is False for claim in claims) else 0


if __name__ == "__main__":
    sys.exit(main())
