"""Are the probabilities and lengths of ``auto`` right? Measured on links that neither the fit nor the calibration saw.

Usage: python -m benchmarks.probabilities [--figure FILE] [name ...] with names from SETS below; all when left out.

Fold 0 of five, seed 0, as ``benchmarks.default_ranker`` has it. Everything is fitted and cross-fitted on the training
links. Then, on the held-out ones: the expected calibration error over the first 20 places of each list, over the first
100, and over all candidates, with the mean probability and the share of links beside it, as a small error says little
where probabilities are small; the yield of classes A to D; and how often a held-out link is within the conformal length
of 80 and 90 %, by the known links of the row. Rows are those with a link in the whole set (known), or those that were
held out (new). The sets of ``../shared/data`` are left out where they are not there; ``hpo`` is the demo's.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch

from benchmarks.paper_tables import DATA, load
from mvgp.hyperparameters.splits import split_pairs, split_rows
from mvgp.metrics.conformal import conformal_length
from mvgp.prioritise.auto import Auto
from mvgp.prioritise.auto.blend import GROUPS
from mvgp.prioritise.tables.hpo import hpo_links
from mvgp.metrics import calibration_error
from mvgp.prioritise.trust.calibration import CLASSES, calibrate, features, mass_bins
from mvgp.prioritise.trust.cross_fit import cross_fit, observed, standardised

NAMES = {"hpo": "hpo", "omim": "omim_humannet", "mesh": "mesh_disgenet"}
SETS = [f"{data}-{kind}" for data in NAMES for kind in ("known", "new")]
LEVELS = (0.8, 0.9)
ENOUGH = 200  # rows of a group, for a verdict


def measure(name):
    """Cross-fitted lists of the training part, and the lists of the fit to all of it with held-out links."""
    data, kind = name.split("-")
    links = hpo_links() if data == "hpo" else load(NAMES[data])
    split = (split_pairs if kind == "known" else split_rows)(links.links(), folds=5, seed=0)[0]
    recipe, began = Auto(links, assess=False), time.perf_counter()
    ranker = recipe.fit(split.train)
    found = cross_fit(lambda visible: recipe.refit(ranker, visible), split.train, seed=0)
    rows = (links.rows if kind == "known" else split.held_out.rows).unique()
    lists = observed(ranker, split.train, split.held_out, rows)
    seconds = time.perf_counter() - began
    print(f"== {name}: {links}; {found!r}; {lists!r}; {seconds:.0f} s in all", flush=True)
    return found, lists


def probabilities(calibration, lists):
    """(I,) list, place from 0, probability and label of the first places of all lists."""
    index, place = lists.inside.nonzero(as_tuple=True)
    score = standardised(lists.scores[index, place], lists.group[index], calibration.quantiles)
    x = features(score, place + 1, lists.known[index])
    eta = (x @ calibration.weights).numpy()
    value = torch.from_numpy(np.interp(eta, calibration.grid.numpy(), calibration.values.numpy()))
    return index, place, value, lists.labels[index, place].double()


def everywhere(calibration, lists, value, label):
    """Probability, share of links and number of all candidates: the first places one by one, the rest by groups."""
    far = torch.bincount(lists.link_list[lists.link_rank > calibration.kept], minlength=len(lists.row)).double()
    room = (lists.candidates - calibration.kept).clamp(min=0).double()
    tail = calibration.tail[lists.group, 0]
    weights = torch.cat([torch.ones_like(value), room])
    p = torch.cat([value, tail])
    share = torch.cat([label, far / room.clamp(min=1)])
    return (
        calibration_error(p, share, weights=weights),
        float(weights @ p),
        float(weights @ share),
        float(weights.sum()),
    )


def report(name, found, lists, figure=None):
    """Print what was measured; returns the calibration."""
    began = time.perf_counter()
    calibration = calibrate(found, lists)  # of the held-out lists their scores alone
    print(f"   {name}: calibrated in {time.perf_counter() - began:.1f} s, {len(calibration.grid)} bins")
    index, place, value, label = probabilities(calibration, lists)
    for length in (20, 100):
        some = place < length
        error = calibration_error(value[some], label[some])
        groups = []
        for group, words in enumerate(GROUPS):
            own = some & (lists.group[index] == group)
            if bool(own.any()):
                rows = int((lists.group == group).sum())
                groups.append(
                    f"{words} ({rows:,} rows) {float(value[own].mean()):.4f} / {float(label[own].mean()):.4f}"
                )
        total = f"mean probability {float(value[some].mean()):.4f}, share {float(label[some].mean()):.4f}"
        print(f"   first {length}: error {error:.4f}; {total}; {'; '.join(groups)}")
    error, expected, links, count = everywhere(calibration, lists, value, label)
    print(f"   all {count:,.0f} candidates: error {error:.6f}; {expected:,.0f} links expected, {links:,.0f} there")
    bounds = list(CLASSES.values())
    for at, (letter, least) in enumerate(CLASSES.items()):
        own = (value >= least) & (value < (bounds[at - 1] if at else np.inf))
        if bool(own.any()):
            mine = calibration.classes[at]
            said = f"{mine.share:.4f} ({mine.low:.4f} to {mine.high:.4f}) in cross-fitting"
            print(
                f"   class {letter}: {int(own.sum()):,} of the first 100, yield {float(label[own].mean()):.4f}; {said}"
            )
    ranks = found.drawn_ranks(0)
    for level in LEVELS:
        for group, words in enumerate(GROUPS):
            length = conformal_length(ranks[group], level)
            own = lists.group[lists.link_list] == group
            if not bool(own.any()):
                continue
            rows, which = lists.link_list[own].unique(return_inverse=True)
            hits = torch.zeros(len(rows)).double().index_add_(0, which, (lists.link_rank[own] <= length).double())
            covered = float((hits / torch.bincount(which)).mean())  # each row counts once
            error = (level * (1 - level) / len(rows)) ** 0.5
            off = abs(covered - level) / error
            verdict = "" if len(rows) < ENOUGH else ", within two standard errors" if off <= 2 else ", NOT within two"
            print(
                f"   level {level:.0%}, {words}: length {length:,.0f} from {len(ranks[group]):,} rows; covered "
                f"{covered:.3f} of {len(rows):,} rows, standard error {error:.3f}, {off:.1f} of them off{verdict}",
                flush=True,
            )
    if figure is not None:
        draw(figure, name, value[place < 20], label[place < 20])
    return calibration


def draw(ax, name, value, label):
    """The calibration curve over the first 20 places, in bins that expect equally many links."""
    bins = mass_bins(value, value, 12)
    mean, share, error = [], [], []
    for own in bins:
        mean.append(float(value[own].mean()))
        share.append(float(label[own].mean()))
        error.append(2 * (share[-1] * (1 - share[-1]) / len(own)) ** 0.5)
    low, high = min([*mean, *(s for s in share if s > 0)]) / 1.5, max(mean + share) * 1.5
    ax.plot([low, high], [low, high], color="0.7", linewidth=1)
    ax.errorbar(mean, share, yerr=error, marker=".", linewidth=1, capsize=2)
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), title=name)
    ax.set(xlabel="probability", ylabel="share of held-out links")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of {', '.join(SETS)}")
    parser.add_argument("--figure", help="file for the curves: PNG or SVG")
    options = parser.parse_args()
    asked = options.names or SETS
    if unknown := set(asked) - set(SETS):
        parser.error(f"expected names from {', '.join(SETS)}, got {', '.join(sorted(unknown))}")
    names = [name for name in asked if name.startswith("hpo") or DATA.exists()]
    for name in set(asked) - set(names):
        print(f"{name}: skipped, {DATA} is not there")
    axes = [None] * len(names)
    if options.figure:
        from matplotlib import pyplot as plt

        figure, grid = plt.subplots(1, len(names), figsize=(3.2 * len(names), 3.2), squeeze=False)
        axes = grid[0]
    for name, ax in zip(names, axes, strict=True):
        report(name, *measure(name), ax)
    if options.figure:
        figure.tight_layout()
        figure.savefig(options.figure)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")


if __name__ == "__main__":
    main()
