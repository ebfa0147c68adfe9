"""Broken implementations are caught, each by the rule it breaks."""

import copy
import subprocess
import sys
import types

import pytest
import torch
from linear_operator import to_linear_operator

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import DiffusionKernel, PrecomputedKernel
from mvgp.kernels.graph import GraphKernel
from mvgp.likelihoods import BipartiteRankingLikelihood, OrderCone
from mvgp.posteriors import Joint
from mvgp.testing import (
    GraphKernelContract,
    KernelContract,
    LikelihoodContract,
    PosteriorContract,
    RankerContract,
    TargetSetContract,
    run_contract,
)
from tests.testing import problems

SCORES = torch.arange(12, dtype=torch.float64).reshape(3, 4).sin()


def rows_or_all(rows, matrix=SCORES):
    if rows is None:
        return matrix.clone()
    index = torch.as_tensor(rows)
    if bool((index < 0).any()):
        raise InputError("rows: negative")
    return matrix[index].clone()


def ranker(scores, shape=(3, 4)):
    return type("Mutant", (), {"shape": shape, "scores": lambda self, rows=None: scores(rows)})


RANKERS = {
    "test_it_is_a_ranker": ranker(rows_or_all, shape=(3, 4, 1)),
    "test_scores_have_the_shape": ranker(lambda rows: rows_or_all(rows)[:, :3]),
    "test_scores_are_finite_numbers": ranker(
        lambda rows: rows_or_all(rows, SCORES.masked_fill(SCORES < 0, -torch.inf))
    ),
    "test_some_rows_are_rows_of_all": ranker(lambda rows: rows_or_all(None if rows is None else sorted(rows))),
    "test_the_same_question_has_the_same_answer": ranker(lambda rows: rows_or_all(rows) + torch.rand(1).double()),
    "test_a_row_that_is_not_there_is_refused": ranker(
        lambda rows: SCORES[torch.as_tensor(rows)] if rows is not None else SCORES
    ),
}


def broken(base, **methods):
    return run_contract(type("Mutated", (base,), methods)).broken


@pytest.mark.parametrize("rule", list(RANKERS))
def test_rankers(rule):
    found = broken(RankerContract, make_ranker=lambda self: RANKERS[rule]())
    assert rule in found
    assert "RankerContract" in found[rule] or "InputError" in found[rule]


# Posteriors --------------------------------------------------------------------------------------


def posterior(**methods):
    """The plain posterior with some of its methods replaced; each gets the right one first."""
    found = mvgp.FullGP(problems.prior(), problems.noise(0.2)).fit(problems.data())
    for name, method in methods.items():
        right = getattr(found, name)
        setattr(found, name, lambda *given, _right=right, _method=method, **named: _method(_right, *given, **named))
    return found


def scaled(factor):
    return lambda right, *given, **named: factor * right(*given, **named)


POSTERIORS = [
    ("test_the_joint_distribution_has_the_mean", {"mean": scaled(1.001)}),
    ("test_every_variance_is_the_same", {"variance": scaled(0.99)}),
    ("test_every_covariance_is_the_same", {"joint": lambda right, *at: Joint(right(*at).matrix.diagonal().diag(), 9)}),
    ("test_every_covariance_is_the_same", {"covariance": lambda right: to_linear_operator(right().to_dense().triu())}),
    ("test_variances_lie_between_zero_and_the_prior", {"variance": scaled(-1)}),
    ("test_variances_lie_between_zero_and_the_prior", {"variance": scaled(9)}),
    ("test_intervals_are_central", {"interval": lambda right, *at, level: right(*at, level=0.95)}),
    ("test_samples_have_the_mean_and_the_covariance", {"sample": scaled(1.2)}),
    (
        "test_samples_have_the_mean_and_the_covariance",
        {"sample": lambda right, rows, cols, count, generator: right(rows, cols, count)},
    ),
    (
        "test_the_top_is_sorted_and_leaves_out_what_it_should",
        {"top": lambda right, row, k, exclude=None, **named: right(row, k, **named)},
    ),
    ("test_probabilities_of_the_top_sum_to_k", {"top_probability": scaled(0.9)}),
    ("test_rank_intervals_are_ranks", {"rank_interval": lambda right, *at, **named: right(*at, **named)[::-1]}),
    ("test_one_item_beats_the_other_or_not", {"beats": scaled(0.9)}),
    ("test_a_file_gives_it_back", {"scores": scaled(1 + 1e-12)}),
]


