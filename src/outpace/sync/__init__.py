"""Synchronization strategies.

For a strategy with servers, start with `policies/ssp.py`: a policy decides when a shard may
answer a pull and when it may advance. `policy.py` is the interface of policies, `shard.py` the
state machine that calls them, and `programs/` has the programs of workers and servers. For a
strategy without servers, whose workers average among themselves, start with `peers/ssgd.py`.

`strategies.py` has the lists of built-in strategies. A strategy in a user's file imports what it
needs from here.
"""

from __future__ import annotations

from outpace.support.exports import lazily

# On first use: what reads traces needs `decision` and `observer`, and not torch.
__getattr__, __all__ = lazily(__name__, __file__)
