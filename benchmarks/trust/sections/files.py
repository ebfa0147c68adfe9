"""Files that were damaged or forged, given to ``mvgp.load``: a clean error, or the numbers of the original."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pathlib
import pickle
import random
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import mvgp
from benchmarks.trust.plan import Found, Line, generator
from mvgp.errors import StorageError
from mvgp.storage.archive import START, ZEROS
from tests.storage import forgery, hostile

# what code that came out of a file would do; opening a file to read is what loading is
FORBIDDEN = {
    "pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "socket.connect",
    "socket.bind", "marshal.loads", "code.__new__", "ctypes.dlopen", "os.remove", "os.rename", "shutil.rmtree", "os.chmod",
}  # fmt: skip
SOME = ("full", "trace, biases", "factor", "full, cg", "trace, features", "sum")


class Watch:
    """What Python is asked to do while a file is loaded. A hook cannot be taken out, so there is one, turned on and off."""

    def __init__(self) -> None:
        self.on, self.seen, self.own = False, list[str](), ""
        sys.addaudithook(self._hook)

    def _hook(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in FORBIDDEN:
            self.seen.append(event)
        elif event == "exec":  # a module of ours or of a library that is imported late has a file
            name = getattr(given[0], "co_filename", "?")
            if not pathlib.Path(name).exists():
                self.seen.append(f"exec of {name}")
        elif event == "open" and isinstance(given[1], str) and set(given[1]) & set("wax+"):
            self.seen.append(f"open to write {given[0]}")

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[str]]:
        """The forbidden events of a block."""
        self.seen, self.on = [], True
        try:
            yield self.seen
        finally:
            self.on = False


_WATCH: list[Watch] = []


def watch() -> Watch:
    """The watch of this process."""
    if not _WATCH:
        _WATCH.append(Watch())
    return _WATCH[0]


def loaded(path: pathlib.Path) -> tuple[Any, str]:
    """The posterior, or None if it is refused, and what is wrong with how that went."""
    try:
        with watch().watched() as events, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = mvgp.load(path)
    except StorageError as error:
        posterior = None
        if len(str(error)) >= 3000 or not str(error).isprintable():
            return None, f"a message of {len(str(error))} characters, or not printable"
    except Exception as error:
        return None, f"{type(error).__name__}: {str(error)[:200]}"
    return posterior, f"while it was loaded: {', '.join(events)}" if events else ""


def python_rng(line: str, number: int, seed: int) -> random.Random:
    """As the makers of hostile files want it."""
    return random.Random(int(generator(line, number, seed).integers(2**62)))


def damaged_bytes(first: int, count: int, seed: int) -> Found:
    """Bytes changed, and nothing signed again: every such file must be refused."""
    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        saved, path = hostile.save_all(place), place / "given"
        hostile.reset_peak()
        before = hostile.peak()
        for number in range(first, first + count):
            rng, base = python_rng("files/bytes", number, seed), saved[number % len(saved)]
            kind, data = hostile.damaged(base, rng, 0.0)
            while data == base.data:  # two equal bytes exchanged, say
                kind, data = hostile.damaged(base, rng, 0.0)
            path.write_bytes(data)
            start = time.process_time()
            posterior, wrong = loaded(path)
            used = time.process_time() - start
            found.reached("seconds for a file", used)
            if posterior is not None:
                wrong = "loaded, although a byte has changed"
            elif used > hostile.SECONDS:
                wrong = wrong or f"refused after {used:.1f} s"
            found.add("failed" if wrong else "refused", wrong and f"{number} {base.name} [{kind}]: {wrong}")
        used = hostile.peak() - before
        found.reached("megabytes beyond those of the process", used / 2**20)
        if used > hostile.EXTRA:
            found.failures.append(f"tries {first} to {first + count - 1}: {used / 2**20:.0f} MB")
    return found


def forged(first: int, count: int, seed: int) -> Found:
    """Files under a right checksum: refused, equal, or a posterior that is consistent with itself."""
    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        saved = hostile.save_all(place)
        with watched_loads() as events:
            told = hostile.run(place, saved, range(first, first + count), seed)
        found.tried = count
        found.counts.update({"failed" if word == "FAILED" else word: many for word, many in told.outcomes.items()})
        found.failures += [f"{number} {name} [{kind}]: {reason}" for name, kind, number, reason in told.failures]
        found.failures += [f"while a file was loaded: {event}" for event in events]
        found.reached("seconds for a file", told.slowest)
        found.reached("megabytes beyond those of the process", told.most / 2**20)
    return found


@contextlib.contextmanager
def watched_loads() -> Iterator[list[str]]:
    """Forbidden events of every ``mvgp.load`` of a block."""
    real, events = mvgp.load, list[str]()

    def load(*given: Any, **options: Any) -> Any:
        with watch().watched() as seen:
            try:
                return real(*given, **options)
            finally:
                events.extend(seen)

    mvgp.load = load
    try:
        yield events
    finally:
        mvgp.load = real


# ------------------------------------------------------------------------------------------------------------ polyglots


class Trap:
    """A pickle of it makes a file when it is loaded."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch '{self.marker}'",)


