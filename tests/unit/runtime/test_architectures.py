"""Law 5 for every architecture of transformers: a text is what `generate` writes, or the model is refused in a sentence."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from transformers import Phi3Config, Phi3ForCausalLM

import specviz
from specviz.errors import PairError, RequestError
from tests.support.architectures import VOCABULARY, model_types, tiny_architecture

_NEW, _LENGTHS = 16, (14, 5)
NOT_MADE = {
    "blt", "cohere_compass_text", "dbrx", "dots3_note", "dots3_note_text", "fuyu", "gemma3", "gemma3n",
    "gemma4_assistant", "gemma4_unified", "gemma4_unified_assistant", "got_ocr2", "inkling2_loop_text",
    "inkling2_text", "moss_transcribe_diarize", "musicgen", "musicgen_melody", "phi4_multimodal",
    "qwen4_exp", "qwen4_exp_text",
}  # fmt: skip
"""Types that the recipe does not make: they need sizes it does not know, refuse its config, or need timm."""
REFUSED = {
    "axk2", "bailing_hybrid", "bamba", "bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "bloom",
    "cpmant", "deepseek_v32", "deepseek_v4", "dory", "falcon_h1", "falcon_mamba", "glm_moe_dsa", "gpt_neo",
    "granitemoehybrid", "hy_v4", "inkling_text", "jamba", "kimi_linear", "lara_mini", "lfm2_moe", "lfm3",
    "llama4", "llama4_text", "longcat_flash", "mamba", "mamba2", "marian", "mbart", "minimax", "mvp",
    "nemotron_h", "olmo_hybrid", "openai-gpt", "pegasus", "plbart", "prophetnet", "qwen3_5", "qwen3_5_moe",
    "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "recurrent_gemma", "reformer", "roformer", "rwkv",
    "trocr", "whisper", "xlm", "xlnet", "xlstm", "zamba", "zamba2", "zaya",
}  # fmt: skip
"""Types that are refused as the recipe makes them."""


def _prompt(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(3, VOCABULARY, (1, length), generator=generator)


def outcome(kind: str) -> str:
    """ "right", "wrong", or the sentence of refusal, for two prompts in one batch."""
    verifier, drafter = (tiny_architecture(kind, seed) for seed in (1, 2))
    prompts = [_prompt(length) for length in _LENGTHS]
    ask = {"do_sample": False, "max_new_tokens": _NEW}
    missing = max(_LENGTHS) - min(_LENGTHS)
    ids = torch.cat([prompts[0], functional.pad(prompts[1], (missing, 0))])
    mask = torch.cat([torch.ones_like(prompts[0]), functional.pad(torch.ones_like(prompts[1]), (missing, 0))])
    cascade = {"drafter": drafter, "method": "speed", "lenience": 0.0, "draft_length": 5}
    try:
        sequences = verifier.generate(
            ids, attention_mask=mask, **ask, custom_generate=specviz.cascade_generate, **cascade
        )
    except (PairError, RequestError) as error:
        return str(error)
    wanted = [verifier.generate(each, **ask)[0, each.shape[1] :].tolist() for each in prompts]
    return "right" if sequences[:, max(_LENGTHS) :].tolist() == wanted else "wrong"


@pytest.mark.parametrize("kind", model_types())
@pytest.mark.filterwarnings("ignore")
def test_an_architecture_writes_what_generate_writes_or_is_refused(kind: str) -> None:
    """Also of a later transformers: a new type is served, refused, or fails here until it is made or listed."""
    if kind in NOT_MADE:
        with pytest.raises(Exception):  # noqa: B017, PT011  # whatever its classes raise
            tiny_architecture(kind, 0)
        return
    found = outcome(kind)
    assert found == "right" or found.startswith("Models of the type ")
    assert (found == "right") == (kind not in REFUSED), found


def longrope(seed: int) -> Phi3ForCausalLM:
    """A tiny Phi-3 whose frequencies change after 64 positions."""
    torch.manual_seed(seed)
    rotary = {
        **{"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 64},
        **{"short_factor": [1.0] * 4, "long_factor": [1.0, 4.0, 12.0, 32.0]},
    }
    sizes = {
        **{"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256},
        **{"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None, "initializer_range": 0.4},
    }
    config = Phi3Config(original_max_position_embeddings=64, rope_parameters=rotary, **sizes)
    return Phi3ForCausalLM(config).double().eval()


@pytest.mark.parametrize("draft_length", [1, 6])
def test_longrope_is_exact_up_to_its_original_length_and_refused_beyond(draft_length: int) -> None:
    """Laws 2 and 5: transformers reads the whole text again where it passes that length, which a cache cannot."""
    verifier, drafter = longrope(0), longrope(5)
    prompt = torch.cat([_prompt(14)] * 4, 1)[:, :48]
    ask = {"do_sample": False, "attention_mask": torch.ones_like(prompt)}
    cascade = {
        **{"custom_generate": specviz.cascade_generate, "drafter": drafter, "method": "speed"},
        **{"lenience": 0.0, "draft_length": draft_length},
    }
    wanted = verifier.generate(prompt, max_new_tokens=16, **ask)
    assert torch.equal(verifier.generate(prompt, max_new_tokens=16, **ask, **cascade), wanted)
    with pytest.raises(RequestError, match=r"read 64 \(LongRoPE"):
        verifier.generate(prompt, max_new_tokens=17, **ask, **cascade)
