"""How a worker process of this machine begins: it ends with the process that started it, and leaves Ctrl-C to it."""

from __future__ import annotations

import os
import signal
import threading
import time

from tqdm import tqdm

PAUSE = 0.5  # seconds between two looks


def begin_worker(parent: int) -> None:
    """Called once in each worker, before its first task.

    A worker whose parent was killed has nobody to hand its results to. It is no child of ``parent`` then any more, so
    it looks at times; on Windows it stays one, and ends when it has been idle. (On Linux the system could be asked for
    a signal instead, but that comes when the thread that started the worker ends, which is not always the main one.)

    :param parent: the process that started it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    tqdm.set_lock(threading.RLock())  # its own is a semaphore, which outlives a worker that is killed
    threading.Thread(target=_watch, args=(parent,), name="mvgp parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PAUSE)
    os._exit(1)
