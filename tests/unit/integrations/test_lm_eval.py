"""lm-evaluation-harness on tiny models: what it is told is what the engine writes and what pi gives."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.evaluator import evaluate
from lm_eval.models.huggingface import HFLM

from specviz.analysis.sweep.items import Item, Items
from specviz.cli.main import main as shell
from specviz.core.target import target_distribution
from specviz.engine.engine import Engine
from specviz.errors import RequestError, SpecvizError, StoppedError
from specviz.integrations.lm_eval import SOURCE, HarnessModel, TaskItems, load_tasks
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from tests.support.harness_task import NAME, forbid_network, local_task
from tests.support.tiny import END, tiny_pair

CONTEXTS = ("The quick brown fox", "print(add(12,", "A small drafter proposes; a large", "naïve")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    return tiny_pair("llama", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def chat_pair(tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    return tiny_pair("qwen2", tmp_path_factory.mktemp("tiny"), chat=True)


def asked(kind: str, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, each, number) for number, each in enumerate(arguments)]


def generated(model: HarnessModel, *contexts: str, **wanted: Any) -> list[str]:
    return model.generate_until(asked("generate_until", *((context, wanted) for context in contexts)))


# ---- texts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["verifier_only", "speed", "cascade_tokenV3", "drafter_only"])
def test_texts_are_the_engine_s_own_whatever_is_batched(pair: ModelPair, method: str) -> None:
    """Law 3: the request at place n has seed + n, the model's method and lenience, and is answered in its place."""
    model = HarnessModel(pair, method=method, temperature=0.8, seed=5, max_sequences=1)
    requests = [
        Request(prompt=context, raw=True, method=method, temperature=0.8, seed=5 + number, max_new_tokens=9)
        for number, context in enumerate(CONTEXTS)
    ]
    expected = [run.text for run in Engine(pair).generate(requests)]
    assert generated(model, *CONTEXTS, until=[], max_gen_toks=9) == expected
    wide = HarnessModel(
        pair, method=method, temperature=0.8, seed=5, rows=4, draft_length=2
    )  # as it was called at first
    assert generated(wide, *CONTEXTS, until=[], max_gen_toks=9) == expected


def test_greedy_texts_do_not_depend_on_their_order(pair: ModelPair) -> None:
    """At temperature 0 no coin counts, so that requests in another order get the same texts, each its own."""
    model = HarnessModel(pair, max_sequences=3)
    texts = generated(model, *CONTEXTS, max_gen_toks=8)
    assert generated(model, *CONTEXTS[::-1], max_gen_toks=8) == texts[::-1]
    assert len(set(texts)) > 1


def test_texts_are_cut_at_the_first_stop_text(pair: ModelPair) -> None:
    """What a task calls `until` is no part of an answer, nor is what comes after it; one may be a plain string."""
    model = HarnessModel(pair, method="verifier_only")
    (whole,) = generated(model, CONTEXTS[0], max_gen_toks=20)
    early, late = whole[3:5], whole[8:10]
    assert generated(model, CONTEXTS[0], until=[late, early, ""], max_gen_toks=20) == [whole.split(early)[0]]
    assert generated(model, CONTEXTS[0], until=early, max_gen_toks=20) == [whole.split(early)[0]]


def test_an_answer_that_has_come_to_its_stop_text_costs_no_further_rounds(pair: ModelPair) -> None:
    """Beside one that goes on, which is not cut for it."""
    model = HarnessModel(pair, method="verifier_only", temperature=1.0)
    [whole, other] = generated(model, *CONTEXTS[:2], until=[], max_gen_toks=60)
    early = whole[:3]
    calls = []
    hook = pair.verifier.register_forward_hook(lambda *_: calls.append(1))
    try:
        wanted = [
            (CONTEXTS[0], {"until": [early], "max_gen_toks": 60}),
            (CONTEXTS[1], {"until": [], "max_gen_toks": 60}),
        ]
        assert model.generate_until(asked("generate_until", *wanted)) == ["", other]
        together = len(calls)
        calls.clear()
        assert generated(model, CONTEXTS[0], until=[early], max_gen_toks=60) == [""]
    finally:
        hook.remove()
    assert len(calls) < 10 < together


