"""Both models' distributions at the same positions, and the numbers that rules read off them; each computed once and on demand.

q and p are the drafter's and the verifier's distributions at the request's temperature, truncated; q1 and p1 the same logits at
temperature 1. Knows no rule and no method.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from specviz.core.backend import TORCH, Backend, total
from specviz.core.sampling import GREEDY, Number, SamplingParameters, at, distribution

Positions = Tensor | slice
"""Some positions, counted over all leading dimensions: indices [n], or a slice, which selects without a copy."""


class Distributions:
    """q, p, q1, p1, each [..., V], and what rules ask about them, each [..., 1]."""

    def __init__(
        self,
        drafter_logits: Tensor | None,
        verifier_logits: Tensor | None,
        *sampling: Number,
        backend: Backend = TORCH,
        greedy_drafts: bool = False,
        **known: Tensor,
    ) -> None:
        """From logits [..., V] and the fields of a `SamplingParameters`; `known` has attributes that are already computed, by name.

        With `greedy_drafts`, q is one-hot at the drafter's most probable token; q1 is not.

        Logits may be None if everything that is computed from them is known.
        """
        self.backend = backend
        self._logits: dict[str, Any] = {"q": drafter_logits, "p": verifier_logits}
        self._sampling = SamplingParameters(*sampling)
        self._of_drafts = GREEDY if greedy_drafts else self._sampling
        self._plain = (
            not greedy_drafts
            and not any(isinstance(each, Tensor) for each in sampling)
            and self._sampling == SamplingParameters()
        )
        self._quantities: dict[tuple[str, str, int], Tensor] = {}
        self._source: tuple[Distributions, Positions] | None = None
        self.__dict__ |= known

    @cached_property
    def q(self) -> Tensor:
        """Drafter at the request's temperature, truncated."""
        return self._compute("q")

    @cached_property
    def p(self) -> Tensor:
        """Verifier at the request's temperature, truncated."""
        return self._compute("p")

    @cached_property
    def q1(self) -> Tensor:
        """Drafter at temperature 1, never truncated."""
        return self.q if self._plain else self._compute("q1")

    @cached_property
    def p1(self) -> Tensor:
        """Verifier at temperature 1, never truncated."""
        return self.p if self._plain else self._compute("p1")

    def _compute(self, name: str) -> Tensor:
        model, is_sampled = name[0], name in ("q", "p")
        if self._source is None:
            own = self._of_drafts if model == "q" else self._sampling
            sampling = own if is_sampled else SamplingParameters()
            return distribution(self._logits[model], *sampling, backend=self.backend)
        whole, where = self._source
        if is_sampled or name in whole.__dict__:
            return select(getattr(whole, name), where)
        return distribution(select(whole._logits[model], where), backend=self.backend)

    def select(self, where: Positions) -> Distributions:
        """These distributions at some positions only, [n, V], each selected on first access.

        q1 and p1 are computed for these positions alone, unless they are already computed for all.
        """
        if self._source is not None:
            raise ValueError("these distributions are a selection already: select from the whole")
        selected = Distributions(None, None, backend=self.backend)
        selected._plain, selected._source = self._plain, (self, where)
        return selected

    def reading(self, key: tuple[str, str, int], tokens: Tensor) -> Tensor:
        """The value [...] that a `Node.key` stands for at each position, where the draft tokens are `tokens` [...]."""
        name, of, count = key
        return at(getattr(self, of), tokens) if name == "(v)" else self.quantity(name, of, count).squeeze(-1)

    def quantity(self, name: str, of: str = "", count: int = 0) -> Tensor:
        """A number of each position [..., 1]: "max", "H" (entropy, in nats) or "top" (the `count`-th largest probability) of a
        distribution; "TV" of q and p, "JS" of q1 and p1.
        """
        key = (name, of.rstrip("1") if self._plain else of, count)
        if key not in self._quantities:
            self._quantities[key] = self._measure(*key)
        return self._quantities[key]

    def _measure(self, name: str, of: str, count: int) -> Tensor:
        if self._source and (name, of, count) in self._source[0]._quantities:
            return select(self._source[0]._quantities[name, of, count], self._source[1])
        if name == "TV":
            return self.backend.excess(self.q, self.p)
        if name == "JS":
            middle = entropy((self.q1 + self.p1).mul_(0.5))
            alone = self.quantity("H", "q1") + self.quantity("H", "p1")
            return (middle - alone / 2).clamp_min_(0)
        values: Tensor = getattr(self, of)
        if name == "top":
            return self.backend.leading(values, min(count, values.shape[-1]))[0][..., -1:]
        return self.backend.largest(values) if name == "max" else entropy(values)


def select(values: Tensor, where: Positions) -> Tensor:
    """The rows [n, V] of `values` [..., V] at some positions."""
    if values.dim() == 3 and not values.is_contiguous() and len(values) > 1:  # flattening it would copy it
        count = values.shape[1]
        indices = torch.arange(len(values) * count, device=values.device)[where]
        return values[indices // count, indices % count]
    return values.reshape(-1, values.shape[-1])[where]


def entropy(values: Tensor) -> Tensor:
    """The entropy of distributions [..., V], in nats: [..., 1]."""
    return -total(values.clamp_min(torch.finfo(values.dtype).tiny).log_().mul_(values))
