"""DisGeNET genes of MeSH diseases: the ranking chapter's contest on a set of sixty times as many links."""

from __future__ import annotations

from ..chapter import Chapter, Section
from ..measurement import Measurement, Outcome
from ..text import bars, joined
from .ranking import PEERS as RANKING_PEERS
from .ranking import planned, told

SETS = 5  # of sampled negatives; the paper has 10
STRENGTHS = [0.5, 0.3, 0.2, 0.14, 0.1, 0.07, 0.05, 0.035, 0.025]
WHOLE, SHARED, TRACE = (
    "mvgp TraceGP, whole lists",
    "mvgp TraceGP, sampled negatives, trace share 0.8",
    "mvgp TraceGP, sampled negatives, trace share 1, by AUC",
)
OURS = {
    WHOLE: ("trace_gp", {"shares": [0.9], "strengths": [0.15, 0.08, 0.055, 0.04], "sets": 0}, 1800),
    SHARED: ("trace_gp", {"shares": [0.8], "strengths": STRENGTHS, "sets": SETS}, 3600),
    TRACE: (
        "trace_gp",
        {"shares": [1.0], "strengths": [*STRENGTHS, 0.018, 0.0125], "sets": SETS, "metric": "AUC"},
        3600,
    ),
    "mvgp FullGP, sampled negatives": ("full_gp", {"noises": [0.1], "sets": 1}, 600),
    "mvgp FactorGP, sampled negatives": ("factor_gp", {"rank": 50, "noise": 2.0, "sets": 1}, 600),
    "mvgp PairwiseSVM, sampled negatives": ("pairwise_svm", {"costs": [0.1], "sets": 1}, 600),
    "mvgp TraceGP, ordered simplex": (
        "trace_gp",
        {"shares": [1.0], "strengths": [0.3], "sets": 1, "simplex": True},
        600,
    ),
}
PEERS = {name: (recipe, 3600) for name, (recipe, _) in RANKING_PEERS.items()}
INTRO = (
    """DisGeNET genes of MeSH diseases (`../shared/data/mesh_disgenet`, not part of the repository). {data}. A tenth of the links to fit chooses each contestant's settings by MAP@100 (one of ours by AUC), and it is refitted to all of them.
Kernels have time 1 and shift 1; means are certified to 1e-2. Sampled negatives are one for each link; `TraceGP` averages scores over """
    + str(SETS)
    + """ sets of them."""
)


def plan(quick: bool) -> list[Measurement]:
    return planned("synthetic" if quick else "mesh", OURS, PEERS)


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    def of(name: str, key: str) -> float | None:
        found = outcomes.get(name)
        return found.values[key] if found is not None and found.done else None

    aims = [
        ("whole lists: MAP@100", of(WHOLE, "MAP@100"), "at least", 0.18),
        ("whole lists: AUC", of(WHOLE, "AUC"), "at least", 0.89),
        ("sampled, trace share 0.8: MAP@100", of(SHARED, "MAP@100"), "at least", 0.14),
        ("sampled, trace share 1: AUC", of(TRACE, "AUC"), "at least", 0.92),
        ("implicit ALS: MAP@100", of("implicit ALS", "MAP@100"), "at least", 0.95 * 0.189),
        ("EASE: MAP@100", of("EASE", "MAP@100"), "at least", 0.95 * 0.187),
    ]
    return Section(joined([told(outcomes, OURS, PEERS, INTRO), "" if quick else bars(aims)]), {})


CHAPTER = Chapter("mesh", "Ranking genes of MeSH diseases", plan, tell, slow=True)
