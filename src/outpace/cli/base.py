"""Parts that the commands share: the app, error messages, progress bars and tables."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from outpace.errors import ConfigError, OutpaceError, in_words
from outpace.support.streams import OutputClosed, write_line
from outpace.support.words import printable


def echo(text: str, err: bool = False) -> None:
    """Print a line to standard output, or to standard error.

    The line may contain names and messages from an untrusted source, which must not control the
    terminal.
    """
    write_line(sys.stderr if err else sys.stdout, printable(text))


if TYPE_CHECKING:
    from outpace.record.comparison import VariantResult
    from outpace.support.estimates import Estimate

_UsageError: Any = typer.BadParameter.__base__
_SIGPIPE: Final = 141  # exit code of a program that writes to a pipe without a reader


class _InWords(TyperGroup):
    """Turns an exception of a command into a message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        given = list(ctx.args)
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            if not error.format_message():  # the user asked for help
                raise
            echo(usage_in_words(error, given), err=True)
            raise typer.Exit(2) from None
        except PermissionError as error:
            echo(f"error: you have no permission for {error.filename}: {error.strerror}", err=True)
            raise typer.Exit(1) from None
        except (OutpaceError, OSError) as error:
            echo(f"error: {in_words(str(error))}", err=True)
            raise typer.Exit(error.exit_code if isinstance(error, OutpaceError) else 1) from None
        except OutputClosed:
            raise typer.Exit(_SIGPIPE) from None
        except KeyboardInterrupt:
            echo("interrupted", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_InWords,
    help="Train past stragglers: try strategies in virtual time, then run them for real.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from outpace.support.version import __version__

        echo(f"outpace {__version__}")
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


@contextmanager
def progress_bars(wanted: bool = True) -> Iterator[Callable[[str], Callable[[float], None]]]:
    """Show progress bars on a terminal, if they are wanted.

    Yields a function that takes a label and adds a bar. That function returns another function,
    which sets the completed share of the bar, from 0 to 1.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, TimeElapsedColumn

    console, columns = Console(stderr=True), (*Progress.get_default_columns(), TimeElapsedColumn())
    hidden = not (wanted and console.is_terminal)
    with Progress(*columns, console=console, disable=hidden) as progress:

        def bar(label: str) -> Callable[[float], None]:
            task = progress.add_task(escape(printable(label)), total=None)

            def show(share: float) -> None:
                if share > 0:  # before, the bar only shows activity
                    progress.update(task, total=1.0, completed=min(share, 1.0))

            return show

        yield bar
        for task in progress.task_ids:
            progress.update(task, total=1.0, completed=1.0)


# The summary of a run that could not begin has nothing but its status.
_COLUMNS: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
    ("status", lambda s: str(s["status"])),
    ("time s", lambda s: _number(s.get("virtual_time_s", s.get("wall_time_s")), ".2f")),
    ("gradients", lambda s: _number(s.get("gradients_applied"), "d")),
    ("stale", lambda s: _number(s.get("staleness", {}).get("mean"), ".2f")),
    ("delayed", lambda s: _number(s.get("delayed_pulls"), "d")),
    ("wait s", lambda s: _number(s.get("seconds", {}).get("wait"), ".2f")),
    ("loss", lambda s: _number(s.get("train_loss"), ".4f")),
    ("accuracy", lambda s: _number(s.get("accuracy"), ".4f")),
]
_GOODPUT = ("goodput", lambda s: _number(s.get("faults", {}).get("goodput"), ".3f"))


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


@contextmanager
def folder_for(out: Path | None, source: str | Path) -> Iterator[Path]:
    """Yield the folder for a run of `source`: `out`, or a new folder under runs/."""
    from outpace.record.folder import free_folder

    if out is not None:
        yield out
        return
    with free_folder(Path("runs"), Path(source).stem) as path:
        yield path


def print_table(names: Sequence[str], summaries: Sequence[dict[str, Any]]) -> None:
    """Print one row per run. Numbers are not cut to fit the terminal's width."""
    clocks = {"wall" if "wall_time_s" in summary else "virtual" for summary in summaries}
    clock = "".join(f"{name} " for name in clocks) if len(clocks) == 1 else ""
    columns = [*_COLUMNS, *([_GOODPUT] if any("faults" in each for each in summaries) else [])]
    rows = [["", *(title.replace("time s", f"{clock}time s") for title, _ in columns)]]
    for name, summary in zip(names, summaries, strict=True):
        rows.append([name, *(cell(summary) for _, cell in columns)])
    print_rows(rows)


def print_comparison(variants: Sequence[VariantResult], *, of_runs: bool) -> None:
    """Print one row per variant of a comparison over several seeds, with 95 % intervals.

    of_runs: True: also print how long a run takes, with an interval that contains a further run
    with a probability of 90 %.
    """
    run = ["run s (90 %)"] if of_runs else []
    has_goodput = any(variant.goodput.mean is not None for variant in variants)
    goodput = ["goodput"] if has_goodput else []
    rows = [["", "seeds", *run, *goodput, "time to target s", "accuracy", "time / first", ""]]
    for variant in variants:
        counts = {"missed": variant.missed, "failed": variant.failed}
        notes = [f"{count} {what}" for what, count in counts.items() if count]
        if variant.distinguishable is False:
            notes.append("not distinguishable from the first")
        rows.append(
            [
                variant.name,
                str(variant.seeds),
                *([_estimate(variant.run_s, ".2f")] if of_runs else []),
                *([_estimate(variant.goodput, ".3f")] if has_goodput else []),
                _estimate(variant.time_to_target_s, ".2f"),
                _estimate(variant.accuracy, ".4f"),
                _estimate(variant.ratio_to_first, ".2f"),
                ", ".join(notes),
            ]
        )
    print_rows(rows)


def _estimate(found: Estimate, form: str) -> str:
    """Return an estimate such as `38.0 [36.1, 39.9]`."""
    mean, low, high = (_number(each, form) for each in (found.mean, found.low, found.high))
    if found.low is None and found.high is None:
        return mean
    if found.low is None or found.high is None:  # a run missed the target, so the mean is a bound
        return f"{'at most' if found.low is None else 'at least'} {mean}"
    return f"{mean} [{low}, {high}]"


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of names and right-aligned numbers; the first row contains the titles."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for name, *cells in rows:
        padded = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        echo("  ".join([name.ljust(widths[0]), *padded]).rstrip())


def say(kind: str, lines: Sequence[str]) -> None:
    for line in lines:
        echo(f"{kind}: {line}", err=True)


def require_page(path: Path, option: str = "--out") -> None:
    """Raise ConfigError if the file exists and does not begin like a page of Outpace.

    Args:
        option: The option that names another file.
    """
    with contextlib.suppress(OSError):
        if not os.path.lexists(path):
            return
        if path.is_file():
            with path.open("rb") as file:
                if b'<meta name="generator" content="outpace">' in file.read(1000):
                    return
    raise ConfigError(
        f"{path} exists and is not a page of Outpace, so it is not overwritten; "
        f"name another file with {option}"
    )


def usage_in_words(error: Any, given: Sequence[str]) -> str:
    """Return a message for a usage error of typer.

    given: arguments of the command, without the arguments after --.
    """
    message = error.format_message()
    if error.ctx is None:
        return f"error: {message}"
    path, name = error.ctx.command_path, getattr(error, "option_name", None)
    if name is None or not hasattr(error, "possibilities"):
        return f"error: {path}: {message}\n{path} --help lists its options"
    if error.possibilities:
        message = f"did you mean {' or '.join(sorted(error.possibilities))}?"
    elif any(argument.endswith(".py") for argument in given):
        message = f"options of the script come after --: {path} SCRIPT -- {name}"
    else:
        message = f"{path} --help lists its options"
    return f"error: {path} has no option {name}; {message}"
