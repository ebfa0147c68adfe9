"""What mvgp is built on: licences of its dependencies, and the hashes of the files that were installed.

python -m benchmarks.trust.supply --licences    # the table of docs/security.md, from the metadata of what is installed here
python -m benchmarks.trust.supply --hashes      # constraints-hashes.txt, from what pip would install of constraints.txt
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.book.machine import ROOT

PAGE, HASHES = ROOT / "docs/security.md", ROOT / "constraints-hashes.txt"
MARKS = ("<!-- licences: written by benchmarks/trust/supply.py -->", "<!-- licences: end -->")
EXTRAS = ("", "cli")
CLASSIFIER = "License :: OSI Approved :: "
LONGEST = 60  # characters of a field that names a licence; some packages have its whole text there


def licence(name: str) -> str:
    """As the metadata of a package says it: the expression, the short field, or the classifiers."""
    data = importlib.metadata.metadata(name)
    classified = [
        text.removeprefix(CLASSIFIER) for text in data.get_all("Classifier") or [] if text.startswith(CLASSIFIER)
    ]
    short = (data.get("License") or "").strip()
    fits = short and len(short) <= LONGEST and "\n" not in short and short.upper() != "UNKNOWN"
    return data.get("License-Expression") or (short if fits else "") or ", ".join(classified) or "not stated"


def needed(extras: tuple[str, ...] = EXTRAS) -> list[str]:
    """Mvgp's dependencies with these extras, and theirs, by name; what is not installed here is left out."""
    found: set[str] = set()
    waiting = [("mvgp", extras)]
    while waiting:
        name, with_extras = waiting.pop()
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        if name != "mvgp":
            found.add(name)
        for text in requires:
            one = Requirement(text)
            other = canonicalize_name(one.name)
            wanted = one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in with_extras)
            if wanted and other not in found and other != "mvgp":
                waiting.append((other, ("", *one.extras)))
    return sorted(found)


def table() -> str:
    """Name, version and licence of each dependency."""
    rows = [f"| {name} | {importlib.metadata.version(name)} | {licence(name).replace('|', '/')} |" for name in needed()]
    return "\n".join(["| package | version | licence |", "|---|---|---|", *rows])


def write_licences(page: Path = PAGE) -> None:
    """Replace what is between the marks."""
    before, rest = page.read_text().split(MARKS[0])
    page.write_text(f"{before}{MARKS[0]}\n\n{table()}\n\n{MARKS[1]}{rest.split(MARKS[1])[1]}")


def hashed(report: dict[str, object]) -> str:
    """Requirements with hashes, from a report of pip."""
    lines = [
        f"# SHA-256 of the files that pip takes for constraints.txt on {platform.system()} {platform.machine()}, "
        f"Python {'.'.join(platform.python_version_tuple()[:2])}.",
        "# pip install --require-hashes --no-deps -r constraints-hashes.txt; then pip install --no-deps --editable .",
    ]
    found = []
    for one in report["install"]:  # type: ignore[attr-defined]
        data, digest = one["metadata"], one["download_info"]["archive_info"]["hashes"]["sha256"]
        found.append(f"{canonicalize_name(data['name'])}=={data['version']} --hash=sha256:{digest}")
    return "\n".join([*lines, *sorted(found)]) + "\n"


def write_hashes(path: Path = HASHES) -> None:
    """Ask pip what it would install, without installing."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--report", str(report)]
        command = [sys.executable, "-m", "pip", "install", *options, "-r", str(ROOT / "constraints.txt")]
        subprocess.run(command, check=True)
        path.write_text(hashed(json.loads(report.read_text())))


def pins(path: Path) -> dict[str, str]:
    """Versions by name, of a file of constraints."""
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", path.read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--licences", action="store_true")
    parser.add_argument("--hashes", action="store_true")
    options = parser.parse_args()
    if options.licences:
        write_licences()
    if options.hashes:
        write_hashes()


if __name__ == "__main__":
    main()
