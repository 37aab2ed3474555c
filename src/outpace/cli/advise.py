"""outpace advise: which strategy to use on a cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from outpace.cli.base import app, echo, folder_for, print_rows, say
from outpace.cli.options import (
    Address,
    Budget,
    Cluster,
    Cpus,
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
from outpace.cli.sources import ConfigOrScript, seconds_of, source_data
from outpace.support.regular_files import read_text
from outpace.support.streams import OutputClosed

if TYPE_CHECKING:
    from outpace.experiment.advising.budget import State
    from outpace.report.advice.result import AdviceResult

_INTERRUPTED: Final = 130
_BAR: Final = 20  # characters, so that the line fits into 80


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
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Then run the best three for real, for a minute each."),
    ] = False,
    on: On = None,
    address: Address = None,
    cpus: Cpus = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Say which strategy reaches a target soonest, and how sure that is.

    About 24 strategies are simulated, each with its own learning rate. A script (.py) is recorded
    for 32 real steps first, unless there is a cluster file; its own arguments come after --.
    """
    budget_s = None if budget is None else seconds_of(budget)
    from outpace.experiment.advising import advise as advising
    from outpace.experiment.sources import Source
    from outpace.record.folder import ADVICE
    from outpace.report.advice.result import advice_from
    from outpace.support.yaml_files import with_overrides

    given = with_options(overrides, workers, servers, seed)
    data, base = source_data("advise", config, context.obj, given)
    source = Source(with_overrides(data, given), str(config), base, None)
    output, away = Output(quiet, as_json), where(on, address, cpus)
    started_s = time.monotonic()
    with folder_for(out, config) as folder:
        before = _changed_at(folder / ADVICE)
        try:
            with output.of_run():
                fork_server_of_trials(None, away)
                with _progress(not quiet) as show:
                    advice = advising.advise(
                        source,
                        folder,
                        target_accuracy=target_accuracy,
                        target_loss=target_loss,
                        budget_s=budget_s,
                        seeds=seeds,
                        cluster=cluster,
                        lr_argument=lr_argument,
                        only=None if only is None else [each.strip() for each in only.split(",")],
                        min_gain=min_gain,
                        verify=verify,
                        on=away,
                        say=output.log,
                        show=show,
                    )
        except OutputClosed:
            raise
        except KeyboardInterrupt:
            if _changed_at(folder / ADVICE) == before:
                say("interrupted", ["no run has reached the target yet, so there is no answer"])
            else:
                _print(advice_from(json.loads(read_text(folder / ADVICE))), output)
                output.where(folder)
                say("interrupted", [f"this is the answer so far; it is in {folder}"])
            raise typer.Exit(_INTERRUPTED) from None
        _print(advice.result, output)
        output.note(f"this took {time.monotonic() - started_s:.0f} s")
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


def _changed_at(path: Path) -> int | None:
    """Return when a file was last written; None if there is none."""
    return path.stat().st_mtime_ns if path.exists() else None


@contextmanager
def _progress(wanted: bool) -> Iterator[Callable[[State], None]]:
    """Show phase, runs and seconds left on a terminal, if that is wanted."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(_BAR),
        TextColumn("{task.completed} of {task.total} runs{task.fields[left]}"),
    )
    hidden = not (wanted and console.is_terminal)
    with Progress(*columns, console=console, disable=hidden, transient=True) as progress:
        task = progress.add_task("begins", total=1, left="")

        def show(state: State) -> None:
            left = "" if state.left_s is None else f", about {state.left_s:.0f} s left"
            progress.update(
                task,
                description=state.phase,
                total=state.planned,
                completed=min(state.done, state.planned),
                left=left,
            )

        yield show
