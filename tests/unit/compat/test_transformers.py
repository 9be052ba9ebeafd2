"""Process-wide switches: whoever ends last restores what was found."""

from __future__ import annotations

import threading
from collections.abc import Callable

from specviz.compat.transformers import ProcessSwitch


class Setting:
    """A setting of a library, and how often it was changed."""

    def __init__(self) -> None:
        self.value, self.changes = "loud", 0
        self.switch = ProcessSwitch(self._change)

    def _change(self) -> Callable[[], None]:
        before, self.value = self.value, "quiet"
        self.changes += 1
        return lambda: setattr(self, "value", before)


def test_threads_that_overlap_restore_once_all_are_done() -> None:
    setting, barrier = Setting(), threading.Barrier(4)

    def block() -> None:
        with setting.switch:
            barrier.wait()
            assert setting.value == "quiet"
            barrier.wait()

    threads = [threading.Thread(target=block) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (setting.value, setting.changes) == ("loud", 1)