@pytest.mark.parametrize(("rule", "methods"), POSTERIORS, ids=[f"{rule}-{next(iter(m))}" for rule, m in POSTERIORS])
def test_posteriors(rule, methods):
    contract = type("Mutated", (PosteriorContract,), {"make_posterior": lambda self: posterior(**methods)})
    with pytest.raises(AssertionError, match="PosteriorContract"):
        getattr(contract(), rule)()


def test_a_wrong_noise_is_caught_by_the_dense_posterior():
    from tests.testing.test_posteriors import TestFullGP as Right

    class Wrong(Right):
        def make_posterior(self):
            return mvgp.FullGP(problems.prior(), problems.noise(0.21)).fit(problems.data())

    with pytest.raises(AssertionError, match="its mean is the dense one"):
        Wrong().test_it_is_the_dense_posterior()


# Target sets and likelihoods ---------------------------------------------------------------------


class MutantSet:
    """The order cone with margin 1, its map replaced by ``change(map, lists, weight)``."""

    supports_weights, shift_invariant = True, True

    def __init__(self, change, **promises):
        self.change = change
        self.__dict__.update(promises)

    def projection(self, lists, weight=None):
        return self.change(OrderCone(1.0).projection(lists, weight), lists, weight)


def half_way(project, lists, weight):
    return lambda psi: (psi + project(psi)) / 2


def to_labels(project, lists, weight):
    """Onto +-1 wherever something has to move: idempotent, not convex."""
    level = lists.cell_level[lists.cell]
    return lambda psi: torch.where(torch.isclose(project(psi), psi), psi, (2.0 * level - 1).to(psi))


def all_in_one(project, lists, weight):
    """One list is looked at for all."""
    return lambda psi: project(psi) + psi.mean()


class Remembering:
    def __init__(self, project):
        self.project, self.last = project, 0.0

    def __call__(self, psi):
        found = self.project(psi) + self.last
        self.last = 0.1
        return found


def writing(project, lists, weight):
    def inner(psi):
        psi.copy_(project(psi))
        return psi

    return inner


SETS = [
    ("test_it_says_what_it_can_do", MutantSet(half_way, supports_weights=None)),
    ("test_targets_look_like_scores", MutantSet(lambda project, *_: lambda psi: project(psi).double())),
    ("test_targets_look_like_scores", MutantSet(writing)),
    ("test_a_map_can_be_called_again", MutantSet(lambda project, *_: Remembering(project))),
    ("test_targets_are_their_own_targets", MutantSet(half_way)),
    ("test_it_is_the_nearest_point", MutantSet(lambda project, lists, weight: OrderCone(1.0).projection(lists))),
    ("test_it_is_the_nearest_point", MutantSet(to_labels)),
    ("test_the_set_is_convex", MutantSet(lambda project, *_: lambda psi: project(psi).round())),
    ("test_targets_move_no_further_than_scores", MutantSet(lambda project, *_: lambda psi: 2 * project(psi))),
    ("test_lists_do_not_meddle_with_each_other", MutantSet(all_in_one)),
    (
        "test_an_offset_of_a_list_goes_through_if_promised",
        MutantSet(lambda project, *_: lambda psi: project(psi).clamp(min=0)),
    ),
    ("test_weights_count_or_are_refused", MutantSet(lambda project, *_: project, supports_weights=False)),
    (
        "test_it_solves_the_quadratic_program",
        MutantSet(lambda project, lists, weight: OrderCone(0.9).projection(lists, weight)),
    ),
]


@pytest.mark.parametrize(("rule", "target"), SETS, ids=[f"{rule}-{n}" for n, (rule, _) in enumerate(SETS)])
def test_target_sets(rule, target):
    from tests.testing.test_likelihoods import above

    made = {"make_target_set": lambda self: copy.copy(target), "inequalities": lambda self, level: above(level, 1.0)}
    contract = type("Mutated", (TargetSetContract,), made)
    with pytest.raises(AssertionError, match="TargetSetContract"):
        getattr(contract(), rule)()


