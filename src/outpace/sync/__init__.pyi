"""The names for strategies; `__init__.py` imports each on first use."""

from outpace.blocks.narrowing import Wire as Wire
from outpace.sync.decision import ANYBODY as ANYBODY
from outpace.sync.decision import ASK_AGAIN as ASK_AGAIN
from outpace.sync.decision import Decision as Decision
from outpace.sync.decision import Reason as Reason
from outpace.sync.messages import Pull as Pull
from outpace.sync.peers.context import PeerContext as PeerContext
from outpace.sync.peers.diloco import DiLoCo as DiLoCo
from outpace.sync.peers.gossip import Gossip as Gossip
from outpace.sync.peers.hpsgd import Commit as Commit
from outpace.sync.peers.hpsgd import Hpsgd as Hpsgd
from outpace.sync.peers.iterations import iterations as iterations
from outpace.sync.peers.local_sgd import LocalSgd as LocalSgd
from outpace.sync.peers.psgd import Psgd as Psgd
from outpace.sync.peers.ssgd import Ssgd as Ssgd
from outpace.sync.peers.strategy import AllReduce as AllReduce
from outpace.sync.peers.strategy import AllReduceStrategy as AllReduceStrategy
from outpace.sync.peers.strategy import PeerStrategy as PeerStrategy
from outpace.sync.policies.asp import Asp as Asp
from outpace.sync.policies.bsp import Bsp as Bsp
from outpace.sync.policies.cutoff import CutOff as CutOff
from outpace.sync.policies.drop_stragglers import DropStragglers as DropStragglers
from outpace.sync.policies.dsps import Dsps as Dsps
from outpace.sync.policies.partial_push import PartialPush as PartialPush
from outpace.sync.policies.psp_sampling import PspSampling as PspSampling
from outpace.sync.policies.pssp import Coin as Coin
from outpace.sync.policies.pssp import Draw as Draw
from outpace.sync.policies.pssp import DynamicPssp as DynamicPssp
from outpace.sync.policies.pssp import Pssp as Pssp
from outpace.sync.policies.ssp import Ssp as Ssp
from outpace.sync.policy import Apply as Apply
from outpace.sync.policy import Buffer as Buffer
from outpace.sync.policy import Policy as Policy
from outpace.sync.policy import Scale as Scale
from outpace.sync.policy import ShardView as ShardView
from outpace.sync.policy import quorum_arrived as quorum_arrived
from outpace.sync.programs.skipping import PushView as PushView
from outpace.sync.programs.skipping import WorkerView as WorkerView
from outpace.sync.strategies import POLICIES as POLICIES
from outpace.sync.strategies import Peers as Peers
from outpace.sync.strategies import ServerPolicy as ServerPolicy

__all__: list[str]
