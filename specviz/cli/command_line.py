"""Between what was typed and a plan: the choices by a plan's own names, and what to type to ask for them again.

Knows no plan and no command.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields
from typing import Any


def choices(options: argparse.Namespace, plan: type) -> dict[str, Any]:
    """What was said of the fields of a plan, a dataclass; several values of one as a tuple."""
    said = {each.name: getattr(options, each.name) for each in fields(plan)}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in said.items() if v is not None}


def command_line(command: str, asked: Mapping[str, Any]) -> str:
    """What to type to ask `command` for the same again."""
    words = [f"python -m specviz {command}"]
    for name, value in asked.items():
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words += map(str, value if isinstance(value, tuple) else [value])
    return " ".join(words)
