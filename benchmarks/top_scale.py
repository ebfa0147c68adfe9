"""P(top 20) of ``auto``: how far it is from what happens when hidden links are added, before and after its scale is fitted.

Usage: python -m benchmarks.top_scale [hpo | omim_humannet | mesh_disgenet ...] [--rows 60] [--exact SAMPLES]

An outer fold hides all links of a tenth of the rows and a fifth of the others. What is visible is divided once more
in the same way, and scale and noise are fitted on that (mvgp.prioritise.auto.fit_scale). Then P(top 20) of the model that
knows the visible links is compared with the list of the model that knows all links. With ``--exact``, samples of the
contenders are compared with samples of all columns, and both are timed.
"""

import argparse
import time

import torch

import mvgp
from benchmarks.paper_tables import DATA, load
from mvgp.prioritise.auto import Auto, fit_scale
from mvgp.prioritise.auto.blend import group_of
from mvgp.prioritise.auto.bootstrap import PILOT, RowBootstrap, _Sampler, contenders
from mvgp.prioritise.auto.fit import candidates
from mvgp.prioritise.auto.scale import _case, _error, top_shares
from mvgp.prioritise.tables.hpo import hpo_links

K = 20


def hide(links, fold, seed):
    """The links that stay visible."""
    generator = torch.Generator().manual_seed(seed)
    rows = links.rows.unique()
    order, size = rows[torch.randperm(len(rows), generator=generator)], len(rows) // 10
    hidden = torch.randperm(len(links), generator=generator) % 5 == fold
    hidden |= torch.isin(links.rows, order[fold * size : (fold + 1) * size])
    return mvgp.PositiveUnlabelled(links.rows[~hidden], links.cols[~hidden], links.shape, links.weight)


def drawn_rows(links, count, seed):
    rows = links.rows.unique()
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:count]].tolist()


def compare_with_all(ranker, rows, samples):
    """Contenders against all columns, with the same weights of the links."""
    known = ranker.bank.links
    for row in rows:
        began = time.process_time()
        ranker.uncertainty(row, K, exclude=known)
        fast = time.process_time() - began
        open_ = candidates(ranker._known, torch.tensor([row]), ranker.shape[1])[0]
        part = RowBootstrap(ranker.bank, ranker.blend, row, int(group_of(ranker._known.counts[[row]])), open_)
        generator = torch.Generator().manual_seed(1)
        pilot, terms = part.everybody(torch.empty(len(known), PILOT).exponential_(generator=generator))
        cols = contenders(pilot, open_, K)
        sampler = _Sampler(part, cols, terms, pilot, ranker.bank.scores(torch.tensor([row]), part.names))
        top, every, slow = torch.zeros(ranker.shape[1]), torch.zeros(ranker.shape[1]), 0.0
        for _ in range(samples // 50):
            weights = torch.empty(len(known), 50).exponential_(generator=generator)
            top[cols] += top_shares(sampler.scores(weights[sampler.links]), K).float() * 50 / samples
            began = time.process_time()
            all_columns = part.everybody(weights)[0].masked_fill(~open_, -torch.inf)
            every += top_shares(all_columns, K).float() * 50 / samples
            slow += (time.process_time() - began) * 1000 / samples
        print(
            f"  row {row}, {int((known.rows == row).sum())} links: {fast:.2f} s for 1,000 samples of {len(cols)} "
            f"contenders and {len(sampler.links):,} links, {slow:.1f} s for all columns; largest difference "
            f"{float((top - every).abs().max()):.4f} at {samples:,} samples",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=["hpo", "omim_humannet"])
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--exact", type=int, default=0, help="samples for the comparison with all columns")
    options = parser.parse_args()
    for name in options.sets:
        if name != "hpo" and not DATA.exists():
            print(f"{name}: skipped, {DATA} is not there")
            continue
        link_set = hpo_links() if name == "hpo" else load(name)
        links = [link_set.links()]
        links.append(hide(links[0], 0, 0))  # what the outer model knows
        links.append(hide(links[1], 1, 1))  # what the inner one knows
        if options.exact:
            ranker = Auto(link_set, assess=False).fit(links[0])
            print(f"{name}: samples of contenders", flush=True)
            compare_with_all(ranker, drawn_rows(links[0], 4, 3), options.exact)
            continue
        complete, outer, inner = (Auto(link_set, assess=False).fit(part) for part in links)
        fit = fit_scale([(inner, outer)], None, K, num_rows=options.rows)
        rows = drawn_rows(links[0], options.rows, 5)
        cases = [_case(outer, complete, row, K, 300, row) for row in rows]
        before, after = _error(cases, 1.0, 0.0), _error(cases, fit.scale, fit.noise)
        print(
            f"{name}: {fit}; outer fold, {len(rows)} rows: error of P(top {K}) {before:.3f} before, {after:.3f} after",
            flush=True,
        )


if __name__ == "__main__":
    main()
