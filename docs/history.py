"""Update the table of microversions in docs/api.md: `python -m docs.history`."""

import re
from pathlib import Path

from placement_svc.http.microversion import CHANGES

PAGE = Path(__file__).with_name("api.md")


def updated(page: str) -> str:
    """Return `page` with its table of microversions replaced by that of `CHANGES`."""
    rows = "".join(f"| {version} | {change} |\n" for version, change in CHANGES.items())
    return re.sub(r"(\| microversion \|.*\n\|-.*\n)(\|.*\n)*", lambda table: table[1] + rows, page)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
