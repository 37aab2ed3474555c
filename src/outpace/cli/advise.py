"""outpace advise: which strategy to use on a cluster."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from outpace.cli.base import app, echo, folder_for, print_rows, say
from outpace.cli.options import (
    Cluster,
    Json,
    Overrides,
    Quiet,
    Seed,
    Servers,
    Workers,
    with_options,
)
from outpace.cli.output import Output
from outpace.cli.sources import ConfigOrScript, seconds_of, source_data


@app.command()
def advise(
    context: typer.Context,
    config: ConfigOrScript,
    overrides: Overrides = None,
    workers: Workers = None,
    servers: Servers = None,
    seed: Seed = None,
    cluster: Cluster = None,
    target_accuracy: Annotated[
        float | None, typer.Option("--target-accuracy", help="The test accuracy to reach.")
    ] = None,
    target_loss: Annotated[
        float | None, typer.Option("--target-loss", help="The training loss to reach.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", help="Time for the answer: 60s, 10m or 1h. Default: until it is complete."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", help="Fresh seeds on which the finalists are compared.")
    ] = 8,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The folder to write. Default: a new folder runs/NAME."),
    ] = None,
    lr_argument: Annotated[
        str | None,
        typer.Option(
            "--lr-argument",
            help="The argument of a script that sets its learning rate, to be tuned.",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="KINDS",
            help="Choose from these kinds of strategies, as in asp,ssp,hpsgd. Default: all.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Then run the best three for real, for a minute each."),
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Say which strategy reaches a target soonest, and how sure that is.

    About 24 strategies are simulated, each with its own learning rate. A script (.py) is recorded
    for 32 real steps first, unless there is a cluster file; its own arguments come after --.
    """
    from outpace.experiment.advising.advise import advised, goal_of
    from outpace.experiment.sources import Source
    from outpace.report.advice.words import rows, sentences
    from outpace.support.yaml_files import with_overrides, write_yaml

    given = with_options(overrides, workers, servers, seed)
    data, base = source_data("advise", config, context.obj, given)
    data = with_overrides(data, given)
    goal = goal_of(target_accuracy, target_loss)
    output = Output(quiet, as_json)
    started_s = time.monotonic()
    with folder_for(out, config) as folder:
        try:
            with output.of_run():
                advice = advised(
                    Source(data, str(config), base, None),
                    folder,
                    goal=goal,
                    budget_s=None if budget is None else seconds_of(budget),
                    seeds=seeds,
                    cluster=cluster,
                    lr_argument=lr_argument,
                    only=None if only is None else [each.strip() for each in only.split(",")],
                    verify=verify,
                    processes=None,
                    say=output.log,
                )
        except KeyboardInterrupt:
            if (folder / "advice.json").is_file():
                say("note", [f"the answer so far is in {folder}, marked as interrupted"])
            raise
        found = advice.data

        def show() -> None:
            print_rows(rows(found))
            echo("")
            for sentence in sentences(found):
                echo(sentence)
            echo("")
            echo(write_yaml(found["recommendation"]).rstrip())
            echo("")
            echo(f"to run it: {found['command']}")

        output.result(json.loads(json.dumps(found)), show)
        output.note(f"this took {time.monotonic() - started_s:.0f} s")
        output.where(folder)