def test_what_a_task_says_of_sampling_counts(pair: ModelPair) -> None:
    """do_sample false is greedy whatever the model's own temperature; true samples; a temperature is taken."""
    hot, cold = HarnessModel(pair, temperature=1.0, seed=3), HarnessModel(pair, seed=3)
    greedy = generated(cold, *CONTEXTS, max_new_tokens=8)
    sampled = generated(hot, *CONTEXTS, max_new_tokens=8)
    assert greedy != sampled
    assert generated(hot, *CONTEXTS, max_gen_toks=8, do_sample=False, temperature=0.7, num_beams=1) == greedy
    assert generated(cold, *CONTEXTS, max_gen_toks=8, do_sample=True) == sampled
    assert generated(cold, *CONTEXTS, max_gen_toks=8, temperature=1.0, top_p=None) == sampled
    assert generated(hot, *CONTEXTS, max_gen_toks=8, top_k=1) == greedy


def test_what_cannot_be_done_is_one_sentence(pair: ModelPair) -> None:
    """Beams, an answer as long as the context, values out of range: said, not passed over."""
    model = HarnessModel(pair)
    with pytest.raises(RequestError, match="num_beams"):
        generated(model, "a", num_beams=4)
    with pytest.raises(RequestError, match="context holds 512"):
        generated(model, "a", max_gen_toks=512)
    with pytest.raises(RequestError, match="Temperature"):
        HarnessModel(pair, temperature=-1)
    with pytest.raises(RequestError, match="max_sequences"):
        HarnessModel(pair, max_sequences=0)


def test_long_contexts_are_cut_from_the_left_and_empty_ones_are_one_token(pair: ModelPair) -> None:
    """The end of a prompt is what is asked; room for the whole answer is left."""
    model = HarnessModel(pair, method="speed", temperature=1.0, seed=2)
    context = " ".join(CONTEXTS) * 30
    ids = model.tok_encode(context)
    assert len(ids) > pair.context_length
    for text, wanted in ((context, ids[-(pair.context_length - 7) :]), ("", [pair.tokenizer.eos_token_id])):
        request = Request(token_ids=wanted, method="speed", temperature=1.0, seed=2, max_new_tokens=7)
        assert generated(model, text, max_gen_toks=7) == [Engine(pair).generate(request)[0].text]


def test_chat_prompts_are_those_of_the_page(chat_pair: ModelPair) -> None:
    """A question through the harness's use of the chat template comes to the ids that the engine starts from."""
    model = HarnessModel(chat_pair)
    text = model.apply_chat_template([{"role": "user", "content": "Why?"}])
    run = Engine(chat_pair).generate(Request(prompt="Why?", max_new_tokens=1))[0]
    assert model.tok_encode(text) == run.prompt_ids
    assert model.chat_template(True) == chat_pair.tokenizer.chat_template
    unfinished = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because"}]
    assert model.apply_chat_template(unfinished, add_generation_prompt=False).rstrip().endswith("Because")


def test_a_text_begins_once(pair: ModelPair, tmp_path: Path) -> None:
    """Where the tokenizer marks the beginning of a text itself, a template's own mark does not make it two."""
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


def test_a_stop_ends_a_call_in_a_sentence(pair: ModelPair) -> None:
    """Half an evaluation has no scores: it ends as stopped, in texts and in likelihoods."""
    stop = threading.Event()

    def after_one(_fraction: float, _text: str) -> None:
        stop.set()

    model = HarnessModel(pair, max_sequences=1, progress=after_one, stop=stop)
    with pytest.raises(StoppedError):
        generated(model, *CONTEXTS, max_gen_toks=4)
    with pytest.raises(StoppedError):
        model.loglikelihood(asked("loglikelihood", ("a", "b")))


# ---- likelihoods -----------------------------------------------------------------------------------------------


def by_hand(
    pair: ModelPair,
    method: str,
    lenience: float,
    temperature: float,
    context: list[int],
    continuation: list[int],
) -> tuple[float, bool]:
    """One plain forward pass of each model for every single token, with no cache."""
    total, best = 0.0, True
    for number, token in enumerate(continuation):
        ids = torch.tensor([[*context, *continuation[:number]]])
        q, p = (
            model(input_ids=ids, use_cache=False).logits[0, -1, : pair.vocabulary_size]
            for model in (pair.drafter, pair.verifier)
        )
        pi = target_distribution(method, q, p, lenience=lenience, temperature=temperature)
        total += pi[token].log().item()
        best &= int(pi.argmax()) == token
    return total, best


