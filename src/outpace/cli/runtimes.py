"""outpace runtimes convert | show | fit | replay: recorded run times and models of them."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli.base import app, echo, print_rows, progress_bars, require_page
from outpace.errors import ConfigError

if TYPE_CHECKING:
    from outpace.record.run_times import Source

runtimes = typer.Typer(
    help="Run times of workers: convert and show recordings, fit models to them.",
    no_args_is_help=True,
)
app.add_typer(runtimes, name="runtimes")

_HELP = "The folder of a run, .parquet or .csv."
_Source = Annotated[Path, typer.Argument(metavar="SOURCE", help=_HELP)]
_Of = Annotated[
    str | None,
    typer.Option(
        "--of",
        metavar="server|compute",
        help="Which times of a run's folder: until a server has the gradient, or computing. "
        "Default: server, if the workers begin iterations together.",
    ),
]
_PerNode = Annotated[
    int | None,
    typer.Option("--workers-per-node", help="Number of consecutive workers that share a node."),
]
_Seed = Annotated[
    int,
    typer.Option("--seed", min=0, max=2**63 - 1, help="The same seed gives the same result."),
]


@runtimes.command()
def convert(
    source: _Source,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .parquet.")],
    of: _Of = None,
    workers_per_node: _PerNode = None,
) -> None:
    """Write run times as Parquet: worker, node, iteration, seconds, censored."""
    from outpace.predict.recorded import write

    if out.suffix != ".parquet":
        raise ConfigError(f"--out {out}: run times are written as .parquet; name such a file")
    found = _read(source, of, workers_per_node)
    write(found.times, out)
    echo(
        f"{out}: {found.times.workers:,} workers, {found.times.iterations:,} iterations; "
        f"times: {found.definition}"
    )


@runtimes.command()
def show(
    source: _Source,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The page to write, new or not. Default: runtimes.html in the current "
            "folder; a file that is not a page of Outpace is kept.",
        ),
    ] = None,
    of: _Of = None,
    workers_per_node: _PerNode = None,
) -> None:
    """Show how long workers took, and what waiting for fewer workers would gain."""
    from outpace.report.run_times import facts_of, write_run_times
    from outpace.report.words import SPACE

    if out is None:
        out = Path("runtimes.html")
        require_page(out)
    found = _read(source, of, workers_per_node)
    facts = facts_of(found.times)
    write_run_times(facts, source.resolve().name, found.definition, out)
    numbers = facts.numbers()
    width = max(map(len, numbers))
    for name, value in {"Run time": found.definition, **numbers}.items():
        echo(f"{name.ljust(width)}  {value.replace(SPACE, ' ')}")
    echo(f"page: {out}")


@runtimes.command()
def fit(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE", help=_HELP)],
    model: Annotated[str, typer.Option("--model", help="pooled or deep-markov.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .safetensors.")],
    seed: _Seed = 0,
    of: _Of = None,
    workers_per_node: _PerNode = None,
) -> None:
    """Fit a run-time model to one or several recordings of a cluster."""
    from outpace.predict.models import fit as fit_model
    from outpace.predict.models import require_kind, save

    if out.suffix != ".safetensors":
        raise ConfigError(f"--out {out}: models are written as .safetensors; name such a file")
    if not out.parent.is_dir():  # a fit takes up to a minute
        raise ConfigError(f"--out {out}: there is no folder {out.parent}")
    require_kind(model)
    found = [_read(source, of, workers_per_node) for source in sources]
    if len({source.definition for source in found}) > 1:
        said = "; ".join(f"{source.path}: {source.definition}" for source in found)
        raise ConfigError(
            f"the sources have different kinds of times, choose one with --of: {said}"
        )
    began = time.perf_counter()
    times = [source.times for source in found]
    try:
        with progress_bars() as bar:
            fitted = fit_model(model, times, seed=seed, progress=bar(model))
    except ConfigError as error:  # the message refers to recordings by number
        raise ConfigError(f"{', '.join(map(str, sources))}: {error}") from error
    took = time.perf_counter() - began
    save(fitted, out)
    iterations = sum(source.times.iterations for source in found)
    echo(
        f"{out}: {model}, fitted to {iterations:,} iterations in {took:.1f} s; "
        f"times: {found[0].definition}"
    )


@runtimes.command()
def replay(
    source: _Source,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            help="A fitted model. Default: a pooled model, fitted to the first 20 iterations.",
        ),
    ] = None,
    seed: _Seed = 0,
    of: _Of = None,
    workers_per_node: _PerNode = None,
) -> None:
    """Compare what cut-off rules would have gained over a recording."""
    from outpace.predict.models import load
    from outpace.predict.rules.settings import WARM_UP
    from outpace.predict.trials import trials

    found = _read(source, of, workers_per_node)
    fitted = None if file is None else load(file)
    rows = [["", "% of oracle", "gradients/s", "times BSP", "mean count", "ms"]]
    with progress_bars() as bar:
        for name, done in trials(found.times, fitted, seed=seed, progress=bar("rules")):
            faster = f"{1 / (1 - done.time_saved):.2f}"
            count, ms = f"{done.count.mean():.1f}", f"{1e3 * median(done.rule_s):.1f}"
            rate = f"{done.gradients_per_s:.4g}"
            rows.append([name, f"{done.of_oracle:.2f}", rate, faster, count, ms])
    print_rows(rows)
    echo(
        f"{found.times.workers:,} workers, {found.times.iterations - WARM_UP:,} iterations after "
        f"{WARM_UP} that wait for all workers; times: {found.definition}"
    )
    echo("oracle: a rule that knows all run times. ms: the rule's time per iteration, here.")


def _read(source: Path, of: str | None, workers_per_node: int | None) -> Source:
    from outpace.record.run_times import read_source

    return read_source(source, of, workers_per_node)
