"""For users' tests: the contract suite of brokers, faults to inject, and a client of streams.

Nothing here needs a test framework: checks raise `AssertionError`.
"""

from tidegate.testing.broker import check_broker
from tidegate.testing.clocks import ManualClock
from tidegate.testing.faults import BrokerFaults
from tidegate.testing.faulty_store import Appended, FaultyBroker, FaultyStore, StoreFaults
from tidegate.testing.relay import BadRelay
from tidegate.testing.report import CheckFailed, CheckReport, Failure
from tidegate.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated
from tidegate.testing.sinks import FaultySink, MessageFaults, RecordingSink
from tidegate.testing.sse_client import SseClient, SseEvent, SseStream
from tidegate.testing.watch import At, Resync, StreamWatch

__all__ = [
    "Appended",
    "At",
    "BadRelay",
    "BrokerFaults",
    "CheckFailed",
    "CheckReport",
    "Failure",
    "FaultyBroker",
    "FaultySink",
    "FaultyStore",
    "ManualClock",
    "MessageFaults",
    "RecordingSink",
    "Resync",
    "SimulatedClock",
    "SimulatedLoop",
    "SseClient",
    "SseEvent",
    "SseStream",
    "StoreFaults",
    "StreamWatch",
    "check_broker",
    "run_simulated",
]
