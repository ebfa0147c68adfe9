"""The default model beside its peers, the same command for each set: everything of ``auto`` is chosen on training links.

Usage: python -m benchmarks.default_ranker [name ...] with names from SETS below; all of them when left out.

Fold 0 of five, seed 0. Peers have the settings that validation chose for the set most like it (docs/baselines.md), or
their defaults. Prints AUC and MAP@100 of each model, overall and by the number of known links of a row, how far ``auto``
is ahead with a 95 % interval over rows, seconds, and peak memory. The sets of ``../shared/data`` are left out where they
are not there; ``hpo`` is the demo's.
"""

from __future__ import annotations

import resource
import sys
import time

import torch

from benchmarks.paper_tables import DATA, load
from mvgp.hyperparameters.splits import split_pairs, split_rows
from mvgp.metrics import compare, ranking_scores
from mvgp.prioritise.auto import Auto
from mvgp.prioritise.auto.blend import GROUPS, group_of
from mvgp.prioritise.baselines import EDLAE, Katz, NeighbourVoting, Popularity, Propagation, RP3beta
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


def peers(links, hops):
    graphs, options = (links.row_graph, links.col_graph), {"dtype": torch.float32}
    return {
        "popularity": Popularity(**options),
        "neighbours": NeighbourVoting(graphs[0], hops, **options),
        "propagation": Propagation(*graphs, 0.3, 4, **options),
        "katz": Katz(*graphs, 0.9, 3, "walk", 0.3, 0.03, **options),
        "edlae": EDLAE(30.0, 0.5, **options),
        "rp3beta": RP3beta(0.5, 0.5, **options),
    }


def main(names):
    for name in names:
        data, share, kind = SETS[name]
        if data != "hpo" and not DATA.exists():
            print(f"{name}: skipped, {DATA} is not there")
            continue
        links = hpo_links() if data == "hpo" else load(data)
        links = links if share == 1 else links.subsample(share, 0)
        split = (split_pairs if kind == "known" else split_rows)(links.links(), folds=5, seed=0)[0]
        began = time.perf_counter()
        fitted = {"auto": Auto(links).fit(split.train)}
        seconds = time.perf_counter() - began
        own = fitted["auto"].assessment
        print(f"== {name}: {links}; auto fitted in {seconds:.1f} s; {fitted['auto'].summary()}", flush=True)
        print(f"   its own word, from training links alone: {own.in_words() if own else 'too few links'}")
        fitted |= {peer: recipe.fit(split.train) for peer, recipe in peers(links, 1 if data == "hpo" else 3).items()}
        rows = split.held_out.rows.unique()
        known = torch.bincount(split.train.rows, minlength=links.shape[0])[rows]
        groups, scores = group_of(known), {}
        for model, ranker in fitted.items():
            scores[model] = ranking_scores(ranker, split.held_out, exclude=split.train, k=100, rows=rows)
            each = {metric: scores[model].per_task(metric) for metric in METRICS}
            parts = [
                f"{GROUPS[group]} ({int((groups == group).sum())}) "
                + " / ".join(f"{float(each[metric][groups == group].nanmean()):.4f}" for metric in METRICS)
                for group in groups.unique().tolist()
            ]
            ahead = ""
            if model != "auto":
                tests = [(metric, compare(scores["auto"], scores[model], metric)) for metric in METRICS]
                ahead = "; auto ahead by " + ", ".join(
                    f"{metric} {test.difference:+.4f} ({test.interval[0]:+.4f} to {test.interval[1]:+.4f})"
                    for metric, test in tests
                )
            total = " / ".join(f"{float(each[metric].nanmean()):.4f}" for metric in METRICS)
            print(f"   {model:12} {total}{ahead}; by known links: {'; '.join(parts)}", flush=True)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")


if __name__ == "__main__":
    main(sys.argv[1:] or list(SETS))
