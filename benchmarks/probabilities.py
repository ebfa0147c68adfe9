"""Are the probabilities and lengths of ``auto`` right? Measured on links that neither the fit nor the calibration saw.

Usage: python -m benchmarks.probabilities [--fold F] [--raw ROWS] [--anew] [--figure FILE] [name ...] with names from SETS
below; all when left out.

Fold F of five (0), seed 0, as ``benchmarks.default_ranker`` has it. Everything is fitted and cross-fitted on the training
links. Then, on the held-out ones:

- Probabilities: the expected calibration error over the first 20 places of each list, over the first 100, and over all
  candidates, with the mean probability and the share of links beside it, as a small error says little where
  probabilities are small; by the known links of the row, and in the worst random groups; the yield of classes A to D.
- Lengths: how often a held-out link is within the conformal length of 80 and 90 %, by the known links of the row.
- P(top 20): whether a candidate is still among the first 20 when the model is fitted to all links, with its weights kept
  (with ``--anew`` also with weights that are chosen again), for what ``mvgp rank`` shows and, of some rows, for the
  Bayesian bootstrap.

Rows are those with a link in the whole set (known), or those that were held out (new). The sets of ``../shared/data`` are
left out where they are not there; ``hpo`` is the demo's.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch

from benchmarks.paper_tables import DATA, load
from mvgp.hyperparameters.splits import split_pairs, split_rows
from mvgp.metrics import adversarial_calibration, calibration_error, group_calibration
from mvgp.metrics.conformal import conformal_length
from mvgp.prioritise.auto import Auto
from mvgp.prioritise.auto.blend import GROUPS
from mvgp.prioritise.tables.hpo import hpo_links
from mvgp.prioritise.trust.calibration import CLASSES, calibrate, features, mass_bins
from mvgp.prioritise.trust.cross_fit import cross_fit, observed, standardised
from mvgp.prioritise.trust.top_places import ERROR_BINS, top_places

NAMES = {"hpo": "hpo", "omim": "omim_humannet", "mesh": "mesh_disgenet"}
SETS = [f"{data}-{kind}" for data in NAMES for kind in ("known", "new")]
LEVELS = (0.8, 0.9)
ENOUGH = 200  # rows of a group, for a verdict
K = 20  # of P(top k)
RAW_SAMPLES = 300


def measure(name, fold=0):
    """The recipe, the fit to the training part, its cross-fitted lists, and its own lists with held-out links."""
    data, kind = name.split("-")
    links = hpo_links() if data == "hpo" else load(NAMES[data])
    split = (split_pairs if kind == "known" else split_rows)(links.links(), folds=5, seed=0)[fold]
    recipe, began = Auto(links, assess=False), time.perf_counter()
    ranker = recipe.fit(split.train)
    found = cross_fit(lambda visible: recipe.refit(ranker, visible), split.train, complete=ranker, seed=0)
    rows = (links.rows if kind == "known" else split.held_out.rows).unique()
    lists = observed(
        ranker,
        split.train,
        split.held_out,
        rows,
        complete=recipe.refit(ranker, links.links()),
        kept=found.labels.shape[1],
    )
    seconds = time.perf_counter() - began
    print(f"== {name}, fold {fold}: {links}; {found!r}; {lists!r}; {seconds:.0f} s in all", flush=True)
    return recipe, ranker, found, lists


def report_top(name, recipe, ranker, found, lists, raw_rows=0, anew=False):
    """Print how far P(top 20) is from what happened."""
    top = top_places(found)
    refused = torch.tensor([top.refusal(int(known), K, ranker.shape[1]) is not None for known in lists.known])
    stayed = lists.later <= K
    chances = torch.full(lists.scores.shape, torch.nan).double()
    for at in (~refused).nonzero().squeeze(1).tolist():
        chances[at] = top.chances(lists.scores[at], int(lists.known[at]), K)
    print(f"   P(top {K}): {top.in_words()}; {int(refused.sum())} of {len(refused):,} rows have order alone")
    p, happened = chances[~refused][:, :K], stayed[~refused][:, :K]
    print(f"   P(top {K}), calibrated: {verdict(p, happened)}; {int((~refused).sum()):,} rows")
    sums = chances[~refused].sum(1)
    print(
        f"   sum of P(top {K}) over the first {chances.shape[1]} places: mean {float(sums.mean()):.2f}, from "
        f"{float(sums.min()):.2f} to {float(sums.max()):.2f}; {float(stayed[~refused].sum(1).double().mean()):.2f} happened"
    )
    for low in range(ERROR_BINS):
        own = (p * ERROR_BINS).long().clamp(max=ERROR_BINS - 1) == low
        if bool(own.any()):
            part = f"{float(p[own].mean()):.3f} / {float(happened[own].double().mean()):.3f}"
            print(f"      {low / ERROR_BINS:.1f} to {(low + 1) / ERROR_BINS:.1f}: {int(own.sum()):7,} columns, {part}")
    groups = np.array(GROUPS)[lists.group[~refused].repeat_interleave(K).numpy()]
    print(indented(group_calibration(p.flatten(), happened.flatten(), groups, ERROR_BINS)))
    if anew:
        again = observed(
            ranker, ranker.bank.links, None, lists.row, complete=recipe.fit(recipe.link_set.links()), kept=K
        )
        print(f"   P(top {K}), weights chosen anew: {verdict(p, again.later[~refused] <= K)}")
    some = (~refused).nonzero().squeeze(1)
    some = some[torch.randperm(len(some), generator=torch.Generator().manual_seed(1))[:raw_rows]]
    if len(some):
        raw, known, began = [], ranker.bank.links, time.perf_counter()
        for at in some.tolist():
            row = int(lists.row[at])
            line = ranker.scores([row])[0].index_fill(0, known.cols[known.rows == row], -torch.inf)
            order = line.argsort(descending=True, stable=True)[:K]
            raw.append(ranker.bootstrap(row, K, exclude=known, num_samples=RAW_SAMPLES)[0][order])
        seconds = time.perf_counter() - began
        print(
            f"   P(top {K}), bootstrap: {verdict(torch.stack(raw), stayed[some, :K])}; {len(raw)} rows, {seconds:.0f} s"
        )
        print(f"   P(top {K}), calibrated, the same rows: {verdict(chances[some, :K], stayed[some, :K])}", flush=True)


def verdict(p, happened):
    """Errors of P(top k), in words."""
    widths = calibration_error(p.flatten(), happened.flatten(), ERROR_BINS, equal="widths")
    counts = calibration_error(p.flatten(), happened.flatten())
    return (
        f"error {widths:.4f} ({ERROR_BINS} bins of equal width; 20 of equal counts {counts:.4f}), mean {float(p.mean()):.3f}, "
        f"share {float(happened.double().mean()):.3f}, Brier score {float((p - happened.double()).square().mean()):.4f}"
    )


def indented(table):
    return "\n".join(f"      {line}" for line in str(table).splitlines())


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
    calibration = calibrate(found)
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
    first = place < K
    names = np.array(GROUPS)[lists.group[index[first]].numpy()]
    print(indented(group_calibration(value[first], label[first], names)))
    print(f"      worst of 20 random groups of the first {K} places, by their share of the candidates, and by chance")
    print(indented(adversarial_calibration(value[first], label[first])))
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
    parser.add_argument("--fold", type=int, default=0, help="of five, from 0")
    parser.add_argument("--raw", type=int, default=60, help="rows for the error of the Bayesian bootstrap, 0 for none")
    parser.add_argument("--anew", action="store_true", help="P(top k) when the weights are chosen again, too")
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
        recipe, ranker, found, lists = measure(name, options.fold)
        report(name, found, lists, ax)
        report_top(name, recipe, ranker, found, lists, options.raw, options.anew)
    if options.figure:
        figure.tight_layout()
        figure.savefig(options.figure)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")


if __name__ == "__main__":
    main()
