import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvgp.errors import InputError
from mvgp.prioritise import find_rows

IDS, NAMES = ["A1", "B7", "C2", "D9"], ["Gout", "Ataxia", "Asthma", "Ataxia"]


def test_ids_come_before_names_and_names_in_any_case():
    assert find_rows(["C2", "gout", " ASTHMA "], IDS, NAMES) == [2, 0]
    assert find_rows(["x", "y"], ["x", "y"], ["y", "x"]) == [0, 1]  # what is an id is not looked up as a name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ataxia", ["2 rows", "B7, D9"]),
        ("Asthme", ["'Asthme'", "did you mean 'Asthma'"]),
        ("thm", ["'Asthma'"]),
        ("B8", ["'B7'"]),
        ("", ["''"]),
        ("qqqqq", ["4 rows"]),
    ],
)
def test_what_is_not_found(text, words):
    with pytest.raises(InputError) as told:
        find_rows([text], IDS, NAMES)
    assert all(word in str(told.value) for word in words), str(told.value)


def test_many_rows_of_one_name_are_not_all_listed():
    with pytest.raises(InputError, match=r"30 rows; give one of the ids 0, 1, 2, 3, 4, \.\.\."):
        find_rows(["same"], [str(i) for i in range(30)], ["same"] * 30)


@pytest.mark.slow
@given(st.lists(st.text(min_size=1).map(str.strip).filter(bool), min_size=1, max_size=8, unique=True))
def test_every_id_finds_its_row(ids):
    assert find_rows(ids, ids, ["name"] * len(ids)) == list(range(len(ids)))


@pytest.mark.parametrize("wanted", ["Gout", [3], 3])
def test_rows_are_a_list_of_texts(wanted):
    with pytest.raises(InputError, match=r"rows: expected a list of ids or names, got"):
        find_rows(wanted, IDS, NAMES)
