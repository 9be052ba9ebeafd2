"""One request being served: its tokens so far, its coins, its decoder, and the run that it becomes.

Knows the request and the tokenizer; knows no model's forward pass and no other row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from specviz.core.counterfactual import leniences
from specviz.core.methods import Method, get_method
from specviz.core.sampling import uniforms
from specviz.engine.draft_length import Pace
from specviz.errors import RequestError
from specviz.models.tokenizer import Detokenizer, Labels, encode_prompt, forbidden_ids
from specviz.schema.settings import AUTO, Request
from specviz.schema.trace import Alternative, Run

if TYPE_CHECKING:
    from specviz.models.pairs import ModelPair


class Row:
    """A request being served: its tokens so far, its coins, its decoder, its run."""

    def __init__(self, index: int, request: Request, pair: ModelPair, labels: Labels) -> None:
        prompt_ids = encode_prompt(pair.tokenizer, request)
        if outside := [i for i in prompt_ids if i >= pair.vocabulary_size]:
            raise RequestError(
                f"Token {outside[0]} is no id of this pair; ids run from 0 to {pair.vocabulary_size - 1}."
            )
        room = pair.context_length - len(prompt_ids)
        if room < 1:
            raise RequestError(
                f"The prompt has {len(prompt_ids)} tokens; this pair's context holds {pair.context_length}, and at "
                f"least one must be left for the answer: shorten the prompt to {pair.context_length - 1} tokens."
            )
        self.index = index
        self.request = request
        self.method: Method = get_method(request.method)
        self.labels = labels
        self.eos = pair.eos_token_ids
        self.ids = list(prompt_ids)
        self.prompt_length = len(prompt_ids)
        self.limit = min(request.max_new_tokens, room)
        self.coins = uniforms(request.seed, 0, self.prompt_length + self.limit).numpy()
        self.detokenizer = Detokenizer(pair.tokenizer, prompt_ids)
        self.forbidden = forbidden_ids(pair.tokenizer, request.forbidden_tokens, pair.vocabulary_size)
        if len(self.forbidden) == pair.vocabulary_size:
            raise RequestError("All tokens are forbidden: leave at least one to write with.")
        self.logits: dict[str, list[Tensor]] = {"drafter": [], "verifier": []}
        self.pace = Pace()
        self.draft_length = 0
        self.sure: list[float] = []
        prompt = str(pair.tokenizer.decode(prompt_ids)) if request.prompt is None else request.prompt
        self.run = Run(
            pair=pair.key,
            drafter=pair.drafter_name,
            verifier=pair.verifier_name,
            device=str(pair.device),
            dtype=str(pair.dtype).removeprefix("torch."),
            method=request.method,
            lenience=float(request.lenience or 0.0),
            draft_length=None if request.draft_length == AUTO else request.draft_length,
            temperature=float(request.temperature),
            top_k=request.top_k,
            top_p=float(request.top_p),
            seed=request.seed,
            max_new_tokens=request.max_new_tokens,
            forbidden_tokens=self.forbidden,
            echo=request.echo,
            inspect=request.inspect,
            prompt=prompt,
            prompt_ids=list(prompt_ids),
            alternatives=self._alternatives(),
        )

    def _alternatives(self) -> list[Alternative]:
        if not (self.request.inspect and self.method.drafts and self.method.verifies):
            return []
        asked = leniences(self.method.name, float(self.request.lenience or 0.0))
        return [Alternative(name, lenience) for name, lenience in asked.items()]

    @property
    def left(self) -> int:
        """Tokens it may still emit."""
        return self.prompt_length + self.limit - len(self.ids)

    @property
    def is_paced(self) -> bool:
        """Whether its draft length is chosen round by round."""
        return self.request.draft_length == AUTO and self.method.drafts and self.method.verifies

    def plan(self, pace: int) -> None:
        """Set `draft_length`, the proposals of its next round, to `pace` if that is left to the engine; never past the end."""
        wanted = self.request.draft_length
        self.draft_length = min(pace if wanted == AUTO else wanted, self.left)

    @property
    def truncates(self) -> bool:
        """Whether top-k or top-p is asked for."""
        return self.request.top_k > 0 or self.request.top_p < 1
