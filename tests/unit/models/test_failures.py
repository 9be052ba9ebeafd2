"""Failures: errors that libraries raise while loading have their sentences; those of a hub that answers are in tests/e2e."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import errors as hub
from huggingface_hub.utils import httpx
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from tests.unit.models.helpers import refusal, response


def because(inner: Exception, outer: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


def answer(kind: type[hub.HfHubHTTPError], status: int) -> Exception:
    return kind(f"{status} Error", response=response(status))


ERRORS = [
    (
        because(
            answer(hub.RepositoryNotFoundError, 401), OSError("is not a valid model identifier listed on")
        ),
        "Small was not found on the model hub",
    ),
    (
        because(hub.LocalEntryNotFoundError("Cannot find the files"), OSError("We couldn't connect to")),
        "The model hub cannot be reached from here",
    ),
    (hub.OfflineModeIsEnabled("offline"), "The model hub cannot be reached from here"),
    (httpx.ConnectTimeout("timed out"), "The model hub cannot be reached from here"),
    (answer(hub.HfHubHTTPError, 401), "The model hub does not accept the token that is set here"),
    (OSError("Consistency check failed: file should be of size 9"), "The download of Small broke off"),
    (SafetensorError("Error while deserializing header"), "The files of Small are damaged"),
    (PermissionError(errno.EACCES, "Permission denied", "/tmp/x"), "The files of Small cannot be read"),
    (ZeroDivisionError("in /tmp/x"), "Small could not be loaded because of an unexpected ZeroDivisionError"),
]


@pytest.mark.parametrize(("error", "start"), ERRORS)
def test_every_failure_has_its_sentence(
    error: Exception, start: str, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fail)
    assert refusal().startswith(start)
