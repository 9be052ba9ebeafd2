"""How far texts are the verifier's: the distance of the target from p, the log-probability of what was written, and
how often that is the verifier's favourite.

Computed from the logits that the run itself decided by; only where the verifier never ran does it read the text
afterwards. Knows runs and pairs; knows no task and no sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specviz.analysis.quality import read_logits
from specviz.core.methods import Beliefs, get_method, rule, total_variation
from specviz.core.sampling import at
from specviz.schema.trace import Run

if TYPE_CHECKING:
    from specviz.models.pairs import ModelPair


@dataclass(frozen=True)
class Fidelity:
    """Sums over a text's tokens.

    Attributes:
        distance: of TV(pi, p), both at the run's temperature and truncated as its were.
        log_probability: of log p1(token), natural.
        greedy: tokens with the highest verifier logit.
    """

    distance: float
    log_probability: float
    greedy: int


@torch.inference_mode()
def fidelity(run: Run, pair: ModelPair) -> Fidelity:
    """Measure a finished run that kept its logits (`Request.return_logits`)."""
    method = get_method(run.method)
    tokens = torch.tensor(run.token_ids)
    drafter: Tensor | None = run.drafter_logits
    verifier: Tensor | None = run.verifier_logits
    if not method.verifies:
        read = list(read_logits(pair, "verifier", run.prompt_ids, run.token_ids))
        verifier = torch.cat([logits.cpu() for logits in read]) if read else None
    if verifier is None:
        return Fidelity(0.0, 0.0, 0)
    wide = verifier.to(torch.promote_types(verifier.dtype, torch.float32))
    distance = 0.0
    if drafter is not None:
        beliefs = Beliefs(drafter, verifier, run.temperature, run.top_k, run.top_p)
        target = rule(method, beliefs, run.lenience).target()
        distance = float(total_variation(target, beliefs.p).double().sum())
    likely = at(wide.log_softmax(-1), tokens).double().sum()
    return Fidelity(distance, float(likely), int((wide.argmax(-1) == tokens).sum()))
