"""lm-evaluation-harness on tiny models: its texts are the engine's, its likelihoods those of pi."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.evaluator import evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from specviz.analysis.sweep.items import Item
from specviz.cli.main import main as shell
from specviz.core.methods import METHODS
from specviz.core.sampling import SamplingParameters
from specviz.core.target import target_under
from specviz.engine.engine import Engine
from specviz.errors import RequestError, SpecvizError, StoppedError
from specviz.integrations.lm_eval import SOURCE, HarnessModel, TaskItems, load_tasks
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from tests.support.tiny import END, Pairs, tiny_pair

NAME = "local_arithmetic"
CONTEXTS = ("The quick brown fox", "print(add(12,", "A small drafter proposes; a large", "naïve")


@pytest.fixture(scope="module")
def chat_pair(pairs: Pairs) -> ModelPair:
    return pairs("qwen2", chat=True)


def asked(kind: str, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, each, number) for number, each in enumerate(arguments)]


def generated(model: HarnessModel, *contexts: str, **wanted: Any) -> list[str]:
    return model.generate_until(asked("generate_until", *((context, wanted) for context in contexts)))


def local_task(folder: Path, items: Sequence[Item], **changes: Any) -> Path:
    """Write the items and the task `NAME`, with `changes`, into a folder to include. An answer's last number is scored."""
    documents = [{"question": item.prompt, "answers": list(item.answers)} for item in items]
    data = folder / "items.json"
    data.write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
    task: dict[str, Any] = {
        "task": NAME,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(folder / "cache")},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "answers",
        "generation_kwargs": {"until": ["\n\n"], "do_sample": False, "max_gen_toks": 24},
        "filter_list": [
            {
                "name": "last-number",
                "filter": [
                    {"function": "regex", "regex_pattern": r"(\d[\d,]*)", "group_select": -1},
                    {"function": "take_first"},
                ],
            }
        ],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    # JSON is YAML.
    (folder / f"{NAME}.yaml").write_text(json.dumps(task | changes), encoding="utf-8")
    return folder


def test_texts_are_the_engine_s_in_every_batch(pair: ModelPair) -> None:
    """Law 3: request n has seed + n and the model's method and lenience."""
    settings: dict[str, Any] = {"method": "cascade_tokenV3", "temperature": 0.8}
    requests = [
        Request(prompt=context, raw=True, seed=5 + number, max_new_tokens=9, **settings)
        for number, context in enumerate(CONTEXTS)
    ]
    expected = [run.text for run in Engine(pair).generate(requests)]
    for more in ({"max_sequences": 1}, {"max_sequences": 4, "draft_length": 2}):
        model = HarnessModel(pair, seed=5, **settings, **more)
        assert generated(model, *CONTEXTS, until=[], max_gen_toks=9) == expected


def test_a_text_ends_at_its_first_stop_text(pair: ModelPair) -> None:
    """The stop text is left out; another sequence goes on."""
    model = HarnessModel(pair, method="verifier_only", temperature=1.0)
    [whole, other] = generated(model, *CONTEXTS[:2], until=[], max_gen_toks=60)
    early, late = whole[3:5], whole[8:10]
    for until in ([late, early, ""], early):
        assert generated(model, CONTEXTS[0], until=until, max_gen_toks=20) == [whole.split(early)[0]]
    wanted = [
        (CONTEXTS[0], {"until": [whole[:3]], "max_gen_toks": 60}),
        (CONTEXTS[1], {"until": [], "max_gen_toks": 60}),
    ]
    assert model.generate_until(asked("generate_until", *wanted)) == ["", other]


def test_a_task_s_sampling_arguments_override_the_model_s(pair: ModelPair) -> None:
    hot, cold = HarnessModel(pair, temperature=1.0, seed=3), HarnessModel(pair, seed=3)
    greedy = generated(cold, *CONTEXTS, max_new_tokens=8)
    sampled = generated(hot, *CONTEXTS, max_new_tokens=8)
    assert greedy != sampled
    assert generated(hot, *CONTEXTS, max_gen_toks=8, do_sample=False, temperature=0.7, num_beams=1) == greedy
    assert generated(cold, *CONTEXTS, max_gen_toks=8, do_sample=True) == sampled
    assert generated(hot, *CONTEXTS, max_gen_toks=8, top_k=1) == greedy


