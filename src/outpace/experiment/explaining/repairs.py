"""Keys of a configuration with a slow link or server, and without.

Those of a simulated run say what makes it slow. Those of a real run come from its calibration, in
which all servers are alike: there what the slow one needs longer is added first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from outpace.config.keys import SERVICE_TIMES
from outpace.experiment.calibrating import calibrate
from outpace.experiment.explaining.model import cluster_of
from outpace.report.explaining.charging import Floats
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
    """Return a real run with servers that are alike, and with what one of them needs longer.

    The laws are those of the other servers. Their service times are taken as constant.
    """
    requests, server = requests_of(found.tables), cause.server
    servers = found.tables.servers
    if requests is None or server is None or servers < 2:
        return None
    usual = {key: value for key, value in data.items() if key not in (*SERVICE_TIMES, "network")}
    usual |= cluster_of(calibrate([found.tables.folder], without_server=server))
    slow = dict(usual)
    for key, times in (("push_time", requests.handling), ("pull_time", requests.answering)):
        law = usual.get(key)
        if not isinstance(law, Mapping):
            continue
        mean_s = float(law["mean_s"]) + float(law.get("shift_s", 0.0))
        factors = [1.0] * servers
        factors[server] = 1 + _longer(times, server) / mean_s
        usual[key] = {"kind": "constant", "mean_s": mean_s}
        slow[key] = {**usual[key], "factors": factors}
    network = dict(usual.get("network") or {})
    repaired = _without_link(network, cause)
    if repaired is not None:
        usual["network"] = repaired
    elif cause.kind == "link":
        latency_s = float(network.get("latency_s", 0.0)) + _longer(requests.under_way, server) / 2
        machine = sorted(_together(network, {f"server-{server}"}))
        late = {name: {"latency_s": latency_s} for name in machine}
        nodes = {**(network.get("nodes") or {}), **late}
        slow["network"] = {**network, "nodes": nodes}
    return Repair(slow, usual)


def _longer(times: Floats, server: int) -> float:
    """Return what requests to a server take longer than to the others, shape (M, T, N), in s."""
    each = [_usual(one) for one in times]
    others = each[:server] + each[server + 1 :]
    return max(each[server] - float(np.median(others)), 0.0)


def _usual(times: Floats) -> float:
    """Return the mean of the times up to the 95 % quantile, so that stops do not count."""
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
        machine = _together(network, ends)
        left = {name: law for name, law in nodes.items() if name not in machine}
    else:
        left = nodes
    kept = [pair for pair in pairs if not ends <= set(pair.get("between", ()))]
    others = [rule for rule in delays if set(rule.get("nodes") or "*") != ends]
    if (len(left), len(kept), len(others)) == (len(nodes), len(pairs), len(delays)):
        return None
    return {**network, "nodes": left, "pairs": kept, "delays": others}


def _together(network: Mapping[str, Any], names: Iterable[str]) -> set[str]:
    """Return these nodes and all on their machines: what is said of one applies to the others."""
    found = set(names)
    for nodes in (network.get("machines") or {}).values():
        if not found.isdisjoint(nodes):
            found |= set(nodes)
    return found
