"""Settings of the network: pairs, patterns, and refused contradictions."""

import pytest
from tests.support.wire import Wire

from outpace.cluster.network import LinkLaw, NetworkLaw, PairLaw
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.support.units import SECOND

MB = 1_000_000
MS = SECOND // 1000
BASE = {
    "task": {"kind": "timing", "parameters": 500_000},  # 1 MB for each of two servers
    "workers": 2,
    "servers": 2,
    "compute": {"kind": "constant", "mean_s": 1.0},
    "sync": {"kind": "bsp"},
    "stop": {"iterations": 2},
}


def refusal(network, **changes):
    with pytest.raises(ConfigError) as error:
        experiment_from({**BASE, **changes, "network": network}, "x")
    return str(error.value).replace("x: ", "")


# -- pairs and patterns ------------------------------------------------------------------


def test_a_pair_has_its_latency_in_both_directions_and_its_bandwidth_as_one_more_limit():
    law = NetworkLaw(
        latency_s=0.005,
        bandwidth_bytes_per_s=1e9,
        nodes={"thin": LinkLaw(bandwidth_bytes_per_s=2e8)},
        pairs=(
            PairLaw(("a", "b"), latency_s=0.001, bandwidth_bytes_per_s=5e8),
            PairLaw(("thin", "a"), bandwidth_bytes_per_s=1e12),
        ),
    )
    expected = {("a", "b"): 3, ("b", "a"): 3, ("b", "c"): 6, ("a", "thin"): 10, ("c", "a"): 6}
    for (sender, receiver), milliseconds in expected.items():
        wire = Wire(law, ["a", "b", "c", "thin"])
        wire.send_at(0, sender, receiver, MB)
        assert wire.run().delivered == {0: milliseconds * MS}, (sender, receiver)


def test_what_names_no_node_is_refused_with_the_nearest():
    network = {
        "nodes": {"server-9*": {}, "sever-1": {}},
        "pairs": [{"between": ["worker-0", "servr-1"]}],
        "delays": [{"message": "push", "probability": 0.1, "seconds": 1, "nodes": ["worker-[7]"]}],
    }
    lines = refusal(network).split("\n")
    assert [line.split("Did you")[0].split("Known")[0].strip() for line in lines] == [
        "network.nodes: no node matches 'server-9*'.",
        "network.nodes: no node 'sever-1'.",
        "network.pairs.between: no node 'servr-1'.",
        "network.delays.nodes: no node matches 'worker-[7]'.",
    ]
    assert "Did you mean 'server-1'?" in lines[2]
