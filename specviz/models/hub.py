"""The model hub: whether it answers, what is cached, what may be downloaded, and downloads with progress.

Only `folder_of` raises errors of the hub. The other functions return a result even if the hub is down.
"""

from __future__ import annotations

import contextlib
import io
import json
import threading
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from specviz.progress import Progress

# huggingface_hub is imported in functions: listing pairs, which imports this module, should be quick to begin.

_WEIGHTS = {
    "model.safetensors": "model.safetensors",
    "model.safetensors.index.json": "model-*.safetensors",
    "pytorch_model.bin": "pytorch_model.bin",
    "pytorch_model.bin.index.json": "pytorch_model-*.bin",
}
"""Patterns of the weight files, by the file that shows in which format a repository has weights; in transformers' order of preference."""
SMALL_VOCABULARY = "vocabulary.safetensors"
"""File beside a drafter's weights, if the drafter has only some of its verifier's tokens."""
_TOKENIZERS = ("tokenizer.json", "vocab.json", "tokenizer.model")
_DESCRIPTIONS = ("*.json", "*.txt", "*.jinja", "*.model", SMALL_VOCABULARY)
"""Patterns of the files to download besides weights: configs, tokenizers, chat templates, and a distilled drafter's vocabulary."""
_TIMEOUT = 4.0  # seconds after which the hub counts as unreachable


def reachable() -> bool:
    """Whether the model hub answers within seconds. False if HF_HUB_OFFLINE is set.

    Call this first, because transformers retries an unreachable hub for most of a minute. The request has its own thread,
    because looking up a host name may take longer than the request's timeout.
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


def refusal(repository: str) -> Exception | None:
    """The error with which the hub refuses a repository: gated, missing, a bad token, too many requests, a server error.

    None if the hub allows access or gives no clear answer. Call before a download, which would repeat a refused request for 30 s.
    """
    from huggingface_hub import auth_check
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        auth_check(repository)
    except Exception as error:
        status = getattr(getattr(error, "response", None), "status_code", 0)
        # A gated repository is also not found; any other 404 may be a mirror's that lacks this endpoint.
        is_refused = isinstance(error, RepositoryNotFoundError) or status in (401, 403, 429) or status >= 500
        return error if is_refused else None
    return None


def is_cached(repository: str) -> bool:
    """Whether a repository's config, tokenizer and all of its weights are in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(repository, "config.json")
    if not isinstance(config, str):
        return False
    folder = Path(config).parent
    with contextlib.suppress(Exception):  # a damaged index
        weights = weight_files(folder)
        has_tokenizer = any((folder / name).is_file() for name in _TOKENIZERS) or shares_tokenizer(folder)
        return bool(weights) and has_tokenizer and all(map(Path.is_file, weights))
    return False


def shares_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a drafter written by `specviz distill`, which has its verifier's ids and no tokenizer."""
    names = {path.name for path in folder.iterdir()}
    return SMALL_VOCABULARY in names and not names & {*_TOKENIZERS}


def weight_files(folder: Path) -> list[Path]:
    """The files of a model's weights in a folder; empty if there are none. A file that an index names may be missing.

    A damaged index can raise any exception.
    """
    first = next((it for it in map(folder.joinpath, _WEIGHTS) if it.is_file()), None)
    if first is None or first.suffix != ".json":
        return [first] if first else []
    names = json.loads(first.read_text("utf-8"))["weight_map"].values()
    return [folder / name for name in sorted(set(names))]


def folder_of(location: str, name: str, report: Progress, online: bool) -> Path:
    """The folder with a repository's files, which are downloaded if `online`. If `location` is a folder, it is returned.

    All files are fetched before any is read, because transformers ignores a failure to download some of them, such as the chat
    template or the generation config. `name` is the model's name for `report`. Raises whatever huggingface_hub raises.
    """
    from huggingface_hub import model_info, snapshot_download

    from specviz.compat.huggingface_hub import delete_abandoned

    if Path(location).is_dir():
        return Path(location)
    options: dict[str, Any] = {"allow_patterns": [*_DESCRIPTIONS], "ignore_patterns": ["*/*"]}
    if not online:
        return Path(snapshot_download(location, local_files_only=True, **options))
    delete_abandoned(location)
    try:
        files = model_info(location, files_metadata=True).siblings or []
    except Exception:
        if is_cached(location):
            return Path(snapshot_download(location, local_files_only=True, **options))
        raise
    sizes = {file.rfilename: file.size or 0 for file in files if "/" not in file.rfilename}
    options["allow_patterns"] += [pattern for file, pattern in _WEIGHTS.items() if file in sizes][:1]
    patterns = options["allow_patterns"]
    total = sum(size for file, size in sizes.items() if any(fnmatch(file, it) for it in patterns))
    return Path(snapshot_download(location, tqdm_class=_download_bar(name, report, total), **options))


def _download_bar(name: str, report: Progress, total: int) -> type:
    """A tqdm class that draws nothing and reports the downloaded share of `total` bytes, which never decreases.

    `total` is needed because a bar that several files share learns the size of a file only when its download begins.
    """
    from tqdm import tqdm

    told = -1.0

    class Bar(tqdm):  # type: ignore[type-arg, unused-ignore]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)  # huggingface_hub's own class takes it, tqdm's does not
            super().__init__(*args, **{**kwargs, "disable": False, "file": io.StringIO()})

        def display(self, *args: Any, **kwargs: Any) -> None:
            nonlocal told
            size = max(total, self.total or 0)
            if self.unit == "B" and size > 1e6 and (share := min(1.0, self.n / size)) > told:
                told = share
                report(0.9 * share, f"Downloading {name}: {self.n / 1e6:,.0f} of {size / 1e6:,.0f} MB")

    return Bar
