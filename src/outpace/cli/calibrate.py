"""outpace calibrate: a cluster file from recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from outpace.cli.base import app, echo, print_rows, require_page, say
from outpace.errors import ConfigError

_TRACES: Final = (".json", ".json.gz")


@app.command()
def calibrate(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|TRACE",
            help="Folders of runs of one cluster, most often one; or traces of torch.profiler "
            "(.json, .json.gz), one of each rank of a DDP run.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The cluster file to write: .yaml; and a page, .html."),
    ],
) -> None:
    """Estimate run times, network and servers of a cluster from a recorded run.

    A run without servers tells what all-reduces cost. It can be combined with a run that has
    servers. From traces of torch.profiler: run times and all-reduces, to predict times, not losses.

    Simulations take the file by --cluster FILE, or by include: FILE in a configuration.
    """
    from outpace.config.cluster_files import read_cluster
    from outpace.experiment.calibrating import calibrate as calibrate_runs
    from outpace.experiment.calibrating import calibrate_traces, write_calibration
    from outpace.experiment.calibrating.cluster_file import require_own

    if out.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"--out {out}: a cluster file is written as .yaml; name such a file")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}")
    require_own(out)
    page = out.with_suffix(".html")
    require_page(page, "-o")
    traced = _are_traces(sources)
    found = calibrate_traces(sources) if traced else calibrate_runs(sources)
    write_calibration(found, out)
    read_cluster(out)
    width = max(map(len, found.words))
    for name, words in found.words.items():
        echo(f"{name.ljust(width)}  {words}")
    for rows in (found.compute_rows(), found.all_reduce_rows()):
        if rows:
            echo("")
            print_rows(rows)
    say("note", found.notes)
    echo(f"cluster: {out}")
    echo(f"page: {page}")
    if traced:
        echo(f"model: task: {{kind: timing, parameters: {found.parameters}}}")


def _are_traces(sources: Sequence[Path]) -> bool:
    """Return True for traces, False for folders of runs. Raises ConfigError for both."""
    traces = [path for path in sources if path.name.endswith(_TRACES) and not path.is_dir()]
    others = [path for path in sources if path not in traces]
    if traces and others:
        raise ConfigError(
            f"{others[0]} is not a trace, and {traces[0]} is one: pass the folders of runs, or the "
            "traces (.json, .json.gz) of one run"
        )
    return bool(traces)
