"""(c) Mean and variance at 300 pairs of a 400 x 500 grid, 30 % observed, RBF kernels, noise 0.1.

Against BoTorch's LatentKroneckerGP with its documented iterative settings, and against plain MINRES
on the mean. The truth is our own solution at relative residual 1e-12, itself checked by its residual.
"""

import contextlib
import sys
import time
import warnings

import gpytorch
import torch
from botorch.models.latent_kronecker_gp import LatentKroneckerGP
from common import peak_gib, random_pairs, seconds, verdict
from scipy.sparse.linalg import LinearOperator, minres

import mvgp
from mvgp.linalg import PairIndex, PairLinearOperator

SHAPE, SHARE, NOISE, QUERIES = (400, 500), 0.3, 0.1, 300


def problem(scale: float) -> tuple[torch.Tensor, torch.Tensor, mvgp.ObservedMatrix, mvgp.MatrixGP]:
    torch.manual_seed(0)
    x = torch.rand(SHAPE[0], 1, dtype=torch.float64).sort(0).values
    t = torch.linspace(0, 1, SHAPE[1], dtype=torch.float64).unsqueeze(1)
    kernels = [gpytorch.kernels.RBFKernel().double() for _ in range(2)]
    kernels[0].lengthscale = kernels[1].lengthscale = scale
    prior = mvgp.MatrixGP(kernels[0], kernels[1], row_inputs=x, col_inputs=t)
    rows, cols = random_pairs(SHAPE, int(SHARE * SHAPE[0] * SHAPE[1]), seed=0)
    truth = prior.sample()
    values = truth[rows, cols] + NOISE**0.5 * torch.randn(len(rows), dtype=torch.float64)
    return x, t, mvgp.ObservedMatrix(rows, cols, values, SHAPE), prior


def ours(prior, data, rows, cols, tolerance):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    fit, posterior = seconds(lambda: mvgp.FullGP(prior, likelihood, tolerance=tolerance).fit(data))
    mean_time, mean = seconds(lambda: posterior.mean(rows, cols))
    all_time, _ = seconds(posterior.scores)
    variance_time, variance = seconds(lambda: posterior.variance(rows, cols))
    return posterior, mean, variance, {"fit": fit, "mean": mean_time, "all means": all_time, "variance": variance_time}


def botorch_model(x, t, data, scale):
    model = LatentKroneckerGP(
        train_X=x,
        train_T=t,
        train_Y=data.to_dense(),
        covar_module_X=gpytorch.kernels.RBFKernel().to(x),
        covar_module_T=gpytorch.kernels.RBFKernel().to(x),
        mean_module_X=gpytorch.means.ZeroMean(),
        mean_module_T=gpytorch.means.ZeroMean(),
        outcome_transform=None,
    )
    model.covar_module_X.lengthscale = model.covar_module_T.lengthscale = scale
    model.likelihood.noise = NOISE
    return model.eval()


def rls_minres(prior, data, accuracy, truth, rows, cols):
    """Plain MINRES on (K_TT + noise) a = y until the predicted means are as accurate as asked."""
    with torch.no_grad():
        ops = prior.row_axis.covariance(), prior.col_axis.covariance()
        pairs = PairIndex(data.rows, data.cols, data.shape)
        op = PairLinearOperator(*ops, pairs)
        cross = PairLinearOperator(*ops, prior.pairs(rows, cols), pairs)

        def product(v):
            v = torch.from_numpy(v).reshape(-1, 1)
            return (op._matmul(v) + NOISE * v).numpy().ravel()

        size = len(data)
        a = LinearOperator((size, size), matvec=product, dtype=float)
        start, steps, reached = time.perf_counter(), 0, None
        checks = 0.0

        class Enough(Exception):
            pass

        def look(estimate):
            nonlocal steps, reached, checks
            steps += 1
            if steps % 20 == 0:
                begun = time.perf_counter()
                mean = cross._matmul(torch.from_numpy(estimate).reshape(-1, 1)).ravel()
                checks += time.perf_counter() - begun
                if (mean - truth).norm() / truth.norm() <= accuracy:
                    reached = time.perf_counter() - start - checks
                    raise Enough

        with contextlib.suppress(Enough):
            minres(a, data.values.numpy(), rtol=1e-14, maxiter=5000, callback=look)
        return reached or time.perf_counter() - start - checks, steps


