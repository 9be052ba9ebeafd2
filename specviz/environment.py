"""The environment variables that SpecViz reads. docs/deploy.md lists them with their meanings.

An unset or empty variable has its default. The model hub, torch and gradio read their own variables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from specviz.errors import SpecvizError, quoted

_HOST_NAME = re.compile(r"\*|[\w.:\[\]-]{1,255}", re.ASCII)
T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True)
class Variable(Generic[T, D]):
    """One variable.

    Attributes:
        right: a description of valid values, for an error message.
        read: converts the text; raises ValueError, LookupError, RuntimeError or OSError if the text is invalid.
        default: the value if the variable is unset; None if the default depends on something else.
        aliases: other names, used if `name` is unset.
    """

    name: str
    right: str
    read: Callable[[str], T]
    default: D
    aliases: tuple[str, ...] = ()

    def value(self, environment: Mapping[str, str] | None = None) -> T | D:
        """The variable's value in `environment`, by default this process's. Raises SpecvizError if it is invalid."""
        given = os.environ if environment is None else environment
        for name in (self.name, *self.aliases):
            if text := given.get(name, "").strip():
                try:
                    return self.read(text)
                except (ValueError, LookupError, RuntimeError, OSError):
                    raise SpecvizError(f"{name} is {quoted(text)}; it must be {self.right}.") from None
        return self.default


def _whole(name: str, default: D, most: int | None = None, aliases: tuple[str, ...] = ()) -> Variable[int, D]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= (most or int(text))):
            raise ValueError
        return int(text)

    right = f"a whole number {f'from 1 to {most}' if most else 'of at least 1'}"
    return Variable(name, right, read, default, aliases)


def _switch(name: str, default: D) -> Variable[bool, D]:
    words = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(
        ("0", "false", "no", "off"), False
    )
    return Variable(name, "1 (on) or 0 (off)", lambda text: words[text.lower()], default)


def _choice(name: str, known: tuple[str, ...], default: D) -> Variable[str, D]:
    words = {each.lower(): each for each in known}
    right = f"one of {', '.join(known)}" if known[1:] else f"{known[0]}, or not be set"
    return Variable(name, right, lambda text: words[text.lower()], default)


def _text(name: str, aliases: tuple[str, ...] = ()) -> Variable[str, str]:
    """A variable whose text is interpreted elsewhere."""
    return Variable(name, "text", str, "", aliases)


def _folder(text: str) -> Path:
    path = Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise ValueError
    return path


def _present_folder(text: str) -> Path:
    return _folder(text).resolve(strict=True)


def _address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError
    return text


def _host_names(text: str) -> frozenset[str]:
    names = frozenset(each.strip().lower() for each in text.split(",") if each.strip())
    if not all(map(_HOST_NAME.fullmatch, names)):
        raise ValueError
    return names


ACTIVATIONS = ("exact", "fast")
"""Precisions of the activations that fused passes multiply by quantised weights."""

HOST = _text("HOST", aliases=("GRADIO_SERVER_NAME",))
PORT = _whole("PORT", 7860, most=65535, aliases=("GRADIO_SERVER_PORT",))
HOSTS = Variable(
    "SPECVIZ_HOSTS",
    "names of hosts, separated by commas, such as specviz.example, or *",
    _host_names,
    frozenset[str](),
)
LIMITS: dict[str, Variable[int, None]] = {
    "max_prompt": _whole("SPECVIZ_MAX_PROMPT", None),
    "max_prompt_tokens": _whole("SPECVIZ_MAX_PROMPT_TOKENS", None),
    "max_new_tokens": _whole("SPECVIZ_MAX_NEW_TOKENS", None),
    "max_panes": _whole("SPECVIZ_MAX_PANES", None),
    "max_trace_bytes": _whole("SPECVIZ_MAX_TRACE_BYTES", None),
    "max_sequences": _whole("SPECVIZ_MAX_SEQUENCES", None, aliases=("SPECVIZ_ROWS",)),
    "queue": _whole("SPECVIZ_QUEUE", None),
    "per_visitor": _whole("SPECVIZ_PER_VISITOR", None),
    "per_address": _whole("SPECVIZ_PER_ADDRESS", None),
    "seconds": _whole("SPECVIZ_SECONDS", None),
    "pairs": _whole("SPECVIZ_PAIRS", None),
}
"""The variable of each field of `serving.limits.Limits`, which has the defaults."""
CLASS = _switch("SPECVIZ_CLASS", default=False)
CLASS_ADDRESS = Variable(
    "SPECVIZ_CLASS_ADDRESS", "an address such as http://192.168.1.7:7860/", _address, None
)
PAIRS_OFFERED = _text("SPECVIZ_PAIRS_OFFERED")
OWN_PAIRS = _text("SPECVIZ_OWN_PAIRS")
LESSONS = Variable("SPECVIZ_LESSONS", "a folder that exists", _present_folder, None)
CACHE = Variable("SPECVIZ_CACHE", "a folder", _folder, None)
CPU_RUNNER = _choice("SPECVIZ_CPU_RUNNER", ("torch",), None)
CPU_ACTIVATIONS = _choice("SPECVIZ_CPU_ACTIVATIONS", ACTIVATIONS, ACTIVATIONS[0])
PREPACK = _switch("SPECVIZ_PREPACK", default=True)
GRAPHS = _switch("SPECVIZ_GRAPHS", default=True)
GPU_RUNNER = _choice("SPECVIZ_GPU_RUNNER", ("torch",), None)
MCP = _switch("SPECVIZ_MCP", default=True)
OPENAI = _switch("SPECVIZ_OPENAI", default=None)
METRICS = _switch("SPECVIZ_METRICS", default=False)
LOG = _choice("SPECVIZ_LOG", ("json", "text"), None)
LOG_LEVEL = _choice("SPECVIZ_LOG_LEVEL", ("DEBUG", "INFO", "WARNING", "ERROR"), "INFO")

VARIABLES: tuple[Variable, ...] = (
    *LIMITS.values(),
    *(each for each in list(globals().values()) if isinstance(each, Variable)),
)


def on_space(environment: Mapping[str, str] | None = None) -> bool:
    """Whether this process runs on a Hugging Face Space."""
    return "SPACE_ID" in (os.environ if environment is None else environment)


def on_zero_gpu() -> bool:
    """Whether this process runs on ZeroGPU, which lends a Space a GPU for the duration of one call."""
    named = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
    return named and find_spec("spaces") is not None


def check(environment: Mapping[str, str] | None = None) -> None:
    """Raises SpecvizError if any variable has an invalid value."""
    for variable in VARIABLES:
        variable.value(environment)
