"""The shared engine on the embedded pair: whatever runs beside it, a request gets the text that it gets alone."""

from __future__ import annotations

import threading

from specviz.engine.engine import Engine
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from specviz.serving.shared_engine import SharedEngine

PROMPTS = (
    "Why is the sky blue?",
    "Name three rivers.",
    "Write a haiku about rain.",
    "What is 17 times 3?",
    "Why is the sky blue in the morning and red in the evening, and what has the sun to do with it?",
)
METHODS = ("speed", "cascade_tokenV3", "verifier_only", "cascade_opt", "cascade_chow", "drafter_only")


def asked(number: int) -> Request:
    return Request(
        prompt=PROMPTS[number % len(PROMPTS)],
        method=METHODS[number % len(METHODS)],
        temperature=(0.0, 0.7, 1.0)[number % 3],
        seed=number,
        max_new_tokens=8 + number % 5,
    )


def test_requests_that_join_and_leave_get_the_texts_they_get_alone(engine: Engine) -> None:
    """Law 3, with prompts prefilled between steps, some from the prefix cache; five at a time, so that some join late."""
    shared = SharedEngine(engine.pair, max_sequences=6)
    found: dict[int, Run] = {}
    slots = threading.Semaphore(5)

    def ask(number: int) -> None:
        with slots:
            [found[number]] = shared.generate(asked(number))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    shared.close()
    different = [
        number
        for number in range(8)
        if found[number].token_ids != engine.generate(asked(number))[0].token_ids
    ]
    assert different == []
    assert max(run.neighbours for run in found.values()) >= 3