def likelihood(**methods):
    found = BipartiteRankingLikelihood(margin=1.0, noise=0.5)
    for name, method in methods.items():
        right = getattr(found, name)
        object.__setattr__(found, name, lambda *given, _r=right, _m=method, **named: _m(_r, *given, **named))
    return found


LIKELIHOODS = [
    ("test_entries_are_grouped_by_task", {"lists": lambda right, labels, task: right(-labels, task)}),
    ("test_targets_rank_as_the_labels_say", {"retarget": lambda right, psi, *rest: psi}),
    ("test_targets_are_those_of_its_set", {"retarget": scaled(1.1)}),
    ("test_the_loss_is_half_the_squared_distance", {"loss": scaled(2)}),
    ("test_the_gradient_of_the_loss", {"loss": lambda right, psi, *rest: right(psi, *rest) + psi.sum()}),
    ("test_the_loss_is_convex", {"loss": lambda right, psi, *rest: -psi.square().sum()}),
    ("test_an_expectation_is_of_whole_lists", {"log_marginal": scaled(2)}),
    (
        "test_an_expectation_is_of_whole_lists",
        {
            "expected_log_prob": lambda right, *given, task, complete_lists=True: right(
                *given, task=task, complete_lists=True
            )
        },
    ),
]


@pytest.mark.parametrize(("rule", "methods"), LIKELIHOODS, ids=[f"{r}-{next(iter(m))}" for r, m in LIKELIHOODS])
def test_likelihoods(rule, methods):
    contract = type("Mutated", (LikelihoodContract,), {"make_likelihood": lambda self: likelihood(**methods)})
    with pytest.raises(AssertionError, match="LikelihoodContract"):
        getattr(contract(), rule)()


class Unnormalised(BipartiteRankingLikelihood):
    """The probability of the order alone, for any number of positives."""

    def forward(self, scores, *params, **lists):
        found = super().forward(scores, *params, **lists)
        found._log_counts = lambda level: torch.zeros(())
        return found


class UpsideDown(BipartiteRankingLikelihood):
    def forward(self, scores, *params, **lists):
        found = super().forward(scores, *params, **lists)
        found.sample = types.MethodType(lambda self, shape: -type(self).sample(self, shape), found)
        return found


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("test_probabilities_sum_to_one", Unnormalised),
        ("test_samples_have_these_probabilities", UpsideDown),
    ],
)
def test_distributions_of_labels(rule, kind):
    contract = type("Mutated", (LikelihoodContract,), {"make_likelihood": lambda self: kind(noise=0.5)})
    with pytest.raises(AssertionError, match="LikelihoodContract"):
        getattr(contract(), rule)()


# Kernels -----------------------------------------------------------------------------------------


class Skew(PrecomputedKernel):
    def forward(self, x1, x2, diag=False, **params):
        found = super().forward(x1, x2, diag, **params)
        return found if diag else found + torch.ones(found.shape[-2:]).double().triu(1) * 1e-3


class WrongDiagonal(PrecomputedKernel):
    def forward(self, x1, x2, diag=False, **params):
        return super().forward(x1, x2, diag, **params) * (1.01 if diag else 1.0)


class ByPosition(PrecomputedKernel):
    """Looks at how many inputs there are, not at which."""

    def forward(self, x1, x2, diag=False, **params):
        if diag:
            return super().forward(x1, x2, diag, **params)
        return self.matrix[: x1.shape[-2], : x2.shape[-2]]


class Indefinite(PrecomputedKernel):
    def forward(self, x1, x2, diag=False, **params):
        return super().forward(x1, x2, diag, **params) - 5.0


class Detached(DiffusionKernel):
    def spectrum(self, eigenvalues):
        return super().spectrum(eigenvalues).detach() + 0 * self.time


class StuckInDouble(PrecomputedKernel):
    def _apply(self, function, *rest):
        return self


class Shared(DiffusionKernel):
    def __deepcopy__(self, memo):
        return self


class HiddenState(DiffusionKernel):
    def state_dict(self, *given, **named):
        return super().state_dict(*given, **named) | {"raw_time": torch.zeros(()).double()}


