"""Long texts are cut for the log."""

import json

import pytest

from placement_svc.http.log_text import MAX_LENGTH, for_log


@pytest.mark.parametrize("text", ["", "/traits", "x" * MAX_LENGTH, "\x00" * 170])
def test_short_text_is_kept(text: str) -> None:
    assert for_log(text) == text


@pytest.mark.parametrize("character", ["x", "\x00", "é", "\U0001f600", "\\", "\udcff"])
@pytest.mark.parametrize("length", [MAX_LENGTH + 1, 60_000])
def test_long_text_is_cut_and_marked(character: str, length: int) -> None:
    cut = for_log(character * length)
    kept, mark, count = cut.partition("... (cut: ")
    assert set(kept) == {character}
    assert (mark, count) == ("... (cut: ", f"{length} characters)")
    assert MAX_LENGTH - 60 < len(json.dumps(cut)) <= MAX_LENGTH
    assert for_log(cut) == cut
