"""Failures: every error that libraries raise while loading has its sentence."""

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


NOT_CACHED = "An error happened while trying to locate the file on the Hub"
ERRORS = [
    (
        because(
            answer(hub.GatedRepoError, 403), OSError("You are trying to access a gated repo.\nMake sure")
        ),
        "Small is gated: accept its licence on the model's page and log in",
    ),
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
    (
        because(answer(hub.HfHubHTTPError, 503), OSError("There was a specific connection error")),
        "The model hub is out of order and cannot give Small now",
    ),
    (
        because(answer(hub.HfHubHTTPError, 429), hub.LocalEntryNotFoundError(NOT_CACHED)),
        "The model hub takes no more requests from here for now",
    ),
    (
        because(answer(hub.HfHubHTTPError, 404), hub.LocalEntryNotFoundError(NOT_CACHED)),
        "The model hub answered with an error",
    ),
    (answer(hub.HfHubHTTPError, 401), "The model hub does not accept the token that is set here"),
    (httpx.RemoteProtocolError("peer closed connection"), "The download of Small broke off"),
    (OSError("Consistency check failed: file should be of size 9"), "The download of Small broke off"),
    (SafetensorError("Error while deserializing header"), "The files of Small are damaged"),
    (OSError(errno.ENOSPC, "No space left on device", "/tmp/somewhere"), "The disk is full"),
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
