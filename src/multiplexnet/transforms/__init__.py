"""Torch from here on: maps from all of R^n into the parts of a term, with inverse and log-determinant.

::

    base        the contract
    separable   boxes                                     softplus, sigmoid, the paper's own interval
    gauge       polyhedra                                 x = c + q tanh(G)/G
    lattice     equalities                                the gauge on a grid
    parametric  bounds known at run time                  the gauge around c(u), the paper's x₂ = h(x₁) + softplus
    term_maps   all terms of a block in one map           TermMaps
    as_torch    one term as torch's own Transform         TermTransform
"""

from multiplexnet.transforms.as_torch import TermTransform
from multiplexnet.transforms.base import DTYPES, Transform
from multiplexnet.transforms.gauge import Gauge
from multiplexnet.transforms.lattice import LatticeGauge
from multiplexnet.transforms.run_time.intervals import Intervals
from multiplexnet.transforms.run_time.parametric import ParametricGauge
from multiplexnet.transforms.separable import PaperSeparable, Separable
from multiplexnet.transforms.term_maps import TermMaps

__all__ = [
    "DTYPES",
    "Gauge",
    "Intervals",
    "LatticeGauge",
    "PaperSeparable",
    "ParametricGauge",
    "Separable",
    "TermMaps",
    "TermTransform",
    "Transform",
]
