"""The query of a request for allocation candidates in the URL or the curl command that someone pastes."""

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from urllib.parse import quote

_URL = re.compile(r"(?:allocation_candidates(?:/\w+)?|/console/ask)\?([^\s'\"#]*)")

_CAPACITY_PATH = re.compile(r"allocation_candidates/capacity\b")

_SHORT_OPTIONS = re.compile(r"-([^-AbcCdDeEFHKmoPQrtTuUwxXyYz]*)(?:([^-])(.*))?", re.DOTALL)
"""Short options of curl in one word: those without a value, the first one with a value, and this value."""

_DATA_OPTIONS = frozenset({"-d", "--data", "--data-ascii", "--data-binary", "--data-raw", "--data-urlencode"})
"""The options of curl whose values are the query with ``--get`` (``-G``)."""

_LONG_OPTIONS = _DATA_OPTIONS | {"--cookie", "--header", "--referer", "--url-query", "--user-agent"}
"""The long options of curl whose values are the query, or contain another URL than that of the request."""

_OPERATOR = re.compile(r"[|&;<>]+")
"""The end of a command in a shell."""

_ANSI_C_QUOTED = re.compile(r"(?<!\S)\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
"""A word with escapes in bash; browsers copy a URL with an exclamation mark like that."""

_ANSI_C_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


def request_query(text: str) -> str:
    """Return the query in a URL or a curl command, or else the text itself, without quotes around it."""
    query = "&".join(_queries_of_command(text))
    if query:
        return query
    joined = _with_joined_lines(text)
    found = _URL.search(joined)
    return found[1] if found else joined.strip("'\"").removeprefix("?")


def asks_for_capacity(text: str) -> bool:
    """Return whether a URL or a curl command asks how often a request fits."""
    return _CAPACITY_PATH.search(text) is not None


def _with_joined_lines(text: str) -> str:
    """Return a text without blank lines, with each query that is broken into several lines in one line."""
    joined = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        is_continued = line.startswith(("&", "?")) or joined.endswith(("?", "&", ","))
        joined += line if is_continued or not joined else f"\n{line}"
    return joined


def _queries_of_command(text: str) -> Iterator[str]:
    """Yield the parts of the query that a curl command sends; nothing for other text."""
    try:
        words = iter(_shell_words(text))
    except ValueError:
        # Not a command, or one whose quotes are not closed.
        return
    # A prompt, variables or another command may come before it.
    if not any(word.rpartition("/")[2] == "curl" for word in words):
        return
    options = list(_curl_options(takewhile(lambda word: not _OPERATOR.fullmatch(word), words)))
    yield from (found[1] for option, value in options if not option and (found := _URL.search(value)))
    sends_data_as_query = any(option in ("-G", "--get") for option, _ in options)
    for option, value in options:
        if option == "--url-query" or (sends_data_as_query and option in _DATA_OPTIONS):
            key, _, content = value.partition("=")
            if option in ("--url-query", "--data-urlencode") and not key.startswith("+"):
                content = quote(content)
            yield f"{key.removeprefix('+')}={content}"


def _shell_words(text: str) -> list[str]:
    """Return the words and operators of a command; raise `ValueError` if its quotes are not closed."""
    if '^"' in text:
        # A command for Windows, where a caret is the escape character.
        text = re.sub(r"\^(.)", r"\1", text, flags=re.DOTALL)
    # Without comments, and with continued lines as one.
    text = re.sub(r"^[ \t]*#.*", "", text, flags=re.MULTILINE)
    text = re.sub(r"\\\r?\n", "", text)
    lexer = shlex.shlex(_ANSI_C_QUOTED.sub(_quote_decoded, text), posix=True, punctuation_chars="|;<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def _quote_decoded(quoted: re.Match[str]) -> str:
    """Return a word with escapes of bash as one without; raise `ValueError` if it is no text."""
    decoded = _ANSI_C_ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[2], quoted[1])
    # Two escapes may be the halves of one character.
    return shlex.quote(decoded.encode("utf-16", "surrogatepass").decode("utf-16"))


def _curl_options(words: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of curl with their values; an argument that is not an option has an empty name."""
    for word in words:
        short = _SHORT_OPTIONS.fullmatch(word)
        if short:
            yield from ((f"-{letter}", "") for letter in short[1])
            if short[2]:
                yield f"-{short[2]}", short[3] or next(words, "")
        elif word in _LONG_OPTIONS:
            yield word, next(words, "")
        elif word.startswith("--"):
            yield word, ""
        else:
            yield "", word
