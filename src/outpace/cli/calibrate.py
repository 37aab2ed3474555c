"""outpace calibrate: a cluster file from recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli.base import app, echo, print_rows, require_page, say
from outpace.errors import ConfigError

if TYPE_CHECKING:
    from outpace.experiment.calibrating import Calibration


@app.command()
def calibrate(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Folders of runs of one cluster, most often one."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The cluster file to write: .yaml.")],
    report: Annotated[
        Path | None,
        typer.Option("--report", help="The page to write. Default: the name of --out with .html."),
    ] = None,
) -> None:
    """Estimate run times, network and servers of a cluster from a recorded run.

    A run without servers tells what all-reduces cost. It may stand beside one with servers.

    Simulations take the file by --cluster FILE, or by include: FILE in a configuration.
    """
    from outpace.config.cluster_files import CALIBRATED, read_cluster
    from outpace.experiment.calibrating import calibrate as calibrate_runs
    from outpace.experiment.calibrating.writing import write_calibration
    from outpace.support.yaml_files import read_yaml

    if out.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"--out {out}: a cluster file is written as .yaml; name such a file")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}")
    if out.exists() and CALIBRATED not in read_yaml(out):
        raise ConfigError(
            f"{out} exists and was not written by outpace calibrate, so it is not overwritten; "
            "name another file with -o"
        )
    page = out.with_suffix(".html") if report is None else report
    require_page(page, "--report")
    found = calibrate_runs(folders)
    write_calibration(found, out, page)
    read_cluster(out)
    _print(found)
    say("note", found.notes)
    echo(f"cluster: {out}")
    echo(f"page: {page}")


def _print(found: Calibration) -> None:
    from outpace.experiment.calibrating.words import all_reduce_rows, compute_rows, law_rows

    width = max(len(name) for name, _ in law_rows(found))
    for name, words in law_rows(found):
        echo(f"{name.ljust(width)}  {words}")
    echo("")
    print_rows(compute_rows(found))
    if rows := all_reduce_rows(found):
        echo("")
        print_rows(rows)
