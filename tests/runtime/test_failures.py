"""The words for what users' code raises, and what they say about its cause."""

import pytest

import penstock as ps
from penstock.errors import SinkError
from penstock.flow.nodes import Applies, Node, Writes
from penstock.operators.functions import Form
from penstock.runtime.failures import survived
from penstock.runtime.inlets import Outlet


def test_what_a_function_raises_is_the_cause_of_what_its_user_sees():
    node, original = Node("op", Applies(Form.MAP, abs), (), (), 1, "fail", "here"), ZeroDivisionError("by zero")
    with pytest.raises(ps.OperatorError, match="'op' of flow 'test'.*failed on 3") as raised:
        survived("test", node, 3, original)
    assert raised.value.__cause__ is original


def test_an_error_in_our_own_words_keeps_its_cause():
    """It must not become its own: what is behind it would never be told."""
    node, system = Node("out", Writes(Outlet()), (), (), 0, "fail", "here"), OSError("no space left")
    error = SinkError("can't write")
    error.__cause__ = system
    with pytest.raises(SinkError) as raised:
        survived("test", node, 3, error)
    assert raised.value is error
    assert raised.value.__cause__ is system
