"""A server as an engine: OpenAI's /v1/completions behind a URL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from specviz.errors import EngineError, RequestError, quoted
from specviz.models.pair import ModelPair
from specviz.tools.audit.models import PROMPT

_AT_ONCE = 8
"""Calls under way, which a server can batch."""
_BATCH = 64
"""Calls that are waited for together; an audit can be stopped between batches."""
_SECONDS = 60.0


def is_url(name: str) -> bool:
    """Whether an engine's name is the address of a server."""
    return name.startswith(("http://", "https://"))


class Endpoint:
    """A server's completions. Its answers are read with the pair's tokenizer."""

    def __init__(self, address: str, pair: ModelPair, body: str) -> None:
        """`body` is a JSON object of further parameters of each call.

        Raises:
            RequestError: `body` is something else.
        """
        self._address, self._pair = address.rstrip("/"), pair
        try:
            self._more = json.loads(body)
        except ValueError:
            self._more = None
        if not isinstance(self._more, dict):
            raise RequestError(f"--body is {quoted(body)}; it must be a JSON object.")

    def draw(self, tokens: int, temperature: float, seeds: Sequence[int]) -> Iterator[list[int]]:
        """The new token ids of a sample for each seed.

        Raises:
            EngineError: the server did not answer as OpenAI's does.
        """
        client = httpx.Client(timeout=_SECONDS, trust_env=False)
        with client, ThreadPoolExecutor(_AT_ONCE) as pool:
            asked = {"max_tokens": tokens, "temperature": temperature, "top_p": 1.0, "prompt": PROMPT}
            asked["model"] = self._more.get("model") or self._answer(client, "models", "data", "id")

            def sample(seed: int) -> Any:
                sent = asked | {"seed": seed} | self._more
                return self._answer(client, "completions", "choices", "text", method="POST", json=sent)

            for start in range(0, len(seeds), _BATCH):
                for text in pool.map(sample, seeds[start : start + _BATCH]):
                    yield self._pair.tokenizer.encode(str(text), add_special_tokens=False)

    def _answer(self, client: httpx.Client, path: str, rows: str, key: str, **sent: Any) -> Any:
        """The value `key` of the first of the answer's `rows`."""
        url = f"{self._address}/{path}"
        try:
            answer = client.request(**{"method": "GET", "url": url} | sent)
            if answer.is_success:
                return answer.json()[rows][0][key]
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EngineError(f"{url} did not answer: {type(error).__name__}.") from error
        except (ValueError, LookupError, TypeError) as error:
            raise EngineError(f"{url} did not answer as OpenAI's API does, with {rows}[0].{key}.") from error
        raise EngineError(f"{url} answered with status {answer.status_code}: {answer.text[:200]!r}.")
