import sys

import pytest

from specedit.proposers import available, create
from specedit.types import SpecEditError


def test_the_built_in_proposers_are_entry_points():
    assert {"ngram", "predicted", "structural"} <= set(available())


def test_names_make_new_proposers_in_that_order():
    assert [p.name for p in create(["predicted", "ngram"])] == ["predicted", "ngram"]


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(SpecEditError, match=r"no proposer “magic”.*ngram, predicted, structural"):
        create(["magic"])


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """An installed package whose proposer does not import."""
    (tmp_path / "broken-1.0.dist-info").mkdir()
    points = "[specedit.proposers]\nbroken = no_such_module:Proposer\n"
    (tmp_path / "broken-1.0.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])


def test_a_proposer_that_does_not_import_is_said(broken):
    with pytest.raises(SpecEditError, match=r"“broken” cannot be imported .*no_such_module.*: reinstall"):
        create(["broken"])


def test_the_others_work_beside_it(broken):
    assert "broken" in available()
    assert len(create(["ngram"])) == 1
