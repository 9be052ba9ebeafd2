"""Options that several commands share, most of them for the settings of a request."""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from specviz.app.settings import HELP
from specviz.errors import RequestError
from specviz.schema.settings import SETTINGS, Setting


def option(about: str, default: Any = None, metavar: str = "N", *names: str, low: int | None = None) -> Any:
    """An option. `default` is the documented meaning of None; `low` is the smallest valid number."""
    words = about if default is None else f"{about} (default: {default})"
    return typer.Option(*names, metavar=metavar, help=f"{words}.", min=low)


def output_file(about: str, *names: str) -> Any:
    """An option for an output file. Whether the file can be written is checked before the command begins."""

    def check(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
        name = parameter.opts[0]
        if path and (path.is_dir() or not path.parent.is_dir()):
            raise RequestError(f"{name} cannot be written there: name a file in a folder that exists.")
        if path and not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
            raise RequestError(f"{name} may not be written there: name a file in a folder of your own.")
        return path

    return typer.Option(*names, metavar="FILE", help=f"{about}.", callback=check)


def flag(name: str, about: str) -> Any:
    """An option without a value."""
    return typer.Option(f"--{name}", help=about)


Pair = Annotated[str, typer.Option(help="Model pair, see the command pairs.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16, float16, float64")]
Json = Annotated[Path | None, output_file("Write everything that was measured")]
Markdown = Annotated[Path | None, output_file("Write the report")]
UnsafeCode = Annotated[
    bool,
    flag("confirm-run-unsafe-code", "Let tasks of lm-evaluation-harness run code that a model wrote."),
]

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = {"forbidden_tokens": "--forbid", "echo": ""}
"""Options that are not named after their setting. "" means that the setting has no option."""
_METAVARS = {"draft_length": "K", "forbidden_tokens": "TOKEN", "rule": "RULE"}


def read_draft_length(text: str) -> int | str:
    """A draft length from the command line. Text that is not a number is returned, for `Request` to check."""
    try:
        return int(text)
    except ValueError:
        return text


def option_of(name: str) -> str:
    """The name of a setting's option, such as --top-k; "" if there is none."""
    return _OPTIONS.get(name, f"--{name.replace('_', '-')}")


def with_settings(names: Collection[str] = SETTINGS.keys()) -> Callable[[F], F]:
    """Make a decorator that gives a command with `**settings` an option for each setting in `names`, after the command's first argument."""
    chosen = [each for name, each in SETTINGS.items() if name in names and option_of(name)]

    def give(command: F) -> F:
        signature = inspect.signature(command, eval_str=True)
        first, *rest = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        parameters = [first, *map(_parameter, chosen), *rest]
        function: Any = command
        function.__signature__ = signature.replace(parameters=parameters)
        return command

    return give


def _parameter(setting: Setting) -> inspect.Parameter:
    name = setting.name
    parse = read_draft_length if name == "draft_length" else None
    given = typer.Option(option_of(name), help=HELP[name], metavar=_METAVARS.get(name), parser=parse)
    default = list(setting.default) if isinstance(setting.default, tuple) else setting.default
    annotation: Any = Annotated[str if parse else setting.kind, given]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


class ListsCommand(TyperCommand):
    """A command whose list options take several values, as in `--temperatures 0 1`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each further value."""
        lists = {name for each in self.params if getattr(each, "multiple", False) for name in each.opts}
        repeated: list[str] = []
        option = ""
        for number, word in enumerate(args):
            if word.startswith("--"):
                option = word if word in lists else ""
            elif option and args[number - 1] != option:
                repeated.append(option)
            repeated.append(word)
        return super().parse_args(ctx, repeated)


def choices(given: Mapping[str, Any], asked: type) -> dict[str, Any]:
    """The given values for the fields of the dataclass `asked`, without None and empty lists. Lists become tuples."""
    found = {each.name: given.get(each.name) for each in fields(asked)}
    found = {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()}
    return {name: value for name, value in found.items() if value not in (None, ())}


def command_line(command: str, asked: Mapping[str, Any]) -> str:
    """The command line that runs `command` with the options `asked`."""
    words = [f"python -m specviz {command}"]
    for name, value in asked.items():
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words += (shlex.quote(str(each)) for each in (value if isinstance(value, tuple) else [value]))
    return " ".join(words)