def payloads(marker: str) -> dict[str, bytes]:
    """Files of other formats, those that can hold code with code that would make a file."""
    trap, zipped, saved, array = pickle.dumps(Trap(marker)), io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("__main__.py", f"open({marker!r}, 'w')")
        archive.writestr("data.pkl", trap)
        archive.writestr("../../escape", b"x")
    torch.save({"x": torch.ones(2), "trap": Trap(marker)}, saved)
    np.save(array, np.array([Trap(marker)], dtype=object), allow_pickle=True)
    script = f"#!/bin/sh\ntouch '{marker}'\n".encode()
    return {
        "pickle": trap, "zip": zipped.getvalue(), "torch file": saved.getvalue(), "numpy file": array.getvalue(),
        "gzip": gzip.compress(trap), "shell script": script, "python": f"open({marker!r}, 'w')\n".encode(),
        "PDF": b"%PDF-1.7\n1 0 obj<</OpenAction<</S/Launch/F(sh)>>>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n",
        "HTML": b"<!doctype html><script>alert(1)</script>", "PNG": b"\x89PNG\r\n\x1a\n" + bytes(40),
        "ELF": b"\x7fELF\x02\x01\x01" + bytes(57), "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(200),
        "YAML": f"!!python/object/apply:os.system ['touch {marker}']\n".encode(), "tar": b"x".ljust(257, b"\0") + b"ustar\x0000",
    }  # fmt: skip


PLACES = (
    "alone",
    "before",
    "after",
    "before, signed",
    "after, signed",
    "in the header",
    "in an array",
    "as its name",
    "in a text",
)


def polyglot(base: hostile.Saved, payload: bytes, place: str, rng: random.Random) -> bytes:
    """A saved posterior that is a file of another format as well, or holds one."""
    if place == "alone":
        return payload
    if place.startswith("before"):
        data = payload + base.data
        return forgery.signed(data) if "signed" in place and data[8:].startswith(START) else data
    if place.startswith("after"):
        data = base.data + payload
        return forgery.signed(data) if "signed" in place else data
    text, arrays = forgery.manifest(base.data), dict(base.arrays)
    word = payload.decode("latin-1")
    if place == "in the header":
        text["more"] = word
    elif place == "in an array":
        name = rng.choice(sorted(arrays))
        whole = arrays[name]
        raw = bytearray(whole.tobytes())
        fill = payload[: len(raw)]
        raw[: len(fill)] = fill
        arrays[name] = np.frombuffer(bytes(raw), dtype=whole.dtype).reshape(whole.shape) if len(raw) else whole
    elif place == "as its name":
        arrays[word] = np.zeros(2)
    else:
        spots = [path for path in hostile.places(text["content"]) if isinstance(hostile.at(text["content"], path), str)]
        path = rng.choice(spots)
        hostile.at(text["content"], path[:-1])[path[-1]] = word
    return forgery.built(text, {name: np.ascontiguousarray(one).reshape(one.shape) for name, one in arrays.items()})


def polyglots(first: int, count: int, seed: int) -> Found:
    """Files that are of two formats: nothing in them is run, no file is made, and what loads answers."""
    found = Found()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        place, marker = pathlib.Path(folder), pathlib.Path(other) / "made"
        saved = hostile.save_all(place, [name for name in hostile.makers() if name in SOME])
        kinds, path = payloads(str(marker)), place / "given"
        for number in range(first, first + count):
            rng = python_rng("files/polyglots", number, seed)
            base, kind, where = rng.choice(saved), rng.choice(sorted(kinds)), PLACES[number % len(PLACES)]
            data = polyglot(base, kinds[kind], where, rng)
            path.write_bytes(data)
            posterior, wrong = loaded(path)
            outcome = "refused"
            if posterior is not None and not wrong:
                answers = hostile.ask(posterior)
                wrong = hostile.failing(posterior, answers, base.answers) or ""
                outcome = "equal" if hostile.same(answers, base.answers) else "other"
            if marker.exists() or len(list(place.iterdir())) > 2:
                wrong = "a file was made"
                marker.unlink(missing_ok=True)
            found.add("failed" if wrong else outcome, wrong and f"{number} {base.name} [{kind}, {where}]: {wrong}")
    return found


