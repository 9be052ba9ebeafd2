"""A model pair that generates text, for use from Python. Knows pairs and the engine's interface; no step, no cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, ParamSpec

from specviz.engine.engine import Engine
from specviz.models import loading, pair
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.schema.trace import Run

A = ParamSpec("A")


class Pair(ModelPair):
    """A `ModelPair` with `generate`."""

    def generate(self, prompt: str | list[Any], **options: Any) -> Run | list[Run]:
        """Generate text for one prompt, or for several as one batch.

        Args:
            prompt: a string or a list of chat messages (dicts) gives one run; a list of such prompts gives a list of
                runs in the same order.
            options: the fields of a `Request`: method, lenience, seed, max_new_tokens, …

        Raises:
            RequestError: an option out of range, or a prompt that cannot be served.
            EngineError: a run failed.
        """

        def request(one: str | list[dict[str, str]]) -> Request:
            return Request(**({"prompt": one} if isinstance(one, str) else {"messages": one}), **options)

        if isinstance(prompt, str) or (prompt and isinstance(prompt[0], dict)):
            return Engine(self).generate([request(prompt)])[0]
        return Engine(self).generate([request(one) for one in prompt])


def _generating(make: Callable[A, ModelPair]) -> Callable[A, Pair]:
    """`make`, but returning a `Pair`."""

    @wraps(make)
    def made(*given: A.args, **more: A.kwargs) -> Pair:
        found = make(*given, **more)
        return Pair(**{field.name: getattr(found, field.name) for field in fields(found)})

    return made


load_pair = _generating(loading.load_pair)
pair_from_models = _generating(pair.pair_from_models)
