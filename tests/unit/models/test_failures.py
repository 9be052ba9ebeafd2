"""Failures: every error that libraries raise while loading has its sentence."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import errors as hub_errors
from huggingface_hub.utils import httpx
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from tests.unit.models.helpers import refusal, response


def because(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


HUB_ERRORS = [
    (
        because(
            OSError("You are trying to access a gated repo.\nMake sure to have access to it at …"),
            hub_errors.GatedRepoError("403 Client Error", response=response(403)),
        ),
        "Small is gated: accept its licence on the model's page and log in",
    ),
    (
        because(
            OSError("Small is not a local folder and is not a valid model identifier listed on …"),
            hub_errors.RepositoryNotFoundError("401 Client Error", response=response(401)),
        ),
        "Small was not found on the model hub",
    ),
    (
        because(
            OSError("We couldn't connect to 'https://huggingface.co' to load the files"),
            hub_errors.LocalEntryNotFoundError("Cannot find the requested files in the disk cache"),
        ),
        "The model hub cannot be reached from here",
    ),
    (hub_errors.OfflineModeIsEnabled("offline"), "The model hub cannot be reached from here"),
    (httpx.ConnectTimeout("timed out"), "The model hub cannot be reached from here"),
    (
        because(
            OSError("There was a specific connection error when trying to load Small"),
            hub_errors.HfHubHTTPError("503 Server Error", response=response(503)),
        ),
        "The model hub is out of order and cannot give Small now",
    ),
    (
        because(
            hub_errors.LocalEntryNotFoundError(
                "An error happened while trying to locate the file on the Hub"
            ),
            hub_errors.HfHubHTTPError("429 Client Error", response=response(429)),
        ),
        "The model hub takes no more requests from here for now",
    ),
    (
        because(
            hub_errors.LocalEntryNotFoundError(
                "An error happened while trying to locate the file on the Hub"
            ),
            hub_errors.HfHubHTTPError("404 Client Error", response=response(404)),
        ),
        "The model hub answered with an error",
    ),
    (
        hub_errors.HfHubHTTPError("401 Client Error", response=response(401)),
        "The model hub does not accept the token that is set here",
    ),
    (httpx.RemoteProtocolError("peer closed connection"), "The download of Small broke off"),
    (
        OSError("Consistency check failed: file should be of size 9 but has size 4"),
        "The download of Small broke off",
    ),
    (
        SafetensorError("Error while deserializing header: incomplete metadata"),
        "The files of Small are damaged",
    ),
    (OSError(errno.ENOSPC, "No space left on device", "/tmp/somewhere"), "The disk is full"),
    (
        PermissionError(errno.EACCES, "Permission denied", "/tmp/somewhere"),
        "The files of Small cannot be read",
    ),
    (
        ZeroDivisionError("in /tmp/somewhere"),
        "Small could not be loaded because of an unexpected ZeroDivisionError",
    ),
]


@pytest.mark.parametrize(("error", "start"), HUB_ERRORS)
def test_every_failure_of_the_hub_has_its_sentence(
    error: Exception, start: str, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fail)
    assert refusal(device="cpu").startswith(start)
