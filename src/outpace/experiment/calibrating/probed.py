"""The network of runs by their probes, in which each message travels alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outpace.cluster.calibration.network import NetworkFit, fit_network, tells_links
from outpace.cluster.calibration.transits import Transits
from outpace.errors import ConfigError
from outpace.experiment.calibrating.runs import RunData


def fit_probes(
    runs: Sequence[RunData],
    shared: Mapping[str, Sequence[str]],
    notes: list[str],
    caveats: list[str],
    *,
    alike: bool,
) -> NetworkFit | None:
    """Return the network; None if the runs have none.

    Args:
        shared: The nodes of machines with several, by the names of these machines.
        notes: Gets a sentence if the two directions differ.
        caveats: Gets a sentence if the probes do not tell the links between machines.
        alike: True to give no node a link of its own.

    Raises:
        ConfigError: all messages of the probes are of about one size.
    """
    measured = [run.measured for run in runs if run.measured is not None]
    if not measured:
        return None
    joined = Transits.joined([each.transits for each in measured])
    if shared and not tells_links(joined, shared):
        caveats.append(
            "no probes of two sizes went between machines, as there was no time for them: "
            "latency and bandwidth between machines are not known. network.machines is left out, "
            "and all links are taken to be like those within a machine, as fast as the messages of "
            "the training were on average"
        )
        shared = {}
    try:
        fit = fit_network(joined, shared, alike=alike)
    except ValueError as error:
        raise ConfigError(
            f"{runs[0].folder}: its network cannot be calibrated: {error}, so latency and "
            "bandwidth cannot be told apart"
        ) from error
    there, back = (line.bandwidth for line in (fit.to_server, fit.to_worker))
    if there and back and max(there, back) > 1.5 * min(there, back):
        notes.append(
            f"bandwidth to servers is {there / 1e6:.4g} MB/s and to workers {back / 1e6:.4g} MB/s; "
            "the file has one value for both directions"
        )
    return fit
