"""Everything that can be planted, by the id of the finding that must fire."""

from collections.abc import Mapping
from types import MappingProxyType

from tests.simulator.faults import claims, data, log, loss, plan, speed
from tests.simulator.faults.fault import Fault

FAULTS: Mapping[str, Fault] = MappingProxyType(
    {**claims.FAULTS, **speed.FAULTS, **loss.FAULTS, **data.FAULTS, **plan.FAULTS, **log.FAULTS}
)

__all__ = ["FAULTS", "Fault"]
