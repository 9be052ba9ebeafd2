"""Tasks of lm-evaluation-harness: loads them, and turns a task into the items of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

from specviz.analysis.sweep.items import Item, Items
from specviz.compat.lm_eval import first_filter
from specviz.errors import RequestError, SpecvizError
from specviz.integrations.lm_eval.model import HarnessModel, cut_at_stop, stop_texts
from specviz.models.pair import ModelPair

SOURCE = "lm-eval:"
"""Prefix of a task's name, if a sweep takes its items from a task."""
_FEWSHOT_SEED = 1234
"""The harness's default seed, so that the same examples are chosen."""


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
        names: of tasks, groups or tags.
        include_path: a folder with tasks of your own.
        num_fewshot: number of examples in each prompt, except for tasks that say 0; None takes each task's own number.
        generation: generation arguments that override the tasks' own.
        runs_code: whether tasks may run code on this machine that a model wrote.

    Raises:
        RequestError: there is no such task or folder, or a task is multimodal, or would run code without consent.
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
            name: "lm-eval:" and the task's name in the harness, or in a file of `include_path`.
            limit: maximum number of documents; 0 takes all.
            include_path, runs_code: as in `load_tasks`.

        Raises:
            RequestError: the name is malformed, there is no such task, or its answers cannot be scored one by one as texts.
            SpecvizError: its data set or a package is missing.
        """
        task = name.removeprefix(SOURCE)
        if not task or task == name:
            raise RequestError(
                f"Tasks of lm-evaluation-harness are written {SOURCE}TASK, such as {SOURCE}gsm8k."
            )
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
        self.score(0, "")  # before a text is written

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
