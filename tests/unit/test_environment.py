"""The environment variables: read in one file, documented, and refused in one sentence."""

from __future__ import annotations

import re
import socket

import pytest

from specviz.app import server
from specviz.environment import CLASS, MCP, VARIABLES, Variable, check
from specviz.errors import SpecvizError


@pytest.mark.parametrize(
    "variable", [each for each in VARIABLES if each.read is not str], ids=lambda each: each.name
)
def test_a_value_that_cannot_be_read_is_one_sentence(variable: Variable) -> None:
    """It names the variable. A file is right for none of them."""
    for name in (variable.name, *variable.aliases):
        with pytest.raises(SpecvizError) as caught:
            check({name: __file__})
        assert re.fullmatch(rf"{name} is '.*\.", str(caught.value))
        check({name: ""})


def test_what_switches_take() -> None:
    for text, on in (("1", True), ("yes", True), ("TRUE", True), ("0", False), ("off", False)):
        assert CLASS.value({"SPECVIZ_CLASS": text}) is MCP.value({"SPECVIZ_MCP": text}) is on


def test_an_address_where_nothing_can_listen_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SpecvizError, match=f"PORT is {port}"):
            server._check_address("127.0.0.1", port)
    for host in ("192.0.2.1", "a..b"):
        with pytest.raises(SpecvizError, match=f"HOST is '{host}'"):
            server._check_address(host, port)
    server._check_address("127.0.0.1", port)