# -------------------------------------------------------------------------------------------------------------- budgets


def bomb(base: hostile.Saved, rng: random.Random, path: pathlib.Path) -> str:
    """A file that asks for much: deep, wide, long, or a hole. Its kind."""
    kind = rng.choice(
        ("deep", "wide", "many values", "long text", "many arrays", "hole", "header", "repeated", "number")
    )
    text, arrays = forgery.manifest(base.data), dict(base.arrays)
    size = int(10 ** rng.uniform(1, 5.5))
    if kind == "deep":
        whole = json.dumps(
            {"sha256": ZEROS.decode()} | {key: one for key, one in text.items() if key != "sha256"},
            separators=(",", ":"),
        )
        inside = "[" * size + "]" * size if rng.random() < 0.5 else '{"a":' * size + "0" + "}" * size
        entries = {name: one for name, one in forgery.header(base.data).items() if name != "__metadata__"}
        path.write_bytes(forgery.packed(f'{whole[:-1]},"more":{inside}}}', entries, forgery.numbers(base.data)))
    elif kind == "hole":
        with open(path, "wb") as file:
            file.write(base.data)
            file.truncate(len(base.data) + 2 ** rng.randrange(20, 36))
    elif kind == "header":
        path.write_bytes((2 ** rng.randrange(3, 64) - rng.randrange(2)).to_bytes(8, "little") + base.data[8:])
    else:
        if kind == "wide":
            text["content"]["prior"]["row" if rng.random() < 0.5 else "col"] = {str(at): [] for at in range(size)}
        elif kind == "many values":
            text["content"]["more"] = [rng.choice(([], {}, 0, "", None))] * (4 * size)
        elif kind == "long text":
            text["content"]["kind"] = rng.choice("a\x00\u202e\U0001f600") * (10 * size)
        elif kind == "many arrays":
            arrays |= {f"a{at}": np.zeros(0) for at in range(size // 10)}
        elif kind == "repeated":
            text["content"]["prior"] = {"terms": [text["content"]["prior"]] * (size // 100 + 1)}
        else:
            spots = [
                one for one in hostile.places(text["content"]) if type(hostile.at(text["content"], one)) in (int, float)
            ]
            where = rng.choice(spots)
            hostile.at(text["content"], where[:-1])[where[-1]] = 10 ** rng.randrange(3, 4000)
        path.write_bytes(forgery.built(text, arrays))
    return kind


def budgets(first: int, count: int, seed: int) -> Found:
    """Files that ask for much: refused, or loaded, within the time and the memory that a file may take."""
    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        saved = hostile.save_all(place, [name for name in hostile.makers() if name in SOME])
        sys.set_int_max_str_digits(0)  # for the makers; a file that is loaded meets the limit again
        for number in range(first, first + count):
            rng, path = python_rng("files/budgets", number, seed), place / "given"
            base = rng.choice(saved)
            kind = bomb(base, rng, path)
            sys.set_int_max_str_digits(4300)
            hostile.reset_peak()
            before, start = hostile.peak(), time.process_time()
            try:
                with hostile.bounded(4 * hostile.SECONDS):
                    posterior, wrong = loaded(path)
            except hostile.Hang:
                posterior, wrong = None, "no end"
            used, memory = time.process_time() - start, hostile.peak() - before
            sys.set_int_max_str_digits(0)
            if not wrong and (used > hostile.SECONDS or memory > hostile.EXTRA):
                wrong = f"{used:.1f} s and {memory / 2**20:.0f} MB"
            found.reached("seconds for a file", used)
            found.reached("megabytes beyond those of the process", memory / 2**20)
            outcome = "refused" if posterior is None else "loaded"
            found.add("failed" if wrong else outcome, wrong and f"{number} {base.name} [{kind}]: {wrong}")
            path.unlink()
    return found


LINES = [
    Line("files/bytes", "files changed in single bytes, cut, or with parts moved", 1_000_000, 20_000, damaged_bytes),
    Line("files/forged", "files forged under a right checksum", 50_000, 1_000, forged),
    Line("files/polyglots", "files of two formats, with code inside", 2_000, 500, polyglots),
    Line("files/budgets", "files that ask for much time, memory or depth", 2_000, 500, budgets),
]
