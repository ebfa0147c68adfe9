"""What ``mvgp demo`` does: a small study of genes and diseases, one ranked list, and a report."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ..hyperparameters.splits import Split, split_pairs
from ..storage.files import replacing
from .ranking.prioritiser import fit_prioritiser
from .ranking.rows import RankedRow, find_rows
from .report.page import write_report
from .studies.run import run_study
from .studies.settings import Study
from .studies.tables import COLUMNS, StudyResult, to_text
from .tables.hpo import HPO_CITATION, hpo_links
from .tables.link_set import LinkSet
from .tuning.settings import TOP
from .tuning.tune import REGISTRY

MODEL = "whole"  # not the default model: it is fitted once, others to every set of negatives
# What the demo changes of the defaults (tuning/settings.py, studies/settings.py) to take minutes, and to fit its data.
QUICK = {
    "models": ("popularity", "neighbours", "prodige", "full", MODEL),
    "run_folds": 1,
    "negative_sets": 2,
    "within_rows": True,  # most diseases have one gene: random cells would seldom be in the same list
    "strengths": (0.6, 0.5, 0.4),  # weaker ones have a thousand ranks and take minutes
    "whole_shares": (0.5,),
    "noises": (0.1, 1.0),
    "costs": (0.1, 1.0),
    "patience": 2,
    "time": 3.0,
    "shift": 0.3,
    "title": "Genes of OMIM diseases",
}


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What came of it: a study of the held-out fifth of the pairs, and the list of one disease by the other fifths."""

    study: StudyResult
    ranked: RankedRow
    hits: torch.Tensor  # (I,) bool: which of the list are held-out links of that disease
    known: tuple[str, ...]  # symbols of the genes that were fitted
    held_out: tuple[str, ...]  # symbols of the genes that were held out
    report: Path


def run_demo(
    out: Path,
    *,
    row: str | None = None,
    jobs: int | None = None,
    seed: int = 0,
    progress: bool = True,
    log: Callable[[str], object] = print,
) -> DemoResult:
    """Hold out a fifth of the pairs, compare models on it, rank the genes of one disease, write the report.

    :param out: directory of the study, which is resumed if it is there.
    :param row: id or name of the disease; one with several genes, some of them held out, when left out.
    :param jobs: processes; two, if there are two cores, when left out.
    :param log: takes a line about what is done.
    """
    links = hpo_links()
    log(f"{links.source}. Please cite: {HPO_CITATION}")
    log(f"{links.shape[0]:,} diseases x {links.shape[1]:,} genes, {len(links):,} links; a fifth of them is held out")
    settings = Study.from_dict({**QUICK, "seed": seed})
    split = split_pairs(links.links(settings.whole_weight), folds=settings.folds, seed=seed)[0]  # as in the study
    chosen = example_row(links, split) if row is None else find_rows([row], links.row_ids, links.row_names)[0]
    titles = ", ".join(f"{name} is {REGISTRY[name].title}" for name in (MODEL, "prodige", "full"))
    log(f"models: {', '.join(settings.models)} ({titles})")
    study = run_study(links, settings, out, jobs=jobs or min(2, os.cpu_count() or 1), progress=progress)
    point = next(entry for entry in study.path if entry["model"] == MODEL and entry["chosen"])
    log(f"ranking the genes of {links.row_names[chosen]} with their uncertainty")
    fitted = fit_prioritiser(
        replace(links, rows=split.train.rows, cols=split.train.cols),
        model=MODEL,
        strength=point["strength"],
        trace_share=point["trace_share"],
        seed=seed,
        progress=progress,
        time=settings.time,
        shift=settings.shift,
    )
    ranked = next(fitted.ranked([chosen], TOP, seed=seed, progress=progress))
    known, held_out = (part.cols[part.rows == chosen] for part in (split.train, split.held_out))
    hits = torch.isin(ranked.cols, held_out)
    table = [{**entry, "held_out": hit} for entry, hit in zip(ranked.entries(), hits.tolist(), strict=True)]
    with replacing(str(out / "tables" / "candidates.tsv")) as file:
        file.write(to_text(COLUMNS, table).encode())
    names = [tuple(links.col_names[col] for col in part.tolist()) for part in (known, held_out)]
    return DemoResult(study, ranked, hits, names[0], names[1], write_report(out))


def example_row(links: LinkSet, split: Split) -> int:
    """The disease with the most held-out genes among those with at least two known ones; the first of equal ones."""
    known, held_out = (torch.bincount(part.rows, minlength=links.shape[0]) for part in (split.train, split.held_out))
    return int(torch.where(known >= 2, held_out, -1).argmax())
