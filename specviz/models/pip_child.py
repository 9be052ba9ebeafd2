"""A script that runs pip. It ends when its parent process ends or is killed, which closes the script's stdin."""

import os
import runpy
import sys
import threading


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the parent has ended
    os._exit(1)


if __name__ == "__main__":
    sys.path.pop(0)  # this script's folder
    threading.Thread(target=_end_with_parent, daemon=True).start()
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
