"""Small tables with a planted structure, as a user's files."""

from tests import randomness

M, N = 12, 20


def write_tables(folder):
    """Two groups of rows and two of columns; links go between groups of the same number."""
    rng = randomness.numpy_generator(0)
    pairs = [(f"D{m:02}", f"g{n:02}") for m in range(M) for n in range(N) if m % 2 == n % 2 and rng.random() < 0.5]
    row_edges = [(f"D{m:02}", f"D{(m + 2) % M:02}", "0.5") for m in range(M)]
    col_edges = [(f"g{n:02}", f"g{(n + 2) % N:02}") for n in range(N)]
    tables = {
        "pairs.tsv": [("disease", "gene"), *pairs],
        "rows.tsv": [("a", "b", "weight"), *row_edges],
        "cols.tsv": [("a", "b"), *col_edges],
        "row_names.tsv": [("id", "name"), *((f"D{m:02}", f"disease {m}" if m < 10 else "twin") for m in range(M))],
        "more_rows.tsv": [("a", "b"), *((f"D{m:02}", f"D{(m + 4) % M:02}") for m in range(M))],
        "row_features.tsv": [("id", "x", "y"), *((f"D{m:02}", f"{m % 2}", f"{m % 3 - 0.5}") for m in range(M))],
        "col_features.tsv": [("id", "x", "y"), *((f"g{n:02}", f"{n % 2}", f"{n / 7}") for n in range(N))],
        "col_names.tsv": [("id", "name"), *((f"g{n:02}", f"GENE{n}") for n in range(N))],
    }
    for name, lines in tables.items():
        (folder / name).write_text("".join("\t".join(line) + "\n" for line in lines))
    return folder


def inputs(folder):
    """The options that name the tables."""
    named = {
        "pairs": "pairs",
        "row-edges": "rows",
        "col-edges": "cols",
        "row-names": "row_names",
        "col-names": "col_names",
    }
    return [part for option, name in named.items() for part in (f"--{option}", str(folder / f"{name}.tsv"))]
