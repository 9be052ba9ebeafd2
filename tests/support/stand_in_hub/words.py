"""The stand-in hub's tokenizers: the pipelines of the published ones, trained on a few lines.

Sources. The pipelines of Qwen2, Gemma, GPT-NeoX and GPT-2 are those of transformers' `models/*/tokenization_*.py` and
`convert_slow_tokenizer.py`; OPT's `</s>` before a text is said in the documentation of transformers' OPT model. From memory, and not
checked against the published files: SmolLM2's `Digits` before `ByteLevel`, Gemma's order of special
tokens, GPT-NeoX's runs of spaces as added tokens, and the words of the chat templates.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

_LINES = (
    "The quick brown fox jumps over the lazy dog, and the dog does not mind.",
    "A small drafter proposes; a large verifier scores and decides what to keep.",
    "The sky is blue because the air scatters blue light more than it scatters red light.",
    "def add(a, b):\n    return a + b\n\nprint(add(12, 345))",
    "system user assistant model You are a helpful assistant.",
    "naïve café, 日本語, русский, 🎉",
)
_SIZE = 420
"""Ids of a trained tokenizer, special ones aside."""

_QWEN_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

RECIPES: dict[str, Any] = json.loads(Path(__file__).with_name("recipes.json").read_text("utf-8"))
"""See `repositories`; each family's "tokenizer" is its tokenizer_config.json."""


@dataclass(frozen=True)
class Words:
    """A tokenizer and the files it is published in.

    Attributes:
        tokenizer: the whole pipeline.
        family: whose tokenizer_config.json it has.
        as_lists: published as vocab.json and merges.txt, without tokenizer.json.
    """

    tokenizer: Tokenizer
    family: str
    as_lists: bool = False

    @property
    def size(self) -> int:
        """Number of ids, added tokens included."""
        return int(self.tokenizer.get_vocab_size(with_added_tokens=True))

    def id(self, token: str) -> int:
        """The id of a token."""
        found = self.tokenizer.token_to_id(token)
        assert found is not None, token
        return int(found)

    def write(self, folder: Path) -> None:
        """Write the files to an existing folder."""
        if self.as_lists:
            model = json.loads(self.tokenizer.to_str())["model"]
            (folder / "vocab.json").write_text(
                json.dumps(model["vocab"], ensure_ascii=False), encoding="utf-8"
            )
            merges = "\n".join(" ".join(pair) for pair in model["merges"])
            (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
        else:
            self.tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(
            json.dumps(RECIPES["families"][self.family]["tokenizer"]), encoding="utf-8"
        )


def _trained(tokenizer: Tokenizer, special: Sequence[str], alphabet: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer, trained; `special` tokens have the first ids."""
    trainer = trainers.BpeTrainer(
        vocab_size=_SIZE + len(special),
        special_tokens=list(special),
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_LINES, trainer)
    return tokenizer


def _byte_level(
    special: Sequence[str], *before: Any, normalizer: Any = None, splits: bool = True
) -> Tokenizer:
    """Byte-level BPE, with pre-tokenisers `before` the bytes; `splits` by GPT-2's own expression."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splits)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*before, to_bytes]) if before else to_bytes
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return _trained(tokenizer, special, pre_tokenizers.ByteLevel.alphabet())


def smollm2() -> Words:
    """SmolLM2-Instruct: single digits, bytes; special tokens first; ChatML with a system prompt of its own."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"]
    tokenizer = _byte_level(special, pre_tokenizers.Digits(individual_digits=True))
    return Words(tokenizer, "smollm2")


def qwen() -> Words:
    """Qwen2.5-Instruct: NFC, a split by expression, bytes; special tokens are added after the trained ones, some not special."""
    split = pre_tokenizers.Split(Regex(_QWEN_SPLIT), behavior="isolated", invert=False)
    tokenizer = _byte_level((), split, normalizer=normalizers.NFC(), splits=False)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"]
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    plain = ["<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>"]
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in plain])
    return Words(tokenizer, "qwen")


def gemma() -> Words:
    """Gemma 2: spaces become ▁, unknown characters become bytes, <bos> comes first; its template refuses a system prompt."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<2mass>", "[@BOS@]", "<unused0>", "<unused1>"]
    special += ["<start_of_turn>", "<end_of_turn>"]
    first = Tokenizer(models.BPE())
    first.normalizer = normalizers.Replace(" ", "▁")
    first.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")  # trained word by word
    learnt = json.loads(_trained(first, ()).to_str())["model"]
    rare = {
        piece for piece in learnt["vocab"] if len(piece) == 1 and ord(piece) > 0x2FFF
    }  # to be written in bytes
    pieces = [piece for piece in learnt["vocab"] if not rare & set(piece)]
    merges = [tuple(pair) for pair in learnt["merges"] if not rare & set("".join(pair))]
    names = [*special, "\n", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    vocabulary = {name: index for index, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(
        models.BPE(
            vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True, ignore_merges=False
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", vocabulary["<bos>"])]
    )
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    return Words(tokenizer, "gemma")


def gpt2() -> Words:
    """GPT-2: bytes; one special token, which is the last id."""
    tokenizer = _byte_level(())
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=True)])
    return Words(tokenizer, "gpt2")


def opt() -> Words:
    """OPT: bytes, with </s> before every text; published as two lists."""
    tokenizer = _byte_level(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="</s> $A", special_tokens=[("</s>", 2)])
    return Words(tokenizer, "opt", as_lists=True)


def neox() -> Words:
    """GPT-NeoX: NFC, bytes; runs of spaces are added tokens that are not special."""
    tokenizer = _byte_level(["<|endoftext|>", "<|padding|>"], normalizer=normalizers.NFC())
    tokenizer.add_tokens(
        [AddedToken(" " * count, special=False, normalized=True) for count in range(8, 1, -1)]
    )
    return Words(tokenizer, "neox")
