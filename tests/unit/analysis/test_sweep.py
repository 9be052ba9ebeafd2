"""A sweep: what it goes through, what its figures mean, and that it can be broken off anywhere. On tiny models."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from specviz import __main__ as shell
from specviz.analysis.quality import fidelity
from specviz.analysis.sweep.folder import SHELF, Header, Recorded, SweepFolder, open_recorded
from specviz.analysis.sweep.grid import LENIENCES, Setting, SweepGrid, Unit
from specviz.analysis.sweep.items import Item, Items, load_items
from specviz.analysis.sweep.sample import Sample
from specviz.analysis.sweep.sweep import Sweep
from specviz.cli.sweep_job import report
from specviz.core.methods import METHODS, OWN_RULE, PAPER
from specviz.core.sampling import distribution
from specviz.core.target import acceptance_and_residual
from specviz.engine.engine import Engine
from specviz.errors import RequestError, TraceError
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.tools.sweep.report import Picture
from tests.support.tiny import tiny_pair

REPORT = Path(__file__).parents[3] / "docs" / "results.md"
PROMPTS = ("The quick brown fox", "A small drafter", "def add(a, b):")
SMALL = SweepGrid(points=2, temperatures=(0.0, 0.8), trials=2, max_new_tokens=6, timed=1, seed=5)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    return tiny_pair("llama", tmp_path_factory.mktemp("pair"))


@pytest.fixture
def items() -> Items:
    return Items("ours", tuple(Item(f"k{n}", "text", prompt, ("e",)) for n, prompt in enumerate(PROMPTS)))


# --- what a sweep goes through


def test_every_curve_runs_from_its_strict_end_to_the_drafters() -> None:
    for name, method in ((name, METHODS[name]) for name in PAPER):
        if method.has_lenience:
            assert (LENIENCES[name][0], LENIENCES[name][-1]) == method.offered_range
            assert len(LENIENCES[name]) >= 6
            assert sorted(LENIENCES[name]) == list(LENIENCES[name])


def test_a_grid_has_both_models_and_every_setting_once() -> None:
    settings = SweepGrid(methods=("cascade_opt",), temperatures=(1, 0.0, 1.0), points=3).settings
    assert settings[:2] == [Setting(0.0, "drafter_only", 0.0), Setting(0.0, "verifier_only", 0.0)]
    opt = [one.lenience for one in settings if one.method == "cascade_opt" and one.temperature == 1]
    assert opt == [-5, 0.2, 5]
    assert len(set(settings)) == len(settings) == 2 * (2 + 3)
    chosen = SweepGrid(methods=("speed", "cascade_diff"), temperatures=(1,), leniences=(-0.5, 0.5)).settings
    assert [(one.method, one.lenience) for one in chosen[2:]] == [
        ("speed", 0.5),
        ("cascade_diff", -0.5),
        ("cascade_diff", 0.5),
    ]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"methods": ("nonsense",)}, "no method 'nonsense'"),
        ({"temperatures": ()}, "at least one temperature"),
        ({"temperatures": (-1.0,)}, "of at least 0"),
        ({"temperatures": (float("nan"),)}, "of at least 0"),
        ({"methods": ("speed",), "leniences": (-0.5,)}, "None of the leniences fits speed"),
        ({"points": 1}, "at least 2"),
        ({"draft_length": 17}, "from 1 to 16"),
        ({"trials": 0}, "from 1 to 1000"),
        ({"limit": -1}, "from 0"),
        ({"max_new_tokens": True}, "whole number"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_in_a_sentence(settings: dict, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        SweepGrid(**settings)


def test_a_header_is_read_as_it_was_written(items: Items) -> None:
    header = Header(SMALL, "small", "large", "float64", items.items)
    assert Header.from_json(header.to_json()) == header
    for damaged in (
        "",
        "[]",
        "{}",
        '{"schema": "x", "version": 1}',
        header.to_json().replace('"seed"', '"sead"'),
    ):
        with pytest.raises(TraceError):
            Header.from_json(damaged)


# --- what a unit comes to


def test_a_text_of_a_sweep_is_that_of_a_request_alone(pair: ModelPair, items: Items) -> None:
    """Law 3: neighbours do not show, here with a prompt that is read once for all settings; counts are the run's own."""
    sweep = Sweep(SMALL, pair, items)
    assert len(sweep.units) == len(PROMPTS) * (1 + 2)
    unit = Unit(1, 2, 0.8)
    samples = sweep.samples(unit, threading.Event())
    assert samples is not None
    settings = [setting for setting in SMALL.settings if setting.temperature == 0.8]
    for setting, sample in zip(settings, samples, strict=True):
        [run] = Engine(pair).generate(
            Request(
                prompt=PROMPTS[2],
                method=setting.method,
                lenience=setting.lenience,
                temperature=0.8,
                seed=5 + 2 * 2 + 1,
                draft_length=SMALL.draft_length,
                max_new_tokens=6,
            )
        )
        assert (sample.text, sample.tokens, sample.seed) == (run.text, len(run.tokens), run.seed)
        assert sample.accepted == sum(r.accepted for r in run.rounds)
        assert sample.examined == sum(r.examined for r in run.rounds)
        assert (sample.verifier_calls, sample.drafted) == (run.verifier_calls, run.drafter_calls)
        assert SMALL.settings[sample.setting] == setting
        assert sample.score == items.score(2, run.text)


