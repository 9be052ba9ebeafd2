"""A process-wide switch: changed by the first block, restored by the last, whatever the order and the thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from specviz.compat.transformers import ProcessSwitch


class Setting:
    """A setting of a library, and how often it was changed."""

    def __init__(self) -> None:
        self.value, self.changes = "loud", 0
        self.switch = ProcessSwitch(self._change)

    def _change(self) -> Callable[[], None]:
        before, self.value = self.value, "quiet"
        self.changes += 1

        def restore() -> None:
            self.value = before

        return restore


def test_the_last_block_to_end_restores() -> None:
    setting = Setting()
    with setting.switch:
        with setting.switch:
            assert setting.value == "quiet"
        assert setting.value == "quiet"
    assert (setting.value, setting.changes) == ("loud", 1)


def test_an_exception_restores() -> None:
    setting = Setting()
    with pytest.raises(ZeroDivisionError), setting.switch:
        raise ZeroDivisionError
    assert setting.value == "loud"


def test_what_was_changed_between_two_blocks_stays() -> None:
    setting = Setting()
    with setting.switch:
        pass
    setting.value = "louder"
    with setting.switch:
        assert setting.value == "quiet"
    assert setting.value == "louder"


def test_threads_that_overlap_restore_once_all_are_done() -> None:
    setting = Setting()
    barrier = threading.Barrier(4)

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
