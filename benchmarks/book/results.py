"""Results on the disk: one JSON file for each chapter and one about the run, each written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .measurement import FAILED, Measurement, Outcome


class Results:
    """The outcomes of a run, saved as they come.

    :param folder: where the files are.
    :param about: what identifies the run and what it ran on; its ``identity`` has to be the same to go on.
    """

    def __init__(self, folder: Path, about: dict[str, Any], outcomes: dict[str, dict[str, Outcome]]) -> None:
        self.folder, self.about, self._outcomes = folder, about, outcomes

    @classmethod
    def begin(cls, folder: Path, about: dict[str, Any], *, fresh: bool) -> Results:
        """Go on with what is in ``folder`` if it is of the same identity, else start anew."""
        folder.mkdir(parents=True, exist_ok=True)
        if not fresh and (folder / "run.json").exists():
            found = cls.load(folder)
            if found.about["identity"] == about["identity"]:
                return found
        for name in about["chapters"]:
            (folder / f"{name}.json").unlink(missing_ok=True)
        _write(folder / "run.json", about)
        return cls(folder, about, {})

    @classmethod
    def load(cls, folder: Path) -> Results:
        """Whatever was measured last."""
        about = json.loads((folder / "run.json").read_text())
        outcomes = {
            path.stem: {one["name"]: Outcome(**one) for one in json.loads(path.read_text())}
            for path in (folder / f"{name}.json" for name in about["chapters"])
            if path.exists()
        }
        return cls(folder, about, outcomes)

    def of(self, chapter: str) -> dict[str, Outcome]:
        """Outcomes of a chapter by name."""
        return dict(self._outcomes.get(chapter, {}))

    def find(self, chapter: str, wanted: Measurement) -> Outcome | None:
        """An outcome that need not be measured again: of the same work, and not a failure."""
        found = self._outcomes.get(chapter, {}).get(wanted.name)
        return found if found is not None and found.key == wanted.key and found.status != FAILED else None

    def add(self, chapter: str, outcome: Outcome) -> None:
        """Save one more."""
        self._outcomes.setdefault(chapter, {})[outcome.name] = outcome
        every = [one.to_dict() for one in self._outcomes[chapter].values()]
        _write(self.folder / f"{chapter}.json", every)

    @property
    def seconds(self) -> float:
        """Time of all processes, over all runs that this one went on with."""
        return sum(one.process_seconds for chapter in self._outcomes.values() for one in chapter.values())


def _write(path: Path, content: Any) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(draft, path)
