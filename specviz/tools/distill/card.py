"""The model card of a distilled drafter, from the report of its distillation. Knows no model."""

from __future__ import annotations

from typing import Any


def model_card(report: dict[str, Any]) -> str:
    """The card in Markdown; every figure in it comes from `report`."""
    held_out = "\n".join(f"| {name} | {value:.3f} |" for name, value in report["held_out"].items())
    [(_, start)] = report["start"].items()
    texts = "\n\n".join(
        f"**{sample['prompt']}**\n\n"
        f"verifier_only:\n\n{_quote(sample['verifier_only'])}\n\n"
        f"cascade_tokenV3, lenience 0.5:\n\n{_quote(sample['cascade_tokenV3'])}"
        for sample in report["samples"]
    )
    return f"""---
license: apache-2.0
library_name: transformers
tags: [speculative-decoding, distillation]
---

# A drafter for {report["verifier"]}

Made by `python -m specviz distill`; `report.json` holds these figures and the course of training.

- **Architecture.** {report["shape"]}; {report["parameters"] / 1e6:.1f} million parameters, stored in float16. It uses \
its verifier's tokenizer; where `vocabulary.safetensors` is present, the model's own ids are the tokens listed there.
- **Data.** Self-generated, no data set: {report["tokens"]:,} tokens that the verifier wrote, half of the answers to \
user turns of its own, half to the short prompts in `assets/prompts.json`, at temperatures 1, 0.7 and 0.
- **Training.** {report["passes"]} passes, {report["steps"]:,} steps, {report["training_hours"]} hours on \
{report["device"]}; the verifier's whole next-token distribution at every place it wrote, KL first, then ever more total variation.
- **Cost.** One forward pass for one token takes {report["cost"]:.3f} of the verifier's ({report["device"]}).
- **Licence.** Apache-2.0; derived from {report["verifier"]}.

Acceptance rate on {report["held_out_prompts"]} prompts held out, over all examined tokens (before training, lossless at T = 1: {start:.3f}):

| setting | acceptance |
|---|---|
{held_out}

## Samples

Prompts held out, the same seed on both sides, temperature 1.

{texts}
"""


def _quote(text: str) -> str:
    """Model text as a block that no Markdown in it can leave."""
    return "\n".join(f"    {line}" for line in text.strip().split("\n"))
