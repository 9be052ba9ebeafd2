"""The pairs that a server offers: by its hardware, or as its owner says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specviz.errors import SpecvizError
from specviz.models.registry import PAIRS, HubSource
from specviz.serving import offer
from specviz.serving.offer import Hardware, choose, own_pairs

GB = 10**9
EMBEDDED = ["embedded", "embedded-specialist", "embedded-skip", "embedded-lookup"]


@pytest.fixture(autouse=True)
def hub_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token, nothing cached; asking the hub over the network fails the test."""
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
        (Hardware(1000 * GB), [*EMBEDDED, "smollm2", "qwen2.5-1.5b"], {"qwen2.5", "pythia", "gemma2"}),
        (Hardware(16 * GB, 24 * GB), [*EMBEDDED, "qwen2.5", "smollm2"], {"pythia", "gemma2"}),
    ],
)
def test_what_fits_is_offered(hardware: Hardware, there: list[str], missing: set[str]) -> None:
    """The embedded pairs always; others if their weights fit, and on a CPU if a pass takes less than a second."""
    found = offered(hardware)
    assert set(there) <= set(found)
    assert not missing & set(found)
    assert found == [key for key in PAIRS if key in found]  # in the registry's order


def test_offline_only_cached_pairs_and_gated_ones_with_a_token_are_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = Hardware(16 * GB, 80 * GB)
    assert "gemma2" not in offered(large)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "token")
    assert "gemma2" in offered(large)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert offered(Hardware(16 * GB)) == EMBEDDED
    monkeypatch.setattr(
        "specviz.models.hub.is_cached", lambda repository: repository.startswith("HuggingFaceTB/")
    )
    assert offered(Hardware(16 * GB)) == [*EMBEDDED, "smollm2", "smollm2-360m"]


def test_pairs_that_are_not_offered_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """None if the owner has chosen."""
    for name in ("offered_pairs", "missing_pairs"):
        monkeypatch.setattr(offer, name, getattr(offer, name).__wrapped__)
    monkeypatch.setattr(offer, "find_hardware", lambda _: Hardware(16 * GB, 24 * GB))
    monkeypatch.delenv(offer.OFFERED, raising=False)
    assert "23.7 GB of GPU memory" in offer.missing_pairs()["gemma2"]
    monkeypatch.setattr(offer, "find_hardware", lambda _: Hardware(16 * GB))
    assert "CPU" in offer.missing_pairs()["pythia"]
    assert {*offer.missing_pairs(), *offer.offered_pairs()} == {*PAIRS}
    monkeypatch.setenv(offer.OFFERED, "embedded")
    assert offer.missing_pairs() == {}


def test_the_owner_has_the_last_word() -> None:
    """Named pairs are offered on any hardware, in the order named; "all" offers all."""
    poor = Hardware(GB)
    assert tuple(offered(Hardware(0, zero_gpu=True))) == offer.ZERO_GPU_PAIRS
    assert offered(poor, PAIRS_OFFERED="qwen2.5, embedded") == ["qwen2.5", "embedded"]
    assert offered(poor, PAIRS_OFFERED="all", OWN_PAIRS="mine=a/b>c/d") == [*PAIRS, "mine"]
    assert offered(poor, PAIRS_OFFERED=" , ") == EMBEDDED
    assert offered(poor, OWN_PAIRS="mine=a/b>c/d;yours=e>f;") == [*EMBEDDED, "mine", "yours"]
    with pytest.raises(SpecvizError, match="'nope'"):
        offered(poor, PAIRS_OFFERED="embedded,nope")


def test_own_pairs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder, its size is read and only its last name is shown."""
    monkeypatch.setenv("HOME", str(tmp_path))
    small, large = tmp_path / "models" / "small", tmp_path / "large"
    for folder, dtype, size in ((small, "bfloat16", 2000), (large, "float32", 8000)):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"dtype": dtype}))
        for shard in (1, 2):
            (folder / f"model-{shard}.safetensors").write_bytes(bytes(size // 2))
    found = own_pairs(f" mine = {small} > ~/large ; hub=Qwen/Qwen2.5-0.5B>gpt2 ")
    mine, hub = found["mine"], found["hub"]
    assert (mine.drafter, mine.verifier) == (HubSource(str(small)), HubSource(str(large)))
    assert (mine.drafter_parameters, mine.verifier_parameters) == (1000, 2000)
    assert (hub.drafter, hub.verifier) == (HubSource("Qwen/Qwen2.5-0.5B"), HubSource("gpt2"))
    assert hub.loaded_parameters == 0
    assert (mine.title, mine.drafter_name, mine.verifier_name) == ("small → large", "small", "large")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("My Pair=a/b>c/d", "name=drafter>verifier"),
        ("embedded=a/b>c/d", "'embedded' is taken"),
        ("mine=a/..>c/d", "neither"),
        ("mine=/nowhere/at/all>c/d", "no config.json"),
    ],
)
def test_own_pairs_that_cannot_be_read(text: str, wrong: str) -> None:
    """One sentence tells the mistake, without a path."""
    with pytest.raises(SpecvizError, match=wrong) as raised:
        own_pairs(text)
    assert "/nowhere" not in str(raised.value)


def test_gpus_are_those_that_torch_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of CUDA_VISIBLE_DEVICES, as the driver's tool knows them. None if the driver's tool fails or torch cannot use them."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\ncase $* in *--id=1) echo 81920;; *--id=2) echo '[N/A]';; *--id*) exit 6;; "
        "*) echo '24576\n81920\n[N/A]\n\nnonsense';; esac\n"
    )
    tool.chmod(0o755)

    def mebibytes(torch: str = "2.13.0", **visible: str) -> int:
        monkeypatch.setattr(offer, "version", lambda _: torch)
        return offer.find_hardware({"PATH": str(tmp_path)} | visible).gpu_bytes // 2**20

    assert mebibytes() == 24576 + 81920
    for name, found in (("1", 81920), ("", 0), ("-1", 0), ("2", 0)):
        assert mebibytes(CUDA_VISIBLE_DEVICES=name) == found
    assert mebibytes("2.13.0+cpu") == 0
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert mebibytes() == offer.find_hardware({"PATH": ""}).gpu_bytes == 0


def test_a_container_has_what_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least of the machine's memory and the limits of its control groups counts."""
    limits = [tmp_path / name for name in ("max", "small", "missing")]
    limits[0].write_text("max\n")
    limits[1].write_text("123456\n")
    monkeypatch.setattr(offer, "_CGROUP_LIMITS", [str(limits[0]), str(limits[2])])
    machine = offer.find_hardware({}).host_bytes
    assert machine > GB
    monkeypatch.setattr(offer, "_CGROUP_LIMITS", [*map(str, limits)])
    assert offer.find_hardware({}) == Hardware(123456)