def test_a_stopped_unit_is_none(pair: ModelPair, items: Items) -> None:
    stop = threading.Event()
    stop.set()
    sweep = Sweep(SMALL, pair, items)
    assert sweep.samples(sweep.units[0], stop) is None
    assert list(sweep.timings(sweep.timed(), stop)) == []


# --- fidelity


def enumerated(
    pair: ModelPair, texts: list[list[int]], setting: Setting
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """pi, p and p1 after each of these ids, all of one length: both models read all of it, and every outcome of one decision
    is gone through."""

    def last(model: torch.nn.Module) -> torch.Tensor:
        return model(input_ids=torch.tensor(texts)).logits[:, -1, : pair.vocabulary_size]

    with torch.inference_mode():
        both = last(pair.drafter), last(pair.verifier)
    every = torch.arange(pair.vocabulary_size)
    settings = {"lenience": setting.lenience, "temperature": setting.temperature}
    for drafter, verifier in zip(*both, strict=True):
        q, p = distribution(drafter, setting.temperature), distribution(verifier, setting.temperature)
        kept, residual = acceptance_and_residual(
            setting.method, drafter.expand(len(every), -1), verifier.expand(len(every), -1), every, **settings
        )
        pi = p if setting.method == "verifier_only" else q * kept + (q * (1 - kept)) @ residual
        yield pi, p, distribution(verifier)


@pytest.mark.parametrize("method", PAPER)
def test_fidelity_is_that_of_enumerated_outcomes(pair: ModelPair, items: Items, method: str) -> None:
    """TV(pi, p), log p1 and the favourite of every position of a sweep's texts, against plain recomputation."""
    grid = SweepGrid(methods=(method,), temperatures=(0.0, 0.8), points=3, limit=2, max_new_tokens=4)
    sweep = Sweep(grid, pair, Items("two", items.items[:2]))
    for unit in sweep.units:
        for sample in sweep.samples(unit, threading.Event()) or []:
            setting = sweep.settings[sample.setting]
            [run] = Engine(pair).generate(
                Request(
                    prompt=PROMPTS[unit.item],
                    method=setting.method,
                    lenience=setting.lenience,
                    temperature=setting.temperature,
                    seed=sample.seed,
                    max_new_tokens=4,
                )
            )
            ids, distance, likely, greedy = list(run.prompt_ids), 0.0, 0.0, 0
            for token in run.token_ids:
                [(pi, p, p1)] = enumerated(pair, [ids], setting)
                distance += 0.5 * float((pi - p).abs().sum())
                likely += float(p1[token].log())
                greedy += int(token == p1.argmax())
                ids.append(token)
            assert sample.distance == pytest.approx(distance, abs=1e-6)
            assert sample.log_probability == pytest.approx(likely, abs=1e-6)
            assert sample.greedy == greedy


@pytest.mark.parametrize(
    ("method", "lenience"), [("speed", 0.5), ("cascade_tokenV3", 0.7), ("cascade_diff", 0.05)]
)
def test_a_sweeps_mean_distance_is_the_expected_one(pair: ModelPair, method: str, lenience: float) -> None:
    """Over all texts of two tokens, gone through with their probabilities: the sweep's mean lies where it must."""
    grid = SweepGrid(
        methods=(method,), leniences=(lenience,), temperatures=(1.0,), trials=120, max_new_tokens=2
    )
    sweep = Sweep(grid, pair, Items("one", (Item("k", "text", PROMPTS[0]),)))
    samples = [one for unit in sweep.units for one in sweep.samples(unit, threading.Event()) or []]
    setting = Setting(1.0, method, lenience)
    own = [one.distance for one in samples if sweep.settings[one.setting] == setting]
    ids = pair.tokenizer(PROMPTS[0])["input_ids"]
    [(first, p, _)] = enumerated(pair, [ids], setting)
    expected = 0.5 * float((first - p).abs().sum())
    goes_on = {
        token: probability
        for token, probability in enumerate(first.tolist())
        if token not in pair.eos_token_ids and probability > 1e-9
    }
    seconds = enumerated(pair, [[*ids, token] for token in goes_on], setting)
    for probability, (second, p, _) in zip(goes_on.values(), seconds, strict=True):
        expected += probability * 0.5 * float((second - p).abs().sum())
    spread = torch.tensor(own).std().item()
    assert spread > 0
    assert sum(own) / len(own) == pytest.approx(expected, abs=4 * spread / len(own) ** 0.5)


def test_the_drafters_own_text_is_read_by_the_verifier(pair: ModelPair) -> None:
    [run] = Engine(pair).generate(
        Request(prompt=PROMPTS[0], method="drafter_only", max_new_tokens=5, return_logits=True)
    )
    found = fidelity(run, pair)
    assert found.distance > 0
    assert found.log_probability < 0


# --- a folder


@pytest.fixture
def command(pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The command `sweep` on the tiny pair and three items."""
    monkeypatch.setattr("specviz.models.loading.load_pair", lambda *_, **__: pair)
    asked = tmp_path / "asked.jsonl"
    asked.write_text("".join(json.dumps({"prompt": one, "answers": ["e"]}) + "\n" for one in PROMPTS))
    settings = [
        "--methods",
        "speed",
        "cascade_tokenV3",
        "--points",
        "2",
        "--temperatures",
        "0",
        "0.8",
        "--trials",
        "2",
        "--max-new-tokens",
        "6",
    ]
    settings += ["--timed", "1", "--prompts", str(asked)]

    def run(folder: Path, *more: str, plain: bool = False) -> int:
        return shell.main(["sweep", "--out", str(folder), *([] if plain else settings), *more])

    return run


class Killed(BaseException):
    """The process is gone."""


def kill_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sweep die while it does its unit number `count` + 1."""
    done = []

    def samples(sweep: Sweep, unit: Unit, stop: threading.Event) -> list[Sample] | None:
        if len(done) == count:
            raise Killed
        done.append(unit)
        return whole(sweep, unit, stop)

    whole = Sweep.samples
    monkeypatch.setattr(Sweep, "samples", samples)


def test_a_sweep_that_was_killed_three_times_comes_to_the_same_files(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Nothing is lost or counted twice, whatever a kill leaves of the line that was being written."""
    assert command(tmp_path / "whole") == 0
    broken = tmp_path / "broken"
    for count, rest in ((2, b'[0, 2, 0.8, [["half a li'), (0, b""), (3, b"\xc3")):
        with pytest.MonkeyPatch.context() as patch:
            kill_after(count, patch)
            with pytest.raises(Killed):
                command(broken)
        with (broken / "part-0.jsonl").open("ab") as file:
            file.write(rest)
    assert not (broken / "results.json").exists()
    # Another process had done the first unit too.
    first = (broken / "part-0.jsonl").read_bytes().split(b"\n")[0]
    (broken / "part-7.jsonl").write_bytes(first + b"\n")
    assert command(broken, plain=True) == 0
    for name in ("plan.json", "results.json", "samples.jsonl.gz"):
        assert (broken / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    samples = list(SweepFolder(broken).samples())
    assert len(samples) == 3 * (6 + 2 * 6)
    assert samples == sorted(set(samples))
    assert not list(broken.glob("part-*"))
    assert "accuracy (95 %)" in capsys.readouterr().out


def test_a_finished_sweep_is_reported_without_its_models(
    command: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command(tmp_path / "sweep") == 0
    monkeypatch.setattr(
        "specviz.models.loading.load_pair", lambda *_, **__: pytest.fail("nothing is to be loaded")
    )
    report, points = tmp_path / "report.md", tmp_path / "points.csv"
    assert command(tmp_path / "sweep", "--markdown", str(report), "--csv", str(points), plain=True) == 0
    recorded = open_recorded(tmp_path / "sweep")
    assert recorded is not None
    assert points.read_text() == recorded.results.to_csv()
    text = report.read_text()
    assert "python -m specviz sweep --methods speed cascade_tokenV3 --points 2" in text
    for number, setting in enumerate(SweepFolder(tmp_path / "sweep").header().plan.settings):  # type: ignore[union-attr]
        point = recorded.results.points[number]
        assert point.setting == setting
        assert "relative_latency" in point.figures
        assert len(recorded.samples(number)) == point.samples == (3 if setting.temperature == 0 else 6)
    assert recorded.costs is not None
    assert recorded.costs.drafter > 0


def test_results_are_made_anew_from_the_texts_that_are_there(
    command: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command(tmp_path / "sweep") == 0
    results = tmp_path / "sweep" / "results.json"
    before = results.read_bytes()
    results.unlink()
    monkeypatch.setattr(Sweep, "samples", lambda *_: pytest.fail("nothing is to be written"))
    assert command(tmp_path / "sweep", plain=True) == 0
    assert results.read_bytes() == before


def test_a_folder_with_another_sweep_is_refused(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert command(tmp_path / "sweep") == 0
    before = (tmp_path / "sweep" / "results.json").read_bytes()
    assert command(tmp_path / "sweep", "--seed", "9", "--draft-length", "5") == 2
    assert "another choice of draft_length and seed" in capsys.readouterr().err
    assert (tmp_path / "sweep" / "results.json").read_bytes() == before
    for name, content in (("plan.json", "{}"), ("plan.json", "\x00"), ("../file", "")):
        other = tmp_path / "other"
        other.mkdir(exist_ok=True)
        (other / name).write_text(content)
    assert command(tmp_path / "other") == 2
    assert "no sweep in that folder" in capsys.readouterr().err
    assert command(tmp_path / "file") == 2
    assert "Traceback" not in capsys.readouterr().err


def test_other_items_are_another_sweep(
    command: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kill_after(1, patch)
        with pytest.raises(Killed):
            command(tmp_path / "sweep")
    with (tmp_path / "asked.jsonl").open("a") as file:
        file.write('{"prompt": "one more"}\n')
    assert command(tmp_path / "sweep", plain=True) == 2
    assert "the items differ" in capsys.readouterr().err


def test_stop_keeps_what_is_done(
    command: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    done = []

    def samples(sweep: Sweep, unit: Unit, stop: threading.Event) -> list[Sample] | None:
        done.append(unit)
        if len(done) == 3:
            stop.set()
        return whole(sweep, unit, stop)

    whole = Sweep.samples
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sweep, "samples", samples)
        assert command(tmp_path / "sweep") == 130
    assert "goes on from here" in capsys.readouterr().err
    assert set(SweepFolder(tmp_path / "sweep").done()) == set(done[:2])
    assert command(tmp_path / "sweep", plain=True) == 0


def test_a_disk_that_is_full_is_a_sentence(
    command: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", full)
        assert command(tmp_path / "sweep") == 1
    assert "cannot be written on: No space left on device" in capsys.readouterr().err
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.replace", full)
        assert command(tmp_path / "sweep", plain=True) == 1
    assert "goes on from here" in capsys.readouterr().err
    assert command(tmp_path / "sweep", "--max-sequences", "0", plain=True) == 2
    assert command(tmp_path / "sweep", plain=True) == 0


def test_nothing_recorded_is_none(tmp_path: Path) -> None:
    assert open_recorded(tmp_path) is None
    (tmp_path / "plan.json").write_text("{}")
    assert open_recorded(tmp_path) is None


# --- the project's own


@pytest.fixture(scope="module")
def shelf() -> Recorded:
    recorded = open_recorded()
    assert recorded is not None
    return recorded


def test_the_recorded_sweep_is_whole(shelf: Recorded) -> None:
    """All methods but a rule of one's own, at least five leniences each, three temperatures, every item; every figure with its interval."""
    results = shelf.results
    assert results.complete
    assert results.temperatures == [0.0, 0.5, 1.0]
    assert results.items == len(shelf.items) >= 150
    for temperature in results.temperatures:
        points = results.at(temperature)
        assert {point.setting.method for point in points} == METHODS.keys() - {OWN_RULE}
        for name, method in ((name, method) for name, method in METHODS.items() if name != OWN_RULE):
            own = [point for point in points if point.setting.method == name]
            assert len(own) >= (5 if method.has_lenience else 1), name
            assert all(point.samples == results.items for point in own)
            assert all(
                {"accuracy", "distance", "rejection_rate", "relative_latency"} <= set(p.figures) for p in own
            )
    assert shelf.costs is not None


def test_the_recorded_results_are_those_of_the_recorded_texts() -> None:
    store = SweepFolder(SHELF)
    header = store.header()
    assert header is not None
    assert header.results(list(store.samples())) == store.results()
    assert header.items == load_items().items


def test_the_report_is_what_the_command_writes(shelf: Recorded) -> None:
    text = REPORT.read_text(encoding="utf-8")
    pictures = []
    for temperature in shelf.results.temperatures:
        for cost in ("rejection_rate", "relative_latency"):
            path = Path(f"../assets/sweep/{cost.replace('_', '-')}-{temperature:g}.svg")
            assert (REPORT.parent / path).is_file()
            pictures.append(Picture(temperature, cost, path))
    assert report(shelf, SweepFolder(SHELF), pictures) == text
