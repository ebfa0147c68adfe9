"""(a) Product of exp(-L) + I with 64 columns at N = 13,614: Chebyshev polynomial against the dense kernel."""

import sys

import torch
from common import compare, power_law_graph, verdict

from mvgp.kernels import DiffusionKernel


def main() -> bool:
    graph = power_law_graph(13_614, 433_224, seed=0)
    print(graph)
    cleared = True
    for dtype in (torch.float32, torch.float64):
        with torch.no_grad():
            kernel = DiffusionKernel(graph, dtype=dtype)
            op = kernel.operator()
            root = op.root()
            dense = op.to_dense()
            columns = torch.randn(graph.num_nodes, 64, dtype=dtype)
            error = (op._matmul(columns) - dense @ columns).abs().max() / (dense @ columns).abs().max()
            best = compare(
                {
                    "lazy": lambda op=op, x=columns: op._matmul(x),
                    "root": lambda op=root, x=columns: op._matmul(x),
                    "dense": lambda k=dense, x=columns: k @ x,
                }
            )
        ms = {name: f"{1e3 * value:.1f} ms" for name, value in best.items()}
        print(f"{dtype}: degree {op.degree} (root {root.degree}), {ms}, relative error {error:.1e}")
        ratio = best["dense"] / best["lazy"]
        if dtype == torch.float32:
            cleared &= verdict("single precision, times faster than dense", ratio, 4.0)
        else:  # two and a half times the terms for four more digits
            print(f"double precision, times faster than dense: {ratio:.2f}")
        del dense
    return cleared


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
