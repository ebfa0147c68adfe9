"""Save a posterior to a file, and load it."""

from __future__ import annotations

import os

from ..checks import check_instance, check_path
from ..errors import InputError, StorageError
from ..posteriors import GaussianPosterior
from .archive import read, told, write
from .budget import Budget, Spending, check_budget
from .fields import Fields
from .posteriors import describe_posterior, restore_posterior
from .priors import restore_prior
from .tree import on_cpu

UNLIMITED = Budget(kernels=2**62, memory_bytes=2**62, operations=2**90, iterations=2**62)  # for what is there already


def save(posterior: GaussianPosterior, path: str | os.PathLike[str]) -> None:
    """Write a posterior to a file, whole or not at all; what cannot be saved is an error before anything is written.

    :param posterior: of ``FullGP``, ``TraceGP`` or ``FactorGP``, over an M x N matrix.
    :param path: of the file; one that is there is replaced.

    Example:
        >>> import gpytorch, mvgp, tempfile
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> from mvgp.storage import save
        >>> kernel = DiffusionKernel(Graph([(0, 1), (1, 2)], 3))
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 2], [0.5, -1.0], shape=(3, 3))
        >>> posterior = mvgp.FullGP(mvgp.MatrixGP(kernel, kernel), gpytorch.likelihoods.GaussianLikelihood()).fit(data)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(posterior, folder + "/posterior.mvgp")
        ...     mvgp.load(folder + "/posterior.mvgp").shape
        (3, 3)

    """
    path = check_path(path)
    check_instance(posterior, "posterior", GaussianPosterior, "a posterior of mvgp")
    tree = on_cpu(describe_posterior(posterior))
    try:
        restore_prior(
            Fields(tree["prior"], "prior"), Spending(UNLIMITED)
        )  # what cannot be restored should be known now
    except StorageError as error:
        raise InputError(f"the prior cannot be saved: {error}") from error
    write(path, tree)


def load(path: str | os.PathLike[str], *, budget: Budget | None = None, trial: bool = True) -> GaussianPosterior:
    """The posterior that was saved to a file, on the CPU. Nothing in a file can make it run code.

    A file that is cut short, changed or something else is a :class:`~mvgp.errors.StorageError`, and so is one whose
    numbers make no posterior, or which asks for more than the budget. A missing one is a ``FileNotFoundError``, what is
    no path an :class:`~mvgp.errors.InputError`; there are no other errors.

    :param path: of the file, a regular one.
    :param budget: limits for size, memory and work, checked before anything is allocated; the usual ones of
        :class:`~mvgp.storage.Budget` when left out.
    :param trial: whether the posterior is asked about some cells before it is returned, and refused if it has no
        answer. False is for a posterior whose variances failed when it was saved, too, or take long.

    Example:
        >>> import gpytorch, mvgp, tempfile, torch
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> kernel = DiffusionKernel(Graph([(0, 1), (1, 2)], 3))
        >>> prior = mvgp.MatrixGP(kernel, gpytorch.kernels.RBFKernel(), col_inputs=torch.rand(5, 2))
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 4], [0.5, -1.0], shape=(3, 5))
        >>> posterior = mvgp.FullGP(prior, gpytorch.likelihoods.GaussianLikelihood()).fit(data)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     posterior.save(f"{folder}/fitted.mvgp")
        ...     loaded = mvgp.load(f"{folder}/fitted.mvgp")
        >>> torch.equal(loaded.variance([0, 1], [1, 1]), posterior.variance([0, 1], [1, 1]))
        True

    """
    granted = check_budget(budget)
    if not isinstance(trial, bool):
        raise InputError(f"trial: expected True or False, got {trial!r:.100}")
    with told(path):
        return restore_posterior(Fields(read(path, granted), "content"), Spending(granted), trial=trial)
