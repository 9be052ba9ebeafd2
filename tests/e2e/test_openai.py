"""OpenAI's own client against the server, on the embedded pair: it gets what `generate` gives, in OpenAI's form."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import openai
import pytest
from gradio_client import Client

QUESTION = "Why is the sky blue?"
CHAT: dict[str, Any] = {"model": "embedded", "messages": [{"role": "user", "content": QUESTION}]}
TEXT: dict[str, Any] = {"model": "embedded", "prompt": "The sky is blue because"}
USED = {"seed": 3, "max_tokens": 24}


@pytest.fixture(scope="module")
def client(address: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=300)


def test_the_pairs_are_the_models(client: openai.OpenAI) -> None:
    assert "embedded" in [model.id for model in client.models.list()]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("secret")


def test_a_chat_is_what_generate_gives(client: openai.OpenAI, address: str) -> None:
    """The same settings give the same text at every door, each time."""
    own = {"method": "speed", "lenience": 0.5, "top_k": 40}
    first, again = (client.chat.completions.create(**CHAT, **USED, extra_body=own) for _ in range(2))
    other = Client(address, verbose=False).predict(
        QUESTION, **own, seed=3, max_new_tokens=24, api_name="/generate"
    )
    assert first.choices[0].message.content == again.choices[0].message.content == other["text"]
    assert first.usage.completion_tokens == other["tokens"]
    assert first.choices[0].finish_reason == ("stop" if other["stop_reason"] == "eos" else "length")


@pytest.mark.parametrize("stop", [None, ["\n", " the", "blu"]])
def test_a_stream_is_the_whole_answer(client: openai.OpenAI, stop: Any) -> None:
    """Its chunks join to the text, the log probabilities and the decisions; the usage comes last."""
    asked = CHAT | USED | {"logprobs": True, "top_logprobs": 2, "extra_body": {"specviz": True}, "stop": stop}
    answer = client.chat.completions.create(**asked)
    [whole] = answer.choices
    usage = {"include_usage": True}
    *chunks, last = client.chat.completions.create(**asked, stream=True, stream_options=usage)
    choices = [chunk.choices[0] for chunk in chunks]
    assert "".join(choice.delta.content or "" for choice in choices) == whole.message.content
    assert [each.finish_reason for each in choices if each.finish_reason] == [whole.finish_reason]
    probabilities = [each for choice in choices if choice.logprobs for each in choice.logprobs.content]
    assert probabilities == whole.logprobs.content
    explained = [(chunk.model_extra or {}).get("specviz", {}).get("tokens", []) for chunk in chunks]
    assert [*chain(*explained)] == answer.specviz["tokens"]
    assert (last.choices, last.usage) == ([], answer.usage)


def test_probabilities_are_those_of_the_decision(client: openai.OpenAI) -> None:
    """Of a lossless method they are the verifier's. The drafter has the last word where its token was accepted."""
    own = {"method": "speed", "lenience": 0, "specviz": True}
    answer = client.completions.create(**TEXT, **USED, logprobs=5, temperature=1, extra_body=own)
    [choice], tokens = answer.choices, answer.specviz["tokens"]
    told = choice.logprobs
    assert "".join(told.tokens) == choice.text
    offsets = zip(told.text_offset, told.tokens, strict=True)
    assert all(choice.text.startswith(token, at) for at, token in offsets)
    columns = (told.tokens, told.token_logprobs, told.top_logprobs, tokens)
    for token, logprob, top, decided in zip(*columns, strict=False):
        assert math.isclose(math.exp(logprob), decided["p"], rel_tol=1e-6)
        assert top[token] == logprob <= max(top.values())
        assert (decided["last_word"] == "drafter") == (decided["coin"] < decided["acceptance"])
    assert {each["last_word"] for each in tokens} == {"drafter", "verifier"}


def test_token_ids_are_a_prompt(client: openai.OpenAI, engine: Any) -> None:
    ids = engine.pair.tokenizer(TEXT["prompt"])["input_ids"]
    texts = {
        client.completions.create(**{**TEXT, "prompt": prompt}, **USED).choices[0].text
        for prompt in (TEXT["prompt"], [TEXT["prompt"]], ids, [ids])
    }
    assert len(texts) == 1
