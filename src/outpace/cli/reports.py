"""outpace report | export: make reports and traces from the folders of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outpace.cli.base import app, echo, require_page, say
from outpace.errors import ConfigError


@app.command()
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR",
            help="Folders of runs or of a comparison.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The file to write, new or not. Default: report.html in DIR if there "
            "is one DIR, else in the current folder; a file that is not a report is kept.",
        ),
    ] = None,
) -> None:
    """Make the report of one run, or one report over several."""
    from outpace.record.checkpoints.gathering import gather
    from outpace.record.folder import REPORT
    from outpace.report.page import write_report
    from outpace.report.read.folders import runs_in

    runs, left_out = runs_in(folders)
    say("warning", left_out)
    say("note", gather(*runs))
    if out is None:
        out = folders[0] / REPORT if len(folders) == 1 else Path(REPORT)
        require_page(out)
    say("warning", write_report(runs, out))
    echo(f"report: {out}")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    perfetto: Annotated[
        bool, typer.Option("--perfetto", help="Write a file for https://ui.perfetto.dev.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The file to write, new or not. Default: perfetto.pftrace.gz in RUN.",
        ),
    ] = None,
) -> None:
    """Write the trace of a run for a tool that shows traces."""
    from outpace.record.checkpoints.gathering import gather
    from outpace.report.perfetto import PERFETTO, write_perfetto
    from outpace.report.words import SPACE, size

    if not perfetto:
        raise ConfigError("outpace export: the format is missing; add --perfetto")
    out = out or run / PERFETTO
    say("note", gather(run))
    write_perfetto(run, out)
    written = size(out.stat().st_size).replace(SPACE, " ")
    echo(f"{out} ({written}): open it at https://ui.perfetto.dev")
