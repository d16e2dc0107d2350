"""`ps.controllers`: the controllers that `ps.Elastic` knows by name, for other thresholds than the usual ones.

>>> import penstock as ps
>>> elastic = ps.Elastic(threads=ps.controllers.Utilisation(low=0.7, high=0.9), replicas="fixed", period=1.0)
"""

from penstock.elasticity.bottleneck import Bottleneck
from penstock.elasticity.demand import Demand
from penstock.elasticity.helping import Helping
from penstock.elasticity.predictive import Predictive
from penstock.elasticity.threads import Figure7, Trend, Utilisation

__all__ = ["Bottleneck", "Demand", "Figure7", "Helping", "Predictive", "Trend", "Utilisation"]
