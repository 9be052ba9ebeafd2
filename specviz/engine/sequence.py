"""A sequence: one request being served, its tokens so far, its uniforms, and the run it becomes.

Knows the request and the tokenizer; knows no forward pass and no other sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from specviz.core.counterfactual import leniences
from specviz.core.method import Method
from specviz.core.methods import get_method
from specviz.core.sampling import GREEDY, SamplingParameters, bounded, uniforms
from specviz.errors import RequestError
from specviz.models.decoding import Detokenizer, TokenLabels
from specviz.models.pair import ModelPair
from specviz.models.tokenizer import encode_prompt, forbidden_ids
from specviz.runtime.lookup import LookupModel
from specviz.schema.settings import AUTO, SETTINGS, Continuation, Request
from specviz.schema.trace import Alternative, Run

CheckTokens = Callable[[Request, int], object]
"""(request, number of tokens in its prompt): raises RequestError if the request must not be served."""


class Sequence:
    """A request being served.

    Attributes:
        index: index of the request among those of its call.
        ids: prompt and emitted tokens. Neither model has read the last token yet: it is the first input of the next round, so
            that an accepted draft needs no bonus token and a rejection no extra pass.
        length_limit: the most tokens it may have, prompt included.
        coins: uniforms of all its positions, float64 [positions, 3].
        banned: ids that are never drafted nor emitted.
        sampling, draft_sampling, lenience: settings clamped to what float32 can compute; q is computed with `draft_sampling`.
        repetition_penalty: the request's, or the default of the pair.
        records: whether rounds and tokens are recorded in `run`; if False, only the token ids are kept.
    """

    def __init__(
        self,
        index: int,
        request: Request,
        pair: ModelPair,
        labels: TokenLabels,
        *,
        records: bool = True,
        check_tokens: CheckTokens | None = None,
    ) -> None:
        """Encode the prompt.

        Raises:
            RequestError: the prompt does not fit the pair's vocabulary or context, `check_tokens` refuses it, the method would use
                prompt lookup without a verifier, or the forbidden tokens, the continuation or the repetition penalty are invalid.
        """
        prompt_ids = encode_prompt(pair.tokenizer, request)
        if check_tokens:
            check_tokens(request, len(prompt_ids))
        available = _available(prompt_ids, pair)
        self.index = index
        self.request = request
        self.method: Method = get_method(request.method, request.rule)
        if isinstance(pair.drafter_model, LookupModel) and not self.method.verifies:
            raise RequestError(
                "Prompt lookup proposes nothing where the text repeats nothing, so it cannot write alone: choose another "
                "method, or a pair whose drafter is a model."
            )
        self.lenience = bounded(float(request.lenience or 0.0))
        self.sampling = self.method.sampling(SamplingParameters(*request.warp), self.lenience).computable()
        self.greedy_drafts = request.greedy_drafts or self.method.greedy_drafts
        self.draft_sampling = GREEDY if self.greedy_drafts else self.sampling
        penalty = (
            pair.repetition_penalty if request.repetition_penalty is None else request.repetition_penalty
        )
        SETTINGS["repetition_penalty"].check(penalty)  # a pair's own is checked like a request's
        self.repetition_penalty = float(penalty)
        self.labels = labels
        self.records = records
        self.eos_token_ids = pair.eos_token_ids
        self.ids = list(prompt_ids)
        self.prompt_length = len(prompt_ids)
        self.length_limit = self.prompt_length + min(request.max_new_tokens, available)
        self.coins = uniforms(request.seed, 0, self.length_limit).numpy()
        self.detokenizer = Detokenizer(labels)
        forbidden = forbidden_ids(pair.tokenizer, request.forbidden_tokens, pair.vocabulary_size)
        self.banned = sorted(pair.suppressed_ids.union(forbidden))
        if len(self.banned) == pair.vocabulary_size:
            raise RequestError("All tokens are forbidden: leave at least one to write with.")
        self.logits: dict[str, list[Tensor]] = {"drafter": [], "verifier": []}
        continues = self._continues()
        prompt = continues.prompt if continues else request.prompt
        asked = {}
        if request.inspect and self.method.drafts and self.method.verifies:
            asked = leniences(self.method, self.lenience)
        if prompt is None:
            prompt = str(pair.tokenizer.decode(prompt_ids))
        self.run = Run.for_request(
            request,
            pair=pair.key,
            drafter=pair.drafter_name,
            verifier=pair.verifier_name,
            device=str(pair.device),
            dtype=pair.precision,
            forbidden_tokens=self.banned,
            repetition_penalty=self.repetition_penalty,
            prompt=prompt,
            prompt_ids=list(prompt_ids),
            alternatives=[Alternative(name, lenience) for name, lenience in asked.items()],
            continues=continues,
        )

    def _continues(self) -> Continuation | None:
        """The request's continuation, with its text decoded anew. Its tokens are pushed to the detokenizer."""
        if (continues := self.request.continues) is None:
            return None
        if continues.chosen in self.eos_token_ids:
            raise RequestError("The chosen token ends the text: nothing can follow it. Choose another one.")
        texts = [self.detokenizer.push(token) for token in self.ids[self.prompt_length - continues.tokens :]]
        chosen = "" if continues.chosen is None else texts.pop()
        # The request's text may end in half a character, shown because its run ended there. This run may complete the character.
        return replace(continues, text="".join(texts), chosen_text=chosen)

    @property
    def position(self) -> int:
        """The position of its last token."""
        return len(self.ids) - 1

    def next_uniforms(self, kind: int, count: int) -> np.ndarray:
        """Uniforms of one kind (`sampling.DRAFT`, …) at its next `count` positions; zeros past its end."""
        own = self.coins[len(self.ids) :][:count, kind]
        return own if len(own) == count else np.append(own, np.zeros(count - len(own)))

    @property
    def tokens_left(self) -> int:
        """Tokens it may still emit."""
        return self.length_limit - len(self.ids)

    @property
    def chooses_draft_length(self) -> bool:
        """Whether its draft length is left to the engine."""
        return self.request.draft_length == AUTO and self.method.drafts and self.method.verifies

    def append(self, token_ids: list[int]) -> None:
        """Append a round's tokens, and set the run's stop reason if they end it."""
        self.ids += token_ids
        self.run.stop_reason = self._ending(self.ids[-1], len(self.ids))

    def text_of(self, token: int, position: int) -> str:
        """Push the next token to the detokenizer. Returns the text that it completes; the run's last token also yields unfinished text."""
        text = self.detokenizer.push(token)
        return text + self.detokenizer.finish() if self._ending(token, position + 1) else text

    def cut(self, reason: str) -> None:
        """Stop the run early, with this stop reason; unfinished text becomes the run's `tail`."""
        self.run.stop_reason = reason
        self.run.tail = self.detokenizer.finish()

    def _ending(self, token: int, length: int) -> str:
        """The stop reason if the run ends with `token` as the last of `length` tokens, prompt included; "" if it goes on."""
        if token in self.eos_token_ids:
            return "eos"
        if length == self.length_limit:
            return "length" if length - self.prompt_length == self.request.max_new_tokens else "context"
        return ""

    def keep_logits(self) -> None:
        """Store both models' logits at all emitted positions in the run, if the request asked for them."""
        if self.request.return_logits:
            self.run.drafter_logits, self.run.verifier_logits = (
                torch.cat(parts) if parts else None for parts in self.logits.values()
            )


def _available(prompt_ids: list[int], pair: ModelPair) -> int:
    """Number of positions that the pair's context leaves after a prompt; RequestError if there are none or an id is too large."""
    if outside := [i for i in prompt_ids if i >= pair.vocabulary_size]:
        raise RequestError(
            f"Token {outside[0]} is no id of this pair; ids run from 0 to {pair.vocabulary_size - 1}."
        )
    available = pair.context_length - len(prompt_ids)
    if available < 1:
        raise RequestError(
            f"The prompt has {len(prompt_ids)} tokens; this pair's context holds {pair.context_length}, "
            f"and at least one must be left for the answer: shorten the prompt to {pair.context_length - 1} tokens."
        )
    return available
