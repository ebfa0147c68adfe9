"""Kinds of mistakes on the command line, each with the words that its one line has to hold.

``{t}`` is a directory of good tables, ``{p}`` one of hostile things (see :func:`hostile`). Shared with
``benchmarks/hostile_commands.py``.
"""

import gzip
import json
import os
import socket

TABLES = "--pairs {t}/pairs.tsv --row-edges {t}/rows.tsv --col-edges {t}/cols.tsv"
RANK = f"rank {TABLES} --model popularity --quiet"
STUDY = f"study {TABLES} --models popularity --folds 2 --quiet"
BIG = 2**70
DESCRIPTION = {
    "format": 1,
    "title": "t",
    "finished": False,
    "settings": {},
    "data": {"digest": "x"},
    "versions": {},
    "units": {"done": 1, "total": 2},
    "seconds": 1.0,
    "notes": [],
}
DESCRIPTIONS = {
    "list": "[]",
    "number": "7",
    "deep lists": "[" * 200_000,
    "deep parts": json.dumps(DESCRIPTION | {"data": 0}).replace(
        '"data": 0', '"data": ' + '{"a":' * 300 + "0" + "}" * 300
    ),
    "5,000 digits": json.dumps(DESCRIPTION).replace("1.0", "9" * 5000),
    "4,000 digits": json.dumps(DESCRIPTION).replace("1.0", "9" * 4000),
    "infinity": json.dumps(DESCRIPTION).replace("1.0", "1e999"),
    "nan": json.dumps(DESCRIPTION).replace("1.0", "NaN"),
    "cut": json.dumps(DESCRIPTION)[:40],
    "binary": "\x00\x01",
    "format as text": json.dumps(DESCRIPTION | {"format": "1"}),
    **{
        f"{name} is a number": json.dumps(DESCRIPTION | {name: 3})
        for name in ("title", "settings", "data", "units", "notes", "finished")
    },
    **{
        f"{name} is a text": json.dumps(DESCRIPTION | {name: "x"})
        for name in ("settings", "data", "units", "seconds", "notes")
    },
    "units of text": json.dumps(DESCRIPTION | {"units": {"done": "1", "total": []}}),
}
SPECIAL = ("fifo", "socket", "loop", "dangling", "folder")


def hostile(place):
    """Things that are no regular files, and files that are not what they seem."""
    os.mkfifo(place / "fifo")
    with socket.socket(socket.AF_UNIX) as one:
        here = os.getcwd()
        os.chdir(place)  # names of sockets are short
        try:
            one.bind("socket")
        finally:
            os.chdir(here)
    (place / "loop").symlink_to("loop2")
    (place / "loop2").symlink_to("loop")
    (place / "dangling").symlink_to("nowhere")
    (place / "folder").mkdir()
    (place / "file").write_text("kept")
    (place / "latin.tsv").write_bytes(b"D00\tg\xe9\n")
    (place / "escape.tsv").write_bytes(b"\x1b[31mD\tg00\n\xe2\x80\xaeX\tg01\n")
    (place / "zeros.gz").write_bytes(gzip.compress(b"\0" * 2**22))
    (place / "line.gz").write_bytes(gzip.compress(b"a" * (5 * 2**20)))
    (place / "bomb.gz").write_bytes(gzip.compress(b"D0\tg0\n" * 400_000))
    for name, text in DESCRIPTIONS.items():
        study = place / "studies" / name
        study.mkdir(parents=True)
        (study / "lock").write_text("")
        (study / "study.json").write_text(text)
    for name in ("study.json", "lock"):
        for kind in ("fifo", "loop", "folder"):
            study = place / "studies" / f"{name} {kind}"
            study.mkdir()
            (study / "lock").write_text("")
            (study / name).unlink(missing_ok=True)
            {"fifo": os.mkfifo, "loop": lambda at: at.symlink_to(at.name), "folder": os.mkdir}[kind](study / name)
    return place


