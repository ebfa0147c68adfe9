"""read_links takes pandas frames in the place of files: the same links, graphs, features and names."""

import pandas as pd
import pytest

from mvgp.prioritise.tables import TableError, read_links

PAIRS = pd.DataFrame({"disease": ["D1", "D1", "D2", "D3"], "gene": [7, 3, 7, 12], "year": [1, 2, 3, 4]})
EDGES = pd.DataFrame({"a": ["D1", "D2"], "b": ["D2", "D4"], "w": [0.25, 2.0]})
FEATURES = pd.DataFrame({"lung": [1.0, 2.5, 0.0], "skin": [3, 1, 2]}, index=[3, 7, 12])
NAMES = pd.DataFrame({"id": ["D1", "D2"], "name": ["Gout", None]})


def test_the_same_as_from_files(tmp_path):
    frames = {"pairs": PAIRS, "row_edges": EDGES, "col_features": FEATURES, "row_names": NAMES}
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=name == "col_features")
    files = {name: tmp_path / f"{name}.csv" for name in frames}
    found, expected = read_links(**frames), read_links(**files)
    assert found.digest() == expected.digest()
    assert (found.row_names, found.col_ids) == (("Gout", "D2", "D3", "D4"), expected.col_ids)
    assert found.col_features[0].columns == ("lung", "skin")
    assert "pairs: frame of pairs, 4 lines, header disease | gene | year" in str(found.report)
    counted = FEATURES.rename_axis("gene").reset_index()
    assert read_links(**{**frames, "col_features": [counted]}).digest() == expected.digest()


def test_columns_by_name_and_place():
    turned = PAIRS[["year", "gene", "disease"]]
    assert read_links(turned, pairs_columns=("disease", "gene")).digest() == read_links(PAIRS).digest()
    assert read_links(turned, pairs_columns=(2, 1)).digest() == read_links(PAIRS).digest()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pairs": PAIRS.assign(gene=[7, None, 7, 12])}, "frame of pairs, line 2: expected an id in column gene"),
        (
            {"pairs": PAIRS, "pairs_columns": ("disease", "protein")},
            "expected a column 'protein', got the columns disease",
        ),
        ({"pairs": PAIRS[:0]}, "frame of pairs: expected at least one line"),
        ({"row_edges": EDGES.assign(w=[1.0, -1.0])}, "frame of row_edges, line 2: expected a weight"),
        ({"row_edges": EDGES.assign(w=[1.0, None])}, "frame of row_edges, line 2: expected a weight"),
        ({"col_features": FEATURES.assign(skin=list("abc"))}, "frame of column_features: expected numbers"),
        (
            {"col_features": FEATURES.assign(skin=[1.0, None, 2.0])},
            "line 2: expected finite numbers, got nan in column skin",
        ),
        ({"col_features": FEATURES[[]]}, "expected finite numbers, got none"),
        ({"row_edges": EDGES.assign(a="X", b="Y")}, "frame of row_edges: expected ids of frame of pairs"),
    ],
)
def test_mistakes(given, message):
    with pytest.raises(TableError, match=message):
        read_links(**{"pairs": PAIRS, **given})
