"""Issue 7: what users would pick instead, on the split of ``bench_mesh.py``: settings by validation, then test scores.

Each recipe of ``mvgp.prioritise.baselines.candidates`` is fitted to the training part without the validation pairs; the one with
the best validation MAP@100 is refitted to the whole training part and scored on the test pairs, once.

Usage: bench_peers.py [--save FILE] [name ...] with names from ``mvgp.prioritise.baselines.BASELINE_NAMES``; FILE gets the AUC and
the AP@100 of each test disease, by name (``torch.load``).
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from bench_mesh import DATA, Task
from common import peak_gib, verdict

from mvgp.metrics import ranking_scores
from mvgp.prioritise.baselines import BASELINE_NAMES, candidates
from mvgp.prioritise.tables import LinkSet

KNOWN = {"als": 0.189, "ease": 0.187}  # MAP@100 of settings chosen on the test pairs: what ours should come near


def choose(task: Task, name: str, link_set: LinkSet):
    best, best_found = None, {"MAP@100": -1.0}
    for recipe in candidates(name, link_set):
        began = time.perf_counter()
        found = task.score(recipe.fit(task.whole(task.fit)), task.fit, task.valid)
        print(
            f"   {recipe}: validation AUC {found['AUC']:.4f} MAP@100 {found['MAP@100']:.4f}  "
            f"{time.perf_counter() - began:.1f} s",
            flush=True,
        )
        if found["MAP@100"] > best_found["MAP@100"]:
            best, best_found = recipe, found
    return best, best_found


def main(names: list[str], save: Path | None) -> bool:
    task = Task()
    ids = [[str(place) for place in range(count)] for count in task.shape]
    link_set = LinkSet(*ids, task.train[:, 0], task.train[:, 1], *task.graphs)
    lines, cleared = [], True
    kept = torch.load(save) if save is not None and save.exists() else {}
    for name in names:
        began = time.perf_counter()
        recipe, chosen = choose(task, name, link_set)
        chose = time.perf_counter() - began
        began = time.perf_counter()
        found = ranking_scores(
            recipe.fit(task.whole(task.train)),
            tuple(np.ascontiguousarray(task.test.T)),
            exclude=tuple(np.ascontiguousarray(task.train.T)),
        )
        spent, means = time.perf_counter() - began, found.summary(at=(100,))
        lines.append(
            f"{name:12s} AUC {means['AUC']:.4f}  MAP@100 {means['MAP@100']:.4f}  P@100 {means['P@100']:.4f}  "
            f"R@100 {means['R@100']:.4f}  validation {chosen['AUC']:.4f} / {chosen['MAP@100']:.4f}  "
            f"chosen in {chose:.0f} s, refitted and scored in {spent:.0f} s, {peak_gib():.1f} GiB  {recipe}"
        )
        print(lines[-1], flush=True)
        kept[name] = {
            "tasks": found.tasks,
            "AUC": found.auc,
            "AP@100": found.per_task("AP@100"),
            "recipe": repr(recipe),
        }
        if save is not None:
            torch.save(kept, save)
        if name in KNOWN:
            cleared &= verdict(f"{name}: MAP@100", means["MAP@100"], 0.95 * KNOWN[name])
    print("", *lines, sep="\n")
    return cleared


if __name__ == "__main__":
    arguments = sys.argv[1:]
    target = None
    if "--save" in arguments:
        at = arguments.index("--save")
        target = Path(arguments[at + 1])
        del arguments[at : at + 2]
    if not DATA.exists():
        print(f"skipped: {DATA} is not there")
        sys.exit(0)
    sys.exit(0 if main(arguments or list(BASELINE_NAMES), target) else 1)
