"""The figure of the start page, once for a light and once for a dark page: python docs/figures/make_start.py"""

from pathlib import Path

import gpytorch
import matplotlib
import torch

import mvgp
from mvgp.kernels import DiffusionKernel, Graph

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
ROWS, COLS, SHOWN = 12, 40, 7


def example():
    """Readings of sensors on a ring over time, a third of them measured; one sensor fails early."""
    ring = Graph([(i, (i + 1) % ROWS) for i in range(ROWS)], ROWS)
    times = torch.linspace(0, 4, COLS, dtype=torch.float64)
    prior = mvgp.MatrixGP(DiffusionKernel(ring, time=3.0, shift=0.02), gpytorch.kernels.RBFKernel(), col_inputs=times)
    prior.col_kernel.lengthscale = torch.tensor(0.5, dtype=torch.float64)
    draw = torch.Generator().manual_seed(10)
    truth = prior.sample(draw)
    seen = torch.rand(ROWS, COLS, generator=draw) < 0.35
    seen[SHOWN, 14:] = False  # this sensor fails, its neighbours do not
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(0.01, dtype=torch.float64)
    noisy = truth + 0.1 * torch.randn(ROWS, COLS, generator=draw, dtype=torch.float64)
    data = mvgp.ObservedMatrix.from_dense(noisy.masked_fill(~seen, torch.nan))
    return times, truth, noisy, seen, mvgp.FullGP(prior, likelihood).fit(data)


def draw(name, ink, blank, accent):
    times, truth, noisy, seen, posterior = example()
    mean, std = posterior.scores(), posterior.variances().std
    colours = {"text.color": ink, "axes.edgecolor": ink, "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink}
    style = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "mvgp", "axes.facecolor": "none", **colours}
    with plt.rc_context(style):
        figure, panels = plt.subplots(2, 2, figsize=(7.6, 4.2), layout="constrained")
        reach = float(truth.abs().max())
        diverging = plt.get_cmap("RdBu_r").copy()
        diverging.set_bad(blank)
        spread = plt.get_cmap("viridis")
        shown = [
            ("1. What was measured", noisy.masked_fill(~seen, torch.nan), diverging, (-reach, reach)),
            ("2. Posterior mean: every entry", mean, diverging, (-reach, reach)),
            ("3. How certain: standard deviation", std, spread, (0, float(std.max()))),
        ]
        for panel, (title, values, colour, limits) in zip(panels.flat, shown, strict=False):
            image = panel.imshow(
                values, cmap=colour, vmin=limits[0], vmax=limits[1], aspect="auto", interpolation="none"
            )
            panel.set(title=title, xlabel="time", ylabel="sensor")
            panel.set_yticks([0, SHOWN, ROWS - 1])
            panel.add_patch(plt.Rectangle((-0.5, SHOWN - 0.5), COLS, 1, fill=False, edgecolor=accent, linewidth=1.4))
            bar = figure.colorbar(image, ax=panel, pad=0.02)
            bar.outline.set_visible(False)
        line = panels[1, 1]
        low, high = posterior.interval([SHOWN] * COLS, range(COLS), level=0.9)
        line.fill_between(times, low, high, color=accent, alpha=0.35, linewidth=0, label="90 % interval")
        line.plot(times, mean[SHOWN], color=accent, label="mean")
        line.plot(times, truth[SHOWN], color=ink, linestyle=":", label="truth")
        line.plot(times[seen[SHOWN]], noisy[SHOWN, seen[SHOWN]], "o", color=ink, markersize=3.5, label="measured")
        line.axvline(times[14], ymax=0.78, color=ink, linewidth=0.8, linestyle="--")
        line.set(title=f"4. Sensor {SHOWN}: fails at the dashed line", xlabel="time", ylabel="reading")
        line.spines[["top", "right"]].set_visible(False)
        line.legend(frameon=False, fontsize=8, ncols=2, loc="upper left", columnspacing=1.0)
        line.set_ylim(top=float(high.max()) + 0.8)  # room for the legend
        figure.savefig(HERE / f"start-{name}.svg", transparent=True, metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    draw("light", ink="#222222", blank="#e6e6e6", accent="#1f6fb4")
    draw("dark", ink="#dddddd", blank="#3a3d42", accent="#6db3f2")
