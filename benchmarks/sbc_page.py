"""The numbers of benchmarks/sbc.py as a table in docs/calibration.md and as figures, for light and for dark pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.book.figures import COLOURS, DASHES, INK
from benchmarks.book.machine import ROOT
from mvgp.metrics import uniformity

SAMPLES = 99
QUANTITIES = ("observed cell", "unobserved cell", "new row", "row mean", "sampled cell", "rank in row")
NUMBERS, PAGE = ROOT / "docs/figures/sbc.json", ROOT / "docs/calibration.md"
MARKS = ("<!-- sbc: written by benchmarks/sbc.py -->", "<!-- sbc: end -->")


def save_numbers(numbers: dict[str, Any], path: Path) -> None:
    """As JSON, lists of numbers in one line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(numbers, indent=1)
    text = re.sub(r"\[\s+([-\d.,\s]+?)\s+\]", lambda found: "[" + "".join(found[1].split()) + "]", text)
    path.write_text(text + "\n")


def table(numbers: dict[str, Any]) -> str:
    """What was tried, as text for the page."""
    cases = numbers["cases"]
    exact = [one for case in cases.values() if case["exact"] for one in case["quantities"].values()]
    smallest, outside = min(one["p_value"] for one in exact), sum(not one["inside"] for one in exact)
    lines = [
        f"{numbers['date']}, commit {numbers['commit']}, seed {numbers['seed']}, {numbers['draws']:,} draws for each case, "
        f"{numbers['seconds'] / 60:.0f} minutes of one thread. The half width of the band is at most "
        f"{max(one['band'] for one in exact):.3f}. SHA-256 of all ranks: `{numbers['sha256'][:16]}`.",
        "",
        f"Of the {len(exact)} curves that theory says are uniform, {len(exact) - outside} are inside their 95 % bands; "
        f"{0.05 * len(exact):.1f} are expected outside by chance. The smallest of their p-values is {smallest:.3g}, "
        f"{min(1.0, smallest * len(exact)):.2g} after Bonferroni's correction.",
        "",
    ]
    for exact_ones, title in ((True, "Exact posteriors"), (False, "Approximations and shrunk means: the deviation")):
        lines += [f"**{title}**", ""]
        lines += [
            "| case | quantity | inside | p-value | largest deviation | in 50 % | in 90 % |",
            "|---|---|---|---|---|---|---|",
        ]
        for case in cases.values():
            if case["exact"] is not exact_ones:
                continue
            title = case["title"]
            for name, one in case["quantities"].items():
                p = f"{one['p_value']:.2f}" if one["p_value"] >= 0.095 else f"{one['p_value']:.1g}"
                figures = f"{one['deviation']:+.3f} | {one['covered_50']:.1%} | {one['covered_90']:.1%}"
                p = "< 1e-12" if one["p_value"] < 1e-12 else p
                lines.append(f"| {title} | {name} | {'yes' if one['inside'] else '**no**'} | {p} | {figures} |")
                title = ""
        lines.append("")
    return "\n".join(lines)


def write_page(numbers: dict[str, Any], page: Path = PAGE) -> None:
    """Replace what is between the marks."""
    before, rest = page.read_text().split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    page.write_text(f"{before}{MARKS[0]}\n\n{table(numbers)}\n{MARKS[1]}{after}")


def draw_figure(path: Path = NUMBERS) -> list[Path]:
    """``sbc-light.svg`` and ``sbc-dark.svg`` beside the numbers: ECDF less diagonal of every case, with the band."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    numbers, written = json.loads(path.read_text()), []
    bins = SAMPLES + 1
    band = uniformity((np.arange(numbers["draws"]) + 0.5) / numbers["draws"], bins)
    edges, low, high = (part.numpy() for part in (band.edges, band.low, band.high))
    for page in ("light", "dark"):
        ink = INK[page]
        colours = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), ink)
        style = {"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "mvgp", "axes.facecolor": "none", **colours}
        with plt.rc_context(style):
            figure, axes = plt.subplots(
                -(-len(numbers["cases"]) // 3), 3, figsize=(7.6, 10), layout="constrained", sharex=True, squeeze=False
            )
            handles: dict[str, Any] = {}
            for axis, case in zip(axes.flat, numbers["cases"].values(), strict=False):
                axis.fill_between(edges, low - edges, high - edges, color=ink, alpha=0.15, linewidth=0)
                for name, one in case["quantities"].items():
                    at = QUANTITIES.index(name)
                    ecdf = np.cumsum(one["counts"])[:-1] / numbers["draws"]
                    look = {"color": COLOURS[page][at], "linestyle": DASHES[at], "linewidth": 1.1}
                    handles[name] = axis.plot(edges, ecdf - edges, **look)[0]
                reach = 0.07 if case["exact"] else 0.2
                axis.set(title=case["title"], ylim=(-reach, reach), xlim=(0, 1), xticks=(0, 0.5, 1))
                axis.title.set_fontsize(8)
                axis.spines[["top", "right"]].set_visible(False)
            for axis in list(axes.flat)[len(numbers["cases"]) :]:
                axis.set_visible(False)
            axes[len(axes) // 2, 0].set_ylabel("share of truths below a quantile, less its level")
            axes[-1, axes.shape[1] // 2].set_xlabel("level of the quantile")
            names = [name for name in QUANTITIES if name in handles]
            figure.legend([handles[name] for name in names], names, loc="outside lower center", ncols=6, frameon=False)
            target = path.parent / f"sbc-{page}.svg"
            figure.savefig(target, transparent=True, metadata={"Date": None})
            plt.close(figure)
            written.append(target)
    return written
