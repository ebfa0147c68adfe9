"""TargetSetContract: what mvgp relies on in a set of scores that count as a correct ranking."""

from __future__ import annotations

import unittest

import numpy as np
import torch
from torch import Tensor

from ..likelihoods import RankingLists, TargetSet
from .contract import Contract, rounding
from .lists import ExampleLists, example_lists, nearest_in_polyhedron

SEEDS = range(5)


class TargetSetContract(Contract):
    r"""Rules of a :class:`~mvgp.likelihoods.TargetSet`: its map is the projection onto a closed convex set.

    The certificate (11) holds for such maps and for no others. A map P is one if and only if
    :math:`\langle \psi - P\psi, P\phi - P\psi \rangle_w \le 0` for all :math:`\psi, \phi`, and its values form a
    convex set.

    Override :meth:`make_target_set`; and :meth:`inequalities`, if the set is a polyhedron, to compare with a
    quadratic program that knows nothing of the map.

    Example:
        >>> from mvgp.likelihoods import OrderCone
        >>> from mvgp.testing import TargetSetContract, run_contract
        >>> class ConeContract(TargetSetContract):
        ...     def make_target_set(self):
        ...         return OrderCone(margin=0.5)
        >>> run_contract(ConeContract).broken
        {}

    """

    num_levels = 2  # of relevance in the lists to try it on

    def make_target_set(self) -> TargetSet:
        """The set."""
        raise NotImplementedError("override make_target_set")

    def inequalities(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """The set of one list as A r >= c: A (q, n) and c (q,); an equation is two of them.

        :param level: (n,) whole numbers from 0 on.
        """
        raise unittest.SkipTest("the set is not given by inequalities (override inequalities)")

    def _weights(self, lists: ExampleLists) -> list[Tensor | None]:
        return [None, lists.weight] if self.make_target_set().supports_weights else [None]

    def _cases(self) -> list[tuple[ExampleLists, Tensor | None, RankingLists]]:
        """Lists, with and without weights if it takes them, and grouped."""
        cases = []
        for seed in SEEDS:
            lists = example_lists(seed, self.num_levels)
            bipartite = self.num_levels == 2
            grouped = (
                RankingLists.bipartite(lists.level > 0, lists.task)
                if bipartite
                else RankingLists.graded(lists.level, lists.task)
            )
            cases += [(lists, weight, grouped) for weight in self._weights(lists)]
        return cases

    def test_it_says_what_it_can_do(self) -> None:
        """supports_weights and shift_invariant are booleans, projection returns a map."""
        target = self.make_target_set()
        for name in ("supports_weights", "shift_invariant"):
            found = getattr(target, name, None)
            self.require(isinstance(found, bool), f"{name} is True or False, got {found!r}")
        project = target.projection(self._cases()[0][2])
        self.require(callable(project), "projection(lists) returns a map psi (T,) -> r (T,)")

    def test_targets_look_like_scores(self) -> None:
        """Shape and precision of the scores, finite, and the scores are not written to."""
        for dtype in (torch.float64, torch.float32):
            for lists, weight, grouped in self._cases():
                given = lists.scores.to(dtype)
                before = given.clone()
                found = self.make_target_set().projection(grouped, weight)(given)
                self.require(found.shape == given.shape, f"targets are (T,), got {tuple(found.shape)}")
                self.require(found.dtype == dtype, f"targets have the precision of the scores, got {found.dtype}")
                self.require(torch.isfinite(found).all(), "targets are finite")
                self.require(torch.equal(given, before), "scores are left as they are")

    def test_a_map_can_be_called_again(self) -> None:
        """What was projected before does not change the result."""
        for lists, weight, grouped in self._cases():
            project = self.make_target_set().projection(grouped, weight)
            first = project(lists.scores).clone()
            project(-3 * lists.scores + 1)
            rule = "projecting something else in between changes nothing"
            self.require_close(project(lists.scores), first, rule, relative=1e-12)

    def test_targets_are_their_own_targets(self) -> None:
        """Projecting twice is projecting once."""
        for lists, weight, grouped in self._cases():
            project = self.make_target_set().projection(grouped, weight)
            found = project(lists.scores)
            self.require_close(project(found), found, "P(P(psi)) = P(psi)", relative=1e-10)

    def test_it_is_the_nearest_point(self) -> None:
        """No point of the set lies on the near side: <psi - P psi, P phi - P psi> <= 0."""
        for lists, weight, grouped in self._cases():
            project = self.make_target_set().projection(grouped, weight)
            metric = torch.ones_like(lists.scores) if weight is None else weight
            near = project(lists.scores)
            for other in (lists.scores.flip(0), 0 * lists.scores, 4 * lists.scores, lists.scores + 1):
                product = float((metric * (lists.scores - near) * (project(other) - near)).sum())
                within = 1e-9 * float((metric * lists.scores.square()).sum())
                rule = "P psi is the point of the set nearest to psi"
                self.require(product <= within, f"{rule}: <psi - P psi, P phi - P psi> = {product:.3g} > 0")

    def test_the_set_is_convex(self) -> None:
        """Half way between two targets nothing moves."""
        for lists, weight, grouped in self._cases():
            project = self.make_target_set().projection(grouped, weight)
            middle = (project(lists.scores) + project(-lists.scores)) / 2
            self.require_close(project(middle), middle, "the middle of two targets is a target", relative=1e-10)

    def test_targets_move_no_further_than_scores(self) -> None:
        """The map is non-expansive: targets of two scores are no further apart than the scores."""
        for lists, weight, grouped in self._cases():
            project = self.make_target_set().projection(grouped, weight)
            metric = torch.ones_like(lists.scores) if weight is None else weight
            other = lists.scores.flip(0) + 0.1
            moved = (metric * (project(lists.scores) - project(other)).square()).sum()
            apart = (metric * (lists.scores - other).square()).sum()
            self.require(moved <= apart * (1 + 1e-9), "targets move no further than scores (non-expansive)")

    def test_lists_do_not_meddle_with_each_other(self) -> None:
        """Scores of one list change the targets of that list only."""
        for lists, weight, grouped in self._cases():
            project = self.make_target_set().projection(grouped, weight)
            own = lists.task == lists.task[0]
            before, after = project(lists.scores), project(torch.where(own, -2 * lists.scores + 1, lists.scores))
            self.require_close(after[~own], before[~own], "targets of a list depend on that list only", relative=1e-10)

    def test_an_offset_of_a_list_goes_through_if_promised(self) -> None:
        """With shift_invariant, P(psi + constant) = P(psi) + constant; it decides whether biases are offered."""
        if not self.make_target_set().shift_invariant:
            raise unittest.SkipTest("shift_invariant is False")
        for lists, weight, grouped in self._cases():
            project = self.make_target_set().projection(grouped, weight)
            offset = (lists.task % 5).double() - 2
            found, wanted = project(lists.scores + offset), project(lists.scores) + offset
            self.require_close(found, wanted, "shift_invariant: P(psi + constant) = P(psi) + constant", relative=1e-9)

    def test_weights_count_or_are_refused(self) -> None:
        """Equal weights are none; a set that takes none says so."""
        target = self.make_target_set()
        for lists, _, grouped in self._cases():
            equal = torch.full_like(lists.weight, 0.7)
            if not target.supports_weights:
                rule = "projection(lists, weight) is refused without supports_weights"
                self.require_refusal(lambda grouped=grouped, equal=equal: target.projection(grouped, equal), rule)
                continue
            found, wanted = (target.projection(grouped, weight)(lists.scores) for weight in (equal, None))
            self.require_close(found, wanted, "equal weights are the same as none", relative=1e-9)

    def test_it_solves_the_quadratic_program(self) -> None:
        """Against non-negative least squares on :meth:`inequalities`, list by list."""
        for lists, weight, grouped in self._cases():
            found = self.make_target_set().projection(grouped, weight)(lists.scores)
            metric = torch.ones_like(lists.scores) if weight is None else weight
            for task in lists.task.unique():
                own = lists.task == task
                above, least = (part.double().numpy() for part in self.inequalities(lists.level[own]))
                wanted = nearest_in_polyhedron(lists.scores[own].numpy(), above, least, metric[own].numpy())
                rule = "targets are the optimum of the quadratic program"
                within = 1e-6 * max(1.0, float(np.abs(wanted).max()))
                self.require_close(found[own], torch.from_numpy(wanted), rule, absolute=within)
                short = (
                    float((torch.from_numpy(least) - torch.from_numpy(above) @ found[own]).max()) if len(least) else 0
                )
                self.require(short <= rounding(found.dtype) * 10, f"targets are in the set, off by {short:.3g}")
