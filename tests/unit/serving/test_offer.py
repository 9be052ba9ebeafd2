"""What a server offers: what its hardware carries, what its owner says, and nothing that a visitor could name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specviz.engine.pair import load_pair
from specviz.errors import SpecvizError
from specviz.models.registry import PAIRS, HubSource
from specviz.serving import offer
from specviz.serving.offer import Hardware, choose, own_pairs, read_gpus
from tests.support.tiny import tiny_pair

GB = 10**9
EMBEDDED = ["embedded", "embedded-skip"]


@pytest.fixture(autouse=True)
def hub_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub counts as reachable, without a token; asking it over the network fails the test."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.setattr("specviz.models.hub.is_cached", lambda repository: False)
    for name in ("reachable", "refusal"):
        monkeypatch.setattr(f"specviz.models.hub.{name}", lambda *_: pytest.fail("the hub was asked"))


def offered(hardware: Hardware, **environment: str) -> list[str]:
    return list(choose({f"SPECVIZ_{name}": value for name, value in environment.items()}, hardware))


@pytest.mark.parametrize(
    ("hardware", "there", "missing"),
    [
        (Hardware(2 * GB), EMBEDDED, {"smollm2-360m", "opt", "smollm2", "qwen2.5"}),
        (Hardware(16 * GB), [*EMBEDDED, "smollm2", "smollm2-360m", "opt"], {"qwen2.5", "pythia", "gemma2"}),
        (Hardware(1000 * GB), [*EMBEDDED, "smollm2", "qwen2.5-1.5b"], {"qwen2.5", "pythia", "gemma2"}),
        (Hardware(16 * GB, 16 * GB), [*EMBEDDED, "smollm2", "gpt2"], {"qwen2.5", "pythia", "gemma2"}),
        (Hardware(16 * GB, 24 * GB), [*EMBEDDED, "qwen2.5", "smollm2"], {"pythia", "gemma2"}),
        (Hardware(16 * GB, 80 * GB), [*EMBEDDED, "qwen2.5", "pythia"], {"gemma2"}),
    ],
    ids=["2 GB", "16 GB", "1 TB", "16 GB GPU", "24 GB GPU", "80 GB GPU"],
)
def test_what_fits_is_offered(hardware: Hardware, there: list[str], missing: set[str]) -> None:
    """The embedded pairs always; others where their weights fit, and on a CPU only where a pass takes no second."""
    found = offered(hardware)
    assert set(there) <= set(found)
    assert not missing & set(found)
    assert found == [key for key in PAIRS if key in found]  # in the registry's order


def test_a_gated_pair_takes_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A licence cannot have been accepted by a server that logs in nowhere."""
    large = Hardware(16 * GB, 80 * GB)
    assert "gemma2" not in offered(large)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "token")
    assert "gemma2" in offered(large)


def test_offline_only_what_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that may not use the hub offers nothing that it would have to fetch."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert offered(Hardware(16 * GB)) == EMBEDDED
    monkeypatch.setattr(
        "specviz.models.hub.is_cached", lambda repository: repository.startswith("HuggingFaceTB/")
    )
    assert offered(Hardware(16 * GB)) == [*EMBEDDED, "smollm2", "smollm2-360m"]


def test_what_is_not_offered_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a few words, for the page; nothing where the owner has chosen."""
    monkeypatch.setattr(offer, "find_hardware", lambda _: Hardware(16 * GB))
    for name in (offer.OFFERED, offer.OWN):
        monkeypatch.delenv(name, raising=False)
    for each in (offer.offered_pairs, offer.missing_pairs):
        each.cache_clear()
    try:
        missing = offer.missing_pairs()
        assert {*missing, *offer.offered_pairs()} == {*PAIRS}
        assert missing["pythia"] == "too large for a CPU"
        monkeypatch.setattr(offer, "find_hardware", lambda _: Hardware(16 * GB, 24 * GB))
        offer.missing_pairs.cache_clear()
        offer.offered_pairs.cache_clear()
        assert offer.missing_pairs()["gemma2"].startswith("needs 23.7 GB of GPU memory")
        monkeypatch.setenv(offer.OFFERED, "embedded")
        offer.missing_pairs.cache_clear()
        assert offer.missing_pairs() == {}
    finally:
        for each in (offer.offered_pairs, offer.missing_pairs):
            each.cache_clear()


def test_on_zerogpu_only_a_few() -> None:
    """Every pair there is moved in each visitor's time; the owner may ask for more."""
    assert tuple(offered(Hardware(0, zero_gpu=True))) == offer.ZERO_GPU_PAIRS
    assert offered(Hardware(0, zero_gpu=True), PAIRS_OFFERED="qwen2.5") == ["qwen2.5"]


def test_the_owner_has_the_last_word() -> None:
    """Named pairs are offered whatever the hardware is, in the order named; "all" are all; nothing said is nothing."""
    poor = Hardware(GB)
    assert offered(poor, PAIRS_OFFERED="qwen2.5, embedded") == ["qwen2.5", "embedded"]
    assert offered(poor, PAIRS_OFFERED="all", OWN_PAIRS="mine=a/b>c/d") == [*PAIRS, "mine"]
    assert offered(poor, PAIRS_OFFERED=" , ") == EMBEDDED
    assert offered(poor, OWN_PAIRS="mine=a/b>c/d;yours=e>f;") == [*EMBEDDED, "mine", "yours"]
    assert offered(poor, OWN_PAIRS="mine=a/b>c/d;yours=e>f", PAIRS_OFFERED="yours") == ["yours"]
    with pytest.raises(
        SpecvizError, match=r"names 'nope', which is no pair: say \"all\", or some of embedded"
    ):
        offered(poor, PAIRS_OFFERED="embedded,nope")