@pytest.mark.parametrize(
    ("method", "lenience"),
    [("verifier_only", 0.0), ("cascade_tokenV3", 0.9), ("speed", 0.4), ("drafter_only", 0.0)],
)
@pytest.mark.parametrize("temperature", [0.0, 0.6])
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


def test_greedy_is_said_of_the_most_probable_text_only(pair: ModelPair) -> None:
    """The text that verifier_only writes greedily is its own favourite; with another last token it is not."""
    run = Engine(pair).generate(
        Request(prompt=CONTEXTS[0], raw=True, method="verifier_only", temperature=0, max_new_tokens=5)
    )[0]
    model = HarnessModel(pair, method="verifier_only")
    other = [*run.token_ids[:-1], (run.token_ids[-1] + 1) % pair.vocabulary_size]
    found = model._loglikelihood_tokens([(("", ""), run.prompt_ids, ids) for ids in (run.token_ids, other)])
    assert [best for _, best in found] == [True, False]
    assert found[0][0] > found[1][0]


def test_rolling_likelihoods_predict_every_token_once(pair: ModelPair) -> None:
    """A text that fits is read behind the end-of-text marker; a longer one in windows that miss and repeat nothing."""
    model = HarnessModel(pair, method="speed", lenience=0.2)
    text = "A small drafter proposes"
    ids = model.tok_encode(text)
    end = pair.tokenizer.eos_token_id
    (found,) = model.loglikelihood_rolling(asked("loglikelihood_rolling", (text,)))
    assert found == pytest.approx(by_hand(pair, "speed", 0.2, 1.0, [end], ids)[0], abs=1e-8)

    long = "fox " * (pair.context_length // 2)
    ids, size = model.tok_encode(long), pair.context_length
    assert size < len(ids) < 2 * size + 1
    (found,) = model.loglikelihood_rolling(asked("loglikelihood_rolling", (long,)))
    rest = len(ids) - size
    first = model._score([end], ids[:size])[0]
    assert found == pytest.approx(first + model._score(ids[rest - 1 : size], ids[size:])[0], abs=1e-6)
    with pytest.raises(RequestError, match="continuation"):
        model._score([end], ids)


def test_the_verifier_alone_is_the_harness_s_own_transformers_model(tmp_path: Path) -> None:
    """With verifier_only every kind of request gets what HFLM says of the same model, cut contexts and windows too."""
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


# ---- tasks -----------------------------------------------------------------------------------------------------

SUMS = [
    Item("sum-1", "arithmetic", "What is 3 plus 4?", ("7",)),
    Item("sum-2", "arithmetic", "What is 1,000 plus 500?", ("1500", "1,500")),
    Item("sum-3", "arithmetic", "How many legs do two dogs have?", ("8",)),
    Item("sum-4", "arithmetic", "What is 9 minus 9?", ("0",)),
]
ANSWERS = (
    "7", "It is 7.", "3 plus 4 is 7", "7-3", "7.5", "7.0", "-7", "minus 7", "07", "17", "x7", "seven", "",
    "1,500", "1500", "It is 1,500!", "500", "8", "8 legs\n\n9", "0", "-0", "00", "9 minus 9 is 0", "８ 7",
)  # fmt: skip


BLEU = [{"metric": "bleu", "aggregation": "bleu", "higher_is_better": True}]
"""A metric of all answers together."""


@pytest.fixture
def include(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local task's folder, and nothing else within reach."""
    forbid_network(monkeypatch)
    return local_task(tmp_path, SUMS)


def sampled(results: dict[str, Any]) -> list[float]:
    return [one["exact_match"] for one in sorted(results["samples"][NAME], key=lambda one: one["doc_id"])]


def test_answers_score_as_the_harness_and_the_sweep_score_them(pair: ModelPair, include: Path) -> None:
    """One answer, three ways: TaskItems, the harness's own evaluation, and the sweep's rule for arithmetic."""
    ours, items = Items("sums", tuple(SUMS)), TaskItems(SOURCE + NAME, pair, include_path=include)
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
        before_stop = answer.split("\n\n")[0]
        assert [ours.score(number, before_stop) for number in range(len(SUMS))] == scores, answer
        seen |= set(scores)
    assert seen == {0.0, 1.0}


def test_a_task_s_items_are_asked_as_the_harness_asks_them(chat_pair: ModelPair, include: Path) -> None:
    """With a chat pair the prompts are through the template, and the engine's texts are those of an evaluation."""
    items = TaskItems(SOURCE + NAME, chat_pair, 3, include)
    assert (items.name, len(items.items)) == (f"lm-eval:{NAME}", 3)
    assert [item.answers for item in items.items] == [item.answers for item in SUMS[:3]]
    model = HarnessModel(chat_pair)
    results = evaluate(
        model, load_tasks([NAME], include_path=include), limit=3, apply_chat_template=True, bootstrap_iters=0
    )
    samples = sorted(results["samples"][NAME], key=lambda one: one["doc_id"])
    assert [one["arguments"][0][0] for one in samples] == [item.prompt for item in items.items]
    requests = [
        Request(prompt=item.prompt, raw=item.raw, temperature=0, max_new_tokens=24) for item in items.items
    ]
    texts = [run.text.split("\n\n")[0] for run in Engine(chat_pair).generate(requests)]
    assert [one["resps"][0][0] for one in samples] == texts
    assert [items.score(number, text) for number, text in enumerate(texts)] == sampled(results)


def test_examples_are_the_harness_s(pair: ModelPair, tmp_path: Path) -> None:
    """A task's few-shot examples stand in the prompts, the ones the harness draws itself."""
    include = local_task(tmp_path, SUMS, num_fewshot=2, fewshot_split="test", doc_to_target="{{answers[0]}}")
    items = TaskItems(SOURCE + NAME, pair, include_path=include)
    results = evaluate(HarnessModel(pair), load_tasks([NAME], include_path=include), bootstrap_iters=0)
    samples = sorted(results["samples"][NAME], key=lambda one: one["doc_id"])
    assert [one["arguments"][0][0] for one in samples] == [item.prompt for item in items.items]
    assert all(item.prompt.count("?") == 3 for item in items.items)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"output_type": "loglikelihood"}, "generate text only"),
        ({"repeats": 3}, "one answer an item"),
        ({"doc_to_target": "7", "metric_list": BLEU}, "not a number from 0 to 1"),
    ],
)
def test_tasks_that_are_not_scored_answer_by_answer_are_refused(
    pair: ModelPair, tmp_path: Path, changes: dict[str, Any], match: str
) -> None:
    """A sweep needs one number from 0 to 1 for every text."""
    include = local_task(tmp_path, SUMS, **changes)
    with pytest.raises(RequestError, match=match):
        TaskItems(SOURCE + NAME, pair, include_path=include)


