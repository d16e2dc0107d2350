"""The flow as data: what is connected to what. Nothing in this room runs anything."""

from penstock.flow.flow import Flow
from penstock.flow.keyed import KeyedStream, WindowedStream
from penstock.flow.stream import Stream

__all__ = ["Flow", "KeyedStream", "Stream", "WindowedStream"]
