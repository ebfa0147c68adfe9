"""The chapters, in the order of the page: each says what is measured and tells what came out of it. Slow ones are measured when they are named."""

from . import (
    completion,
    grid,
    large_axes,
    learned_kernels,
    mesh,
    paper_scale,
    parts,
    pointwise,
    ranking,
    scaling,
    svm,
    trace_path,
    trace_solver,
    variance,
)

CHAPTERS = [
    one.CHAPTER
    for one in (
        grid,
        variance,
        scaling,
        completion,
        svm,
        pointwise,
        ranking,
        parts,
        trace_solver,
        trace_path,
        large_axes,
        paper_scale,
        mesh,
        learned_kernels,
    )
]