def run(scale: float) -> bool:
    x, t, data, prior = problem(scale)
    rows = torch.randint(SHAPE[0], (QUERIES,))
    cols = torch.randint(SHAPE[1], (QUERIES,))
    reference, mean, variance, _ = ours(prior, data, rows, cols, 1e-12)
    print(f"lengthscales {scale}; {data}; reference residual {reference.solve_report.residual:.1e}")

    accuracy = 1e-4
    posterior, found_mean, found_variance, times = ours(prior, data, rows, cols, 1e-6)
    mean_error = float((found_mean - mean).norm() / mean.norm())
    variance_error = float(((found_variance - variance) / variance).abs().max())
    rank = getattr(getattr(posterior.conditional.solver, "preconditioner", None), "rank", None)
    print(
        f"ours: { ({k: round(v, 3) for k, v in times.items()}) } s, {posterior.solve_report}, preconditioner rank {rank}"
    )
    print(
        f"ours: relative error of means {mean_error:.1e}, largest of variances {variance_error:.1e}, {peak_gib():.2f} GiB"
    )
    cleared = verdict("ours: digits of the mean (at least 4)", -torch.tensor(mean_error).log10().item(), 4)
    cleared &= verdict("ours: digits of the variance (at least 4)", -torch.tensor(variance_error).log10().item(), 4)

    # BoTorch answers blocks of rows x columns; a block of 20 cells for the variance, which is slow, all cells for the mean
    some_rows, some_cols = torch.arange(0, 400, 100), torch.arange(0, 500, 100)
    block = torch.cartesian_prod(some_rows, some_cols)
    model = botorch_model(x, t, data, scale)
    with torch.no_grad(), model.use_iterative_methods():
        with gpytorch.settings.skip_posterior_variances(True):  # else it forms a matrix of 320 GB
            mean_time, their_mean = seconds(lambda: model.posterior(x).mean)
        model = botorch_model(x, t, data, scale)
        variance_time, their_variance = seconds(lambda: model.posterior(x[some_rows], t[some_cols]).variance.flatten())
    all_means = reference.scores()
    m_error = float((their_mean.reshape(all_means.shape) - all_means).norm() / all_means.norm())
    v_ratio = float((their_variance / reference.variance(block[:, 0], block[:, 1])).max())
    print(f"BoTorch: mean of all cells {mean_time:.2f} s, variance of {len(block)} cells {variance_time:.2f} s")
    print(f"BoTorch: relative error of means {m_error:.1e}, variances up to {v_ratio:.1f} times too large")
    ours_mean = times["fit"] + times["all means"]
    theirs_var, ours_var = variance_time / len(block), (times["fit"] + times["variance"]) / QUERIES
    cleared &= verdict("mean of all cells, fit included: times faster than BoTorch", mean_time / ours_mean, 5)
    cleared &= verdict("variance, fit included: times faster per cell than BoTorch", theirs_var / ours_var, 5)

    solve_time, steps = rls_minres(prior, data, max(mean_error, 1e-15), mean, rows, cols)
    print(
        f"MINRES: {steps} steps, {solve_time:.2f} s to relative error {mean_error:.1e} of the mean ({accuracy:g} needed)"
    )
    cleared &= verdict(
        "mean: times faster than MINRES at equal accuracy", solve_time / (times["fit"] + times["mean"]), 5
    )
    return cleared


def main() -> bool:
    warnings.simplefilter("ignore")
    return all([run(scale) for scale in (0.2, 0.05)])


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
