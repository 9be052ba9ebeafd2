"""What Python and transformers' own `generate` write with a pair of each architecture of the registry; printed as JSON.

Run as a process of its own: huggingface_hub reads HF_ENDPOINT and HF_HOME when it is imported.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from specviz.models.registry import PAIRS, HubSource
from tests.support.stand_in_hub.shell import shrink

PROMPT = "Why is the sky blue?"
TOKENS = 20
GREEDY = {"method": "speed", "lenience": 0.0, "temperature": 0.0, "max_new_tokens": TOKENS, "seed": 1}
SAMPLED = GREEDY | {"temperature": 1.0}
HUB_PAIRS = ("smollm2-360m", "qwen2.5", "gemma2", "gpt2", "opt", "pythia")
FUSED = ("smollm2-360m", "qwen2.5")
"""Pairs of an architecture that has fused passes."""


def by_generate(repository: str) -> dict[str, Any]:
    """The greedy continuation of the prompt by the verifier alone, as transformers writes it: its generation config is followed,
    but for sampling. In float32, as SpecViz computes on a CPU."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(repository)
    model = AutoModelForCausalLM.from_pretrained(repository, dtype=torch.float32)
    if tokenizer.chat_template:
        messages = [{"role": "user", "content": PROMPT}]
        ids = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )["input_ids"]
    else:
        ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    written = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS)
    new = written[0, ids.shape[1] :].tolist()
    return {"ids": new, "text": tokenizer.decode(new, skip_special_tokens=True)}


def by_python(key: str) -> dict[str, Any]:
    """What `load_pair` and `generate` give: at temperature 0 and 1, who runs the verifier, and how loading said it went on."""
    from specviz import load_pair

    told: list[tuple[float, str]] = []
    pair = load_pair(key, progress=lambda fraction, text: told.append((fraction, text)))
    greedy, sampled = (pair.generate(PROMPT, **settings) for settings in (GREEDY, SAMPLED))
    return {
        "runner": type(pair.verifier_model).__name__,
        "ids": greedy.token_ids,
        "text": greedy.text,
        "accepted": greedy.acceptance_rate,
        "sampled_accepted": sampled.acceptance_rate,
        "sampled_ended": sampled.stop_reason == "eos" or len(sampled.token_ids) == TOKENS,
        "told": told,
    }


def main() -> None:
    """Print {pair: {way: what it writes}}, or an error in place of what a way writes."""
    found: dict[str, dict[str, Any]] = {}
    for key in HUB_PAIRS:
        verifier = PAIRS[key].verifier
        assert isinstance(verifier, HubSource)
        ways = {
            "python": lambda key=key: by_python(key),
            "generate": lambda repository=verifier.repository: by_generate(repository),
        }
        found[key] = {}
        for name, way in ways.items():
            try:
                found[key][name] = way()
            except Exception as error:
                found[key][name] = {"error": f"{type(error).__name__}: {error}"}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    shrink()
    main()
