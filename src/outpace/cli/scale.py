"""outpace scale: another number of servers for a run that goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outpace.cli.base import app, echo


@app.command()
def scale(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that goes on.")],
    servers: Annotated[int, typer.Option(help="The number of servers from now on.", min=1)],
    wait_s: Annotated[
        float, typer.Option("--wait", help="Seconds to wait until it is done.", min=0.0)
    ] = 300.0,
) -> None:
    """Have servers join or leave a run on real processes, while its workers go on.

    The parameters are divided evenly again, and as few of them as possible move. The command waits
    until that is done.
    """
    from outpace.experiment.scaling import scaled

    echo(scaled(run, servers=servers, limit_s=wait_s))
