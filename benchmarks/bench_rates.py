"""The rates behind the cost model (mvgp/linalg/cost.py): multiply-adds a second of each basic operation."""

import sys

import torch
from common import compare, power_law_graph, random_pairs

from mvgp.linalg import cost
from mvgp.linalg.patterns import BLOCK, NARROW, Pattern


def main() -> bool:
    torch.manual_seed(0)
    n, dtype = 2000, torch.float64
    a, v = torch.randn(n, n, dtype=dtype), torch.randn(n, 1, dtype=dtype)
    graph = power_law_graph(13_614, 433_224, 0).shifted_laplacian(dtype, torch.device("cpu"))
    narrow = torch.randn(13_614, NARROW, dtype=dtype)
    shape, count = (1000, 6000), 60_000
    pattern = Pattern(*random_pairs(shape, count, 0), shape)
    left, right = torch.randn(1000, 512, dtype=dtype), torch.randn(6000, 512, dtype=dtype)
    sparse, wide = pattern.matrix(torch.randn(count, dtype=dtype)), torch.randn(6000, BLOCK, dtype=dtype)
    some = torch.randperm(n)
    work = {
        "GEMM": (n**3, lambda: a @ a),
        "GEMV": (n**2, lambda: a @ v),
        "SPARSE (graph)": (graph.nnz * NARROW, lambda: graph @ narrow),
        "SPARSE (pairs)": (count * BLOCK, lambda: sparse @ wide),
        "SAMPLED": (count * 512, lambda: pattern.sample(left, right)),
        "MOVE": (n**2, lambda: a[some][:, some]),
    }
    best = compare({name: call for name, (_, call) in work.items()}, rounds=7)
    for name, (size, _) in work.items():
        assumed = getattr(cost, name.split()[0])
        print(f"{name:15s} {size / best[name] / 1e9:7.2f} G/s, the model has {assumed / 1e9:.2f}")
    return True


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
