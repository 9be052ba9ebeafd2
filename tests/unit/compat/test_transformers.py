"""Process-wide switches: whoever ends last restores what was found."""

from __future__ import annotations

import threading
from collections.abc import Callable

from specviz.compat.transformers import ProcessSwitch


def test_threads_that_overlap_restore_once_all_are_done() -> None:
    setting, barrier = ["loud"], threading.Barrier(4)

    def change() -> Callable[[], None]:
        before = setting.copy()
        setting[:] = [*before, "quiet"]
        return lambda: setting.__setitem__(slice(None), before)

    switch = ProcessSwitch(change)

    def block() -> None:
        with switch:
            barrier.wait()
            assert setting == ["loud", "quiet"]
            barrier.wait()

    threads = [threading.Thread(target=block) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert setting == ["loud"]
