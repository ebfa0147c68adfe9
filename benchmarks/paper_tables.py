"""The paper's tables on the two sets of ``../shared/data``, with what users would pick instead on the same splits.

Not one of ``make bench``: it takes hours of processor time. Every study is resumable; run it again to go on.

Usage: paper_tables.py OUT [name ...] with names from STUDIES below; all of them when left out.
       paper_tables.py --fast OUT [name ...] runs the default model and the baselines alone, in minutes to an hour each.
       paper_tables.py --markdown OUT [name ...] prints the finished ones as tables for the documentation.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from pathlib import Path

from mvgp.prioritise.report import write_report
from mvgp.prioritise.studies import Study, load_study, run_study
from mvgp.prioritise.tables import LinkSet, read_links

SHOWN = ("AUC", "MAP@100", "R@100", "P@10")
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PAPER = ("popularity", "prodige", "hilbert", "trace", "best")
OURS = ("auto", "whole", "whole-popular")
LINKS_ALONE = ("ease", "edlae", "rp3beta", "gfcf", "als", "ials", "bpr")
PEERS = ("neighbours", *LINKS_ALONE, "katz", "propagation")
FAST = ("auto", "popularity", "neighbours", "edlae", "rp3beta", "gfcf", "ials", "katz", "propagation")
COMMON = {
    "models": PAPER + OURS + PEERS,
    "trace_shares": (1.0, 0.8, 0.0),  # 0.6 and 0.4 have means of hundreds to thousands of ranks: not affordable here
    "whole_shares": (0.9,),
    "costs": (0.01, 0.1, 1.0),
    "validation_share": 0.1,
    "patience": 2,
    "tolerance": 5e-3,
}
SMALL = {
    **COMMON,
    "run_folds": 3,
    "negative_sets": 2,
    "max_rank": 400,
    "strengths": (0.7, 0.5, 0.35, 0.25, 0.18, 0.125),
}
OMIM = {
    **SMALL,
    "negative_sets": 5,
    "tolerance": 1e-2,
    "strengths": (0.8, 0.65, 0.5, 0.4, 0.3, 0.2),
}
FULL = {
    **COMMON,
    "models": tuple(model for model in COMMON["models"] if model != "bpr"),  # implicit's BPR runs into NaN there
    "run_folds": 2,
    "negative_sets": 2,
    "max_rank": 1000,
    "strengths": (0.35, 0.2, 0.125, 0.08, 0.05, 0.035),
}
# what has learned nothing about a row cannot rank it: no EASE, ALS, BPR for new diseases
NEW = {"split": "new", "models": (*PAPER, "auto", "whole-popular", "neighbours", "katz", "propagation")}
STUDIES = {
    "omim-known": ("omim_humannet", Study(**OMIM, split="known")),
    "omim-new": ("omim_humannet", Study(**{**OMIM, **NEW})),
    "mesh5-known": ("mesh_disgenet", Study(**SMALL, split="known", subsample=0.05)),
    "mesh5-new": ("mesh_disgenet", Study(**{**SMALL, **NEW}, subsample=0.05)),
    "mesh-known": ("mesh_disgenet", Study(**FULL, split="known")),
    "mesh-new": ("mesh_disgenet", Study(**{**FULL, **NEW})),
}


def load(name: str) -> LinkSet:
    folder = DATA / name
    return read_links(
        folder / "associations.tsv.gz",
        folder / "disease_edges.tsv.gz",
        folder / "gene_edges.tsv.gz",
        folder / "diseases.tsv.gz",
        folder / "genes.tsv.gz",
        filters="paper",
    )


def digits(value: float) -> str:
    return f"{value:.3f}".lstrip("0")


def markdown(out: Path, names: list[str]) -> None:
    for name in names:
        if not (out / name / "tables" / "metrics.tsv").exists():
            continue
        found = load_study(out / name)
        settings = {(one["model"], one["fold"]): one["setting"] for one in found.choices}
        cells = {(one["model"], one["metric"]): one for one in found.metrics}
        several = found.study.num_folds > 1
        print(
            f"\n### {name}\n\n| model | {' | '.join(SHOWN)} | chosen on validation links{', fold 0' if several else ''} |"
        )
        print("|---" * (len(SHOWN) + 2) + "|")
        for model in found.study.models:
            every = [cells[model, metric] for metric in SHOWN]
            means = [digits(one["mean"]) + (f" ± {digits(one['std'])}" if several else "") for one in every]
            print(f"| {model} | {' | '.join(means)} | {settings[model, 0]} |")


def main(out: Path, names: list[str], fast: bool = False) -> None:
    warnings.simplefilter("ignore", RuntimeWarning)  # gaps are in the tables
    for name in names:
        data, study = STUDIES[name]
        if fast:
            study = replace(study, models=tuple(model for model in study.models if model in FAST))
        links = load(data)
        print(f"== {name}: {links}, {study.subsample:.0%} of the links, split by {study.split}", flush=True)
        found = run_study(links, study, out / name)
        print(found, flush=True)
        write_report(out / name)


if __name__ == "__main__":
    if not DATA.exists():
        print(f"skipped: {DATA} is not there")
        sys.exit(0)
    if sys.argv[1] == "--markdown":
        markdown(Path(sys.argv[2]), sys.argv[3:] or list(STUDIES))
    else:
        fast = sys.argv[1] == "--fast"
        given = sys.argv[2:] if fast else sys.argv[1:]
        main(Path(given[0]), given[1:] or list(STUDIES), fast)
