"""lm-evaluation-harness: offers a pair and a method as a model, and takes tasks as the items of a sweep."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from specviz.analysis.quality import read_logits
from specviz.analysis.sweep.items import Item, Items
from specviz.compat.lm_eval import first_filter
from specviz.core.methods import get_method
from specviz.core.sampling import SamplingParameters, bounded
from specviz.core.target import target_under
from specviz.engine.engine import Engine
from specviz.engine.events import Decided, Finished
from specviz.errors import RequestError, SpecvizError, StoppedError
from specviz.models.loading import load_pair
from specviz.models.pair import ModelPair
from specviz.models.registry import DEFAULT_PAIR
from specviz.models.tokenizer import in_template
from specviz.progress import Progress, silent
from specviz.schema.settings import Request

try:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ImportError as error:
    raise SpecvizError(
        "This needs lm-evaluation-harness, which is not installed: pip install lm-eval."
    ) from error

SOURCE = "lm-eval:"
"""Prefix in a sweep's `prompts`: the items come from the harness's task whose name follows."""
_FEWSHOT_SEED = 1234
"""The harness's default seed, so that prompts have the same examples as in the harness."""
_TOKEN_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names that tasks use for the maximum number of new tokens. If a task gives several, the first in this order counts."""
_SAMPLING = (*SamplingParameters._fields, "repetition_penalty")
"""Names that tasks use for the sampling parameters."""


@register_model("specviz")
class HarnessModel(TemplateLM):
    """A pair and a method, as a model of lm-evaluation-harness.

    The engine generates texts. Likelihoods are those under the method's target distribution pi. With `verifier_only`, and
    with `speed` at lenience 0, pi is the verifier's distribution.
    """

    def __init__(
        self,
        pair: ModelPair | str = DEFAULT_PAIR,
        *,
        max_sequences: int = 32,
        progress: Progress = silent,
        stop: threading.Event | None = None,
        **settings: Any,
    ) -> None:
        """Use a loaded pair, or load the registry's pair with that key.

        Args:
            stop: if set, a running call ends within a round.
            settings: as in `Request`, for tasks that do not set them; by default temperature 0 and 256 new tokens. For
                likelihoods, temperature 0 is replaced by 1. Request n of a call, counted from 0, has seed + n.

        Raises:
            RequestError: a value is out of its range.
            PairError: the pair cannot be loaded.
        """
        super().__init__()
        self._request = Request(token_ids=[0], **{"temperature": 0.0, "max_new_tokens": 256} | settings)
        self.pair = load_pair(pair, progress=progress) if isinstance(pair, str) else pair
        self.tokenizer = self.pair.tokenizer
        self._engine = Engine(self.pair, max_sequences=max_sequences)
        self._progress = progress
        self._stop = stop or threading.Event()

    @property
    def eot_token_id(self) -> int:
        """The id that ends a text."""
        own = self.tokenizer.eos_token_id
        return min(self.pair.eos_token_ids) if own is None else own

    @property
    def prefix_token_id(self) -> int:
        """The id that replaces an empty context: beginning of text if there is one, else end of text."""
        beginning = self.tokenizer.bos_token_id
        return self.eot_token_id if beginning is None else beginning

    @property
    def tokenizer_name(self) -> str:
        """The key under which the harness caches prompts of this tokenizer."""
        return self.pair.key

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Ids of a text. No beginning-of-text token is added if the text already begins with it."""
        if add_special_tokens is None:
            marker = self.tokenizer.bos_token
            add_special_tokens = not (marker and string.startswith(marker))
        return list(self.tokenizer(string, add_special_tokens=add_special_tokens)["input_ids"])

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """A conversation as text, up to the point at which the answer begins or continues.

        Raises:
            RequestError: the pair is no chat model, or its template does not accept such a conversation.
        """
        if not self.pair.is_chat:
            raise RequestError("This pair's models have no chat template: ask without one.")
        options = {"add_generation_prompt": add_generation_prompt, "tokenize": False}
        options["continue_final_message"] = not add_generation_prompt
        return str(in_template(self.tokenizer, chat_history, **options))

    def get_model_info(self) -> dict[str, Any]:
        """What the harness records about this model."""
        names = ("method", "lenience", "temperature", "draft_length", "seed", "repetition_penalty")
        info = {"pair": self.pair.key, "repetition_penalty": self.pair.repetition_penalty}
        own = {name: getattr(self._request, name) for name in names}
        return info | {name: value for name, value in own.items() if value is not None}

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Continue every context, in order, up to the first of its stop texts.

        A context that leaves too little space for the answer is truncated on the left.

        Raises:
            RequestError: a task asks for something unsupported, such as beams, or its new tokens leave no space for a context.
            StoppedError: `stop` was set.
        """
        asked: list[Request] = []
        for number, request in enumerate(requests):
            context, wanted = request.args[:2]
            settings = self._settings(wanted)
            most = self.pair.context_length - settings["max_new_tokens"]
            if most < 1:
                raise RequestError(
                    f"A task asks for {settings['max_new_tokens']} new tokens, and these models read {self.pair.context_length} in all: "
                    "set fewer with the task's max_gen_toks."
                )
            ids = (self.tok_encode(context) or [self.prefix_token_id])[-most:]
            seed = self._request.seed + number
            asked.append(replace(self._request, token_ids=ids, seed=seed, **settings))
        untils = [stop_texts(request.args[1]) for request in requests]
        texts: dict[int, str] = {}
        events = self._engine.stream(asked, stop=self._stop)
        for event in events:
            if isinstance(event, Decided) and any(stop in event.run.text for stop in untils[event.index]):
                events.abort(event.index)
            if isinstance(event, Finished):
                self._check_stop()
                texts[event.index] = cut_at_stop(event.run.text, untils[event.index])
                self._progress(len(texts) / len(asked), f"Answering: {len(texts)} of {len(asked)}")
        return [texts[number] for number in range(len(asked))]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Natural log-likelihood of whole texts. Texts longer than the context are read in windows.

        Raises:
            StoppedError: `stop` was set.
        """
        sums = []
        for request in requests:
            ids = self.tok_encode(request.args[0])
            windows = get_rolling_token_windows(
                ids, self.prefix_token_id, self.pair.context_length, context_len=1
            )
            sums.append(sum(self._score(*make_disjoint_window(window))[0] for window in windows))
            self._progress(len(sums) / len(requests), f"Reading: {len(sums)} of {len(requests)}")
        return sums

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        scores = []
        for _text, context, continuation in requests:
            scores.append(self._score(context, continuation))
            self._progress(len(scores) / len(requests), f"Reading: {len(scores)} of {len(requests)}")
        return scores

    def _score(self, context: list[int], continuation: list[int]) -> tuple[float, bool]:
        """Sum of log pi over a continuation (−inf if a token has probability 0), and whether every token is pi's argmax.

        Raises:
            RequestError: the continuation is longer than the models' context length, or one of the arguments has ids that the pair lacks.
        """
        self._check_stop()
        if len(continuation) > self.pair.context_length:
            raise RequestError(
                f"An answer to score has {len(continuation)} tokens; these models read {self.pair.context_length}."
            )
        if foreign := [each for each in (*context, *continuation) if each >= self.pair.vocabulary_size]:
            raise RequestError(f"Token {foreign[0]} of a text to score is no id of this pair's models.")
        most = self.pair.context_length + 1 - len(continuation)  # the last token is predicted, not read
        context = (context or [self.prefix_token_id])[-max(1, most) :]
        method = get_method(self._request.method, self._request.rule)
        names: list[Literal["drafter", "verifier"]] = ["drafter"] * method.drafts
        names += ["verifier"] * method.verifies
        readings = [read_logits(self.pair, name, context, continuation) for name in names]
        asked = SamplingParameters(*self._request.warp)
        asked = asked._replace(temperature=self._request.temperature or 1.0).computable()
        lenience = bounded(float(self._request.lenience))
        total, best, done = 0.0, True, 0
        for logits in zip(*readings, strict=True):  # [n, V], a few positions at a time
            both = logits[0], logits[-1].to(logits[0].device)
            target = target_under(method, *both, asked, lenience, self._request.greedy_drafts).pi()
            ids = torch.tensor(continuation[done : done + len(target)], device=target.device)
            total += target.gather(-1, ids[:, None]).double().log().sum().item()
            best = best and bool((target.argmax(-1) == ids).all())
            done += len(target)
        return total, best

    def _settings(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """A task's generation arguments, without its stop texts, as fields of a request."""
        given = {name: value for name, value in wanted.items() if value is not None and name != "until"}
        limits = [given.pop(name) for name in _TOKEN_LIMITS if name in given]
        found = {name: given.pop(name) for name in _SAMPLING if name in given}
        samples = given.pop("do_sample", None)
        if foreign := [name for name, value in given.items() if (name, value) != ("num_beams", 1)]:
            raise RequestError(
                f"The task asks for {foreign[0]}, which speculative decoding does not do here: ask for until, "
                f"max_gen_toks, do_sample, {', '.join(_SAMPLING[:-1])} and {_SAMPLING[-1]} only."
            )
        if samples is False:
            found["temperature"] = 0.0
        elif samples and "temperature" not in found:
            found["temperature"] = self._request.temperature or 1.0
        return found | {"max_new_tokens": limits[0] if limits else self._request.max_new_tokens}

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise StoppedError("The evaluation was stopped before its end: there are no scores.")


def stop_texts(wanted: Mapping[str, Any]) -> list[str]:
    """The stop texts in a task's generation arguments."""
    until = wanted.get("until") or []
    return [until] if isinstance(until, str) else [text for text in until if text]


def cut_at_stop(text: str, until: Sequence[str]) -> str:
    """The text before the earliest occurrence of a stop text; the whole text if it contains no stop text."""
    for stop in until:
        text = text.split(stop)[0]
    return text


def load_tasks(
    names: Sequence[str],
    *,
    include_path: str | Path | None = None,
    num_fewshot: int | None = None,
    generation: Mapping[str, Any] | None = None,
    runs_code: bool = False,
) -> dict[str, Any]:
    """Load tasks for `lm_eval.evaluator.evaluate`.

    Args:
        names: names of tasks, groups or tags, from the harness or from the folder `include_path`.
        num_fewshot: number of examples in each prompt, except for tasks whose own number is 0; None takes each task's own number.
        generation: generation arguments that override the tasks' own.
        runs_code: whether tasks may run model-written code on this machine.

    Raises:
        RequestError: there is no such task or folder, or a task is multimodal, or would run code although `runs_code` is False.
        SpecvizError: a task's data set or a package that it needs is missing.
    """
    if include_path is not None and not Path(include_path).is_dir():
        raise RequestError("The folder with tasks is not there: name one that exists.")
    loaded = _load(names, include_path)
    for name, task in loaded["tasks"].items():
        if getattr(task, "UNSAFE_CODE", False) and not runs_code:
            raise RequestError(
                f"{name} runs code that a model wrote: add --confirm-run-unsafe-code on a machine where that does no harm."
            )
        if getattr(task, "MULTIMODAL", False):
            raise RequestError(f"{name} is about more than text: choose another task.")
        own = task.get_config("num_fewshot")
        task.set_config("num_fewshot", (own or 0) if num_fewshot is None or own == 0 else num_fewshot)
        task.set_fewshot_seed(_FEWSHOT_SEED)
        if generation and task.OUTPUT_TYPE == "generate_until":
            task.set_config("generation_kwargs", dict(generation), update=True)
    return loaded


def _load(names: Sequence[str], include_path: str | Path | None) -> dict[str, Any]:
    listed = ", ".join(names)
    try:
        manager = TaskManager(include_path=include_path, include_defaults=include_path is None)
        # Listing the harness's own tasks takes seconds, so only if they are needed.
        if include_path and not set(names) <= set(manager.all_subtasks):
            manager = TaskManager(include_path=include_path)
        if unknown := [name for name in names if name not in manager.all_tasks]:
            raise RequestError(f"lm-evaluation-harness has no task {unknown[0]}: see lm_eval ls tasks.")
        return dict(manager.load(list(names)))
    except RequestError:
        raise
    except ModuleNotFoundError as error:
        raise SpecvizError(
            f"To load {listed} takes the package {error.name}, which is not installed."
        ) from error
    except Exception as error:  # data sets and tasks raise errors of many types
        raise SpecvizError(
            f"{listed} could not be loaded ({type(error).__name__}): its data set is neither on this machine nor "
            "within reach, or the task's file is wrong."
        ) from error


class TaskItems(Items):
    """A task of the harness as the items of a sweep: its prompts, its examples, its scoring.

    Attributes:
        name: "lm-eval:TASK".
        items: one per document, with the whole prompt, including the chat template.
    """

    def __init__(
        self,
        name: str,
        pair: ModelPair,
        limit: int = 0,
        include_path: str | Path | None = None,
        runs_code: bool = False,
    ) -> None:
        """Load a task and build its prompts, through the pair's chat template if it has one.

        Args:
            name: "lm-eval:TASK", with the name of a task in the harness or in the folder `include_path`.
            limit: maximum number of documents; 0 takes all.

        Raises:
            RequestError: there is no such task, or its answers cannot be scored one by one as texts.
            SpecvizError: its data set or a package is missing.
        """
        task = name.removeprefix(SOURCE)
        found = load_tasks([task], include_path=include_path, runs_code=runs_code)["tasks"]
        if len(found) != 1:
            raise RequestError(f"{task} is a group of {len(found)} tasks: name one of them.")
        (self._task,) = found.values()
        if self._task.OUTPUT_TYPE != "generate_until":
            raise RequestError(f"{task} compares likelihoods: a sweep takes tasks that generate text only.")
        if (self._task.config.repeats or 1) > 1:
            raise RequestError(f"{task} scores several answers together: a sweep scores each by itself.")
        self._task.build_all_requests(
            limit=limit or None,
            apply_chat_template=pair.is_chat,
            fewshot_as_multiturn=True,
            chat_template=HarnessModel(pair).apply_chat_template,
            tokenizer_name=pair.key,
        )
        self._instances: list[Instance] = self._task.instances
        super().__init__(name, tuple(self._item(task, pair, instance) for instance in self._instances))
        self.score(0, "")  # raises its errors before any text is written

    def score(self, index: int, text: str) -> float:
        """The score of an answer to item `index`, from 0 to 1: the task's first metric, after its first filter.

        Raises:
            RequestError: the metric is not a number from 0 to 1, or is lower for better answers.
            SpecvizError: the task's own code failed.
        """
        instance = self._instances[index]
        answer = replace(instance, resps=[cut_at_stop(text, stop_texts(instance.args[1]))], filtered_resps={})
        ensemble = first_filter(self._task)
        try:
            ensemble.apply([answer])
            metrics = self._task.process_results(answer.doc, [answer.filtered_resps[ensemble.name]])
            metric, value = next(iter(metrics.items()))
        except Exception as error:
            raise SpecvizError(f"{self.name} could not score an answer: choose another task.") from error
        is_number = hasattr(value, "__float__") and not isinstance(value, str)
        if not is_number or not 0 <= value <= 1 or self._task.higher_is_better().get(metric) is False:
            raise RequestError(
                f"{self.name} is scored by {metric}, which is not a number from 0 to 1 for each answer: choose another task."
            )
        return float(value)

    def _item(self, task: str, pair: ModelPair, instance: Instance) -> Item:
        target = self._task.doc_to_target(instance.doc)
        answers = target if isinstance(target, list) else [target]
        prompt, marker = instance.args[0], pair.tokenizer.bos_token
        # The tokenizer may add the beginning-of-text token itself, and then there would be two.
        if marker and pair.tokenizer("")["input_ids"][:1] == [pair.tokenizer.bos_token_id]:
            prompt = prompt.removeprefix(marker)
        return Item(f"{task}-{instance.doc_id}", task, prompt, tuple(map(str, answers)), raw=True)
