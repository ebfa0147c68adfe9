"""Study directories with made-up numbers."""

import json

import numpy as np

from tests import randomness

METRICS = ("AUC", "P@10", "R@10", "MAP@10", "nDCG@10", "P@100", "R@100", "MAP@100", "nDCG@100")
SYLLABLES = ("aba", "cor", "dys", "fen", "gly", "hemi", "ker", "lio", "myo", "neph", "osteo", "phen", "ret", "syn", "tro")  # fmt: skip
NASTY = "<script>window.hacked = 1</script>\"'&"


def write_table(directory, name, header, rows):
    """A table; its header is a list of names or a text with spaces between them."""
    header = header.split() if isinstance(header, str) else header
    folder = directory / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(header), *("\t".join("" if cell is None else str(cell) for cell in row) for row in rows)]
    (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_description(directory, **changes):
    directory.mkdir(parents=True, exist_ok=True)
    description = {
        "format": 1,
        "title": "Genes of rare diseases, known diseases",
        "settings": {
            "split": "pairs",
            "folds": 5,
            "negatives": 10,
            "models": ["whole", "trace"],
            "seed": 0,
            "subsample": None,
        },
        "data": {
            "source": "HPO 2024-04-26",
            "rows": 4495,
            "cols": 13614,
            "links": 22409,
            "row_edges": 13922,
            "col_edges": 433224,
            "digest": "9f2c81d07be3",
        },
        "versions": {"mvgp": "0.7.0", "torch": "2.9.1", "numpy": "2.3.4", "python": "3.12.3"},
        "finished": True,
        "units": {"done": 60, "total": 60},
        "seconds": 4321.5,
        **changes,
    }
    (directory / "study.json").write_text(json.dumps(description), encoding="utf-8")
    return directory


def write_study(
    directory,
    *,
    models=("whole", "trace", "hilbert", "full", "prodige", "popularity"),
    folds=5,
    rows=6,
    top=20,
    seed=0,
    **changes,
):
    """A whole study; returns its directory."""
    generator = randomness.numpy_generator(seed)
    write_description(directory, **changes)
    quality = np.linspace(0.9, 0.4, len(models))
    figures = {}
    lines = []
    for model, level in zip(models, quality, strict=True):
        for index, metric in enumerate(METRICS):
            values = level * (1 if metric == "AUC" else 0.1 + 0.03 * index) + generator.normal(0, 0.004, folds)
            figures[model, metric] = values.mean()
            std = repr(float(values.std(ddof=1))) if folds > 1 else None
            lines.append(
                [model, metric, repr(float(values.mean())), std, folds, *(f"{value:.10g}" for value in values)]
            )
    write_table(
        directory, "metrics", ["model", "metric", "mean", "std", "folds", *(f"fold_{n}" for n in range(folds))], lines
    )
    write_table(
        directory,
        "comparisons",
        "metric model_a model_b mean_a mean_b difference low high t_pvalue wilcoxon_pvalue wins losses ties tasks",
        _comparisons(models, figures, generator),
    )
    write_table(
        directory,
        "curves",
        "model k precision precision_std recall recall_std map map_std",
        _curves(models, quality, folds),
    )
    write_table(
        directory,
        "path",
        "model fold trace_share strength metric score standard_error rank relative_gap iterations seconds chosen",
        _path(models[:2], folds, generator),
    )
    write_table(
        directory,
        "choices",
        "model fold setting score",
        [[m, f, "trace_share 0.8, strength 0.07", 0.2 + 0.001 * f] for m in models[:2] for f in range(folds)],
    )
    write_table(
        directory,
        "grids",
        "model fold place setting metric score standard_error seconds chosen",
        [[models[-1], 0, n, f"cost {10**n}", "MAP@100", 0.1 + n / 100, "", 1.5, n // 2] for n in range(3)],
    )
    write_table(
        directory,
        "calibration",
        "model low high mean_probability share count",
        _calibration(models[:2], generator),
    )
    write_candidates(directory, rows, top, generator)
    return directory


def write_candidates(directory, rows, top, generator, model="whole"):
    lines = []
    for row in range(rows):
        name = " ".join(generator.choice(SYLLABLES, 2)).capitalize() + f" syndrome {row + 1}"
        genes = generator.choice(13614, top, replace=False)
        for index in range(top):
            score, chance = 3.0 / (1 + 0.1 * index) + generator.normal(0, 0.01), 1 / (1 + np.exp(0.3 * (index - 8)))
            lines.append(
                [
                    f"OMIM:{100000 + row}",
                    name,
                    index + 1,
                    genes[index],
                    f"GEN{genes[index]}",
                    f"{score:.10g}",
                    f"{0.2 + 0.01 * index:.10g}",
                    f"{chance:.10g}",
                    20,
                    model,
                    int(generator.random() < 0.1),
                ]
            )
    write_table(directory, "candidates", "row_id row_name rank col_id col_name score std p_top k model held_out", lines)


def _comparisons(models, figures, generator):
    for metric in METRICS:
        for index, a in enumerate(models):
            for b in models[index + 1 :]:
                mean_a, mean_b = figures[a, metric], figures[b, metric]
                half = 0.01 + 0.02 * generator.random()
                gap = mean_a - mean_b
                wins = int(generator.integers(300, 700))
                yield [
                    metric,
                    a,
                    b,
                    f"{mean_a:.10g}",
                    f"{mean_b:.10g}",
                    f"{gap:.10g}",
                    f"{gap - half:.10g}",
                    f"{gap + half:.10g}",
                    f"{np.exp(-abs(gap) * 200):.10g}",
                    "",
                    wins,
                    900 - wins,
                    100,
                    1000,
                ]


def _curves(models, quality, folds):
    for model, level in zip(models, quality, strict=True):
        for k in range(1, 101):
            precision, recall = 0.4 * level / k**0.5, level * (1 - np.exp(-k / 40))
            spread = 0.01 * (1 + level) if folds > 1 else None
            yield [
                model,
                k,
                f"{precision:.10g}",
                spread,
                f"{recall:.10g}",
                spread,
                f"{0.25 * level * (1 - np.exp(-k / 15)):.10g}",
                spread,
            ]


def _path(models, folds, generator):
    for model in models:
        for fold in range(folds):
            for share in (1.0, 0.8, 0.6, 0.4) if model == models[0] else (1.0,):
                strengths = np.logspace(0, -3, 16 - fold % 3)
                for index, strength in enumerate(np.logspace(0, -3, 16)[: len(strengths)]):
                    score = 0.2 * np.exp(-((np.log10(strength) + 1.8) ** 2)) * (0.8 + 0.2 * share) + generator.normal(
                        0, 0.002
                    )
                    chosen = int(index == 9 and share == (0.8 if model == models[0] else 1.0))
                    yield [
                        model,
                        fold,
                        share,
                        f"{strength:.10g}",
                        "MAP@100",
                        f"{score:.10g}",
                        "0.004",
                        1 + index * 4,
                        f"{10 ** (-3 - 3 * generator.random()):.10g}",
                        40,
                        1.5,
                        chosen,
                    ]


def _calibration(models, generator):
    for n, model in enumerate(models):
        for low in np.linspace(0, 0.9, 10):
            middle = low + 0.05
            yield [
                model,
                f"{low:.10g}",
                f"{low + 0.1:.10g}",
                f"{middle:.10g}",
                f"{np.clip(middle ** (1 + 0.3 * n) + generator.normal(0, 0.02), 0, 1):.10g}",
                int(20000 * np.exp(-4 * low) + 30),
            ]
