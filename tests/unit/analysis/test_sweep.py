"""A sweep: what it covers, what its figures mean, and that it resumes after any interruption. On tiny models."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from specviz import __main__ as shell
from specviz.analysis.sweep.claim import claim
from specviz.analysis.sweep.estimates import estimated
from specviz.analysis.sweep.folder import SweepFolder, open_recorded, shown_sweeps
from specviz.analysis.sweep.grid import Setting, SweepGrid, Unit
from specviz.analysis.sweep.items import Item, Items, load_items
from specviz.analysis.sweep.results import Results, Sample
from specviz.analysis.sweep.sweep import Sweep
from specviz.core.methods import METHODS
from specviz.core.sampling import SamplingParameters, distribution
from specviz.core.target import target_under
from specviz.engine.engine import Engine
from specviz.errors import RequestError
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request

PROMPTS = ("The quick brown fox", "A small drafter", "def add(a, b):")
SMALL = SweepGrid(points=2, temperatures=(0.0, 0.8), trials=2, max_new_tokens=3, timed=1, seed=5)


# --- what a sweep covers


def test_a_grid_has_both_models_and_every_setting_once() -> None:
    settings = SweepGrid(methods=("cascade_opt",), temperatures=(1, 0.0, 1.0), points=3).settings
    assert settings[:2] == [Setting(0.0, "drafter_only", 0.0), Setting(0.0, "verifier_only", 0.0)]
    opt = [one.lenience for one in settings if one.method == "cascade_opt" and one.temperature == 1]
    assert opt == [-5, 0.2, 5]
    assert len(set(settings)) == len(settings) == 2 * (2 + 3)
    chosen = SweepGrid(methods=("speed", "cascade_diff"), temperatures=(1,), leniences=(-0.5, 0.5)).settings
    assert [one.lenience for one in chosen[2:]] == [0.5, -0.5, 0.5], "speed takes none below 0"


def test_an_invalid_grid_is_refused_in_a_sentence() -> None:
    wrong: tuple[dict[str, Any], ...] = (
        *({"methods": ("nonsense",)}, {"temperatures": (float("nan"),)}, {"draft_length": 17}),
        {"methods": ("speed",), "leniences": (-0.5,)},
        {"methods": ("cascade_opt",), "leniences": (float("inf"),)},
    )
    for settings in wrong:
        with pytest.raises(RequestError, match=r"\.$"):
            SweepGrid(**settings)


# --- what a unit measures


@torch.inference_mode()
def enumerated(
    pair: ModelPair, text: list[int], setting: Setting
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """pi, p and p1 after these ids: both models read all of it, and every outcome of one decision is enumerated."""
    drafter, verifier = (
        model(input_ids=torch.tensor([text])).logits[0, -1, : pair.vocabulary_size]
        for model in (pair.drafter, pair.verifier)
    )
    every = torch.arange(pair.vocabulary_size)
    q, p = distribution(drafter, setting.temperature), distribution(verifier, setting.temperature)
    both = (logits.expand(len(every), -1) for logits in (drafter, verifier))
    asked = SamplingParameters(setting.temperature)
    target = target_under(METHODS[setting.method], *both, asked, setting.lenience)
    accepted, residual = target.acceptance(every), target.residual(every)
    pi = p if setting.method == "verifier_only" else q * accepted + (q * (1 - accepted)) @ residual
    return pi, p, distribution(verifier)


@pytest.mark.parametrize("unit", [Unit(0, 1, 0.0), Unit(1, 2, 0.8)])
def test_a_text_and_its_figures_are_those_of_a_request_alone(engine: Engine, unit: Unit) -> None:
    """Law 3, batch invariance, here with a prompt that is read once for all settings.

    TV(pi, p), log p1 and the favourite at every position are recomputed: both models read all of the text again, and every outcome of
    each decision is enumerated.
    """
    items = Items("ours", tuple(Item(prompt, "text", prompt, ("e",)) for prompt in PROMPTS))
    samples = Sweep(SMALL, items, engine).samples(unit, threading.Event())
    assert samples is not None
    settings = [setting for setting in SMALL.settings if setting.temperature == unit.temperature]
    for setting, sample in zip(settings, samples, strict=True):
        asked = Request(
            prompt=PROMPTS[unit.item],
            method=setting.method,
            lenience=setting.lenience,
            temperature=setting.temperature,
            seed=5 + 2 * unit.item + unit.trial,
            draft_length=SMALL.draft_length,
            max_new_tokens=SMALL.max_new_tokens,
        )
        [run] = engine.generate(asked)
        ids, distance, likely, greedy = list(run.prompt_ids), 0.0, 0.0, 0
        for token in run.token_ids:
            pi, p, p1 = enumerated(engine.pair, ids, setting)
            distance += 0.5 * float((pi - p).abs().sum())
            likely += float(p1[token].log())
            greedy += int(token == p1.argmax())
            ids.append(token)
        known = {
            "setting": SMALL.settings.index(setting),
            **{"item": unit.item, "trial": unit.trial, "seed": run.seed, "text": run.text},
            "tokens": len(run.tokens),
            "examined": sum(r.examined for r in run.rounds),
            "accepted": sum(r.accepted for r in run.rounds),
            **{"drafted": run.drafter_calls, "verifier_calls": run.verifier_calls},
            "score": items.score(unit.item, run.text),
            "distance": pytest.approx(distance, abs=1e-6),
            "log_probability": pytest.approx(likely, abs=1e-6),
            **{"greedy": greedy, "stop_reason": run.stop_reason},
        }
        assert {name: getattr(sample, name) for name in known} == known, setting


# --- a folder


@pytest.fixture(scope="module")
def command(
    pair: ModelPair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Path, str], int]]:
    """The command `sweep` on the tiny pair and three items; without settings it resumes."""
    asked = tmp_path_factory.mktemp("asked") / "asked.jsonl"
    asked.write_text("".join(json.dumps({"prompt": one, "answers": ["e"]}) + "\n" for one in PROMPTS))
    patch = pytest.MonkeyPatch()
    patch.setattr("specviz.models.loading.load_pair", lambda *_, **__: pair)
    yield lambda folder, settings="": shell.main(
        ["sweep", "--out", str(folder), *settings.replace("ASKED", str(asked)).split()]
    )
    patch.undo()


SETTINGS = (
    "--methods speed cascade_tokenV3 --points 2 --temperatures 0 0.8 --trials 2 --max-new-tokens 6 --timed 1 "
    "--prompts ASKED"
)


@pytest.fixture(scope="module")
def whole(command: Callable[..., int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep."""
    folder = tmp_path_factory.mktemp("sweep") / "whole"
    assert command(folder, SETTINGS) == 0
    return folder


