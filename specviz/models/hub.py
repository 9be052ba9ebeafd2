"""The model hub: whether it answers, what is cached, what may be read, and how far a download is.

Knows repositories, and nothing of pairs or models. No question here raises: a hub that is down is an answer.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import threading
from pathlib import Path
from typing import Any

from specviz.progress import Progress

# huggingface_hub is imported in functions: listing pairs, which imports this module, should be quick to begin.

_log = logging.getLogger(__name__)
_TIMEOUT = 4.0  # seconds after which the hub counts as unreachable


def reachable() -> bool:
    """Whether the model hub answers at all, within seconds.

    Asked first, because transformers retries an unreachable hub for most of a minute; and in a thread of its own,
    because looking up a host name may take longer than any timeout of the request.
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
    """Whether we may read a gated repository; True if the hub does not say."""
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
    """Whether a repository's config, tokenizer and all of its weights are in the hub's cache."""
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


def folder_of(location: str, name: str, report: Progress, online: bool) -> Path:
    """The folder with a repository's config and safetensors, downloaded if `online`; a folder is its own.

    Raises whatever huggingface_hub raises.
    """
    from huggingface_hub import snapshot_download

    if Path(location).is_dir():
        return Path(location)
    patterns = ["config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json"]
    bar = download_bar(name, report)
    return Path(
        snapshot_download(location, allow_patterns=patterns, local_files_only=not online, tqdm_class=bar)
    )


def download_bar(name: str, report: Progress) -> type:
    """A tqdm class for downloads that draws nothing and reports the bytes of a large file or a set of shards."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg, unused-ignore]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)  # huggingface_hub's own class takes it, tqdm's does not
            super().__init__(*args, **{**kwargs, "disable": False, "file": io.StringIO()})

        def display(self, *args: Any, **kwargs: Any) -> None:
            if self.unit == "B" and (self.total or 0) > 1e6:
                done, total = self.n / 1e6, self.total / 1e6
                report(0.9 * min(1.0, done / total), f"Downloading {name}: {done:,.0f} of {total:,.0f} MB")

    return Bar
