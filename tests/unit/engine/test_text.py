"""A run's text is what `tokenizer.decode` makes of its new tokens, wherever it ends and whatever the tokenizer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from specviz.engine.engine import Engine
from specviz.engine.events import Decided
from specviz.engine.pair import Pair
from specviz.errors import PairError, RequestError
from specviz.models.pair import make_pair
from specviz.schema.settings import Request
from specviz.schema.trace import Run, parse_trace
from tests.support.tiny import tiny_pair


def byte_fallback_tokenizer(size: int) -> Any:
    """One of Llama 2's kind: words begin with ▁, a first space is stripped, and what is no word comes in bytes."""
    pieces = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcdefghijklmnopqrstuvwxyz"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    vocabulary |= {f"▁{letter}": len(vocabulary) + at for at, letter in enumerate("abcdefghijklmnop")}
    vocabulary = {piece: number for piece, number in vocabulary.items() if number < size}
    made = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", unk_token="<unk>")


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return replace(tiny_pair("llama", tmp_path_factory.mktemp("pair"), chat=True), eos_token_ids=frozenset())


@pytest.fixture(scope="module", params=["byte_level", "byte_fallback"])
def pair(request: pytest.FixtureRequest, byte_level: Pair) -> Pair:
    if request.param == "byte_level":
        return byte_level
    tokenizer = byte_fallback_tokenizer(byte_level.vocabulary_size)
    return replace(byte_level, tokenizer=tokenizer, vocabulary_size=len(tokenizer), is_chat=False)


def decoded(pair: Pair, run: Run) -> str:
    return str(pair.tokenizer.decode(run.token_ids, skip_special_tokens=True))


def runs(pair: Pair, count: int = 8, **settings: Any) -> list[Run]:
    settings = {"prompt": "the fox", "raw": True, "max_new_tokens": 30, "temperature": 1.0} | settings
    return Engine(pair).generate([Request(seed=seed, **settings) for seed in range(count)])


def test_the_text_is_the_new_tokens_decoded(pair: Pair) -> None:
    found = runs(pair, method="speed")
    assert [run.text for run in found] == [decoded(pair, run) for run in found]
    for run in found:
        assert "".join(token.text for token in run.tokens) == run.text
        assert parse_trace(run.lines()).text == run.text
    assert any(run.text.endswith("\ufffd") for run in found)
    assert [run.text for run in runs(pair, echo=True)] == [f"the fox{run.text}" for run in runs(pair)]


@pytest.mark.parametrize("prompt", ["caf\ufffd", "a named r\ufffdsum\ufffd"])
def test_nothing_of_the_prompt_is_in_the_text(pair: Pair, prompt: str) -> None:
    """Not where it ends in U+FFFD, nor where its ids end within a character."""
    found = runs(pair, 4, prompt=prompt)
    ids = pair.tokenizer("We had fun 🤹")["input_ids"][:-1]
    found += runs(pair, 4, prompt=None, token_ids=ids)
    assert [run.text for run in found] == [decoded(pair, run) for run in found]


def test_at_a_text_s_own_end_nothing_is_left_waiting(pair: Pair) -> None:
    """Law 6: a text that ends within a character has U+FFFD at its end, in its last token's text."""
    run = next(run for run in runs(pair) if "" in [token.text for token in run.tokens][:-1])
    at = [token.text for token in run.tokens].index("")
    ending = replace(pair, eos_token_ids=frozenset({run.token_ids[at + 1]}) - set(run.token_ids[: at + 1]))
    asked = Request(prompt="the fox", raw=True, max_new_tokens=30, temperature=1.0, seed=run.seed)
    [ended] = Engine(ending).generate(asked)
    assert ended.text == decoded(pair, ended)
    [short] = Engine(pair).generate(replace(asked, max_new_tokens=at + 1))
    assert (short.stop_reason, short.text) == ("length", decoded(pair, short))


def test_a_run_that_is_cut_tells_what_was_waiting_in_its_tail(pair: Pair, tmp_path: Path) -> None:
    tails = []
    for seed in range(8):
        stream = Engine(pair).stream(
            Request(prompt="the fox", raw=True, seed=seed, temperature=1.0, draft_length=1, max_new_tokens=30)
        )
        for event in stream:
            if isinstance(event, Decided) and len(event.run.tokens) >= 4:
                stream.abort()
        run = event.run
        assert (run.stop_reason, run.text) == ("cancelled", decoded(pair, run))
        assert "".join(token.text for token in run.tokens) + run.tail == run.text
        run.save(tmp_path / "run.jsonl")
        assert Run.load(tmp_path / "run.jsonl").text == run.text
        assert ('"tail"' in list(run.lines())[-1]) == bool(run.tail)
        tails.append(run.tail)
    assert any(tails)
    assert not all(tails)


def test_a_fork_goes_on_where_its_run_ended_within_a_character(pair: Pair) -> None:
    """What was unfinished is finished by the fork: its text is that of one whole run."""
    for whole in runs(pair, 3):
        request = Request(
            prompt="the fox", raw=True, temperature=1.0, seed=whole.seed, max_new_tokens=12, draft_length=2
        )
        [short] = Engine(pair).generate(request)
        [fork] = Engine(pair).generate(short.fork(12, max_new_tokens=18))
        assert fork.text == whole.text
        [chosen] = Engine(pair).generate(whole.fork(9, chosen=whole.token_ids[9]))
        assert chosen.text == whole.text


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{{ raise_exception('System role not supported.') }}", "conversation: System role not supported.$"),
        ("{{ messages[0]['content'] + 1 }}", "does not take this conversation: .*str"),
        ("{{ messages[0].of.nothing }}", "does not take this conversation: .*undefined|has no attribute"),
    ],
)
def test_a_template_s_refusal_is_told_in_its_own_words(
    byte_level: Pair, monkeypatch: pytest.MonkeyPatch, template: str, sentence: str
) -> None:
    monkeypatch.setattr(byte_level.tokenizer, "chat_template", template)
    with pytest.raises(RequestError, match=sentence):
        byte_level.generate([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])


def test_a_tokenizer_written_in_python_makes_no_pair(byte_level: Pair) -> None:
    class Written:
        """Has ids and no backend."""

    with pytest.raises(PairError, match="the verifier, Written, is written in Python"):
        make_pair(
            byte_level.drafter_model,
            byte_level.verifier_model,
            Written(),  # type: ignore[arg-type]
            key="own",
            title="",
            drafter_name="the drafter",
            verifier_name="the verifier",
        )
