"""outpace advise: which strategy to use on a cluster."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from outpace.cli.base import app, echo, folder_for, print_rows, say
from outpace.cli.options import (
    Address,
    Budget,
    Cluster,
    Json,
    On,
    Overrides,
    Quiet,
    Seed,
    Servers,
    TargetAccuracy,
    TargetLoss,
    Workers,
    where,
    with_options,
)
from outpace.cli.output import Output
from outpace.cli.processes import fork_server_of_trials
from outpace.cli.sources import ConfigOrScript, seconds_of, source_for

if TYPE_CHECKING:
    from outpace.report.advice.result import AdviceResult

_INTERRUPTED: Final = 130


@app.command()
def advise(
    context: typer.Context,
    config: ConfigOrScript,
    overrides: Overrides = None,
    workers: Workers = None,
    servers: Servers = None,
    seed: Seed = None,
    cluster: Cluster = None,
    target_accuracy: TargetAccuracy = None,
    target_loss: TargetLoss = None,
    budget: Budget = None,
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
    min_gain: Annotated[
        float,
        typer.Option(
            "--min-gain",
            help="Recommend another strategy than BSP if it is faster by this share at least.",
        ),
    ] = 0.05,
    on: On = None,
    address: Address = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Say which strategy reaches a target soonest, and how sure that is.

    About 24 strategies are simulated, each with its own learning rate. A script (.py) is recorded
    for 32 real steps first, unless there is a cluster file; its own arguments come after --.
    """
    budget_s = None if budget is None else seconds_of(budget)
    from outpace.experiment.advising import advise as advising

    given = with_options(overrides, workers, servers, seed)
    source = source_for("advise", config, context.obj, given, cluster)
    output, away = Output(quiet, as_json), where(on, address)
    with folder_for(out, config) as folder:
        try:
            with output.with_bars(lambda: fork_server_of_trials(None, away)) as bar:
                bar = functools.cache(bar)  # one for each phase
                advice = advising.advise(
                    source,
                    folder,
                    target_accuracy=target_accuracy,
                    target_loss=target_loss,
                    budget_s=budget_s,
                    seeds=seeds,
                    lr_argument=lr_argument,
                    only=None if only is None else [each.strip() for each in only.split(",")],
                    min_gain=min_gain,
                    on=away,
                    say=output.log,
                    show=lambda phase, done, planned: bar(phase)(done / max(1, planned)),
                )
        except advising.Interrupted as stopped:
            _print(stopped.advice, output)
            output.where(folder)
            say("interrupted", [f"this is the answer so far; it is in {folder}"])
            raise typer.Exit(_INTERRUPTED) from None
        _print(advice, output)
        output.note(f"this took {advice.elapsed_s:.0f} s")
        output.where(folder)


def _print(advice: AdviceResult, output: Output) -> None:
    """Print the advice: a table, sentences and the configuration, or JSON."""
    from outpace.report.advice.words import rows, sentences
    from outpace.support.yaml_files import write_yaml

    def show() -> None:
        print_rows(rows(advice))
        echo("")
        for sentence in sentences(advice):
            echo(sentence)
        echo(f"\n{write_yaml(advice.recommendation).rstrip()}\n")
        echo(f"to run it: {advice.command}")

    output.result(advice.plain(), show)
