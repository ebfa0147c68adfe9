"""What this machine has: cores, and memory that is free."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from ..errors import InputError

PER_CORE = 4  # processes, at most
PROCESS_BYTES = 2**29  # of a process that has read its libraries, and has some data


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> int | None:
    """Bytes that can be had without swapping, within the limits of the container; None where nobody knows."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(1024 * int(line.split()[1]))
    with contextlib.suppress(OSError, ValueError):
        folder = Path("/sys/fs/cgroup")
        found.append(int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text()))
    if not found and hasattr(os, "sysconf"):
        with contextlib.suppress(OSError, ValueError):
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found) if found else None


def check_jobs(jobs: Any) -> int:
    """A number of processes that cores and memory can bear; one always is."""
    if not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1:
        raise InputError(f"jobs: expected a whole number of at least 1, got {jobs!r}")
    most, free = PER_CORE * cores(), free_memory()
    if jobs > most:
        raise InputError(f"jobs: expected at most {most}, {PER_CORE} for each of {cores()} cores, got {jobs}")
    if jobs > 1 and free is not None and jobs * PROCESS_BYTES > free:
        raise InputError(
            f"jobs: {jobs} processes need {jobs * PROCESS_BYTES / 2**30:.1f} GiB (half a GiB each), got "
            f"{free / 2**30:.1f} GiB of free memory; take fewer"
        )
    return jobs
