"""What ``mvgp demo`` does."""

from __future__ import annotations

from pathlib import Path

import gpytorch
import matplotlib
import torch
from rich.console import Console
from rich.table import Table

from .datasets import SyntheticMatrix, synthetic_matrix
from .models import FullGP
from .posteriors import GaussianPosterior


def run_demo(out: Path, seed: int, console: Console) -> Path:
    """Fit, print a few entries against the truth, and save one figure; returns where it is."""
    out.mkdir(parents=True, exist_ok=True)  # first, so that a bad folder costs no computation
    with console.status("drawing a matrix"):
        problem = synthetic_matrix(seed=seed)
    console.print(f"Synthetic matrix: {problem.data}")
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(problem.noise, dtype=torch.float64)
    with console.status("fitting"):
        posterior = FullGP(problem.prior, likelihood).fit(problem.data)
    found = posterior.evidence
    console.print(f"Fitted by {found.method}, relative residual {found.residual:.1e}")
    _print_entries(problem, posterior, console)
    _print_coverage(problem, posterior, console)
    path = out / "posterior.png"
    with console.status("drawing the figure"):
        _draw(problem, posterior, path)
    console.print(f"Figure: {path}")
    return path


def _print_entries(problem: SyntheticMatrix, posterior: GaussianPosterior, console: Console) -> None:
    m, n = problem.truth.shape
    rows = torch.tensor([3, 3, m // 2, m // 2, m - 1, 7])
    cols = torch.tensor([5, 76, 10, 90, n - 1, 60])
    joint = posterior(rows, cols)
    seen = set(zip(problem.data.rows.tolist(), problem.data.cols.tolist(), strict=True))
    table = Table("entry", "observed", "truth", "mean", "std")
    for place in range(len(rows)):
        pair = (int(rows[place]), int(cols[place]))
        numbers = (problem.truth[pair], joint.mean[place], joint.stddev[place])
        table.add_row(str(pair), "yes" if pair in seen else "no", *(f"{float(x):+.3f}" for x in numbers))
    console.print(table)


def _print_coverage(problem: SyntheticMatrix, posterior: GaussianPosterior, console: Console) -> None:
    mean, std = posterior.scores(), posterior.covariance().diagonal().reshape(problem.truth.shape).sqrt()
    inside = ((mean - problem.truth).abs() <= 1.645 * std).double()
    unseen = torch.isnan(problem.data.to_dense())
    error = (mean - problem.truth)[unseen].square().mean().sqrt() / problem.truth[unseen].std()
    console.print(
        f"Unobserved entries: error {float(error):.2f} of their spread; "
        f"90 % intervals hold {float(inside[unseen].mean()):.1%} of them"
    )


def _draw(problem: SyntheticMatrix, posterior: GaussianPosterior, path: Path) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    std = posterior.covariance().diagonal().reshape(problem.truth.shape).sqrt()
    largest = float(problem.truth.abs().max())
    panels = [
        ("truth", problem.truth, "RdBu_r", -largest, largest),
        ("observed (grey: missing)", problem.data.to_dense(), "RdBu_r", -largest, largest),
        ("posterior mean", posterior.scores(), "RdBu_r", -largest, largest),
        ("posterior standard deviation", std, "viridis", 0.0, float(std.max())),
    ]
    figure, axes = plt.subplots(2, 2, figsize=(11, 6.4), layout="constrained", sharex=True, sharey=True)
    for axis, (title, values, colours, low, high) in zip(axes.flat, panels, strict=True):
        palette = matplotlib.colormaps[colours].with_extremes(bad="0.8")
        image = axis.imshow(values.numpy(), cmap=palette, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        axis.set_title(title)
        figure.colorbar(image, ax=axis)
    for axis in axes[:, 0]:
        axis.set_ylabel("row (node of a graph)")
    for axis in axes[1]:
        axis.set_xlabel("column (point in time)")
    figure.savefig(path, dpi=110)
    plt.close(figure)