def model_folder(path: Path, dtype: str = "bfloat16", size: int = 2000) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"dtype": dtype}))
    for shard in (1, 2):
        (path / f"model-{shard}.safetensors").write_bytes(bytes(size // 2))
    return path


def test_own_pairs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is a repository or a folder; a folder tells its size and shows no more than its last name."""
    monkeypatch.setenv("HOME", str(tmp_path))
    small = model_folder(tmp_path / "models" / "small")
    model_folder(tmp_path / "large", dtype="float32", size=8000)
    found = own_pairs(f" mine = {small} > ~/large ; hub=Qwen/Qwen2.5-0.5B>gpt2 ")
    mine, hub = found["mine"], found["hub"]
    assert (mine.drafter, mine.verifier) == (HubSource(str(small)), HubSource(str(tmp_path / "large")))
    assert (mine.drafter_parameters, mine.verifier_parameters) == (1000, 2000)
    assert (hub.drafter, hub.verifier) == (HubSource("Qwen/Qwen2.5-0.5B"), HubSource("gpt2"))
    assert hub.loaded_parameters == 0
    shown = [
        (spec.key, spec.title, spec.drafter_name, spec.verifier_name, spec.about) for spec in found.values()
    ]
    assert shown[0][:4] == ("mine", "small → large", "small", "large")
    assert str(tmp_path) not in str(shown)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a/b>c/d", "write name=drafter>verifier"),
        ("mine=a/b", "write name=drafter>verifier"),
        ("mine=>c/d", "write name=drafter>verifier"),
        ("My Pair=a/b>c/d", "write name=drafter>verifier"),
        ("embedded=a/b>c/d", "'embedded' is taken"),
        ("all=a/b>c/d", "'all' is taken"),
        ("mine=a/b>c/d;mine=e/f>g/h", "'mine' is taken"),
        ("mine=a/b/c>c/d", "neither owner/name"),
        ("mine=a/..>c/d", "neither owner/name"),
        ("mine=https://x/y>c/d", "neither owner/name"),
        ("mine=/nowhere/at/all>c/d", "no config.json"),
    ],
)
def test_own_pairs_that_cannot_be_read(text: str, wrong: str) -> None:
    """One sentence that says what is wrong, and shows no path."""
    with pytest.raises(SpecvizError, match=wrong) as raised:
        own_pairs(text)
    assert "/nowhere" not in str(raised.value)


def test_gpus_are_those_that_torch_sees() -> None:
    """All of them together, or those of CUDA_VISIBLE_DEVICES by number or name; what cannot be read counts nothing."""
    listing = "0, GPU-aaa1, 24576\n1, GPU-bbb2, 81920\n2, GPU-ccc3, [N/A]\n\nnonsense\n"
    assert read_gpus(listing, None) == (24576 + 81920) * 2**20
    assert read_gpus(listing, "1") == read_gpus(listing, "GPU-bbb") == 81920 * 2**20
    assert read_gpus(listing, "") == read_gpus(listing, "-1") == read_gpus(listing, "2") == 0


def test_a_container_has_what_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory that counts is the least of the machine's and the limits of its control groups."""
    limits = [tmp_path / name for name in ("max", "small", "missing")]
    limits[0].write_text("max\n")
    limits[1].write_text("123456\n")
    monkeypatch.setattr(offer, "_CGROUP_LIMITS", [str(limits[0]), str(limits[2])])
    machine = offer.find_hardware({}).host_bytes
    assert machine > GB
    monkeypatch.setattr(offer, "_CGROUP_LIMITS", [*map(str, limits)])
    assert offer.find_hardware({}) == Hardware(123456)


def test_a_driver_that_fails_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs are found by the driver's own tool; where that fails, or torch cannot use them, there are none."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, GPU-a, 1000'\n")
    tool.chmod(0o755)
    monkeypatch.setattr(offer, "version", lambda name: "2.13.0")
    assert offer.find_hardware({"PATH": str(tmp_path)}).gpu_bytes == 1000 * 2**20
    monkeypatch.setattr(offer, "version", lambda name: "2.13.0+cpu")
    assert offer.find_hardware({"PATH": str(tmp_path)}).gpu_bytes == 0
    monkeypatch.setattr(offer, "version", lambda name: "2.13.0")
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert offer.find_hardware({"PATH": str(tmp_path)}).gpu_bytes == 0
    assert offer.find_hardware({"PATH": ""}).gpu_bytes == 0


def test_asking_is_cheap_and_the_default_is_offered() -> None:
    """Neither torch nor gradio is imported to know what is offered; the page begins with a pair that is."""
    code = (
        "import sys; from specviz.serving.offer import *; print(default_pair(), *offered_pairs());"
        "sys.exit(bool({'torch', 'gradio', 'spaces'} & set(sys.modules)))"
    )
    environment = {**os.environ, "SPECVIZ_PAIRS_OFFERED": "opt,gpt2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["opt", "opt", "gpt2"])


def test_an_own_pair_of_folders_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the owner names is loaded from its folders and writes; nobody asks the hub, and no path is shown."""
    same = tiny_pair("llama", tmp_path).generate("The fox", seed=1, max_new_tokens=8)
    monkeypatch.setenv("SPECVIZ_OWN_PAIRS", f"mine={tmp_path}/drafter>{tmp_path}/verifier")
    offer.offered_pairs.cache_clear()
    pair = load_pair(offer.offered_pairs()["mine"], device="cpu", dtype="float64")
    offer.offered_pairs.cache_clear()
    run = pair.generate("The fox", seed=1, max_new_tokens=8)
    assert (pair.key, run.text) == ("mine", same.text)  # type: ignore[union-attr]
    assert str(tmp_path) not in repr(run) + repr(pair)
