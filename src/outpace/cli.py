"""The command line: outpace simulate | compare | report.

Exit codes: 0; 1 if a run failed; 2 if the input was wrong and nothing was started; 130
after Ctrl-C, with the folder completed and marked partial.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, ParamSpec

import typer

from outpace.errors import ConfigError, OutpaceError

_P = ParamSpec("_P")

app = typer.Typer(
    help="Train past stragglers: try synchronization strategies in virtual time.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML file.")]
_Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Overrides, as in workers=8 sync.kind=ssp sync.staleness=3.",
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option("--out", help="The folder to write, new or empty. Default: runs/NAME, numbered."),
]


def _errors_in_words(command: Callable[_P, None]) -> Callable[_P, None]:
    """Turn what goes wrong into one message and an exit code."""

    @functools.wraps(command)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except OutpaceError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(error.exit_code) from None
        except OSError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo("interrupted; a run that had started is kept, marked partial", err=True)
            raise typer.Exit(130) from None

    return wrapped


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"outpace {version('outpace')}")
        raise typer.Exit


@app.callback()
def _all(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


@app.command()
@_errors_in_words
def simulate(config: _Config, overrides: _Overrides = None, out: _Out = None) -> None:
    """Run one experiment in virtual time, with real gradients."""
    from outpace.config import experiment_from
    from outpace.experiment import simulate as run
    from outpace.folder import free_folder
    from outpace.yamlfile import read_yaml, with_overrides

    data = with_overrides(read_yaml(config), overrides or [])
    if "variants" in data:
        raise ConfigError(f"{config} has variants: use outpace compare {config}")
    experiment = experiment_from(data, str(config), config.parent)
    out = out or free_folder(Path("runs"), config.stem)
    with _progress() as bar:
        result = run(experiment, out, progress=bar(out.name))
    _print_table([out.name], [result.summary])
    _say_where(out)


@app.command()
@_errors_in_words
def run(
    config: _Config,
    overrides: _Overrides = None,
    out: _Out = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without keys: anyone on this machine may join.")
    ] = False,
) -> None:
    """Run one experiment for real: a process for each server and worker."""
    from outpace.config import experiment_from
    from outpace.experiment import run as run_for_real
    from outpace.folder import free_folder
    from outpace.yamlfile import read_yaml, with_overrides

    data = with_overrides(read_yaml(config), overrides or [])
    if "variants" in data:
        raise ConfigError(f"{config} has variants: use outpace compare {config}")
    experiment = experiment_from(data, str(config), config.parent)
    out = out or free_folder(Path("runs"), config.stem)
    result = run_for_real(experiment, out, insecure=insecure, log=_log)
    _print_table([out.name], [result.summary])
    _say_where(out)


def _log(text: str) -> None:
    typer.echo(text, err=True)


@app.command()
@_errors_in_words
def compare(config: _Config, overrides: _Overrides = None, out: _Out = None) -> None:
    """Run the variants of an experiment on the same seeds and data, and compare them."""
    from outpace.comparison import compare as run
    from outpace.comparison import variants_from
    from outpace.folder import free_folder
    from outpace.yamlfile import read_yaml, with_overrides

    data = with_overrides(read_yaml(config), overrides or [])
    variants = variants_from(data, str(config), config.parent)
    out = out or free_folder(Path("runs"), config.stem)
    with _progress() as bar:
        rows = run(variants, out, progress=lambda variant: bar(variant.name))
    _print_table([row.variant.name for row in rows], [row.summary for row in rows])
    for row in rows:
        if row.error:
            typer.echo(f"{row.variant.name} failed: {row.error}", err=True)
    _say_where(out)
    if any(row.error for row in rows):
        raise typer.Exit(1)


@app.command()
@_errors_in_words
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of runs, or of a comparison.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The file to write, whatever is there. Default: report.html, in the only DIR or "
            "here, unless that is a file of yours.",
        ),
    ] = None,
) -> None:
    """Make the report of one run, or one report over several."""
    from outpace.folder import REPORT
    from outpace.report import distinct, is_report, runs_in, write_report

    folders, repeated = distinct(folders)
    _say("note", repeated)
    runs, left_out = runs_in(folders)
    _say("warning", left_out)
    runs, repeated = distinct(runs)
    _say("note", repeated)
    if out is None:
        out = folders[0] / REPORT if len(folders) == 1 else Path(REPORT)
        if os.path.lexists(out) and not is_report(out):
            raise ConfigError(
                f"{out} is no report made by Outpace and is left as it is; "
                "name another file with --out"
            )
    _say("warning", write_report(runs, out))
    typer.echo(f"report: {out}")


@app.command()
@_errors_in_words
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    perfetto: Annotated[
        bool, typer.Option("--perfetto", help="As a file for https://ui.perfetto.dev.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The file to write, whatever is there. Default: perfetto.pftrace.gz, in RUN.",
        ),
    ] = None,
) -> None:
    """Write the trace of a run for a tool that shows traces."""
    from outpace.report.perfetto import PERFETTO, write_perfetto
    from outpace.report.words import SPACE, size

    if not perfetto:
        raise ConfigError("name the format to write; there is one: --perfetto")
    out = out or run / PERFETTO
    write_perfetto(run, out)
    written = size(out.stat().st_size).replace(SPACE, " ")
    typer.echo(f"{out} ({written}): open it at https://ui.perfetto.dev")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command `outpace`."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    app(args=arguments, prog_name="outpace")


def _as_interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _progress() -> Iterator[Callable[[str], Callable[[float], None]]]:
    """Progress bars, where somebody is looking. Yields what makes a bar of a name."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.fields[label]}", markup=False), BarColumn(), TaskProgressColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), Remaining(), console=console, disable=not console.is_terminal
    ) as progress:

        def bar(label: str) -> Callable[[float], None]:
            for earlier in progress.task_ids:
                progress.update(earlier, completed=1.0)
            task = progress.add_task("", total=1.0, label=label)
            return lambda share: progress.update(task, completed=min(share, 1.0))

        yield bar
        for task in progress.task_ids:
            progress.update(task, completed=1.0)


_COLUMNS: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
    ("status", lambda s: str(s["status"])),
    ("time s", lambda s: f"{s['virtual_time_s']:.2f}"),
    ("gradients", lambda s: f"{s['gradients_applied']}"),
    ("stale", lambda s: _number(s["staleness"]["mean"], ".2f")),
    ("delayed", lambda s: f"{s['delayed_pulls']}"),
    ("wait s", lambda s: f"{s['seconds']['wait']:.2f}"),
    ("loss", lambda s: _number(s["train_loss"], ".4f")),
    ("accuracy", lambda s: _number(s["accuracy"], ".4f")),
]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _print_table(names: Sequence[str], summaries: Sequence[dict[str, Any]]) -> None:
    """One row per run. Not fitted to the terminal: a number cut short would be another one."""
    rows = [["", *(title for title, _ in _COLUMNS)]]
    for name, summary in zip(names, summaries, strict=True):
        rows.append([name, *(cell(summary) for _, cell in _COLUMNS)])
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for name, *cells in rows:
        padded = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        typer.echo("  ".join([name.ljust(widths[0]), *padded]).rstrip())


def _say(kind: str, lines: Sequence[str]) -> None:
    for line in lines:
        typer.echo(f"{kind}: {line}", err=True)


def _say_where(out: Path) -> None:
    from outpace.folder import REPORT

    if (out / REPORT).exists():
        typer.echo(f"report: {out / REPORT}")
    else:
        typer.echo(f"results: {out}  (no report: pip install 'outpace[report]')")
