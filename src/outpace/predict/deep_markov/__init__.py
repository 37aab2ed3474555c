"""The deep Markov model of run times of Teng and Wood (NeurIPS 2018), section 3.1.

The cluster has a hidden state z_t with transitions p(z_t | z_{t-1}). Given z_t, the log run times
of the workers are independent normals, p(x_t | z_t). Both distributions are small neural networks,
as in Krishnan, Shalit and Sontag (AAAI 2017). They are trained together with a guide q(z_t |
z_{t-1}, x) that reads a window of iterations with an RNN, by maximising a lower bound of the
likelihood. A prediction propagates K states, drawn from the guide at the end of the window, through
p(z | z) and p(x | z): a mixture of K products of log-normals.
"""

from outpace.predict.deep_markov.fitting import fit
from outpace.predict.deep_markov.model import DeepMarkov

__all__ = ["DeepMarkov", "fit"]