@pytest.fixture
def finished(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(whole, tmp_path / "finished")


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def interrupted(count: int, *, kill: bool = True) -> Iterator[list[Unit]]:
    """A sweep dies during its unit number `count` + 1, or is stopped there; yields the units that it did before."""
    done: list[Unit] = []
    original = Sweep.samples

    def samples(sweep: Sweep, unit: Unit, stop: threading.Event) -> list[Sample] | None:
        if len(done) < count:
            done.append(unit)
        elif kill:
            raise Killed
        else:
            stop.set()
        return original(sweep, unit, stop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sweep, "samples", samples)
        with pytest.raises(Killed) if kill else nullcontext():
            yield done


def test_a_sweep_that_was_killed_twice_has_the_same_files(
    command: Callable[..., int], whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Nothing is lost or counted twice, whatever a kill leaves of a line."""
    broken = tmp_path / "broken"
    for count, rest in ((2, b'[0, 2, 0.8, [["half a li'), (0, b"\xc3")):
        with interrupted(count):
            command(broken, SETTINGS)
        with (broken / "part-0.jsonl").open("ab") as file:
            file.write(rest)
    assert not (broken / "results.json").exists()
    # Another process had done the first unit too.
    first = (broken / "part-0.jsonl").read_bytes().split(b"\n")[0]
    (broken / "part-7.jsonl").write_bytes(first + b"\n")
    assert command(broken) == 0
    for name in ("plan.json", "results.json", "samples.jsonl.gz"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
    assert len(set(SweepFolder(broken).samples())) == 3 * (6 + 2 * 6)
    assert not list(broken.glob("part-*"))
    assert "accuracy (95 %)" in capsys.readouterr().out


def test_a_finished_sweep_is_reported_without_its_models(
    command: Callable[..., int], finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specviz.models.loading.load_pair", lambda *_, **__: pytest.fail("nothing to load"))
    out, points = finished / "report.md", finished / "points.csv"
    assert command(finished, f"--markdown {out} --csv {points}") == 0
    recorded = open_recorded(finished)
    assert points.read_text() == recorded.to_csv()
    assert "python -m specviz sweep --out DIR --methods speed cascade_tokenV3 --points 2" in out.read_text()
    assert [point.setting for point in recorded.points] == recorded.plan.settings
    for number, point in enumerate(recorded.points):
        assert "relative_latency" in point.figures
        assert len(recorded.samples(number)) == point.samples == (6 if point.setting.temperature else 3)


def test_a_folder_with_another_sweep_is_refused(
    command: Callable[..., int], finished: Path, capsys: pytest.CaptureFixture
) -> None:
    """Another plan, another set of items, and files of something else."""
    assert command(finished, "--seed 9 --draft-length 5") == 2
    assert "another choice of draft_length and seed" in capsys.readouterr().err
    store = SweepFolder(finished)
    header = store.header()
    assert header is not None
    with pytest.raises(RequestError, match="the items differ"):
        store.begin(replace(header, items=header.items[1:]))
    for content in ("{}", "\x00"):
        (finished / "plan.json").write_text(content)
        assert command(finished) == 2
        assert "no sweep in that folder" in capsys.readouterr().err


def test_stop_keeps_what_is_done(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    with interrupted(2, kill=False) as done:
        assert command(tmp_path / "sweep", SETTINGS) == 130
    assert "the same command resumes it" in capsys.readouterr().err
    assert set(SweepFolder(tmp_path / "sweep").done()) == set(done)
    assert len(done) == 2


def test_results_are_remade_from_the_texts_and_a_full_disk_is_a_sentence(
    command: Callable[..., int], whole: Path, finished: Path, capsys: pytest.CaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (finished / "results.json").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sweep, "samples", lambda *_: pytest.fail("nothing is to be written"))
        patch.setattr("os.replace", full)
        assert command(finished) == 1
        assert (
            "samples.jsonl.gz could not be read or written: No space left on device"
            in capsys.readouterr().err
        )
        patch.undo()
        assert command(finished) == 0
    assert (finished / "results.json").read_bytes() == (whole / "results.json").read_bytes()


# --- the project's own


@pytest.mark.parametrize("recorded", shown_sweeps().values(), ids=lambda each: each.name)
def test_the_recorded_results_and_the_sentences_are_those_of_the_recorded_texts_scored_again(
    recorded: Results,
) -> None:
    assert recorded.folder is not None
    store = SweepFolder(recorded.folder)
    header = store.header()
    assert header is not None
    items = load_items(header.plan.prompts)
    assert header.items == items.items
    samples = [one._replace(score=items.score(one.item, one.text)) for one in store.samples()]
    again = estimated(header, samples)
    assert again == store.results()
    for temperature in again.temperatures:
        assert claim(again, temperature).headline == claim(recorded, temperature).headline
