"""What runs inside a node: the driver-loop base class and the built-in operators, pure and the same on every engine."""

from penstock.operators.base import Operator

__all__ = ["Operator"]
