"""outpace scale: another number of workers, of servers, or of both, for a running run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outpace.cli.base import app, echo


@app.command()
def scale(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a running run.")],
    workers: Annotated[
        int | None, typer.Option(help="The number of workers from now on.", min=1)
    ] = None,
    servers: Annotated[
        int | None, typer.Option(help="The number of servers from now on.", min=1)
    ] = None,
    wait_s: Annotated[
        float, typer.Option("--wait", help="Seconds to wait until it is done.", min=0.0)
    ] = 600.0,
) -> None:
    """Change the number of workers or servers of a run on real processes.

    The run takes a checkpoint, ends its processes, and begins again from the checkpoint with the
    new numbers, as with --resume. So it needs `checkpoint`. The command waits until it trains.
    After --wait it ends with exit code 1, and the run still makes the change.
    """
    from outpace.experiment.scaling import scaled

    echo(scaled(run, servers=servers, workers=workers, limit_s=wait_s))
