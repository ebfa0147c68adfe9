"""The table of candidates: the best items of some rows, given all links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .candidate_unit import mixture
from .tsv import Table
from .unit import Outcome
from .workload import Workload

COLUMNS = ["row_id", "row_name", "rank", "col_id", "col_name", "score", "std", "p_top", "k", "model", "held_out"]


def candidates_table(load: Workload, model: str, parts: Sequence[Outcome]) -> tuple[list[str], Table]:
    """Known links are no candidates. With a subsample, links outside of it are held out, and marked."""
    data, top, width = load.data, load.study.top, load.data.shape[1]
    scores, std, promised = mixture(parts)
    known = set((data.rows * width + data.cols).tolist())
    every = set((load.all_links.rows * width + load.all_links.cols).tolist())
    table: Table = []
    for at, row in enumerate(load.candidate_rows.tolist()):
        best = [col for col in np.argsort(-scores[at], kind="stable").tolist() if row * width + col not in known]
        for place, col in enumerate(best[:top]):
            table.append(
                {
                    "row_id": data.row_ids[row],
                    "row_name": data.row_names[row],
                    "rank": place + 1,
                    "col_id": data.col_ids[col],
                    "col_name": data.col_names[col],
                    "score": float(scores[at, col]),
                    "std": float(std[at, col]),
                    "p_top": float(promised[at, col]),
                    "k": top,
                    "model": model,
                    "held_out": int(row * width + col in every),
                }
            )
    return COLUMNS, table
