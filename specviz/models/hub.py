"""The model hub, asked carefully: whether it answers, what is cached, what it lets us read.

Knows repositories and nothing of pairs or models. Nothing here raises: a hub that is down is an answer.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from pathlib import Path

_log = logging.getLogger(__name__)
_TIMEOUT = 4.0  # seconds until the hub counts as unreachable


def reachable() -> bool:
    """Whether the model hub answers at all, within seconds.

    Asked first, because transformers itself retries an unreachable hub for the better part of a minute; and
    in a thread of its own, because looking up a name may hang longer than any timeout of the request.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.HF_HUB_OFFLINE:
        return False
    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(Exception):
            get_session().head(constants.ENDPOINT, timeout=_TIMEOUT)
            answered.set()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_TIMEOUT + 1.0)
    return answered.is_set()


def access_granted(repository: str) -> bool:
    """Whether the hub lets us read a gated repository; a hub that cannot say is taken at its best."""
    from huggingface_hub import auth_check
    from huggingface_hub.errors import GatedRepoError

    try:
        auth_check(repository)
    except GatedRepoError:
        return False
    except Exception:
        _log.debug("access to %s could not be asked", repository, exc_info=True)
    return True


def is_cached(repository: str) -> bool:
    """Whether the hub's cache holds the repository's config, tokenizer and all of its weights."""
    from huggingface_hub import try_to_load_from_cache

    def path(name: str) -> Path | None:
        found = try_to_load_from_cache(repository, name)
        return Path(found) if isinstance(found, str) and Path(found).is_file() else None

    def weights() -> bool:
        for kind in ("model.safetensors", "pytorch_model.bin"):
            if path(kind):
                return True
            if index := path(f"{kind}.index.json"):
                shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
                return all(path(shard) for shard in set(shards))
        return False

    with contextlib.suppress(OSError, ValueError, KeyError):
        tokenizer = any(path(it) for it in ("tokenizer.json", "vocab.json", "tokenizer.model"))
        return bool(path("config.json")) and tokenizer and weights()
    return False