def test_unsupported_requests_are_refused(pair: ModelPair) -> None:
    model = HarnessModel(pair)
    with pytest.raises(RequestError, match="num_beams"):
        generated(model, "a", num_beams=4)
    with pytest.raises(RequestError, match="these models read 512"):
        generated(model, "a", max_gen_toks=512)
    for continuation, sentence in (([5] * 513, "has 513 tokens"), ([10_000], "Token 10000")):
        with pytest.raises(RequestError, match=sentence):
            model._loglikelihood_tokens([(("", ""), [1], continuation)])
    with pytest.raises(RequestError, match="no chat template"):
        model.apply_chat_template([{"role": "user", "content": "Why?"}])


def test_chat_prompts_are_those_of_the_page(chat_pair: ModelPair) -> None:
    """A question through the harness has the prompt ids of the engine."""
    model = HarnessModel(chat_pair)
    text = model.apply_chat_template([{"role": "user", "content": "Why?"}])
    run = Engine(chat_pair).generate(Request(prompt="Why?", max_new_tokens=1))[0]
    assert model.tok_encode(text) == run.prompt_ids
    assert model.chat_template(True) == chat_pair.tokenizer.chat_template
    unfinished = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because"}]
    assert model.apply_chat_template(unfinished, add_generation_prompt=False).rstrip().endswith("Because")


def test_a_text_begins_once(pair: ModelPair, tmp_path: Path) -> None:
    """If tokenizer and template both add a beginning-of-text token, there is one."""
    from tokenizers.processors import TemplateProcessing

    marked = tiny_pair("llama", tmp_path, chat=True)
    tokenizer = marked.tokenizer
    tokenizer.add_special_tokens({"bos_token": END})
    begin = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{END} $A", special_tokens=[(END, begin)]
    )
    tokenizer.chat_template = END + tokenizer.chat_template
    model = HarnessModel(marked)
    text = model.apply_chat_template([{"role": "user", "content": "Why?"}])
    assert [model.tok_encode(t).count(begin) for t in (text, "Why?")] == [1, 1]
    items = TaskItems(SOURCE + NAME, marked, include_path=local_task(tmp_path, SUMS[:1]))
    assert tokenizer(items.items[0].prompt)["input_ids"].count(begin) == 1


def test_a_stopped_evaluation_has_no_scores(pair: ModelPair) -> None:
    stop = threading.Event()

    model = HarnessModel(pair, max_sequences=1, progress=lambda *_: stop.set(), stop=stop)
    with pytest.raises(StoppedError):
        generated(model, *CONTEXTS, max_gen_toks=4)
    with pytest.raises(StoppedError):
        model.loglikelihood(asked("loglikelihood", ("a", "b")))


def test_likelihoods_have_all_settings_within_what_can_be_computed(pair: ModelPair) -> None:
    asks = asked("loglikelihood", ("The quick brown", " fox jumps"))
    [plain], [greedy], [cut] = (
        HarnessModel(pair, method="speed", temperature=1.0, **more).loglikelihood(asks)
        for more in ({}, {"greedy_drafts": True, "lenience": 0.9}, {"top_k": 1})
    )
    assert plain[0] not in (greedy[0], cut[0])
    for more in ({"method": "cascade_opt", "lenience": 1e39}, {"method": "speed", "temperature": 1e-40}):
        [(found, _)] = HarnessModel(pair, **more).loglikelihood(asks)
        assert not math.isnan(found)


def by_hand(
    pair: ModelPair,
    method: str,
    lenience: float,
    temperature: float,
    context: list[int],
    continuation: list[int],
) -> tuple[float, bool]:
    """One forward pass of each model for every token, without a cache."""
    total, best = 0.0, True
    for number, token in enumerate(continuation):
        ids = torch.tensor([[*context, *continuation[:number]]])
        q, p = (
            model(input_ids=ids, use_cache=False).logits[0, -1, : pair.vocabulary_size]
            for model in (pair.drafter, pair.verifier)
        )
        pi = target_under(METHODS[method], q, p, SamplingParameters(temperature), lenience).pi()
        total += pi[token].log().item()
        best &= int(pi.argmax()) == token
    return total, best


