"""read_links: a LinkSet from text tables."""

from __future__ import annotations

from ..checks import check_choice, shown
from ..errors import InputError
from .link_set import LinkSet
from .link_tables import FilePath, LinkTables
from .table import Columns, check_columns
from .text_lines import MAX_BYTES, check_max_bytes

FILTERS = ("paper", "none")


def read_links(
    pairs: FilePath,
    row_edges: FilePath | None = None,
    col_edges: FilePath | None = None,
    row_names: FilePath | None = None,
    col_names: FilePath | None = None,
    *,
    filters: str = "paper",
    header: bool | None = None,
    delimiter: str | None = None,
    pairs_columns: Columns | None = None,
    row_edges_columns: Columns | None = None,
    col_edges_columns: Columns | None = None,
    row_names_columns: Columns | None = None,
    col_names_columns: Columns | None = None,
    max_bytes: int = MAX_BYTES,
) -> LinkSet:
    r"""Known links, a graph of the rows, one of the columns, and names, from text tables.

    A table is UTF-8 text, plain or gzip'd, with fields separated by tabs, commas or semicolons, told from its content.
    Ids are text. Blank lines and lines that begin with ``#`` are skipped. Rows and columns are the ids of pairs and
    edges, sorted: an edge may lead to an id that has no pair yet. What was read and left out is in ``LinkSet.report``.

    :param pairs: row id, column id; a pair listed twice counts once.
    :param row_edges: two row ids and perhaps a weight. A link listed more than once, in either direction, counts once,
        with the largest of its weights; one from an id to itself is dropped.
    :param col_edges: the same for columns.
    :param row_names: row id, name; ids without a name keep their id.
    :param col_names: the same for columns.
    :param filters: "paper" keeps rows with a link in the row graph and columns with one in the column graph, where
        there is such a graph; "none" keeps all.
    :param header: whether tables begin with one; left out, it is told from the content of each.
    :param delimiter: of all tables; left out, it is told from the content of each.
    :param pairs_columns: two names of columns, or places from 0; (0, 1) when left out.
    :param row_edges_columns: two, or three with the weight; when left out, (0, 1) and the third if there is one.
    :param col_edges_columns: the same.
    :param row_names_columns: of id and name; (0, 1) when left out.
    :param col_names_columns: the same.
    :param max_bytes: the largest size of a table after decompression, 1 GiB when left out; a larger one is refused
        without being read further. Tables are regular files: a FIFO or a device is refused before it is opened.

    Example:
        >>> import pathlib, tempfile
        >>> from mvgp.datasets import read_links
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "pairs.csv").write_text("disease,gene\nasthma,IL13\nasthma,IL4\neczema,FLG\n")
        >>> _ = (folder / "edges.tsv").write_text("asthma\teczema\t0.7\neczema\thay fever\t0.4\n")
        >>> links = read_links(folder / "pairs.csv", row_edges=folder / "edges.tsv")
        >>> links, links.row_ids
        (LinkSet(3 x 3, 3 links; 2 row edges, 0 column edges), ('asthma', 'eczema', 'hay fever'))
        >>> print(links.report)
        pairs: pairs.csv, 3 lines, header disease | gene
        row edges: edges.tsv, 2 lines, no header, 2 of 3 ids are in the pairs
        filters paper: dropped 0 rows and 0 columns without a link in their graph, and 0 pairs with them

    """
    check_options(filters, header, delimiter)
    check_columns(pairs_columns, (2,), header, "pairs_columns")
    for name, columns in (("row_edges_columns", row_edges_columns), ("col_edges_columns", col_edges_columns)):
        check_columns(columns, (2, 3), header, name)
    for name, columns in (("row_names_columns", row_names_columns), ("col_names_columns", col_names_columns)):
        check_columns(columns, (2,), header, name)
    tables = LinkTables(pairs, pairs_columns, header, delimiter, check_max_bytes(max_bytes))
    for side, edges, columns in (("row", row_edges, row_edges_columns), ("column", col_edges, col_edges_columns)):
        if edges is not None:
            tables.add_edges(side, edges, columns)
    for side, names, columns in (("row", row_names, row_names_columns), ("column", col_names, col_names_columns)):
        if names is not None:
            tables.add_names(side, names, columns)
    return tables.link_set(filters)


def check_options(filters: object, header: object, delimiter: object) -> None:
    """Whether they are among what there is."""
    check_choice(filters, "filters", FILTERS)
    if header is not None and not isinstance(header, bool):
        raise InputError(f"header: expected True, False or None, got {shown(header)}")
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"#\r\n'):
        raise InputError(f"delimiter: expected one character or None, got {shown(delimiter)}")
