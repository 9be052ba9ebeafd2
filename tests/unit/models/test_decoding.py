"""Text from tokens: whatever the ids and the tokenizer's pipeline, what was told joins to what `tokenizer.decode` gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specviz.models.decoding import Detokenizer, TokenLabels

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = [
    *("a", "b", "aab", "▁", "▁a", "▁▁", "a▁b", "##a", "##", "a</w>", "</w>", "<0x+F>", "<0xZZ>", "", " ", " a", "é", "日", "\ufffd"),
    *("'", "'s", "s", "n't", "n", "t", ".", ",", "!", "m", "ve", " '", " n"),
]  # fmt: skip
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())

DECODERS: dict[str, Callable[[], Any]] = {
    "byte_level": decoders.ByteLevel,
    "llama_2": lambda: decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    ),
    "metaspace_first": lambda: decoders.Metaspace("▁", "first"),
    "metaspace_always": lambda: decoders.Metaspace("▁", "always"),
    "metaspace_never": lambda: decoders.Metaspace("▁", "never"),
    "metaspace_bytes": lambda: decoders.Sequence(
        [decoders.Metaspace("▁", "always"), decoders.ByteFallback(), decoders.Fuse()]
    ),
    "word_piece": lambda: decoders.WordPiece("##", True),
    "bpe": lambda: decoders.BPEDecoder("</w>"),
    "none": lambda: None,
    "nothing_in_it": lambda: decoders.Sequence([]),
    "replaced_after_all_is_one": lambda: decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("aab", "b▁"), decoders.Strip(" ", 3, 0)]
    ),
    "regex": lambda: decoders.Sequence(
        [decoders.Replace(Regex("a+"), "b"), decoders.Strip("b", 1, 0), decoders.ByteFallback()]
    ),
    "not_known": lambda: decoders.CTC("a", "▁"),
    "not_known_after_all_is_one": lambda: decoders.Sequence([decoders.Fuse(), decoders.WordPiece("##")]),
}


def tokenizer(name: str, *, model: str = "WordLevel", cleans: bool = False) -> Any:
    """One of every kind of piece, by a decoder of `DECODERS`; with special and added tokens."""
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys([*WORDS, *BYTES, *ALPHABET]))}
    made = Tokenizer(
        models.BPE(vocabulary, []) if model == "BPE" else models.WordLevel(vocabulary, unk_token="a")
    )
    if (decoder := DECODERS[name]()) is not None:
        made.decoder = decoder
    made.normalizer = normalizers.Replace(" ", "▁")
    made.add_special_tokens([AddedToken("<s>"), AddedToken("b")])
    made.add_tokens([AddedToken("<think>", lstrip=True, rstrip=True), AddedToken("▁x y", normalized=False)])
    made.add_tokens([AddedToken("<｜end｜>"), AddedToken("ö", normalized=True)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<s>", clean_up_tokenization_spaces=cleans
    )


def told(found: Any, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(TokenLabels(found))
    return [*(detokenizer.push(token) for token in ids), detokenizer.finish()]


@pytest.fixture(scope="module", params=DECODERS)
def made(request: pytest.FixtureRequest) -> Any:
    return tokenizer(request.param)


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_what_was_told_is_what_decode_gives(made: Any, data: st.DataObject) -> None:
    """Any ids: special and added ones, bytes that are no UTF-8, ids that nobody has."""
    byte, letter = (made.convert_tokens_to_ids(each) for each in (BYTES[0], ALPHABET[0]))
    some = st.one_of(
        st.integers(0, len(made) + 2),
        st.integers(byte, byte + 255),
        st.integers(letter, letter + len(ALPHABET) - 1),
        st.integers(0, len(WORDS) - 1),
    )
    ids = data.draw(st.lists(some, max_size=24))
    assert "".join(told(made, ids)) == made.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize(("name", "model"), [("none", "WordLevel"), ("byte_level", "BPE")])
def test_where_transformers_cleans_spaces_up_the_text_is_clean(name: str, model: str) -> None:
    found = tokenizer(name, model=model, cleans=True)

    @given(st.lists(st.integers(0, len(WORDS)), max_size=16))
    @settings(max_examples=25, deadline=None)
    def check(ids: list[int]) -> None:
        assert "".join(told(found, ids)) == found.decode(ids, skip_special_tokens=True)

    check()


def ids_of(found: Any, *pieces: str) -> list[int]:
    return [found.convert_tokens_to_ids(piece) for piece in pieces]


def test_text_is_told_as_soon_as_it_is_settled() -> None:
    """What waits is what a later token may change, and nothing else."""
    llama = tokenizer("llama_2")
    assert told(llama, ids_of(llama, "▁a", "<0xE6>", "<0x97>", "<0xA5>", "▁a", "<s>", "<0x0A>")) == [
        *("a", "", "", "", "日 a", "", "", "\n")
    ]
    assert told(llama, ids_of(llama, "▁a", "<0x0A>", "<0xF0>", "a")) == ["a", "", "", "\ufffd\ufffda", ""]
    found = tokenizer("byte_level")
    detokenizer = Detokenizer(TokenLabels(found))
    assert detokenizer.push(found.convert_tokens_to_ids("Ã")) == ""  # the byte 0xC3
    assert [detokenizer.finish(), detokenizer.finish()] == ["\ufffd", ""]
    assert told(found, ids_of(found, "Ã", "©")) == ["", "é", ""]


@pytest.mark.parametrize(
    ("name", "piece", "label"),
    [
        *(("byte_level", "Ġ", " "), ("byte_level", "Ã", "\ufffd"), ("byte_level", "<｜end｜>", "<｜end｜>")),
        *(("llama_2", "▁a", " a"), ("llama_2", "a", "a"), ("llama_2", "<0x0A>", "\n"), ("llama_2", "<0xF0>", "\ufffd")),
        *(("word_piece", "##a", "a"), ("word_piece", "a", " a"), ("none", "a", " a"), ("bpe", "a</w>", "a")),
    ],
)  # fmt: skip
def test_a_label_is_a_token_s_text_after_others(name: str, piece: str, label: str) -> None:
    found = tokenizer(name)
    assert TokenLabels(found)(found.convert_tokens_to_ids(piece)) == label


def test_unknown_ids_are_no_text_and_special_tokens_are_those_that_decode_leaves_out() -> None:
    found = tokenizer("llama_2")
    labels, beyond = TokenLabels(found), len(found) + 7
    assert labels(beyond) == "" == "".join(told(found, [beyond]))
    assert labels.special == set(found.convert_tokens_to_ids(["<s>", "b"]))
