"""What Python and transformers' own `generate` write with a pair of each architecture of the registry; printed as JSON.

Run as a process of its own: huggingface_hub reads HF_ENDPOINT and HF_HOME when it is imported.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from specviz.models.registry import PAIRS
from tests.support.stand_in_hub.shell import shrink

PROMPT = "Why is the sky blue?"
TOKENS = 20
HUB_PAIRS = ("smollm2-360m", "qwen2.5", "gemma2", "gpt2", "opt", "pythia")
FUSED = ("smollm2-360m", "qwen2.5")
"""Pairs of an architecture that has fused passes."""


def by_generate(repository: str) -> list[int]:
    """The greedy continuation of the prompt by the verifier alone, as transformers writes it: its generation config is followed,
    but for sampling. In float32, as SpecViz computes on a CPU."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(repository)
    model = AutoModelForCausalLM.from_pretrained(repository, dtype=torch.float32)
    if tokenizer.chat_template:
        chat: Any = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
        ids = tokenizer.apply_chat_template([{"role": "user", "content": PROMPT}], **chat)["input_ids"]
    else:
        ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    written = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS)
    return written[0, ids.shape[1] :].tolist()  # type: ignore[no-any-return]


def by_python(key: str) -> dict[str, Any]:
    """What `load_pair` and `generate` give at temperature 0: who runs the verifier, and how loading said it went on."""
    from specviz import load_pair

    told: list[tuple[float, str]] = []
    pair = load_pair(key, progress=lambda fraction, text: told.append((fraction, text)))
    run = pair.generate(PROMPT, method="speed", lenience=0.0, temperature=0.0, max_new_tokens=TOKENS)
    runner = type(pair.verifier_model).__name__
    return {"runner": runner, "ids": run.token_ids, "told": told}


if __name__ == "__main__":
    shrink()
    verifiers: Any = {key: PAIRS[key].verifier for key in HUB_PAIRS}
    json.dump(
        {key: [by_python(key), by_generate(verifiers[key].repository)] for key in HUB_PAIRS}, sys.stdout
    )
