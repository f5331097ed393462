"""Tables fit a terminal if they can, and never cut a word, a number, a uuid or a request id."""

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from placement_svc.commands.listing import Cell, Listing
from tests.support.cloud import uuid_of

UUID, OTHER = uuid_of("a"), uuid_of("b")
REQUEST_ID = f"req-{UUID}"

TEXTS = st.one_of(
    st.none(),
    st.text(st.characters(codec="utf-8", exclude_characters="│"), max_size=60),
    st.sampled_from([UUID, REQUEST_ID, f"member_of=in:{UUID},{OTHER}", f"x{UUID}y", f"{REQUEST_ID} {OTHER}"]),
    st.just(("first", f"{REQUEST_ID}&{UUID}")),
    st.integers(0, 10**9).map(lambda number: f"MEMORY_MB:{number} of {number:,}"),
)


def lines(listing: Listing, width: int) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=10_000).print(listing.table(width), soft_wrap=True)
    return output.getvalue().splitlines()


def column_texts(printed: list[str], columns: int) -> list[str]:
    """Return the text of each column, or of the fields of each heading, which are one letter."""
    rows = [line for line in printed if line.startswith("│")]
    if not rows:
        fields: dict[str, list[str]] = {}
        heading = ""
        for line in printed:
            heading = line[:1].strip() or heading
            fields.setdefault(heading, []).append(line[3:])
        return ["\n".join(lines) for lines in fields.values()]
    cells = [line[2:-2].split(" │ ") for line in rows]
    assert all(len(row) == columns for row in cells)
    return ["\n".join(row[number].strip() for row in cells) for number in range(columns)]


@settings(deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS, st.integers(0, 10**9)), min_size=1, max_size=4), st.integers(1, 200))
def test_ids_and_numbers_are_whole_at_any_width(rows: list[tuple[Cell, ...]], width: int) -> None:
    texts = column_texts(lines(Listing(("A", "B", "C"), rows), width), columns=3)
    for *cells, number in rows:
        assert f"{number:,}" in texts[2].split("\n")
        for cell, text in zip(cells, texts, strict=False):
            for found in re.findall(r"(?:req-)?[0-9a-f]{8}-[0-9a-f-]{27}|\d+(?:,\d+)*|[A-Z]+", str(cell)):
                assert found in text or cell is None


@pytest.mark.parametrize("width", [80, 120])
def test_table_of_one_uuid_fits_a_terminal(width: int) -> None:
    row = ("-".join(["rack"] * 12), UUID, "VCPU:28, MEMORY_MB:57344, DISK_GB:400, SRIOV_NET_VF:3", 1_000_000)
    printed = lines(Listing(("Provider", "UUID", "Usages", "Fits"), [row]), width)
    assert {len(line) for line in printed} == {width}


def test_table_without_room_has_a_line_for_each_field() -> None:
    rows = [(UUID, OTHER, "VCPU:2, MEMORY_MB:512", 1_000_000), (OTHER, UUID, None, 1)]
    assert lines(Listing(("Project", "Consumer", "Held", ""), rows), width=50) == [
        *(
            f"Project   {UUID}",
            f"Consumer  {OTHER}",
            "Held      VCPU:2, MEMORY_MB:512",
            "          1,000,000",
        ),
        "",
        *(f"Project   {OTHER}", f"Consumer  {UUID}", "Held      -", "          1"),
    ]
    narrow = lines(Listing(("Project", "Held"), [(UUID, "VCPU:2, MEMORY_MB:512")]), width=29)
    assert narrow == [f"Project  {UUID}", "Held     VCPU:2,", "         MEMORY_MB:512"]


def test_words_and_numbers_are_not_cut() -> None:
    row = ("compute-rack01.example.org", UUID, "HW_CPU_X86_AVX512VNNI", "1,048,576 of 3,276,800", 1_048_576)
    printed = lines(Listing(("Host", "UUID", "Lacks", "Best", "Left"), [row]), width=88)
    assert column_texts(printed, columns=5) == [
        "Host\ncompute-\nrack01.\nexample.\norg",
        f"UUID\n{UUID}\n\n\n",
        "Lacks\nHW_CPU_\nX86_\nAVX512VNNI\n",
        "Best\n1,048,576\nof\n3,276,800\n",
        "Left\n1,048,576\n\n\n",
    ]


def test_text_is_folded_at_its_words() -> None:
    printed = lines(Listing(("Request",), [(f"resources=VCPU:16&member_of={UUID}",)]), width=45)
    assert column_texts(printed, columns=1) == [f"Request\nresources=VCPU:16&member_of=\n{UUID}"]


def test_listing_without_rows_has_its_headings() -> None:
    assert "│ A │ B │" in lines(Listing(("A", "B"), []), width=80)
