"""Keys of a configuration with a slow link or server, and without.

Those of a simulated run say what makes it slow. Those of a real run come from its calibration, in
which all servers are alike: there what the slow one needs longer is added first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from outpace.config.experiment import SERVICE_TIMES
from outpace.report.explaining.explained import Examined
from outpace.report.explaining.explanation import Cause
from outpace.report.explaining.messages import requests_of


class Repair(NamedTuple):
    """Two configurations to simulate.

    Args:
        slow: With the slow link or server.
        repaired: Without.
    """

    slow: dict[str, Any]
    repaired: dict[str, Any]


_LAWS: Final = ("mean_s", "shift_s")


def repair_of(found: Examined, data: dict[str, Any], cause: Cause) -> Repair | None:
    """Return the run with and without a slow link or server; None if nothing says how it is slow.

    Args:
        data: Configuration of the run as it is simulated.
    """
    if cause.kind == "server" or cause.worker is None:
        if cause.pattern == "once":
            return None  # no law of the configuration stops a server
        if found.tables.is_real:
            return _of_real_server(found, data, cause)
        repaired = _without_factors(data, cause) if cause.kind == "server" else None
        if repaired is not None:
            return Repair(data, repaired)
    network = _without_link(data.get("network"), cause)
    return None if network is None else Repair(data, {**data, "network": network})


def _without_factors(data: Mapping[str, Any], cause: Cause) -> dict[str, Any] | None:
    """Return the configuration with the server as fast as the median of the others."""
    found, server = dict(data), cause.server
    if server is None:
        return None
    changed = False
    for key in SERVICE_TIMES:
        law = data.get(key)
        if isinstance(law, Mapping) and law.get("factors"):
            factors = list(law["factors"])
            others = factors[:server] + factors[server + 1 :]
            factors[server] = float(np.median(others)) if others else 1.0
            found[key], changed = {**law, "factors": factors}, True
    return found if changed else None


def _of_real_server(found: Examined, data: dict[str, Any], cause: Cause) -> Repair | None:
    """Return the calibrated run with what the server needs longer, and without."""
    requests, server = requests_of(found.tables), cause.server
    servers = found.tables.servers
    if requests is None or server is None or servers < 2:
        return None
    others = [other for other in range(servers) if other != server]
    slow, usual = dict(data), dict(data)
    for keys, times in (
        (("push_time", "update_time"), requests.handling),
        (("pull_time",), requests.answering),
    ):
        each = [_usual(times[other]) for other in range(servers)]
        ratio = each[server] / max(float(np.median([each[other] for other in others])), 1e-9)
        for key in keys:
            law = data.get(key)
            if not isinstance(law, Mapping) or not ratio > 1:
                continue
            # The law is that of all servers together.
            scale = servers / (servers - 1 + ratio)
            law = {**law, **{name: law[name] * scale for name in _LAWS if name in law}}
            usual[key] = law
            slow[key] = {
                **law,
                "factors": [ratio if other == server else 1.0 for other in range(servers)],
            }
    network = dict(data.get("network") or {})
    repaired = _without_link(network, cause)
    if repaired is None:
        ways = [_usual(requests.under_way[other]) for other in range(servers)]
        longer_s = max(ways[server] - float(np.median([ways[other] for other in others])), 0.0)
        latency_s = float(network.get("latency_s", 0.0)) + longer_s / 2
        name = f"server-{server}"
        nodes = {**(network.get("nodes") or {}), name: {"latency_s": latency_s}}
        slow["network"] = {**network, "nodes": nodes}
    else:
        usual["network"] = repaired
    return Repair(slow, usual)


def _usual(times: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Return the mean of the times below the 95 % quantile: stops are left out."""
    known = times[~np.isnan(times)]
    return float(known[known <= np.quantile(known, 0.95)].mean()) if len(known) else 0.0


def _without_link(network: Any, cause: Cause) -> dict[str, Any] | None:
    """Return the network without what makes a link slower; None if it says nothing about it."""
    if not isinstance(network, Mapping):
        return None
    worker, server = f"worker-{cause.worker}", f"server-{cause.server}"
    ends = {
        end
        for end, number in ((worker, cause.worker), (server, cause.server))
        if number is not None
    }
    nodes = dict(network.get("nodes") or {})
    pairs, delays = list(network.get("pairs") or ()), list(network.get("delays") or ())
    if cause.worker is None or cause.server is None:
        left = {name: law for name, law in nodes.items() if name not in ends}
    else:
        left = nodes
    kept = [pair for pair in pairs if not ends <= set(pair.get("between", ()))]
    others = [rule for rule in delays if set(rule.get("nodes") or "*") != ends]
    if (len(left), len(kept), len(others)) == (len(nodes), len(pairs), len(delays)):
        return None
    return {**network, "nodes": left, "pairs": kept, "delays": others}
