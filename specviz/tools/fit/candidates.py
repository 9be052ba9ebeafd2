"""Makes pairs from names on the command line. Each name is a folder, a repository of the hub, or a pair of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specviz.errors import PairError, RequestError, quoted
from specviz.models.registry import (
    PAIRS,
    REPOSITORY,
    AssetSource,
    HubSource,
    LookupSource,
    PairSpec,
    SkipSource,
    Source,
)


def candidates(names: Sequence[str]) -> list[PairSpec]:
    """Pair each drafter with the verifier, which is the last of `names`. The name of a registry's pair stands for the pair's drafter; as
    the last name, for its verifier; as the only name, for both.

    Raises:
        RequestError: a name is no folder, repository or pair; the only name is no pair; or a drafter is a lookup.
        PairError: a drafter works only with its own pair's verifier, but the last name is another verifier.
    """
    if len(names) == 1 and names[0] not in PAIRS:
        raise RequestError(f"Name a drafter and then its verifier, or one of the pairs: {', '.join(PAIRS)}.")
    *drafters, last = names if len(names) > 1 else (*names, *names)
    verifier, verifier_name, verifier_parameters = _model(last, "verifier")
    found = []
    for name in drafters:
        source, drafter_name, parameters = _model(name, "drafter")
        if isinstance(source, LookupSource):
            raise RequestError(f"{drafter_name} is no model, so there is nothing to predict: leave it out.")
        if isinstance(source, AssetSource | SkipSource) and verifier != PAIRS[name].verifier:
            raise PairError(
                f"{drafter_name} drafts for {PAIRS[name].verifier_name} only: name that as its verifier."
            )
        more = parameters, verifier_parameters, ""
        title = f"{drafter_name} → {verifier_name}"
        found.append(PairSpec(name, title, source, verifier, drafter_name, verifier_name, *more))
    return found


def _model(name: str, role: str) -> tuple[Source, str, int]:
    """A model's source, its name in the report, and its number of parameters, 0 where unknown."""
    if name in PAIRS:
        fields = (role, f"{role}_name", f"{role}_parameters")
        source, title, parameters = (getattr(PAIRS[name], each) for each in fields)
        return source, title, parameters
    if (folder := Path(name).expanduser()).is_dir():
        folder = folder.resolve()
        return HubSource(str(folder)), "/".join(folder.parts[-2:]), 0
    if not REPOSITORY.fullmatch(name):
        raise RequestError(
            f"{quoted(name)} is no folder, no name on the hub and no pair; pairs are {', '.join(PAIRS)}."
        )
    return HubSource(name), name.rpartition("/")[2], 0
