"""Contestants that behave and that do not, for test_book; imported by the measuring process."""

import os
import signal
import time

import torch


def quick(value):
    return lambda: {"value": value, "threads": torch.get_num_threads()}


def slow():
    def run():
        time.sleep(3600)

    return run


def broken(when):
    if when == "setting up":
        raise ValueError("no such | problem")

    def run():
        raise RuntimeError("no\nanswer")

    return run


def dies(how):
    def run():
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(3)

    return run


def large(mib, hold=0.0):
    """Touches so much memory and keeps it for so many seconds."""

    def run():
        block = bytearray(mib * 2**20)
        block[::4096] = b"x" * len(block[::4096])
        time.sleep(hold)
        return {"size": len(block)}

    return run


def chatty():
    def run():
        print("not an answer", flush=True)
        return {"said": True}

    return run


def not_json():
    return lambda: {"value": torch.zeros(2)}
