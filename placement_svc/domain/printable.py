"""Texts that are safe to write to a terminal."""


def printable(text: str) -> str:
    """Return a text with escapes for line breaks and for the characters that control a terminal."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
