"""What ``mvgp demo`` does: a small study of genes and diseases, one ranked list, and a report."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ..hyperparameters.splits import Split, split_pairs
from ..progress import Progress, check_progress
from ..storage.files import replacing
from .ranking.prioritiser import fit_prioritiser
from .ranking.rows import RankedRow, find_rows
from .report.lists import write_lists
from .report.page import write_report
from .report.record import record_of
from .studies.directory import Study
from .studies.run import run_study
from .studies.tables import COLUMNS, StudyResult, to_text
from .tables.hpo import HPO_CITATION, hpo_links
from .tables.link_set import LinkSet
from .tuning.settings import TOP
from .tuning.tune import REGISTRY

MODEL = "auto"
BASELINES = ("popularity", "neighbours", "propagation", "katz")
FEW = 400  # diseases of a quick demo
# What the demo changes of the defaults (tuning/settings.py, studies/directory.py).
QUICK = {"models": (MODEL, *BASELINES), "run_folds": 1, "title": "Genes of OMIM diseases"}


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What came of it: a study of the held-out fifth of the pairs, and the list of one disease by the other fifths."""

    study: StudyResult
    ranked: RankedRow
    hits: torch.Tensor  # (I,) bool: which of the list are held-out links of that disease
    known: tuple[str, ...]  # symbols of the genes that were fitted
    held_out: tuple[tuple[str, int], ...]  # symbol and rank among all genes not known, of those that were held out
    sentences: tuple[str, ...]  # what was found, in words
    report: Path
    page: Path  # of the list


def run_demo(
    out: Path,
    *,
    row: str | None = None,
    quick: bool = False,
    jobs: int | None = None,
    seed: int = 0,
    progress: Progress = "auto",
    log: Callable[[str], object] = print,
) -> DemoResult:
    """Hold out a fifth of the pairs, compare models on it, rank the genes of one disease, write the report.

    :param out: directory of the study, which is resumed if it is there.
    :param row: id or name of the disease; the one with the most held-out genes when left out.
    :param quick: whether only the :data:`FEW` diseases with the most genes are used, and their genes. It takes the same
        steps in seconds, and its figures are not those of all diseases.
    :param jobs: processes; two, if there are two cores, when left out.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.
    :param log: takes a line about what is done.
    """
    progress, links = check_progress(progress), hpo_links()
    log(f"{links.source}. Please cite: {HPO_CITATION}")
    if quick:
        links = few_diseases(links, FEW)
        log(f"quick: only the {FEW} diseases with the most genes, so the figures are not those of all diseases")
    log(f"{links.shape[0]:,} diseases x {links.shape[1]:,} genes, {len(links):,} links; a fifth of them is held out")
    title = f"Genes of {FEW} OMIM diseases" if quick else QUICK["title"]
    settings = Study.from_dict({**QUICK, "title": title, "seed": seed})
    split = split_pairs(links.links(settings.whole_weight), folds=settings.folds, seed=seed)[0]  # as in the study
    chosen = example_row(links, split) if row is None else find_rows([row], links.row_ids, links.row_names)[0]
    log(f"models: {', '.join(settings.models)} ({MODEL} is {REGISTRY[MODEL].title})")
    study = run_study(links, settings, out, jobs=jobs or min(2, os.cpu_count() or 1), progress=progress)
    log(f"ranking the genes of {links.row_names[chosen]} with their uncertainty")
    train = replace(links, rows=split.train.rows, cols=split.train.cols)
    fitted = fit_prioritiser(train, model=MODEL, seed=seed, progress=progress)
    ranked = next(fitted.ranked([chosen], TOP, seed=seed, progress=progress))
    known, held_out = (part.cols[part.rows == chosen] for part in (split.train, split.held_out))
    hits = torch.isin(ranked.cols, held_out)
    table = [{**entry, "held_out": hit} for entry, hit in zip(ranked.entries(), hits.tolist(), strict=True)]
    with replacing(str(out / "tables" / "candidates.tsv")) as file:
        file.write(to_text(COLUMNS, table).encode())
    scores = fitted.mixture.scores([chosen])[0].index_fill(0, known, -torch.inf)  # (N,)
    places = [int((scores > scores[col]).sum()) + 1 for col in held_out.tolist()]
    hidden = zip(places, (links.col_names[col] for col in held_out.tolist()), strict=True)
    landed = tuple((name, place) for place, name in sorted(hidden))
    sentences = findings(study, split, links.row_names[chosen], [place for _, place in landed])
    symbols = tuple(links.col_names[col] for col in known.tolist())
    page = write_lists(record_of(fitted, [ranked], link_set=train), out / "list")
    return DemoResult(study, ranked, hits, symbols, landed, sentences, write_report(out), page)


def few_diseases(links: LinkSet, count: int) -> LinkSet:
    """The ``count`` diseases with the most links, the first of equal ones, and the genes of these links."""
    degrees = torch.bincount(links.rows, minlength=links.shape[0])
    rows = degrees.argsort(descending=True, stable=True)[:count].sort().values
    return links.keep(rows, links.cols[torch.isin(links.rows, rows)].unique())


def findings(study: StudyResult, split: Split, disease: str, places: Sequence[int]) -> tuple[str, ...]:
    """Three sentences: how many hidden genes are recovered, which model is ahead, where those of one disease are.

    :param places: of its hidden genes, ascending.
    """
    num_genes, k = split.train.shape[1], study.study.k
    diseases = len(split.held_out.rows.unique())
    # precision is hits over k, so that the mean over diseases tells how many hits there are
    recovered = {
        model: study.mean(model, f"P@{k}") * k * diseases / len(split.held_out) for model in study.study.models
    }
    others = sorted(BASELINES, key=lambda name: -recovered[name])
    first = (
        f"{MODEL} has {recovered[MODEL]:.0%} of the {len(split.held_out):,} hidden genes among the first {k} of "
        f"{num_genes:,}; {', '.join(f'{name} {recovered[name]:.0%}' for name in others)}"
    )
    metric = f"MAP@{k}"
    best = max(BASELINES, key=lambda name: study.mean(name, metric))
    test = next(
        entry
        for entry in study.comparisons
        if (entry["metric"], entry["model_a"], entry["model_b"]) == (metric, MODEL, best)
    )
    verdict = "ahead of" if test["low"] > 0 else "behind" if test["high"] < 0 else "not distinguishable from"
    second = (
        f"{MODEL} is {verdict} {best}, the best of the others in {metric}: {test['mean_a']:.3f} against "
        f"{test['mean_b']:.3f} over {test['tasks']:,} diseases (difference {test['difference']:+.3f}, 95 % interval "
        f"{test['low']:+.3f} to {test['high']:+.3f})"
    )
    if not places:
        return first, second, f"no gene of {disease} was hidden"
    listed = ", ".join(f"{place:,}" for place in places)
    genes, ranks = ("gene", "rank") if len(places) == 1 else ("genes", "ranks")
    third = f"{len(places)} hidden {genes} of {disease}: {ranks} {listed} of {num_genes:,} genes"
    return first, second, third


def example_row(links: LinkSet, split: Split) -> int:
    """The disease with the most held-out genes among those with at least two known ones; the first of equal ones."""
    known, held_out = (torch.bincount(part.rows, minlength=links.shape[0]) for part in (split.train, split.held_out))
    return int(torch.where(known >= 2, held_out, -1).argmax())
