"""A gateway that plays the carriers: the standard protocol with every misbehaviour that real gateways show."""

from carriers.simulator.api import CallRecord, Options
from carriers.simulator.background import RunningSimulator, running_simulator
from carriers.simulator.faults import FaultSpec
from carriers.simulator.kinds import KINDS

__all__ = ["KINDS", "CallRecord", "FaultSpec", "Options", "RunningSimulator", "running_simulator"]