class NeedsAll(GraphKernel):
    """A function of all eigenvalues at once."""

    def spectrum(self, eigenvalues):
        return (-eigenvalues / eigenvalues.mean()).exp()


class Negative(GraphKernel):
    def spectrum(self, eigenvalues):
        return 1 - eigenvalues


class Forgetful(DiffusionKernel):
    def __init__(self, graph, **options):
        super().__init__(graph)


class ByNumber(DiffusionKernel):
    """Nodes with a high number count less."""

    def forward(self, x1, x2, diag=False, **params):
        found = super().forward(x1, x2, diag, **params)
        if diag:
            return found
        weight = 1 / (1 + x1.squeeze(-1))
        return to_linear_operator(weight[:, None] * to_linear_operator(found).to_dense() * (1 / (1 + x2.squeeze(-1))))


MATRIX = torch.tensor([[2.0, 0.5, 0.1], [0.5, 1.5, 0.2], [0.1, 0.2, 1.0]], dtype=torch.float64)
KERNELS = [
    ("test_the_matrix_is_a_covariance", Skew),
    ("test_the_matrix_is_a_covariance", Indefinite),
    ("test_the_diagonal_is_that_of_the_matrix", WrongDiagonal),
    ("test_some_inputs_give_a_part_of_the_matrix", ByPosition),
    ("test_it_goes_to_single_precision", StuckInDouble),
]
GRAPH_KERNELS = [
    ("test_gradients_of_the_parameters", Detached),
    ("test_a_copy_is_apart", Shared),
    ("test_its_state_can_be_carried_over", HiddenState),
    ("test_the_spectrum_is_a_function", NeedsAll),
    ("test_the_spectrum_is_a_function", Negative),
    ("test_the_polynomial_agrees_with_the_eigenpairs", Forgetful),
    ("test_it_is_this_function_of_the_laplacian", ByNumber),
    ("test_names_of_nodes_do_not_matter", ByNumber),
]


@pytest.mark.parametrize(("rule", "kind"), KERNELS, ids=[kind.__name__ for _, kind in KERNELS])
def test_kernels(rule, kind):
    contract = type("Mutated", (KernelContract,), {"make_kernel": lambda self: kind(MATRIX)})
    with pytest.raises(AssertionError, match="KernelContract"):
        getattr(contract(), rule)()


@pytest.mark.parametrize(("rule", "kind"), GRAPH_KERNELS, ids=[f"{k.__name__}-{r}" for r, k in GRAPH_KERNELS])
def test_graph_kernels(rule, kind):
    made = {"make_graph_kernel": lambda self, graph, **options: kind(graph, **options)}
    contract = type("Mutated", (GraphKernelContract,), made)
    with pytest.raises(AssertionError, match="GraphKernelContract"):
        getattr(contract(), rule)()


# Running -----------------------------------------------------------------------------------------


def test_a_result_says_what_is_kept_broken_and_skipped():
    class Cone(TargetSetContract):
        def make_target_set(self):
            return MutantSet(half_way, shift_invariant=False)

    found = run_contract(Cone)
    assert not found.holds
    assert "test_targets_are_their_own_targets" in found.broken
    assert set(found.skipped) == {
        "test_it_solves_the_quadratic_program",
        "test_an_offset_of_a_list_goes_through_if_promised",
    }
    assert len(found.kept) + len(found.broken) + len(found.skipped) == 11
    assert str(found).startswith(f"{len(found.kept)} rules kept, {len(found.broken)} broken, 2 skipped\n  broken: ")


def test_an_object_that_cannot_be_made_breaks_every_rule():
    found = run_contract(RankerContract)
    assert found.kept == ()
    assert set(found.broken.values()) == {"NotImplementedError: override make_ranker"}
    assert not found.holds


@pytest.mark.parametrize("given", [int, OrderCone(), RankerContract()])
def test_something_else_is_refused(given):
    with pytest.raises(InputError, match="contract: expected a subclass of a contract of mvgp.testing, got"):
        run_contract(given)


@pytest.mark.slow
def test_no_test_runner_is_imported():
    code = "import sys; sys.modules['pytest'] = None; sys.modules['hypothesis'] = None; import mvgp.testing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
