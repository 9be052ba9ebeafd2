"""Both models' distributions at the same positions, and the numbers that rules read off them; each computed once and on demand.

q and p are the drafter's and the verifier's distributions at the request's temperature, truncated; q1 and p1 the same logits at
temperature 1. Knows no rule and no method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from specviz.core import kernels
from specviz.core.sampling import Number, Warp, distribution, leading, total


class Distributions:
    """q, p, q1, p1, each [..., V], and what rules ask about them, each [..., 1]."""

    def __init__(
        self,
        drafter_logits: Tensor | None,
        verifier_logits: Tensor | None,
        *warp: Number,
        **known: Tensor,
    ) -> None:
        """From logits [..., V] and a `Warp`; `known`, by name, is what was already computed from them.

        Logits of which nothing is left to compute need not be given.
        """
        self._drafter_logits, self._verifier_logits = drafter_logits, verifier_logits
        self._warp = Warp(*warp)
        self._plain = not any(isinstance(each, Tensor) for each in warp) and self._warp == Warp()
        self._quantities: dict[tuple[str, str, int], Tensor] = {}
        self._source: tuple[Distributions, Places] | None = None
        self.__dict__ |= known

    @cached_property
    def q(self) -> Tensor:
        """Drafter at the request's temperature, truncated."""
        return self._selected("q") if self._source else distribution(self._logits("drafter"), *self._warp)

    @cached_property
    def p(self) -> Tensor:
        """Verifier at the request's temperature, truncated."""
        return self._selected("p") if self._source else distribution(self._logits("verifier"), *self._warp)

    @cached_property
    def q1(self) -> Tensor:
        """Drafter at temperature 1, never truncated."""
        return self.q if self._plain else self._untempered("q1", "drafter")

    @cached_property
    def p1(self) -> Tensor:
        """Verifier at temperature 1, never truncated."""
        return self.p if self._plain else self._untempered("p1", "verifier")

    def _untempered(self, name: str, model: str) -> Tensor:
        if self._is_selected(name):
            return self._selected(name)
        if self._source and kernels.serve(logits := self._source[0]._logits(model)):
            return kernels.softmax_of_some(some_of(kernels.rows(logits), self._source[1]), logits.shape[-1])
        return distribution(self._logits(model))

    def _is_selected(self, name: str) -> bool:
        """Whether a distribution need not be computed, since it was for all positions of which these are some."""
        return self._source is not None and (name in ("q", "p") or name in self._source[0].__dict__)

    def _logits(self, model: str) -> Tensor:
        if self._source:
            return select(self._source[0]._logits(model), self._source[1])
        logits: Tensor | None = getattr(self, f"_{model}_logits")
        assert logits is not None
        return logits

    def _selected(self, name: str, out: Tensor | None = None) -> Tensor:
        assert self._source is not None
        whole, where = self._source
        return select(getattr(whole, name), where, out)

    @property
    def max_q1(self) -> Tensor:
        """max q1 [..., 1]: the drafter's confidence."""
        return self.quantity("max", "q1")

    @property
    def max_p1(self) -> Tensor:
        """max p1 [..., 1]: the verifier's confidence."""
        return self.quantity("max", "p1")

    @property
    def total_variation(self) -> Tensor:
        """TV(q, p) [..., 1]."""
        return self.quantity("TV")

    def quantity(self, name: str, of: str = "", count: int = 0) -> Tensor:
        """A number of each position [..., 1]: "max", "H" (entropy, in nats) or "top" (the `count`-th largest probability) of a
        distribution; "TV" of q and p, "JS" of q1 and p1.
        """
        key = (name, of.rstrip("1") if self._plain else of, count)
        if key not in self._quantities:
            self._quantities[key] = self._compute(key)
        return self._quantities[key]

    def _compute(self, key: tuple[str, str, int]) -> Tensor:
        name, of, count = key
        if self._source and key in self._source[0]._quantities:
            return select(self._source[0]._quantities[key], self._source[1])
        if name == "TV":
            return excess(self.q, self.p)
        if name == "JS":
            middle = entropy((self.q1 + self.p1).mul_(0.5))
            alone = self.quantity("H", "q1") + self.quantity("H", "p1")
            return (middle - alone / 2).clamp_min_(0)
        values: Tensor = getattr(self, of)
        if name == "top":
            return leading(values, min(count, values.shape[-1]))[0][..., -1:]
        compute: Callable[[Tensor], Tensor] = {"max": largest, "H": entropy}[name]
        return compute(values)

    def select(self, places: Places) -> Distributions:
        """These distributions at some positions only: [n, V], each copied when first asked for. What was not computed before is
        computed for these alone.
        """
        selected = Distributions(None, None)
        selected._plain, selected._source = self._plain, (self, places)
        return selected

    @staticmethod
    def joined(parts: Sequence[Distributions], counts: Sequence[int]) -> Distributions:
        """Those at `counts` positions of several, one after the other: [n, V]. Each has its own as a part of these then."""
        plain = all(part._plain for part in parts)
        known = {
            name: parts[0]._room(sum(counts)) for name in (("q", "p") if plain else ("q", "p", "q1", "p1"))
        }
        for name, values in known.items():
            for part, own in zip(parts, values.split(list(counts)), strict=True):
                part._move(name, own)
        whole = Distributions(None, None, **known)
        whole._plain = plain
        return whole

    def _room(self, count: int) -> Tensor:
        q = self.whole.q
        return q.new_empty(count, q.shape[-1])

    @property
    def whole(self) -> Distributions:
        """Those of which these are some; themselves otherwise."""
        return self._source[0] if self._source else self

    def rows(self, name: str) -> np.ndarray:
        """Addresses [n] of the rows of q, p, q1 or p1, for compiled loops: those of the whole where these are some of its positions, so
        that none need be copied.
        """
        name = name.rstrip("1") if self._plain else name
        if name in self.__dict__ or not self._is_selected(name):
            return kernels.rows(getattr(self, name))
        assert self._source is not None
        whole, where = self._source
        return some_of(kernels.rows(getattr(whole, name)), where)

    def _move(self, name: str, out: Tensor) -> None:
        """Write a distribution to `out` [n, V], and keep it there."""
        if name not in self.__dict__ and self._is_selected(name):
            self._selected(name, out)
        else:
            out.copy_(getattr(self, name))
        self.__dict__[name] = out