GSM8K = [
    {
        "question": f"Ann has {n} figs and eats 2. How many are left?",
        "answer": f"She has {n} - 2.\n#### {n - 2}",
    }
    for n in range(10, 20)
]
SQUAD = [
    {"text": f"The river {name} is long. A long river is the", "value": name} for name in ("Nile", "Rhine")
]


def test_the_harness_s_own_tasks_are_used_as_they_are(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts, few-shot examples and scoring of GSM8K and SQuAD are the harness's; only the documents are ours."""
    forbid_network(monkeypatch)
    stored = {
        "openai/gsm8k": {"train": GSM8K[:6], "test": GSM8K[6:]},
        "hazyresearch/based-squad": {"validation": SQUAD},
    }

    def load(path: str, *_: Any, **__: Any) -> DatasetDict:
        return DatasetDict({name: Dataset.from_list(rows) for name, rows in stored[path].items()})

    monkeypatch.setattr("datasets.load_dataset", load)
    sums = TaskItems("lm-eval:gsm8k", pair, 2)
    assert len(sums.items) == 2
    prompt = sums.items[0].prompt
    assert prompt.endswith("Question: Ann has 16 figs and eats 2. How many are left?\nAnswer:")
    assert prompt.count("#### ") == 5
    answers = ("16 - 2 = 14. #### 14", "#### 13", "It is 14.", "#### 14\nQuestion: #### 3")
    assert [sums.score(0, answer) for answer in answers] == [1.0, 0.0, 0.0, 1.0]
    squad = TaskItems("lm-eval:squad_completion", pair)
    assert [item.prompt for item in squad.items] == [each["text"] for each in SQUAD]
    assert [squad.score(1, text) for text in (" Rhine, of course", " Nile", " no\n\nRhine")] == [
        1.0,
        0.0,
        0.0,
    ]


def test_code_of_a_model_is_run_only_where_that_was_said(
    pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_network(monkeypatch)
    include = local_task(tmp_path, SUMS, unsafe_code=True)
    with pytest.raises(RequestError, match="--confirm-run-unsafe-code"):
        TaskItems(SOURCE + NAME, pair, include_path=include)
    assert (
        TaskItems(SOURCE + NAME, pair, include_path=include, runs_code=True).score(0, SUMS[0].answers[0]) == 1
    )


def test_tasks_that_cannot_be_had_are_one_sentence(
    pair: ModelPair, include: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown name, a missing folder, a missing data set, a source that is none."""
    monkeypatch.setattr(
        "specviz.integrations.lm_eval.tasks.TaskManager", only_own(sys.modules["lm_eval.tasks"].TaskManager)
    )
    with pytest.raises(RequestError, match="no task nonsense"):
        load_tasks(["nonsense"], include_path=include)
    with pytest.raises(RequestError, match="folder"):
        load_tasks([NAME], include_path=include / "missing")
    with pytest.raises(RequestError, match="lm-eval:gsm8k"):
        TaskItems("gsm8k", pair)
    (include / "items.json").unlink()
    with pytest.raises(SpecvizError, match="data set") as raised:
        load_tasks([NAME], include_path=include)
    assert str(include) not in str(raised.value)


def only_own(manager: type) -> Callable[..., Any]:
    """A task manager that does not list the harness's own thousands of tasks."""
    return lambda include_path=None, include_defaults=True: manager(
        include_path=include_path, include_defaults=False
    )


# ---- the command -----------------------------------------------------------------------------------------------


def test_the_command_prints_and_writes_what_was_scored(
    pair: ModelPair, include: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each metric of a task, and the same numbers in the file."""
    monkeypatch.setattr("specviz.integrations.lm_eval.model.load_pair", lambda *_, **__: pair)
    path = include / "out.json"
    arguments = (
        "--tasks", NAME, "--include-path", str(include), "--limit", "2", "--method", "speed", "--json", str(path),
        "--temperature", "0.5", "--draft-length", "2",
    )  # fmt: skip
    assert shell(["eval", *arguments]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["task", "filter", "metric", "value", "stderr"]
    assert line.split()[:3] == [NAME, "last-number", "exact_match"]
    record = json.loads(path.read_text())
    found = record["results"][NAME]["exact_match,last-number"]
    assert line.split()[3] == f"{found:.4f}"
    assert record["model"]["method"] == "speed"
    assert record["model"]["temperature"] == 0.5
    assert record["n-samples"][NAME]["effective"] == 2


@pytest.mark.parametrize(
    "wrong",
    [("--limit", "0"), ("--num-fewshot", "-1"), ("--json", "/nowhere/at/all.json"), ("--draft-length", "x")],
)
def test_a_wrong_command_is_told_before_anything_is_loaded(
    wrong: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked wrongly is said at once."""
    monkeypatch.setattr(
        "specviz.integrations.lm_eval.model.load_pair", lambda *_, **__: pytest.fail("a pair was loaded")
    )
    assert shell(["eval", "--tasks", NAME, *wrong]) == 2


def test_without_the_package_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who lacks lm-evaluation-harness sees a traceback, and who has it finds the model by its name."""
    assert get_model("specviz") is HarnessModel
    for name in [name for name in sys.modules if name.partition(".")[0] == "lm_eval"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "specviz.integrations.lm_eval")
    with pytest.raises(SpecvizError, match="pip install lm-eval"):
        importlib.import_module("specviz.integrations.lm_eval")


def test_a_task_has_the_filters_that_are_used_of_it(include: Path) -> None:
    """The one private attribute of lm-evaluation-harness: a list of ensembles with a name and `apply`."""
    (task,) = load_tasks([NAME], include_path=include)["tasks"].values()
    first = getattr(task, "_filters", [None])[0]
    assert hasattr(first, "apply"), "lm-eval no longer keeps filter ensembles in Task._filters: see items.py"
    assert first.name == "last-number", "lm-eval's filter ensembles no longer have a name: see items.py"
