"""The default model beside its peers, the same command for each set; all settings are chosen on training links.

Usage: python -m benchmarks.default_ranker [name ...] [--folds 0 1 2] [--models auto ...] [--grid quick] [--out FILE] [--shown]

Names are those of SETS below, all of them when left out. Folds are of five, seed 0. ``auto`` chooses by itself. Each peer
chooses among settings by MAP@100 on a tenth of the training links (pairs for known rows, whole rows for new ones):
QUICK below has them, ``--grid full`` takes all of ``mvgp.prioritise.baselines.candidates``, and ``--grid fixed`` the
first of QUICK without a choice. Then it is fitted to all training links.

Each model on each fold is one line of JSON in FILE (``default_ranker.jsonl``), with both figures of each row; what is
there already is not computed again. ``--shown`` prints what is there and computes nothing.

Prints AUC and MAP@100 of each model with the standard deviation over folds, then where ``auto`` is ahead, level or
behind at 95 %, paired over the rows of all folds: in total, and in each group of at least 100 rows by known links.
The sets of ``../shared/data`` are left out where they are not there; ``hpo`` is the demo's.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.paper_tables import DATA, load
from mvgp.hyperparameters.splits import make_splits, split_pairs, split_rows
from mvgp.metrics import compare, ranking_scores
from mvgp.prioritise.auto import Auto
from mvgp.prioritise.auto.blend import GROUPS, group_of
from mvgp.prioritise.baselines import (
    EDLAE,
    GFCF,
    IALS,
    Katz,
    NeighbourVoting,
    Popularity,
    Propagation,
    RowGP,
    RP3beta,
    candidates,
)
from mvgp.prioritise.tables.hpo import hpo_links

SETS = {
    "hpo-known": ("hpo", 1.0, "known"),
    "omim-known": ("omim_humannet", 1.0, "known"),
    "omim-new": ("omim_humannet", 1.0, "new"),
    "mesh5-known": ("mesh_disgenet", 0.05, "known"),
    "mesh5-new": ("mesh_disgenet", 0.05, "new"),
    "mesh-known": ("mesh_disgenet", 1.0, "known"),
    "mesh-new": ("mesh_disgenet", 1.0, "new"),
}
METRICS = ("AUC", "MAP@100")
PEERS = ("popularity", "neighbours", "propagation", "katz", "edlae", "row-gp", "rp3beta", "gfcf")
SLOW = ("ials",)  # only where ``--models`` asks for it
LINKS_ALONE = ("edlae", "rp3beta", "gfcf", "ials")  # they know nothing of a new row
VALIDATION, SMALLEST = 0.1, 100  # share of the training links; rows of a group that is tested
SINGLE = {"dtype": torch.float32}


def quick(name, links):
    """A few settings of each peer, from those that validation chose on one of these sets before."""
    graphs = links.row_graph, links.col_graph
    return {
        "popularity": lambda: [Popularity(**SINGLE)],
        "neighbours": lambda: [NeighbourVoting(graphs[0], hops, **SINGLE) for hops in (3, 2, 1)],
        "propagation": lambda: [Propagation(*graphs, *at, **SINGLE) for at in ((0.3, 4), (0.1, 4), (0.3, 8))],
        "katz": lambda: [
            Katz(*graphs, 0.9, 3, "walk", 0.3, 0.03, **SINGLE),
            Katz(*graphs, 0.9, 3, "walk", 1.0, 0.03, **SINGLE),
            Katz(*graphs, 0.01, 3, "none", 1.0, 0.1, **SINGLE),
        ],
        "edlae": lambda: [EDLAE(*at, **SINGLE) for at in ((30.0, 0.5), (30.0, 0.3), (100.0, 0.5))],
        "row-gp": lambda: [RowGP(graphs[0], at, **SINGLE) for at in (10.0, 30.0, 3.0)],
        "rp3beta": lambda: [RP3beta(*at, **SINGLE) for at in ((0.5, 0.5), (0.5, 0.25), (0.8, 0.25))],
        "gfcf": lambda: [GFCF(factors, 0.3, **SINGLE) for factors in (512, 128)],
        "ials": lambda: [IALS(512, 0.01, 0.03, **SINGLE), IALS(512, 0.003, 0.03, **SINGLE)],
    }[name]()


def chosen(name, links, train, kind, grid):
    """The recipe of a peer, and the MAP@100 of each setting on validation links."""
    recipes = candidates(name, links) if grid == "full" else quick(name, links)
    if grid == "fixed" or len(recipes) == 1:
        return recipes[0], {}
    split = make_splits(train, "pairs" if kind == "known" else "rows", 1, VALIDATION, 0)[0]
    rows = split.held_out.rows.unique()
    tried = {}
    for recipe in recipes:
        scores = ranking_scores(recipe.fit(split.train), split.held_out, exclude=split.train, k=100, rows=rows)
        tried[repr(recipe)] = float(scores.per_task("MAP@100").nanmean())
    return max(recipes, key=lambda recipe: tried[repr(recipe)]), tried


def measured(name, fold, model, grid, links):
    """One record: a model on a fold."""
    _, _, kind = SETS[name]
    split = (split_pairs if kind == "known" else split_rows)(links.links(), folds=5, seed=0)[fold]
    # nothing but training links is passed on
    training = replace(links, rows=split.train.rows, cols=split.train.cols)
    began = time.perf_counter()
    if model == "auto":
        ranker = Auto(training).fit(split.train)
        setting, tried = ranker.summary(), {}
    else:
        recipe, tried = chosen(model, training, split.train, kind, grid)
        ranker, setting = recipe.fit(split.train), repr(recipe)
    seconds = time.perf_counter() - began
    rows = split.held_out.rows.unique()
    scores = ranking_scores(ranker, split.held_out, exclude=split.train, k=100, rows=rows)
    groups = group_of(torch.bincount(split.train.rows, minlength=links.shape[0])[rows])
    return {
        "set": name,
        "fold": fold,
        "model": model,
        "grid": "" if model == "auto" else grid,
        "setting": setting,
        "tried": tried,
        "seconds": round(seconds, 1),
        "gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),  # peak of the process so far
        "groups": groups.tolist(),
        **{metric: [round(value, 6) for value in scores.per_task(metric).tolist()] for metric in METRICS},
    }


def read_records(out):
    """Finished units by set, fold and model; a line that was cut off is left out."""
    found = {}
    for line in out.read_text().splitlines() if out.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[record["set"], record["fold"], record["model"]] = record
    return found


def verdict(test):
    low, high = test.interval
    word = "ahead" if low > 0 else "behind" if high < 0 else "level"
    return f"{word} {test.difference:+.4f} ({low:+.4f} to {high:+.4f})"


def show(name, found, folds):
    """The table of a set, and the paired tests."""
    models = [model for model in ("auto", *PEERS, *SLOW) if all((name, fold, model) in found for fold in folds)]
    if "auto" not in models:
        return
    units = {model: [found[name, fold, model] for fold in folds] for model in models}
    values = {
        (model, metric): np.concatenate([np.array(unit[metric], dtype=float) for unit in units[model]])
        for model in models
        for metric in METRICS
    }
    groups = np.concatenate([unit["groups"] for unit in units["auto"]])
    print(f"\n== {name}, folds {', '.join(map(str, folds))}: {len(groups)} rows with held-out links")
    for model in models:
        cells = []
        for metric in METRICS:
            means = [float(np.nanmean(np.array(unit[metric], dtype=float))) for unit in units[model]]
            spread = f" ± {np.std(means, ddof=1):.4f}" if len(means) > 1 else ""
            cells.append(f"{metric} {np.mean(means):.4f}{spread}")
        seconds = ", ".join(f"{unit['seconds']:g}" for unit in units[model])
        print(f"   {model:12} {'  '.join(cells)}  {seconds} s  {units[model][0]['setting']}")
    behind = 0
    for metric in METRICS:
        for group, title in ((None, "all rows"), *enumerate(GROUPS)):
            among = np.ones(len(groups), bool) if group is None else groups == group
            if among.sum() < SMALLEST:
                continue
            for model in models[1:]:
                test = compare(values["auto", metric][among], values[model, metric][among], metric)
                behind += test.interval[1] < 0
                print(f"   {metric:8} {title:14} ({among.sum()}) against {model:12} {verdict(test)}")
    print(f"   auto is significantly behind in {behind} comparisons")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[], metavar="name", help=f"of {', '.join(SETS)}")
    parser.add_argument("--folds", nargs="+", type=int, default=[0], choices=range(5))
    parser.add_argument("--grid", default="quick", choices=("quick", "full", "fixed"))
    parser.add_argument("--out", type=Path, default=Path("default_ranker.jsonl"))
    parser.add_argument("--models", nargs="+", default=["auto", *PEERS], choices=("auto", *PEERS, *SLOW))
    parser.add_argument("--shown", action="store_true")
    given = parser.parse_args()
    unknown = set(given.names) - set(SETS)
    if unknown:
        parser.error(f"expected names among {', '.join(SETS)}, got {', '.join(sorted(unknown))}")
    found = read_records(given.out)
    for name in given.names or SETS:
        data, share, kind = SETS[name]
        if data != "hpo" and not DATA.exists():
            print(f"{name}: skipped, {DATA} is not there")
            continue
        models = [model for model in given.models if kind == "known" or model not in LINKS_ALONE]
        missing = [(fold, model) for fold in given.folds for model in models if (name, fold, model) not in found]
        if missing and not given.shown:
            links = hpo_links() if data == "hpo" else load(data)
            links = links if share == 1 else links.subsample(share, 0)
            for fold, model in missing:
                record = measured(name, fold, model, given.grid, links)
                found[name, fold, model] = record
                with given.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                means = " / ".join(f"{np.nanmean(np.array(record[metric], dtype=float)):.4f}" for metric in METRICS)
                print(f"{name}, fold {fold}: {model} {means} in {record['seconds']:g} s", flush=True)
        show(name, found, [fold for fold in given.folds if (name, fold, "auto") in found])
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")


if __name__ == "__main__":
    main()
