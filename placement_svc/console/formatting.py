"""Numbers, times and bars in the pages."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from unicodedata import bidirectional, category

from flask import Flask, g, request, url_for

from placement_svc.api.context import settings
from placement_svc.console import context
from placement_svc.console.labels import LABELS
from placement_svc.console.login import form_token
from placement_svc.domain.inventory import Inventory
from placement_svc.domain.wording import counted

DIRECTION_MARKS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
"""The bidirectional classes of characters that change the direction of the text after them."""

BLANK_CHARACTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and a symbol that are drawn as blanks: fillers of Hangul, and the empty pattern of Braille."""

HIGH = 0.8
FULL = 0.95
"""The ratios from which on a bar is drawn as high and as full."""


@dataclass(frozen=True)
class Bar:
    """The amounts of an inventory or of a sum; `claimed` is the part that a candidate would add."""

    reserved: int
    capacity: int
    used: int
    free: int
    claimed: int = 0

    @property
    def ratio(self) -> float | None:
        """The part of the capacity that is used; None without any capacity."""
        return self.used / self.capacity if self.capacity > 0 else None

    @property
    def level(self) -> str:
        """How full it is: a class of the style sheet."""
        ratio = self.ratio
        if ratio is None:
            return "over" if self.used else "none"
        return "over" if ratio > 1 else "full" if ratio >= FULL else "high" if ratio >= HIGH else "low"

    @property
    def widths(self) -> tuple[float, float, float]:
        """The widths in percent of what is used, claimed and reserved.

        The bar is as long as the capacity and what is reserved together. What is used beyond the capacity
        hides what is reserved.
        """
        length = max(self.capacity, 0) + self.reserved
        if length <= 0:
            return 0.0, 0.0, 0.0
        used = min(self.used / length, 1.0)
        claimed = min(self.claimed / length, 1.0 - used)
        reserved = min(self.reserved / length, 1.0 - used)
        return round(100 * used, 1), round(100 * claimed, 1), round(100 * reserved, 1)


def bar_of_sums(amounts: dict[str, int]) -> Bar:
    """Return the bar of the amounts of a resource class (`docs/spec/extensions.md 6.4`)."""
    return Bar(**{name: amounts[name] for name in ("reserved", "capacity", "used", "free")})


def bar_of_inventory(inventory: dict[str, Any], used: int, claimed: int = 0) -> Bar:
    """Return the bar of an inventory in the format of the API."""
    capacity = _capacity(inventory)
    return Bar(inventory["reserved"], capacity, used, max(0, capacity - used), claimed)


def _capacity(inventory: dict[str, Any]) -> int:
    return Inventory(**{name: inventory[name] for name in Inventory.__dataclass_fields__}).capacity


def units(inventory: dict[str, Any]) -> str:
    """Return which amounts of an inventory in the format of the API may be claimed; "" if all that fit."""
    least, most, step = (inventory[name] for name in ("min_unit", "max_unit", "step_size"))
    parts = [
        f"at least {amount(least)}" if least > 1 else "",
        f"at most {amount(most)}" if most < _capacity(inventory) else "",
        f"multiples of {amount(step)}" if step > 1 else "",
    ]
    limits = ", ".join(part for part in parts if part)
    return f"in one claim {limits}" if limits else ""


def amount(value: int) -> str:
    """Return an amount with separators."""
    return f"{value:,}"


def decimal(value: float) -> str:
    """Return a number with all its digits, without those after the point if they are zero."""
    return repr(value).removesuffix(".0")


def percentage(used: int, capacity: int) -> str:
    """Return what is used in percent of the capacity; without capacity, "over" or a dash."""
    if capacity <= 0:
        return "over" if used else "–"
    # A host with something free is not full, and one with something used is not empty.
    return "<1 %" if 0 < 100 * used < capacity else f"{100 * used // capacity} %"


def moment(time: datetime | None) -> str:
    """Return a time in UTC; a dash for None."""
    return "–" if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def age(time: datetime | None) -> str:
    """Return the time since then in its largest unit; a dash for None."""
    if time is None:
        return "–"
    seconds = max(0, int((datetime.now(UTC) - time).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def named(name: str) -> str:
    """Return a name, or a text in place of a name without visible characters."""
    return name if any(map(_is_visible, name)) else "(no name)"


def _is_visible(character: str) -> bool:
    """Return whether a character is visible by itself; `visible` of `map.js` has the same rule."""
    kind = category(character)
    # A combining mark is drawn on another character. A browser may know one that Python has not assigned.
    return (kind == "Cn" or kind[0] not in "ZCM") and character not in BLANK_CHARACTERS


def plain(name: str) -> str:
    """Return a name for a text without markup, such as a title, in which nothing isolates it."""
    return named("".join(each for each in name if bidirectional(each) not in DIRECTION_MARKS))


def _page_values() -> dict[str, Any]:
    """Return the values that the frame of each page needs."""
    caller = g.get("caller")
    return {
        "as_of": datetime.now(UTC),
        "caller": caller,
        "form_token": form_token if g.get("has_session") else None,
        "here": context.here,
        "problem": "",
        "sorted_here": context.sorted_here,
        "uses_noauth": settings().auth == "noauth",
        "api_root": request.script_root,
        "static_url": lambda name: url_for("static", filename=name),
    }


def install(app: Flask) -> None:
    """Add the filters and the common values to the templates of `app`."""
    app.jinja_env.filters |= {
        "amount": amount,
        "decimal": decimal,
        "moment": moment,
        "age": age,
        "named": named,
        "plain": plain,
    }
    app.jinja_env.globals |= {
        "counted": counted,
        "bar_of_sums": bar_of_sums,
        "bar_of_inventory": bar_of_inventory,
        "labels": LABELS,
        "percentage": percentage,
        "units": units,
        # Instead of Flask's, which templates would use inadvertently.
        "url_for": context.link_to,
    }
    app.context_processor(_page_values)
