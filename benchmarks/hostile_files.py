"""A seeded hostile round over saved posteriors: damaged and forged files are loaded, and what loads is asked everything.

    python benchmarks/hostile_files.py --count 20000 --seed 0 --jobs 1

Every file ends in one of four ways: refused by a StorageError; loaded with the numbers of the original, bit for bit;
loaded with other numbers that are a consistent posterior (a changed number under a right checksum is no damage); or FAILED:
a raw exception, an answer that is missing, not finite or contradicts another one, more than 5 s of processor time or
more than 500 MB of memory. Exit code 1 if any failed.
"""

import argparse
import pathlib
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import torch

from tests.storage import hostile


def part(numbers, seed, keep):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        saved = hostile.save_all(path)
        return hostile.run(path, saved, numbers, seed, keep=keep)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="files")
    parser.add_argument("--start", type=int, default=0, help="number of the first file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the files that fail")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    start, total = time.perf_counter(), hostile.Round()
    numbers = range(options.start, options.start + options.count)
    shares = [numbers[job :: options.jobs] for job in range(options.jobs)]
    if options.jobs == 1:
        total.add(part(shares[0], options.seed, options.keep))
    else:
        with ProcessPoolExecutor(options.jobs) as pool:
            for counts in pool.map(part, shares, [options.seed] * options.jobs, [options.keep] * options.jobs):
                total.add(counts)
    for kind in sorted({kind for kind, _ in total.kinds}):
        counts = ", ".join(f"{total.kinds[kind, word]} {word}" for word in ("refused", "equal", "other", "FAILED"))
        print(f"{kind:30} {counts}")
    for name, kind, number, reason in total.failures[:200]:
        print(f"FAILED {number} {name} [{kind}]: {reason}")
    words = ", ".join(f"{total.outcomes[word]} {word}" for word in ("refused", "equal", "other", "FAILED"))
    print(f"{options.count} files, seed {options.seed}: {words}")
    print(
        f"slowest {total.slowest:.2f} s, most memory {total.most / 2**20:.0f} MB, {time.perf_counter() - start:.0f} s"
    )
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
