"""Acceptance rules published since the paper, each as a row of the registry. docs/methods.md says where each was checked.

Those that are a deferral test are decoded losslessly towards the distribution that follows from it: what is emitted has the law of
the published rule, and at least as many proposals are accepted. The others accept and resample as they were published, and
their law is what comes of that.
"""

from __future__ import annotations

import math

from specviz.core.method import Method

SINCE = "Since the paper"
_TOP = 10

LATER = (
    Method(
        name="static_mixture",
        title="Static mixture",
        label="Newer rule Static mixture: write with both models at once",
        group=SINCE,
        formula="π = (1 − α)·p + α·q",
        ratio="((1 - a) * p(v) + a * q(v)) / q(v)",
        sentence="Decodes losslessly towards a fixed mixture of the two models: of all targets, the one that accepts most at its distance from the verifier.",
        lenience_range=(0.0, 1.0),
        offered_range=(0.0, 1.0),
        default_lenience=0.3,
        strict_end="0: lossless",
        drafter_end="1: accept everything",
        source="DIVERSED, its static ensemble with w = 1 − α (Wang et al., AISTATS 2026, arXiv 2604.07622); Transformers: `assistant_ensemble_weight`",
    ),
    Method(
        name="cactus",
        title="Cactus",
        label="Newer rule Cactus: raise the proposal within a budget of divergence",
        group=SINCE,
        formula="accept with min(1, h(v) / q(v)), h = min(1, p + √(2α·p·(1 − p)))",
        ratio="min(1, p(v) + sqrt(2 * a * p(v) * (1 - p(v)))) / q(v)",
        share="max(1e-30, (1 - min(1, p(v) + sqrt(2 * a * p(v) * (1 - p(v))))) / max(1e-30, 1 - p(v)))",
        sentence="Raises the verifier's probability of whatever is proposed as far as a divergence of α allows, and lowers all others to make room: the target depends on the proposal.",
        lenience_range=(0.0, math.inf),
        offered_range=(0.0, 2.0),
        default_lenience=0.5,
        strict_end="0: lossless",
        drafter_end="2: accept most of what the verifier finds possible",
        source="Hao and Mou, ICLR 2026, arXiv 2604.04987; the authors' sampler for vLLM (MANGA-UOFA/Cactus)",
    ),
    Method(
        name="typical_acceptance",
        title="Typical acceptance",
        label="Newer rule Typical acceptance: keep what the verifier finds typical",
        group=SINCE,
        formula="p(v) ≥ min(ε, δ·e^(−H(p))), ε = (1 − α)², δ = 1 − α",
        expression="p(v) >= min((1 - a) * (1 - a), (1 - a) * exp(-H(p)))",
        sentence="Trusts each proposed token that is likely enough for the verifier, or for how unsure the verifier is: the flatter p, the lower the bar.",
        lenience_range=(0.0, 1.0),
        offered_range=(0.0, 1.0),
        default_lenience=0.7,
        strict_end="0: trust only what is likelier than typical",
        drafter_end="1: always trust",
        source="Medusa (Cai et al., ICML 2024, arXiv 2401.10774), with its recommended δ = √ε; Medusa, TensorRT-LLM, vLLM until 0.8",
    ),
    Method(
        name="relaxed_top_k",
        title="Relaxed top-k",
        label="Newer rule Relaxed top-k: keep one of the verifier's ten best",
        group=SINCE,
        expression=f"p1(v) >= max(top({_TOP}, p1), max p1 - a)",
        sentence="Trusts each proposed token that is among the verifier's ten most probable and comes within α of its best.",
        lenience_range=(0.0, 1.0),
        offered_range=(0.0, 1.0),
        default_lenience=0.6,
        strict_end="0: trust only the verifier's favourite",
        drafter_end="1: trust any of the ten",
        source="TensorRT-LLM's relaxed acceptance, `relaxed_topk` = 10 and `relaxed_delta` = α",
    ),
    Method(
        name="fuzzy",
        title="Fuzzy",
        label="Newer rule Fuzzy: trust a drafter that agrees",
        group=SINCE,
        expression="JS <= a",
        sentence="Trusts the drafter wherever the two models' distributions diverge by at most α, whatever is proposed.",
        lenience_range=(0.0, 1.0),
        offered_range=(0.0, 0.7),
        default_lenience=0.1,
        strict_end="0: trust only perfect agreement",
        drafter_end="0.7: always trust, since ln 2 is the most",
        source="Holsman et al., ACL Findings 2025, arXiv 2502.20704, with the Jensen–Shannon divergence; the authors' code (maxholsman/fsd)",
    ),
    Method(
        name="relaxed_coin",
        title="Relaxed coin",
        label="Newer rule Relaxed coin: ease the coin where the verifier is unsure",
        group=SINCE,
        ratio="p(v) / q(v) + a * (1 - max p)",
        sentence="Speculative decoding whose coin is eased by the verifier's own doubt: where its best token is unlikely, more is accepted; the residual stays.",
        lenience_range=(0.0, 1.0),
        offered_range=(0.0, 1.0),
        default_lenience=0.3,
        strict_end="0: lossless",
        drafter_end="1: ease by all of the doubt",
        source="EARS (Sun et al. 2025, arXiv 2512.13194); the authors' sampler for vLLM on Ascend",
    ),
)
"""The rows, in the order they are shown."""