MISTAKES = {
    **{f"rank --out {kind}": (f"{RANK} --out {{p}}/{kind}", ["--out", kind]) for kind in SPECIAL},
    **{f"rank --save {kind}": (f"rank {TABLES} --quiet --save {{p}}/{kind}", ["--save", kind]) for kind in SPECIAL},
    **{f"rank --pairs {kind}": (f"rank --pairs {{p}}/{kind} --out {{p}}/o", [kind]) for kind in SPECIAL},
    **{f"rank --row-edges {kind}": (f"rank --pairs {{t}}/pairs.tsv --row-edges {{p}}/{kind} --out {{p}}/o", [kind]) for kind in SPECIAL},
    **{
        f"{what} --{option} {kind}": (f"{what} --pairs {{t}}/pairs.tsv --{option} {{p}}/{kind} --out {{p}}/o", [kind])
        for what in ("rank", "study")
        for option in ("row-features", "col-features")
        for kind in SPECIAL
    },
    **{f"rank, second --col-edges {kind}": (f"{RANK} --col-edges {{p}}/{kind} --out {{p}}/o", [kind]) for kind in SPECIAL},
    **{f"rank --{option} {one}": (f"rank {TABLES} --model trace --row D01 --quiet --{option} {one}", [f"--{option}"]) for option in ("row-time", "row-shift", "col-time", "col-shift", "noise", "ratio") for one in ("nan", "inf", "-1", "1e999", "much", "")},
    **{f"rank --{option} for popularity": (f"{RANK} --row D01 --{option} 1", [f"--{option}", "popularity"]) for option in ("row-time", "row-shift", "col-time", "col-shift", "noise", "ratio")},
    "rank --ratio 1e300": (f"rank {TABLES} --model trace --row D01 --quiet --ratio 1e300", ["GiB"]),
    "rank --filters empty": ([*RANK.split(), "--row", "D01", "--filters", ""], ["filters"]),
    "rank --row-edges twice the same": (f"{RANK} --row-edges {{t}}/rows.tsv --row D01", ["--row-edges", "twice"]),
    "rank --out a table of features": (f"{RANK} --row-features {{t}}/row_features.tsv --out {{t}}/row_features.tsv", ["--out", "own"]),
    "rank --row-features: names": (f"{RANK} --row-features {{t}}/row_names.tsv --row D01", ["row_names.tsv", "line 2", "'disease 0'"]),
    "rank --row-features: pairs": (f"{RANK} --row-features {{t}}/pairs.tsv --row D01", ["pairs.tsv", "line 2"]),
    "rank --row-features: latin letters": (f"{RANK} --row-features {{p}}/latin.tsv --row D01", ["UTF-8"]),
    "rank --row-features: a gzip of zeros": (f"{RANK} --row-features {{p}}/zeros.gz --row D01", ["zero byte"]),
    "rank --row-features: a gzip bomb": (f"{RANK} --row-features {{p}}/bomb.gz --row D01 --max-size 1", ["--max-size"]),
    "rank --row-features: escapes": (f"{RANK} --row-features {{p}}/escape.tsv --row D01", ["escape.tsv"]),
    "rank --row-features with a zero byte": ([*RANK.split(), "--row", "D01", "--row-features", "a\0b"], ["null "]),
    "rank --load with features": ("rank --load {p}/file --row D01 --row-features {t}/row_features.tsv", ["--row-features"]),
    "rank --load with a time": ("rank --load {p}/file --row D01 --row-time 2", ["--row-time"]),
    **{f"rank --load {kind}": (f"rank --load {{p}}/{kind} --row D01", [kind]) for kind in SPECIAL},
    **{f"study --out {kind}": (f"{STUDY} --out {{p}}/{kind}", ["--out"]) for kind in SPECIAL[:-1]},
    **{f"study --out below {kind}": (f"{STUDY} --out {{p}}/{kind}/below", ["--out"]) for kind in SPECIAL[:-1]},
    **{f"demo --out {kind}": (f"demo --out {{p}}/{kind}", ["--out"]) for kind in SPECIAL[:-1]},
    **{f"report of {kind}": (f"report {{p}}/{kind}", ["stud"]) for kind in SPECIAL},
    **{f"report --out {kind}": (f"report {{p}}/study --out {{p}}/{kind}", ["--out"]) for kind in SPECIAL[:-1]},
    **{f"report of a study: {name}": (["report", f"{{p}}/studies/{name}"], ["study.json"]) for name in DESCRIPTIONS},
    **{f"go on with a study: {name}": ([*STUDY.split(), "--out", f"{{p}}/studies/{name}"], ["study.json"]) for name in DESCRIPTIONS},
    **{
        f"go on with a study: {name} {kind}": ([*STUDY.split(), "--out", f"{{p}}/studies/{name} {kind}"], [name])
        for name in ("study.json", "lock")
        for kind in ("fifo", "loop", "folder")
    },
    **{f"{what} --seed {seed}": (f"{given} --seed {seed}", ["--seed"]) for what, given in (("rank", f"{RANK} --row D01"), ("study", f"{STUDY} --out {{p}}/s"), ("demo", "demo --out {p}/d")) for seed in (BIG, -1, -BIG, "one", "1.5", "")},
    **{f"study --jobs {jobs}": (f"{STUDY} --out {{p}}/s --jobs {jobs}", ["--jobs"]) for jobs in (99999, BIG, 0, -1, "two")},
    **{f"demo --jobs {jobs}": (f"demo --out {{p}}/d --jobs {jobs}", ["--jobs"]) for jobs in (99999, BIG, 0, "two")},
    **{f"rank --negatives {many}": (f"rank {TABLES} --out {{p}}/o --negatives {many}", ["negative"]) for many in (10**9, BIG, 0)},
    **{f"study --negatives {many}": (f"{STUDY} --out {{p}}/s --negatives {many}", ["negative"]) for many in (10**9, BIG, 0)},
    **{f"study --strengths {many}": (f"{STUDY} --out {{p}}/s --strengths {many}", ["strengths"]) for many in (10**9, BIG, "nan", "inf", "1,,2", "-1")},
    **{f"study --folds {many}": (f"{STUDY} --out {{p}}/s --folds {many}", ["folds"]) for many in (10**9, BIG, -1)},
    **{f"study --{name} {BIG}": (f"{STUDY} --out {{p}}/s --{name} {BIG}", ["whole number"]) for name in ("top", "candidate-rows", "calibration-rows", "run-folds")},
    **{f"study --lowest {one}": (f"{STUDY} --out {{p}}/s --lowest {one}", ["lowest"]) for one in ("0", "1", "nan", "inf", "-1")},
    **{f"study --subsample {one}": (f"{STUDY} --out {{p}}/s --subsample {one}", ["subsample"]) for one in ("nan", "inf", "1e400", "-0.1")},
    **{f"study --metric {one}": (f"{STUDY} --out {{p}}/s --metric {one}", ["metric"]) for one in ("MAP@0", "MAP@" + "9" * 30, "MAP@-1", "@", "P@٣")},
    **{f"rank --top {one}": (f"{RANK} --row D01 --top {one}", ["top"]) for one in (BIG, 10**9, -1, "1e3")},
    **{f"rank --max-size {one}": (f"{RANK} --row D01 --max-size {one}", ["--max-size"]) for one in (0, -1, BIG, "big")},
    "study --dask empty": ([*STUDY.split(), "--out", "{p}/s", "--dask", ""], ["--dask"]),
    "study --dask blank": ([*STUDY.split(), "--out", "{p}/s", "--dask", " "], ["--dask"]),
    "study --dask and --jobs": (f"{STUDY} --out {{p}}/s --dask tcp://127.0.0.1:1 --jobs 2", ["--dask", "--jobs"]),
    "study without models": ([*STUDY.split(), "--out", "{p}/s", "--models", ""], ["models"]),
    "rank: a gzip of zeros": ("rank --pairs {p}/zeros.gz --out {p}/o", ["zero byte"]),
    "rank: a gzip of one line": ("rank --pairs {p}/line.gz --out {p}/o", ["characters"]),
    "rank: a gzip bomb": ("rank --pairs {p}/bomb.gz --out {p}/o --max-size 1", ["1,048,576 bytes", "--max-size"]),
    "rank: /dev/zero": ("rank --pairs /dev/zero --out {p}/o", ["/dev/zero", "device"]),
    "rank --load /dev/zero": ("rank --load /dev/zero --row x", ["/dev/zero", "device"]),
    "rank: latin letters": ("rank --pairs {p}/latin.tsv --out {p}/o", ["UTF-8"]),
    "rank: escapes in ids": ("rank --pairs {p}/escape.tsv --row D --model popularity --quiet", ["row:"]),
    "rank --row with an escape": ([*RANK.split(), "--row", "\x1b[31mred\x07"], ["\\x1b"]),
    "rank --row with markup": ([*RANK.split(), "--row", "[red]D01[/red]"], ["[red]"]),
    "rank --row with half a letter": ([*RANK.split(), "--row", "\udcff"], ["\\udcff"]),
    "rank --row empty": ([*RANK.split(), "--row", ""], ["row"]),
    "rank --model with an escape": (["rank", *TABLES.split(), "--row", "D01", "--model", "\x1b[2J"], ["model"]),
    "an option with an escape": (["rank", "--\x1b[31m"], ["\\x1b"]),
    "a command with an escape": (["\x1b]0;title\x07"], ["\\x1b"]),
    "rank --out with a zero byte": ([*RANK.split(), "--out", "{p}/a\0b"], ["--out"]),
    "rank --pairs with a zero byte": (["rank", "--pairs", "a\0b", "--out", "{p}/o"], ["--pairs", "null "]),
    "rank --out with a long name": ([*RANK.split(), "--out", "{p}/" + "n" * 5000], ["--out"]),
    "rank --pairs with a long name": (["rank", "--pairs", "n" * 5000, "--out", "{p}/o"], ["nnn"]),
    "study --out with a long name": ([*STUDY.split(), "--out", "{p}/" + "n" * 5000], ["--out"]),
    "rank --out empty": ([*RANK.split(), "--out", ""], ["--out"]),
    "rank --out and --save the same": (f"rank {TABLES} --out {{p}}/o --save {{p}}/o", ["--save", "own"]),
    "rank --out a table": (f"{RANK} --out {{t}}/cols.tsv", ["--out", "own"]),
    "rank --strength inf": (f"rank {TABLES} --out {{p}}/o --strength inf", ["strength"]),
    "rank --trace-share nan": (f"rank {TABLES} --out {{p}}/o --trace-share nan", ["trace_share"]),
    "report without anything": ("report", ["DIR"]),
    "report of too much": ("report {p}/study {p}/study", ["{p}/study"]),
    "report --magic": ("report {p}/study --magic", ["--magic"]),
    "demo --magic": ("demo --magic", ["--magic"]),
    "demo stray": ("demo stray", ["stray"]),
    "study without --out": (f"study {TABLES}", ["--out"]),
    "an option without its value": ("rank --pairs", ["--pairs"]),
}  # fmt: skip


def filled(kind, tables, place):
    """The arguments and the words of a mistake."""
    given, words = MISTAKES[kind]
    parts = given.split() if isinstance(given, str) else given
    if isinstance(given, str) and given.endswith(" "):
        parts = [*parts, ""]
    put = lambda text: text.replace("{t}", str(tables)).replace("{p}", str(place))  # noqa: E731
    return [put(one) for one in parts], [put(one) for one in words]


def seen(place):
    """Everything in a directory: kinds, sizes, contents of files."""
    found = {}
    for one in sorted(place.rglob("*")):
        told = one.lstat()
        regular = one.is_file() and not one.is_symlink()
        found[str(one)] = (told.st_mode, told.st_ino, one.read_bytes() if regular else None)
    return found