Places = Tensor | slice
"""Some of all positions, flattened: indices [n], or a run of them, which is selected without a copy."""


def places(indices: Tensor | np.ndarray) -> Places:
    """`indices` [n], as a run where they are one and reading them is free (on a CPU)."""
    if isinstance(indices, Tensor) and indices.device.type != "cpu":
        return indices
    each = indices.numpy() if isinstance(indices, Tensor) else indices
    begin = int(each[0]) if len(each) else 0
    run = slice(begin, begin + len(each))
    return run if np.array_equal(each, np.arange(run.start, run.stop)) else torch.as_tensor(indices)


def select(values: Tensor, places: Places, out: Tensor | None = None) -> Tensor:
    """`values` [..., V] at some of all positions: [n, V]; written to `out` where that is given."""
    if out is not None:
        flat = values.reshape(-1, values.shape[-1])
        if isinstance(places, slice):
            return out.copy_(flat[places])
        return torch.index_select(flat, 0, places, out=out)
    if values.dim() == 3 and not values.is_contiguous() and len(values) > 1:  # to flatten it would be a copy
        count = values.shape[1]
        own = torch.arange(len(values) * count, device=values.device)[places]
        return values[own // count, own % count]
    return values.reshape(-1, values.shape[-1])[places]


def some_of(rows: np.ndarray, places: Places) -> np.ndarray:
    """An array of all positions, such as addresses of rows, at some of them: [n]."""
    return rows[places if isinstance(places, slice) else places.numpy()]


def total_variation(q: Tensor, p: Tensor) -> Tensor:
    """TV(q, p) = sum of max(0, q - p) over the vocabulary: [..., V], [..., V] -> [...]."""
    return excess(q, p).squeeze(-1)


def excess(left: Tensor, right: Tensor) -> Tensor:
    """The sum of max(0, left - right) over the vocabulary: [..., 1]."""
    if kernels.serve(left):
        return kernels.excess(left, right)
    return total((left - right).clamp_min_(0))


def entropy(values: Tensor) -> Tensor:
    """The entropy of distributions [..., V], in nats: [..., 1]."""
    return -total(values.clamp_min(torch.finfo(values.dtype).tiny).log_().mul_(values))


def largest(values: Tensor) -> Tensor:
    """The largest of values [..., V]: [..., 1]."""
    return kernels.largest(values) if kernels.serve(values) else values.amax(-1, keepdim=True)