@pytest.mark.parametrize(
    ("method", "lenience", "temperature"), [("cascade_tokenV3", 0.9, 0.0), ("speed", 0.4, 0.6)]
)
def test_likelihoods_are_the_target_distribution_s(
    pair: ModelPair, method: str, lenience: float, temperature: float
) -> None:
    """Sum of log pi, token by token, at the model's temperature, and at 1 where that is 0."""
    model = HarnessModel(pair, method=method, lenience=lenience or None, temperature=temperature)
    asks = [("The quick brown", " fox jumps"), ("", "A small"), ("print(", "add")]
    found = model.loglikelihood(asked("loglikelihood", *asks))
    for (context, continuation), (total, best) in zip(asks, found, strict=True):
        ids = model.tok_encode(context + continuation)
        split = len(model.tok_encode(context))
        start = ids[:split] or [pair.tokenizer.eos_token_id]
        expected = by_hand(pair, method, lenience, temperature or 1.0, start, ids[split:])
        assert (total, best) == (pytest.approx(expected[0], abs=1e-8), expected[1])


def test_the_verifier_alone_is_the_harness_s_own_transformers_model(tmp_path: Path) -> None:
    """With verifier_only every kind of request has the result of HFLM, cut contexts and windows included."""
    pair = tiny_pair("llama", tmp_path)
    pair.verifier.resize_token_embeddings(pair.vocabulary_size)  # HFLM knows no padding
    theirs = HFLM(
        pretrained=pair.verifier, tokenizer=pair.tokenizer, batch_size=2, max_length=pair.context_length
    )
    ours = HarnessModel(pair, method="verifier_only")
    long = "fox " * 250
    asks = asked(
        "loglikelihood", ("The quick", " brown fox"), ("", "A small"), ("a b ", "c"), (long, "jumps")
    )
    for (value, best), (other, best_too) in zip(
        ours.loglikelihood(asks), theirs.loglikelihood(asks, disable_tqdm=True), strict=True
    ):
        assert (value, best) == (pytest.approx(other), best_too)
    asks = asked("loglikelihood_rolling", ("The quick brown",), (long,))
    values = theirs.loglikelihood_rolling(asks, disable_tqdm=True)
    assert ours.loglikelihood_rolling(asks) == pytest.approx(values)
    wanted = {"until": ["\n", "o"], "max_gen_toks": 12}
    asks = asked("generate_until", ("The quick brown", wanted), ("print(", wanted), (long, wanted))
    assert ours.generate_until(asks) == theirs.generate_until(asks, disable_tqdm=True)


BLEU = {"metric": "bleu", "aggregation": "bleu", "higher_is_better": True}  # of all answers together
SUMS = [
    Item("sum-1", "arithmetic", "What is 3 plus 4?", ("7",)),
    Item("sum-2", "arithmetic", "What is 1,000 plus 500?", ("1500", "1,500")),
    Item("sum-3", "arithmetic", "How many legs do two dogs have?", ("8",)),
    Item("sum-4", "arithmetic", "What is 9 minus 9?", ("0",)),
]
ANSWERS = ("It is 7.", "7 or 9", "", "It is 1,500!", "8 legs\n\n9")


