"""Requests: valid values, and a sentence for each wrong one."""

import copy
import dataclasses
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from specviz.core.methods import METHODS
from specviz.errors import RequestError
from specviz.schema.settings import Request


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"prompt": " \n"}, "empty"),
        ({"prompt": 3}, "text"),
        ({"prompt": "a\ud800b"}, "half a character"),
        ({"prompt": None}, "none came"),
        ({"token_ids": [1]}, "prompt and token_ids"),
        ({"prompt": None, "token_ids": []}, "token_ids"),
        ({"prompt": None, "messages": []}, "messages"),
        ({"prompt": None, "messages": [{"role": "user"}]}, "messages"),
        ({"forbidden_tokens": [1.5]}, "forbidden_tokens"),
        ({"method": "x" * 1000}, "'x{58}…"),
        ({"seed": -(10**5000)}, "Seed"),
        ({"lenience": 10**400}, "Lenience"),
        ({"lenience": math.nan}, "Lenience"),
        ({"method": "cascade_diff", "lenience": -1.5}, "from -1"),
        ({"method": "cascade_opt", "lenience": math.inf}, "any finite number"),
        ({"method": "drafter_only", "lenience": math.nan}, "no lenience"),
        ({"draft_length": 0}, "from 1 to 16"),
        ({"draft_length": True}, "whole number"),
        ({"temperature": math.inf}, "Temperature"),
        ({"top_p": 0}, "above 0 and at most 1"),
        ({"min_p": 1.1}, "from 0 to 1"),
        ({"rule": "p1(v) > a"}, "own_rule"),
    ],
)
def test_a_wrong_value_is_refused_in_a_sentence_that_names_it(settings: dict, word: str) -> None:
    with pytest.raises(RequestError, match=word):
        Request(**{"prompt": "hello"} | settings)


def test_lenience_left_out_is_the_method_s_default() -> None:
    for name, method in METHODS.items():
        assert Request(prompt="hello", method=name).lenience == method.default_lenience


def test_a_request_cannot_be_changed_only_replaced() -> None:
    """It is a key, and can be pickled and copied."""
    request = Request(prompt="hello", seed=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.seed = 4
    assert dataclasses.replace(request, seed=4) == Request(prompt="hello", seed=4)
    assert pickle.loads(pickle.dumps(request)) == copy.deepcopy(request) == request
    assert {request: 1}[Request(prompt="hello", seed=3)] == 1


@pytest.mark.parametrize(
    "ids", [[5, 6], range(5, 7), torch.tensor([5, 6]), np.array([5, 6]), [torch.tensor(5), np.int32(6)]]
)
def test_ids_may_come_as_tensors_and_arrays(ids: Any) -> None:
    """They become a tuple of ints."""
    request = Request(token_ids=ids)
    assert request.token_ids == (5, 6)
    assert [type(each) for each in request.token_ids] == [int, int]


@pytest.mark.parametrize("ids", ["ab", {5, 6}, [True], [-1], torch.tensor([[5, 6]]), np.array([0.5])])
def test_other_values_are_no_ids(ids: Any) -> None:
    with pytest.raises(RequestError, match="token_ids"):
        Request(token_ids=ids)


def test_forbidden_ids_may_come_as_tensors_too() -> None:
    for given in ([5, 6], (5, 6), torch.tensor([5, 6]), [np.int64(5), torch.tensor(6)]):
        assert Request(prompt="x", forbidden_tokens=given).forbidden_tokens == (5, 6)


def test_a_request_copies_what_it_is_made_of() -> None:
    turn, forbidden, ids = {"role": "user", "content": "hello"}, [1, 2], [5, 6]
    talk, going_on = Request(messages=[turn], forbidden_tokens=forbidden), Request(token_ids=ids)
    keys = {talk: 1, going_on: 2}
    turn["content"] = "bye"
    forbidden.append(3)
    ids.append(7)
    assert talk == Request(messages=[{"role": "user", "content": "hello"}], forbidden_tokens=(1, 2))
    assert (keys[talk], keys[going_on], going_on.token_ids) == (1, 2, (5, 6))
