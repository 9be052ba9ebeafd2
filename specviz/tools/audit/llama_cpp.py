"""llama-cpp-python as an engine: the verifier as a GGUF file, and the drafter's greedy tokens as its draft model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGUFWriter
from numpy.typing import NDArray

from specviz.errors import EngineError, RequestError
from specviz.models.checkpoint import Checkpoint
from specviz.models.pair import ModelPair
from specviz.tools.audit.models import PROMPT

_CONTEXT = 512
"""Default context length of `Llama`, which warns about models with a shorter one."""
_CLOSE = 1e-3
"""Largest accepted difference between two libraries' float32 logits of one model."""


def llama_cpp(
    pair: ModelPair, draft_length: int
) -> Callable[[int, float, Sequence[int]], Iterator[list[int]]]:
    """llama.cpp's `Llama` with a draft model, as a `Draw` of `specviz.tools.audit.engines`.

    Raises:
        RequestError: the verifier is no model of type llama.
        EngineError: llama.cpp's logits are not those of transformers.
    """
    import llama_cpp

    @cache  # few prefixes of so few tokens differ
    def greedy(ids: tuple[int, ...]) -> list[int]:
        """The drafter's most probable continuation, K tokens."""
        row = torch.tensor([ids])
        for _ in range(draft_length):
            row = torch.cat([row, pair.drafter(row).logits[:, -1:].argmax(-1)], dim=1)
        return list(row[0, len(ids) :].tolist())

    def draft(ids: NDArray[np.intc], /, **_: Any) -> NDArray[np.intc]:
        return np.array(greedy(tuple(ids.tolist())), np.intc)

    with TemporaryDirectory() as folder:
        path = Path(folder) / "verifier.gguf"
        verifier = pair.verifier
        write_gguf(path, Checkpoint(verifier.config, verifier.state_dict(), {}))
        kind = llama_cpp.GGML_TYPE_F32
        options: dict[str, Any] = {"type_k": kind, "type_v": kind, "n_threads": 1, "n_threads_batch": 1}
        options |= {"draft_model": draft, "use_mmap": False, "verbose": False}  # the file is deleted
        llama = llama_cpp.Llama(str(path), **options)
    llama.eval(PROMPT)
    expected = pair.verifier(torch.tensor([PROMPT])).logits[0].numpy()
    if not np.allclose(llama.scores[: len(PROMPT)], expected, atol=_CLOSE):
        raise EngineError("llama.cpp's logits are not those of transformers: nothing was audited.")

    def draw(tokens: int, temperature: float, seeds: Sequence[int]) -> Iterator[list[int]]:
        for seed in seeds:
            llama.set_seed(seed)
            sampling: dict[str, Any] = {"temp": temperature, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
            yield list(islice(llama.generate(PROMPT, repeat_penalty=1.0, **sampling), tokens))

    return draw


def write_gguf(path: Path, checkpoint: Checkpoint) -> None:
    """Write a model of type llama to a GGUF file without a vocabulary: the model's inputs are token ids.

    Raises:
        RequestError: the model is of another type.
    """
    config: Any = checkpoint.config
    if config.model_type != "llama":
        raise RequestError("llama-cpp-python is audited on models of the llama kind only: leave it out.")
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in checkpoint.tensors.items():
        for projection, count in heads.items():
            if projection in name:  # GGUF rotates adjacent outputs, transformers those half a head apart
                tensor = tensor.unflatten(0, (count, 2, -1)).transpose(1, 2).flatten(0, 2)
        kind = checkpoint.formats.get(name)
        raw = gguf.GGMLQuantizationType[kind] if kind else None
        writer.add_tensor(names.get_name(name, (".weight",)) or name, tensor.numpy(), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
