"""Every citation of a document names a file that the repository has, and sections that the file has.

A citation is the path of a Markdown file: `docs/operations.md`. Sections can follow if the headings of the
file have numbers: `docs/spec/candidates.md 3.6`, `docs/spec/http.md 3 to 7, 12`. Identifiers of differences
and examples can follow too: `docs/spec/allocations.md 13`, Q1 to Q10. In a document with numbered headings,
"section 3.6" is a section of the same document. In Markdown, the path of a file of the code, such as
`placement_svc/config.py`, is a citation too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SEARCHED = (
    "placement_svc",
    "migrations",
    "gabbits",
    "tests",
    "bench",
    "examples",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
)
TEXT_SUFFIXES = frozenset(
    {".cfg", ".html", ".ini", ".json", ".mako", ".md", ".py", ".sql", ".toml", ".txt", ".yaml"}
)

_END = r"(?![\w])(?!\.\d)"
_SECTION = rf"\d{{1,2}}(?:\.\d{{1,2}})?{_END}"
_IDENTIFIER = rf"[A-Z]\d{{1,2}}{_END}"
_PLACE = rf"(?:{_SECTION}|{_IDENTIFIER})"
_RANGE = r"`?(?:\s+to\s+|-|–)`?"
_NEXT = r"`?(?:,\s+and\s+|,\s+|\s+and\s+)`?"
_PLACES = rf"{_PLACE}(?:(?:{_RANGE}|{_NEXT}){_PLACE})*"
CITATION = re.compile(
    rf"(?<![\w./-])(?P<path>[\w./-]*\w\.md)\b(?:`?,?\s+(?:#\s+)?`?(?:sections?\s+)?(?P<places>{_PLACES}))?"
)
CODE_FILE = re.compile(
    r"(?<![\w./-])(?:placement_svc|tests|gabbits|migrations|bench|examples)/[\w./-]*\w\.(?:py|sql|yaml)\b"
)
OWN_SECTION = re.compile(rf"\b[Ss]ections?\s+(?P<places>{_PLACES})(?!`?\s+of\b)")
HEADING = re.compile(r"^#{2,4}\s+(\d+(?:\.\d+)?)\.?\s", re.MULTILINE)


@dataclass(frozen=True)
class Citation:
    """A mention of a document in a file: the path and the list of sections as written."""

    file: Path
    line: int
    path: str
    places: str

    def __str__(self) -> str:
        cited = f"{self.path} {' '.join(self.places.split())}".rstrip()
        return f"{self.file.relative_to(ROOT)}:{self.line}: {cited}"


def searched_files() -> list[Path]:
    """Return the text files that can cite documents, except this one: its cases include wrong citations."""
    found = (
        path
        for name in SEARCHED
        for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))
    )
    return sorted(
        path
        for path in found
        if path.is_file()
        and path.suffix in TEXT_SUFFIXES
        and "__pycache__" not in path.parts
        and path != Path(__file__)
    )


def citations(file: Path, text: str) -> Iterator[Citation]:
    """Yield the citations in the text of a file; URLs are not citations."""
    text = re.sub(r"https?://\S+", lambda url: "_" * len(url[0]), text)
    found = [(match.start(), match["path"], match["places"] or "") for match in CITATION.finditer(text)]
    if file.suffix == ".md":
        found += [(match.start(), match[0], "") for match in CODE_FILE.finditer(text)]
    if file.suffix == ".md" and HEADING.search(text):
        rest = CITATION.sub(lambda match: "_" * len(match[0]), text)
        found += [(match.start(), file.name, match["places"]) for match in OWN_SECTION.finditer(rest)]
    for start, path, places in sorted(found):
        yield Citation(file, text.count("\n", 0, start) + 1, path, places)


def document(citation: Citation) -> Path | None:
    """Return the document that a citation names, None if there is none.

    Code names a document by its path from the root, or by its name alone if it is at the root, in docs/ or
    in the directory of the citing file. Links in Markdown are relative to their file.
    """
    bases = [ROOT]
    if citation.file.suffix == ".md" or "/" not in citation.path:
        bases.append(citation.file.parent)
    if "/" not in citation.path:
        bases.append(ROOT / "docs")
    return next((base / citation.path for base in bases if (base / citation.path).is_file()), None)


@cache
def sections(path: Path) -> frozenset[str]:
    """Return the numbers of the headings of a document."""
    return frozenset(HEADING.findall(path.read_text()))


def cited_places(places: str) -> list[str]:
    """Return the sections and identifiers that a list names; a range names all that are in it."""
    cited: list[str] = []
    for part in filter(None, re.split(_NEXT, places)):
        first, *last = re.split(_RANGE, part)
        cited += _between(first, last[0]) if last else [first]
    return cited


def _between(first: str, last: str) -> list[str]:
    """Return the places from first to last, which differ in their last number only."""
    prefix, start = re.fullmatch(r"(.*?)(\d+)", first).groups()  # type: ignore[union-attr]
    if not re.fullmatch(rf"{re.escape(prefix)}\d+", last):
        return [first, last]
    return [f"{prefix}{number}" for number in range(int(start), int(last.removeprefix(prefix)) + 1)]


def has(path: Path, place: str) -> bool:
    """Return whether a document has a section of this number, or contains this identifier."""
    if place[0].isdigit():
        return place in sections(path)
    return re.search(rf"\b{place}\b", path.read_text()) is not None


def problems(citation: Citation) -> list[str]:
    """Return a message for each thing that a citation names and that does not exist."""
    path = document(citation)
    if path is None:
        return [f"{citation}: the repository has no such file"]
    return [
        f"{citation}: {path.relative_to(ROOT)} has no {place}"
        for place in cited_places(citation.places)
        if not has(path, place)
    ]


CITATIONS = {
    file: found
    for file in searched_files()
    if (found := list(citations(file, file.read_text(errors="replace"))))
}


@pytest.mark.parametrize("file", CITATIONS, ids=lambda file: str(file.relative_to(ROOT)))
def test_cited_documents_and_sections_exist(file: Path) -> None:
    found = [problem for citation in CITATIONS[file] for problem in problems(citation)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("name", ["http", "resources", "allocations", "candidates"])
def test_specification_is_cited_and_has_numbered_sections(name: str) -> None:
    path = f"docs/spec/{name}.md"
    assert sections(ROOT / path)
    assert any(
        citation.path == path and citation.places for found in CITATIONS.values() for citation in found
    )


@pytest.mark.parametrize(
    ("text", "path", "places"),
    [
        ("(`docs/spec/http.md`)", "docs/spec/http.md", []),
        ("(`docs/spec/http.md 6`)", "docs/spec/http.md", ["6"]),
        ("see docs/spec/http.md 6.", "docs/spec/http.md", ["6"]),
        ("`docs/spec/http.md 5`, step 9 and 10", "docs/spec/http.md", ["5"]),
        ("docs/spec/http.md 3, quirk", "docs/spec/http.md", ["3"]),
        ("docs/spec/http.md 3 to 5, 12", "docs/spec/http.md", ["3", "4", "5", "12"]),
        ("docs/spec/http.md 4, 5, and 6", "docs/spec/http.md", ["4", "5", "6"]),
        ("docs/spec/allocations.md 2-4", "docs/spec/allocations.md", ["2", "3", "4"]),
        ("`docs/spec/candidates.md 3.2 to 3.4`", "docs/spec/candidates.md", ["3.2", "3.3", "3.4"]),
        ("`docs/spec/candidates.md 3.2` to `3.4`", "docs/spec/candidates.md", ["3.2", "3.3", "3.4"]),
        ("`docs/spec/candidates.md 3` and `4`", "docs/spec/candidates.md", ["3", "4"]),
        ("`docs/spec/candidates.md` section 6", "docs/spec/candidates.md", ["6"]),
        ("docs/spec/candidates.md 6.10, 1724633: traits", "docs/spec/candidates.md", ["6.10"]),
        ("docs/spec/candidates.md 6.1, P2:", "docs/spec/candidates.md", ["6.1", "P2"]),
        ("`docs/spec/allocations.md 13`, Q1 to Q3.", "docs/spec/allocations.md", ["13", "Q1", "Q2", "Q3"]),
        ("# docs/spec/candidates.md\n    # 3.1 says", "docs/spec/candidates.md", ["3.1"]),
        ("design.md 5`, 4)", "design.md", ["5", "4"]),
    ],
)
def test_citation_is_read(text: str, path: str, places: list[str]) -> None:
    [found] = citations(Path(__file__), text)
    assert (found.path, cited_places(found.places)) == (path, places)


def test_section_of_the_same_document_is_read() -> None:
    text = (
        "## 1. Title\n\nSee sections 3.1\nand 4, and section 6 of `docs/spec/http.md` or `http.md` section 5."
    )
    found = [
        (each.line, each.path, each.places) for each in citations(ROOT / "docs/spec/candidates.md", text)
    ]
    assert found == [
        (3, "candidates.md", "3.1\nand 4"),
        (4, "docs/spec/http.md", ""),
        (4, "http.md", "5"),
    ]


def test_file_of_the_code_is_a_citation_in_markdown() -> None:
    text = "`placement_svc/config.py`, `tests/none.py`, gabbits/usages-*.yaml and `docs/none.py`"
    found = list(citations(ROOT / "README.md", text))
    assert [each.path for each in found] == ["placement_svc/config.py", "tests/none.py"]
    assert [bool(problems(each)) for each in found] == [False, True]
    assert not list(citations(Path(__file__), text))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\n`docs/spec/http.md 99`", ":2: docs/spec/http.md 99: docs/spec/http.md has no 99"),
        ("docs/spec/http.md 6, 6.1", ":1: docs/spec/http.md 6, 6.1: docs/spec/http.md has no 6.1"),
        ("docs/spec/http.md 3, Z9", ":1: docs/spec/http.md 3, Z9: docs/spec/http.md has no Z9"),
        ("spec/http.md 6", ":1: spec/http.md 6: the repository has no such file"),
        ("`design.md 4`", ":1: design.md 4: the repository has no such file"),
        ("docs/nothing.md", ":1: docs/nothing.md: the repository has no such file"),
        ("https://example.org/nothing.md", None),
        ("docs/spec/http.md 14 and 15, docs/api.md, README.md", None),
    ],
)
def test_wrong_citation_is_found(text: str, problem: str | None) -> None:
    here = Path(__file__)
    found = [each for citation in citations(here, text) for each in problems(citation)]
    assert found == ([f"{here.relative_to(ROOT)}{problem}"] if problem else [])
