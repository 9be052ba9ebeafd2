"""Tiny models gain nothing from threads, and lose much where tests run beside other work."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)
