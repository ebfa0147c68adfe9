"""Records of ranked lists with made-up numbers."""

import itertools

import numpy as np

from mvgp.prioritise.report.candidates import why
from tests import randomness
from tests.prioritise.report.studies import SYLLABLES

GROUPS = ("no known link", "1 known link", "2 to 5", "6 and more")


def make_record(rows=6, top=20, known=4, seed=0, include_known=False, network=True):
    """A record that has everything; the last of several lists has no probabilities."""
    generator = randomness.numpy_generator(seed)
    names = [" ".join(generator.choice(SYLLABLES, 2)).capitalize() + f" syndrome {row + 1}" for row in range(rows)]
    lists = [_list(row, names, top, known, generator, include_known, network) for row in range(rows)]
    if rows > 1:
        for candidate in lists[-1]["candidates"]:
            candidate |= {"probability": None, "low": None, "high": None, "class": None}
    baselines = (("popularity", 0.08, 0.7), ("neighbours", 0.11, 0.78), ("propagation", 0.19, 0.84))
    models = [{"name": "auto", "auc": 0.87, "value": 0.214, "ahead": None, "low": None, "high": None}]
    for name, value, auc in baselines:
        gap = 0.214 - value
        models.append({"name": name, "auc": auc, "value": value, "ahead": gap, "low": gap - 0.015, "high": gap + 0.016})
    bins = np.geomspace(0.001, 0.5, 9)
    curve = [
        {
            **{"low": float(low), "high": float(high), "mean_probability": float(np.sqrt(low * high))},
            **{"share": float(1.05 * np.sqrt(low * high)), "share_low": float(0.9 * np.sqrt(low * high))},
            **{"share_high": float(min(1, 1.2 * np.sqrt(low * high))), "count": int(40 / high)},
        }
        for low, high in itertools.pairwise(bins)
    ]
    classes = [
        {
            **{"class": letter, "at_least": at_least, "candidates": count, "links": round(count * share)},
            **{"yield": share, "low": 0.85 * share, "high": 1.15 * share},
        }
        for letter, at_least, count, share in zip(
            "ABCD", (0.2, 0.05, 0.01, 0.0), (431, 2210, 9120, 10**6), (0.23, 0.09, 0.02, 0.0004), strict=True
        )
    ]
    return {
        "format": 1,
        "title": f"Genes for {rows} diseases" if rows > 1 else f"Genes for {names[0]}",
        "source": "made up",
        "model": "auto",
        "setting": "row graph 41 %, both graphs 38 %, popularity 21 %",
        "created": "2026-11-18T16:00:00+00:00",
        "version": "0.0",
        "words": {"row": "disease", "col": "gene"},
        "data": {"rows": 4495, "cols": 13614, "links": 22409},
        "summary": [
            f"These are the best genes of {rows} diseases, ranked by auto among 13,614 genes.",
            "On 812 rows with held-out links auto is better than propagation: 0.214 against 0.190.",
            "Of the candidates 12 are in class A.",
        ],
        "assessment": {
            "metric": "MAP@100",
            "rows": 812,
            "models": models,
            "words": "auto is better than propagation",
            "chosen": ["where links are expected: row graph 41 %", "popular columns are favoured (exponent 0.12)"],
        },
        "calibration": {"hidden_share": 0.2, "error": 0.0021, "curve": curve, "classes": classes},
        "coverage": [
            {
                **{"group": group, "level": level, "length": int(40 * (5 - at) / (1.02 - level))},
                **{"links": 900 - 100 * at, "covered": level + 0.004 * (at - 1)},
            }
            for at, group in enumerate(GROUPS)
            for level in (0.5, 0.8, 0.9)
        ]
        + [{"group": "many", "level": 0.9, "length": None, "links": 0, "covered": None}],
        "lists": lists,
    }


def _list(row, names, top, known, generator, include_known, network):
    numbers = generator.choice(13614, top + known, replace=False)
    genes = [{"col_id": str(number), "col_name": f"GEN{number}"} for number in numbers]
    fitted, open_ = genes[:known], genes[known:]
    candidates = []
    for place, gene in enumerate(open_):
        chance = 0.45 / (1 + place)
        others = generator.choice(len(names), 2)
        ends = [
            {"row_id": f"OMIM:{100000 + other}", "row_name": names[other], **gene, "share": 0.3} for other in others
        ]
        near = [
            {"row_id": f"OMIM:{100000 + row}", "row_name": names[row], **each, "share": 0.12} for each in fitted[:2]
        ]
        both = " and ".join(dict.fromkeys(names[other] for other in others))
        reasons = [
            {"share": 0.67, "source": "row graph", "text": f"linked to diseases like this one, {both}", "links": ends},
            {
                "share": 0.25,
                "source": "column graph",
                "text": f"near the known genes {', '.join(each['col_name'] for each in fitted[:2])}",
                "links": near,
            },
            {"share": 0.08, "source": "popularity", "text": "often linked", "links": []},
        ]
        grade = "ABCD"[sum(chance < limit for limit in (0.2, 0.05, 0.01))]
        candidates.append(
            {
                **{"rank": place + 1, **gene, "score": 3.0 - 0.1 * place, "std": 0.2 + 0.01 * place},
                **{"p_top": 1 / (1 + place / 8), "k": top, "probability": chance, "low": 0.7 * chance},
                **{"high": 1.4 * chance, "class": grade, "known": False, "why": why(reasons), "reasons": reasons},
            }
        )
    if include_known:
        for candidate in candidates[1::5]:
            candidate |= {"known": True, "probability": None, "low": None, "high": None, "class": None}
    nodes = [
        {"id": gene["col_id"], "name": gene["col_name"], "kind": "candidate", "rank": n + 1}
        for n, gene in enumerate(open_)
    ]
    nodes += [{"id": gene["col_id"], "name": gene["col_name"], "kind": "known"} for gene in fitted]
    pairs = {tuple(sorted(generator.choice(len(nodes), 2, replace=False).tolist())) for _ in range(2 * len(nodes))}
    edges = [[*pair, float(generator.random() + 0.1)] for pair in sorted(pairs)]
    return {
        **{"row_id": f"OMIM:{100000 + row}", "row_name": names[row], "group": "2 to 5", "num_known": known},
        **{
            "notes": [] if row != 1 else ["Probabilities of this disease are extrapolated."],
            "lengths": {"0.8": 120, "0.9": 340},
        },
        **{"known": fitted, "candidates": candidates, "network": {"nodes": nodes, "edges": edges} if network else None},
    }
