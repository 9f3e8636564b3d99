import pytest

from specedit.proposers import available, create
from specedit.types import SpecEditError


def test_the_built_in_proposers_are_entry_points():
    assert {"ngram", "predicted"} <= available().keys()


def test_names_make_new_proposers_in_that_order():
    assert [p.name for p in create(["predicted", "ngram"])] == ["predicted", "ngram"]


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(SpecEditError, match=r"no proposer “magic”.*ngram, predicted"):
        create(["magic"])
