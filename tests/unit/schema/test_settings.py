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
from specviz.errors import RequestError, SpecvizError
from specviz.schema.settings import SETTINGS, Request


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"prompt": " \n"}, "The prompt is empty"),
        ({"prompt": 3}, "must be text"),
        ({"prompt": "a\ud800b"}, "half a character"),
        ({"prompt": None}, "Give exactly one of prompt, messages and token_ids; none came"),
        ({"token_ids": [1]}, "prompt and token_ids came"),
        ({"prompt": None, "token_ids": []}, "at least one token"),
        ({"prompt": None, "messages": []}, "at least one entry"),
        ({"prompt": None, "messages": [{"role": "user"}]}, "must be a list"),
        ({"method": "nonsense"}, "the methods are drafter_only"),
        ({"method": "x" * 1000}, "There is no method 'x{58}…"),
        ({"lenience": 10**400}, "does not fit"),
        ({"temperature": 10**400}, "a number of at least 0"),
        ({"seed": -(10**5000)}, "a number of very many digits; it must be"),
        ({"lenience": 1.5}, "from 0 \\(strict\\) to 1"),
        ({"lenience": math.nan}, "Lenience nan does not fit"),
        ({"method": "cascade_diff", "lenience": -1.5}, "from -1"),
        ({"method": "cascade_opt", "lenience": math.inf}, "any finite number"),
        ({"method": "drafter_only", "lenience": math.nan}, "takes no lenience"),
        ({"draft_length": 0}, "Draft length is 0; it must be a whole number from 1 to 16"),
        ({"draft_length": True}, "whole number"),
        ({"temperature": -0.1}, "at least 0"),
        ({"temperature": math.inf}, "Temperature is inf"),
        ({"top_p": 0}, "above 0 and at most 1"),
        ({"min_p": 1.1}, "from 0 to 1"),
        ({"repetition_penalty": 0}, "from 0.01 to 100"),
        ({"repetition_penalty": math.nan}, "Repetition penalty is nan; it must be a number"),
        ({"inspect": 101}, "from 0 to 100"),
        ({"rule": "p1(v) > a"}, "cascade_tokenV3 has a rule already: .* the method own_rule"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(settings: dict, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence) as caught:
        Request(**{"prompt": "hello"} | settings)
    assert isinstance(caught.value, SpecvizError)


@pytest.mark.parametrize("name", METHODS)
def test_lenience_left_out_is_the_method_s_default(name: str) -> None:
    assert Request(prompt="hello", method=name).lenience == METHODS[name].default_lenience


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
    assert {request: 1}[Request(token_ids=[5, 6])] == 1


@pytest.mark.parametrize(
    "ids",
    [
        "ab",
        5,
        {5, 6},
        [1.0],
        [True],
        [[5, 6]],
        [-1],
        torch.tensor([[5, 6]]),
        torch.tensor(5),
        np.array([0.5]),
    ],
)
def test_other_values_are_no_ids(ids: Any) -> None:
    with pytest.raises(RequestError, match="token_ids must be whole numbers of at least 0: a list"):
        Request(token_ids=ids)


def test_a_request_copies_what_it_is_made_of() -> None:
    turn, forbidden, ids = {"role": "user", "content": "hello"}, [1, 2], [5, 6]
    talk, going_on = Request(messages=[turn], forbidden_tokens=forbidden), Request(token_ids=ids)
    keys = {talk: 1, going_on: 2}
    turn["content"] = "bye"
    forbidden.append(3)
    ids.append(7)
    assert talk == Request(messages=[{"role": "user", "content": "hello"}], forbidden_tokens=(1, 2))
    assert (keys[talk], keys[going_on], going_on.token_ids) == (1, 2, (5, 6))


def test_every_setting_s_default_is_valid() -> None:
    """One default for page, shell, endpoints and Python."""
    for name, setting in SETTINGS.items():
        setting.check(setting.default)
        assert setting.default == getattr(Request(prompt="hello"), name) or name == "lenience"
