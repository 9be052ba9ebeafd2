"""Both models' distributions at the same positions, and the numbers that rules read from them. Each is computed once, on demand.

q and p are the drafter's and the verifier's distributions at the request's temperature, truncated; q1 and p1 are those of the same
logits at temperature 1, not truncated. Knows no rule and no method.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from specviz.core.backend import TORCH, Backend, total
from specviz.core.sampling import GREEDY, Number, SamplingParameters, at, distribution

Positions = tuple[Tensor, ...]
"""n positions: for each leading dimension, a tensor [n] of indices."""


class Distributions:
    """q, p, q1, p1, [..., V] each, and the quantities that rules read from them, [..., 1] each."""

    def __init__(
        self,
        drafter_logits: Tensor | None,
        verifier_logits: Tensor | None,
        *sampling: Number,
        backend: Backend = TORCH,
        greedy_drafts: bool = False,
        **known: Tensor,
    ) -> None:
        """`sampling` are the fields of a `SamplingParameters`; `known` are attributes that are already computed, by name. Logits: [..., V].

        With `greedy_drafts`, q is one-hot at the drafter's most probable token; q1 is not. Logits that are not needed may be None.
        """
        self.backend = backend
        self._where: Positions | None = None  # the positions at which the logits are read
        self._logits = {"q": drafter_logits, "p": verifier_logits}
        self._sampling, self._greedy_drafts = SamplingParameters(*sampling), greedy_drafts
        is_one = not any(isinstance(each, Tensor) for each in sampling)
        self._plain = is_one and not greedy_drafts and self._sampling == SamplingParameters()
        self._quantities: dict[tuple[str, str, int], Tensor] = {}
        self.__dict__ |= known

    @cached_property
    def q(self) -> Tensor:
        """Drafter at the request's temperature, truncated."""
        return self._distribution("q", GREEDY if self._greedy_drafts else self._sampling)

    @cached_property
    def p(self) -> Tensor:
        """Verifier at the request's temperature, truncated."""
        return self._distribution("p", self._sampling)

    @cached_property
    def q1(self) -> Tensor:
        """Drafter at temperature 1, never truncated."""
        return self.q if self._plain else self._distribution("q", SamplingParameters())

    @cached_property
    def p1(self) -> Tensor:
        """Verifier at temperature 1, never truncated."""
        return self.p if self._plain else self._distribution("p", SamplingParameters())

    def _distribution(self, model: str, sampling: SamplingParameters) -> Tensor:
        logits = self._read_logits(model)
        assert logits is not None
        return distribution(logits, *sampling, backend=self.backend)

    def _read_logits(self, model: str) -> Tensor | None:
        logits = self._logits[model]
        return logits if logits is None or self._where is None else rows_at(logits, self._where)

    def select(self, where: Positions) -> Distributions:
        """The distributions at the positions `where` only, [n, V]. q1 and p1, unless known, are computed on demand, at these positions."""
        known = {name for name, each in self._logits.items() if each is not None} | self.__dict__.keys()
        found = Distributions(
            self._read_logits("q"),
            self._read_logits("p"),
            *self._sampling,
            backend=self.backend,
            greedy_drafts=self._greedy_drafts,
            **{name: rows_at(getattr(self, name), where) for name in known & {"q", "p", "q1", "p1"}},
        )
        found._where = where
        return found

    def reading(self, key: tuple[str, str, int], tokens: Tensor) -> Tensor:
        """The value [...] of the quantity with this `Node.key` at each position; `tokens` [...] are the draft tokens."""
        name, of, count = key
        return at(getattr(self, of), tokens) if name == "(v)" else self.quantity(name, of, count).squeeze(-1)

    def quantity(self, name: str, of: str = "", count: int = 0) -> Tensor:
        """One number per position, [..., 1]: "max", "H" (entropy, in nats) or "top" (the `count`-th largest probability) of the
        distribution named `of`; or "TV" of q and p, "JS" of q1 and p1 (divergence, in nats).
        """
        key = (name, of.rstrip("1") if self._plain else of, count)
        if key not in self._quantities:
            self._quantities[key] = self._measure(*key)
        return self._quantities[key]

    def _measure(self, name: str, of: str, count: int) -> Tensor:
        if name == "TV":
            return self.backend.excess(self.q, self.p)
        if name == "JS":
            middle = entropy((self.q1 + self.p1).mul_(0.5))
            alone = self.quantity("H", "q1") + self.quantity("H", "p1")
            return (middle - alone / 2).clamp_min_(0)
        values: Tensor = getattr(self, of)
        if name == "top":
            return self.backend.leading(values, min(count, values.shape[-1]))[0][..., -1:]
        return values.amax(-1, keepdim=True) if name == "max" else entropy(values)


def rows_at(values: Tensor, where: Positions) -> Tensor:
    """Rows [n, V] of `values` [..., V] at some positions: on a CPU a view, if they are consecutive positions of one sequence.

    On a CPU, copying whole rows takes a third of the time of torch's indexing.
    """
    if not values.is_cpu or not len(where[0]):
        return values[where]
    places = list(zip(*(index.tolist() for index in where), strict=True))
    *sequence, first = places[0]
    if places == [(*sequence, first + step) for step in range(len(places))]:
        return values[tuple(sequence)][first : first + len(places)]
    return torch.stack([values[each] for each in places])


def entropy(values: Tensor) -> Tensor:
    """The entropy of distributions [..., V], in nats: [..., 1]."""
    return -total(values.clamp_min(torch.finfo(values.dtype).tiny).log_().mul_(values))