@pytest.fixture
def include(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local task's folder. The hub is out of reach."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    return local_task(tmp_path, SUMS)


def sampled(results: dict[str, Any]) -> list[float]:
    return [one["exact_match"] for one in sorted(results["samples"][NAME], key=lambda one: one["doc_id"])]


def test_answers_score_as_the_harness_scores_them(pair: ModelPair, include: Path) -> None:
    """A sweep's items and an evaluation agree, also where a text goes on after a stop text."""
    items = TaskItems(SOURCE + NAME, pair, include_path=include)
    assert [item.prompt for item in items.items] == [item.prompt for item in SUMS]
    assert all(item.raw for item in items.items)

    class Scripted(HarnessModel):
        texts: tuple[str, ...] = ()

        def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
            return [text.split("\n\n")[0] for text in self.texts]

    model, seen = Scripted(pair), set()
    for answer in ANSWERS:
        model.texts = (answer,) * len(SUMS)
        tasks = load_tasks([NAME], include_path=include)
        scores = sampled(evaluate(model, tasks, bootstrap_iters=0))
        assert [items.score(number, answer) for number in range(len(SUMS))] == scores
        seen |= set(scores)
    assert seen == {0.0, 1.0}


def test_a_task_s_items_are_asked_as_the_harness_asks_them(chat_pair: ModelPair, tmp_path: Path) -> None:
    """The prompts have the harness's examples and the chat template, and the engine's texts are those of an evaluation."""
    include = local_task(tmp_path, SUMS, num_fewshot=2, fewshot_split="test", doc_to_target="{{answers[0]}}")
    items = TaskItems(SOURCE + NAME, chat_pair, 3, include)
    assert (items.name, len(items.items)) == (f"lm-eval:{NAME}", 3)
    assert [item.answers for item in items.items] == [item.answers[:1] for item in SUMS[:3]]
    assert all(item.prompt.count("?") == 3 for item in items.items)
    results = evaluate(
        HarnessModel(chat_pair),
        load_tasks([NAME], include_path=include),
        limit=3,
        apply_chat_template=True,
        fewshot_as_multiturn=True,
        bootstrap_iters=0,
    )
    samples = sorted(results["samples"][NAME], key=lambda one: one["doc_id"])
    assert [one["arguments"][0][0] for one in samples] == [item.prompt for item in items.items]
    requests = [
        Request(prompt=item.prompt, raw=item.raw, temperature=0, max_new_tokens=24) for item in items.items
    ]
    texts = [run.text.split("\n\n")[0] for run in Engine(chat_pair).generate(requests)]
    assert [one["resps"][0][0] for one in samples] == texts
    assert [items.score(number, text) for number, text in enumerate(texts)] == sampled(results)


@pytest.mark.parametrize(
    "changes",
    [{"output_type": "loglikelihood"}, {"repeats": 3}, {"doc_to_target": "7", "metric_list": [BLEU]}],
)
def test_tasks_that_are_not_scored_answer_by_answer_are_refused(
    pair: ModelPair, tmp_path: Path, changes: dict[str, Any]
) -> None:
    include = local_task(tmp_path, SUMS, **changes)
    with pytest.raises(RequestError):
        TaskItems(SOURCE + NAME, pair, include_path=include)


def test_a_model_s_code_is_run_only_with_consent(pair: ModelPair, tmp_path: Path) -> None:
    include = local_task(tmp_path, SUMS, unsafe_code=True)
    with pytest.raises(RequestError, match="--confirm-run-unsafe-code"):
        TaskItems(SOURCE + NAME, pair, include_path=include)
    items = TaskItems(SOURCE + NAME, pair, include_path=include, runs_code=True)
    assert items.score(0, SUMS[0].answers[0]) == 1


def test_tasks_that_cannot_be_loaded_are_one_sentence(include: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown name, a missing folder, a missing data set."""
    # The harness's thousands of tasks take seconds to list.
    own = partial(TaskManager, include_defaults=False)
    monkeypatch.setattr("specviz.integrations.lm_eval.TaskManager", own)
    with pytest.raises(RequestError, match="no task nonsense"):
        load_tasks(["nonsense"], include_path=include)
    with pytest.raises(RequestError, match="folder"):
        load_tasks([NAME], include_path=include / "missing")
    (include / "items.json").unlink()
    with pytest.raises(SpecvizError, match="data set") as raised:
        load_tasks([NAME], include_path=include)
    assert str(include) not in str(raised.value)


def test_the_command_prints_and_writes_what_was_scored(
    pair: ModelPair, include: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table, and the same numbers in the file."""
    monkeypatch.setattr("specviz.integrations.lm_eval.load_pair", lambda *_, **__: pair)
    path = include / "out.json"
    arguments = (
        "--tasks", NAME, "--include-path", str(include), "--limit", "2", "--method", "speed", "--json", str(path),
        "--temperature", "0.5", "--draft-length", "2",
    )  # fmt: skip
    assert shell(["eval", *arguments]) == 0
    printed = capsys.readouterr().out
    record = json.loads(path.read_text())
    found = record["results"][NAME]["exact_match,last-number"]
    assert re.search(rf"{NAME}.*last-number.*exact_match.*\| *{found:g}\|", printed)
    assert (record["model"]["method"], record["model"]["temperature"]) == ("speed", 0.5)
    assert record["n-samples"][NAME]["effective"] == 2


def test_without_the_package_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it, the harness finds the model by its name."""
    assert get_model("specviz") is HarnessModel
    for name in [name for name in sys.modules if name.partition(".")[0] == "lm_eval"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "specviz.integrations.lm_eval")
    with pytest.raises(SpecvizError, match="pip install lm-eval"):
        importlib.import_module("specviz.integrations.lm_eval")
