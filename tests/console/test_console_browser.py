"""The console in Chromium: accessibility, no errors, no other origins, scripts and their absence."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

pytest.importorskip("axe_playwright_python", reason="needs the extra browser: pip install -e '.[browser]'")
pytest.importorskip("pytest_playwright", reason="needs the extra browser: pip install -e '.[browser]'")

from axe_playwright_python.sync_playwright import Axe
from flask import Flask
from playwright.sync_api import Browser, Page, Route, expect

from bench import large_cloud
from placement_svc.console.sessions import COOKIE
from placement_svc.db import empty_answers
from placement_svc.db.connections.engine import Database
from placement_svc.http import token_file
from tests.conftest import LoadCloud
from tests.console.conftest import HOSTILE, LONG_CLASS, MARKS, RIGHT_TO_LEFT, SCRIPT, empty_answer
from tests.support.cloud import read, uuid_of
from tests.support.service import TIMEOUT, serving, wait_until

CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium")

VIEWS = [
    "/",
    "/console",
    "/console/map",
    "/console/map?group_by=aggregate&fill=VCPU&size_by=capacity",
    "/console/hosts?sort_by=-ratio:VCPU",
    f"/console/hosts/{uuid_of('cn1')}",
    f"/console/hosts/{uuid_of('hostile 0')}",
    "/console/ask",
    "/console/ask?resources=DISK_GB:20&resources_1=VCPU:2&required_1=HW_NUMA_ROOT",
    "/console/ask?resources=VCPU:4000",
    "/console/consumers",
    f"/console/consumers/{uuid_of('consumer')}",
    "/console/projects",
]

SIZES = {"wide": {"width": 1280, "height": 860}, "narrow": {"width": 400, "height": 800}}

NewPage = Callable[..., Page]

expect.set_options(timeout=1000 * TIMEOUT)


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    """Debian's Chromium; root can run it without its sandbox only."""
    return {"executable_path": CHROMIUM, "args": ["--no-sandbox"] if os.geteuid() == 0 else []}


@pytest.fixture
def new_page(browser: Browser, live: str) -> Iterator[NewPage]:
    """A function that opens a page; at the end, no page may have had an error or another origin."""
    problems: list[str] = []
    contexts = []

    def watch(page: Page) -> None:
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: None if request.url.startswith(live) else problems.append(request.url),
        )

    def new_page(size: str = "wide", **options: Any) -> Page:
        context = browser.new_context(base_url=live, viewport=SIZES[size], **options)
        contexts.append(context)
        page = context.new_page()
        watch(page)
        return page

    yield new_page
    for context in contexts:
        context.close()
    assert problems == []


def wait_for_script(page: Page) -> None:
    if "/map" in page.url:
        expect(page.locator("#map")).to_have_attribute("data-loaded", str(4 + len(HOSTILE)))


def violations(page: Page) -> list[str]:
    """Return the rules of axe that the page violates, each with the elements concerned."""
    # A click returns before the page that it leads to is loaded.
    page.wait_for_load_state()
    found = Axe().run(page).response["violations"]
    return [f"{rule['id']}: {[node['html'] for node in rule['nodes']]}" for rule in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_views_are_accessible_and_fit(new_page: NewPage, hostile_cloud: None, scheme: str, size: str) -> None:
    page = new_page(size, color_scheme=scheme)
    for path in VIEWS:
        page.goto(path)
        wait_for_script(page)
        assert (path, violations(page)) == (path, [])
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_views_fit_with_text_of_twice_the_size(new_page: NewPage, hostile_cloud: None) -> None:
    page = new_page("narrow")
    page.set_viewport_size({"width": 360, "height": 800})
    for path in [*VIEWS, f"/console/hosts?resource_class={LONG_CLASS}"]:
        page.goto(path)
        page.evaluate("document.documentElement.style.fontSize = '200%'")
        wait_for_script(page)
        assert page.evaluate("getComputedStyle(document.body).fontSize") == "28px"
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        for tree in page.locator(".tree").all():
            assert tree.evaluate("tree => tree.scrollWidth <= tree.clientWidth"), path


def test_texts_are_not_squeezed_on_narrow_screens(new_page: NewPage, cloud: None) -> None:
    def lines(selector: str) -> float:
        element = page.locator(selector).first
        height = element.bounding_box()["height"]  # type: ignore[index]
        return round(height / float(element.evaluate("e => parseFloat(getComputedStyle(e).lineHeight)")))

    page = new_page("narrow")
    page.set_viewport_size({"width": 768, "height": 800})
    page.goto(f"/console/hosts/{uuid_of('cn1')}")
    assert lines(".inventory:has-text('MEMORY_MB') .numbers") == 1
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto("/console/ask?resources=VCPU:1,MEMORY_MB:512")
    assert lines("td:has(> code) .class-name:text-is('unsuffixed')") == 1
    page.goto("/console/consumers")
    assert page.locator("th:text-is('Holds')").bounding_box()["width"] >= 260  # type: ignore[index]


def test_marks_of_a_name_cover_nothing_else(new_page: NewPage, hostile_cloud: None) -> None:
    page = new_page()

    def shots_beside_name(host: str) -> tuple[bytes, bytes]:
        page.goto(f"/console/hosts?text={uuid_of(host)}")
        in_list = page.locator(".summary").screenshot()
        page.goto(f"/console/hosts/{uuid_of(host)}")
        return in_list, page.locator("header").screenshot()

    # Chromium can round the colors of an edge differently from frame to frame; marks are in each frame.
    wait_until(lambda: shots_beside_name("hostile 1") == shots_beside_name(f"hostile {HOSTILE.index(MARKS)}"))


def test_views_work_without_script(new_page: NewPage, hostile_cloud: None) -> None:
    page = new_page(java_script_enabled=False)
    for path in VIEWS:
        page.goto(path)
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator("canvas")).not_to_be_visible()
    page.goto("/console/map")
    expect(page.locator("tbody tr")).to_have_count(4 + len(HOSTILE))
    page.goto("/console/hosts")
    page.get_by_label("Trait").fill("HW_NUMA_ROOT")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody th")).to_have_text(["cn1"])
    page.goto("/console/ask")
    page.get_by_label("resources", exact=True).fill("VCPU:3")
    page.get_by_role("button", name="Add a group").click()
    page.get_by_label("resources_1", exact=True).fill("MEMORY_MB:1")
    page.get_by_label("Group policy").select_option("none")
    page.get_by_role("button", name="Ask", exact=True).click()
    assert page.url.endswith("/console/ask?resources=VCPU%3A3&resources_1=MEMORY_MB%3A1&group_policy=none")
    expect(page.locator("#candidates")).to_be_visible()


@pytest.mark.parametrize("forced", ["active", "none"])
def test_map_is_drawn(new_page: NewPage, hostile_cloud: None, forced: str) -> None:
    page = new_page(forced_colors=forced)
    page.goto("/console/map?fill=VCPU")
    wait_for_script(page)
    colors = page.evaluate(
        """() => {
            const canvas = document.querySelector("canvas");
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size;
        }"""
    )
    assert colors > 2


def test_unused_hosts_have_an_outline_in_forced_colors(new_page: NewPage, load_cloud: LoadCloud) -> None:
    load_cloud(read("unused{VCPU8}"))
    page = new_page(forced_colors="active")
    page.goto("/console/map?fill=VCPU")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "1")
    outline = page.evaluate(
        """() => {
            const context = document.querySelector("canvas").getContext("2d");
            const color = (x, y) => String(context.getImageData(x, y, 1, 1).data);
            return color(8, 30) !== color(4, 30);
        }"""
    )
    assert outline


def test_headings_of_the_map_are_shortened_not_squeezed(new_page: NewPage, load_cloud: LoadCloud) -> None:
    aggregates = ",".join(f"a{number}" for number in range(30))
    load_cloud(read(f"cn1{{VCPU8}}@{aggregates}; cn2{{VCPU8}}"))
    page = new_page("narrow")
    page.add_init_script(
        """const fillText = CanvasRenderingContext2D.prototype.fillText;
        window.texts = [];
        CanvasRenderingContext2D.prototype.fillText = function (text, ...options) {
            window.texts.push([text, this.measureText(text).width]);
            fillText.call(this, text, ...options);
        };"""
    )
    page.goto("/console/map?group_by=aggregate")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "2")
    headings = [text for text in page.evaluate("window.texts") if text[0].endswith("…")]
    assert headings
    assert all(width < SIZES["narrow"]["width"] for _, width in headings)


def serve_groups(page: Page, count: int) -> None:
    """Let the map show groups of one host each."""
    groups = [uuid_of(f"aggregate {number}") for number in range(count)]
    hosts = [[uuid_of("cn1"), f"host {number}", number, 0, 1, 2] for number in range(count)]
    body = {"groups": groups, "classes": ["VCPU"], "hosts": hosts, "has_more": False}
    page.route("**/map.json*", lambda route: route.fulfill(json=body))


@pytest.mark.parametrize(("count", "scale"), [(2000, 2), (20_000, 1)])
def test_map_of_many_groups_is_drawn(new_page: NewPage, cloud: None, count: int, scale: int) -> None:
    page = new_page(device_scale_factor=scale)
    serve_groups(page, count)
    page.goto("/console/map?group_by=aggregate")
    expect(page.locator("#map")).to_have_attribute("data-loaded", str(count))
    colors = page.evaluate(
        """() => {
            const canvas = document.querySelector("canvas");
            const context = canvas.getContext("2d");
            return [0, canvas.height - 100].map((y) => {
                const { data } = context.getImageData(0, y, 300, 100);
                return new Set(new Uint32Array(data.buffer)).size;
            });
        }"""
    )
    assert min(colors) > 2


@pytest.mark.parametrize(("count", "is_reduced"), [(20, False), (20_000, True)])
def test_note_says_that_the_map_has_a_lower_resolution(
    new_page: NewPage, cloud: None, count: int, is_reduced: bool
) -> None:
    page = new_page()
    serve_groups(page, count)
    page.goto("/console/map?group_by=aggregate")
    expect(page.locator("#map")).to_have_attribute("data-loaded", str(count))
    expect(page.get_by_text("drawn in a lower resolution")).to_be_visible(visible=is_reduced)


def test_small_groups_of_the_map_are_beside_each_other(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    serve_groups(page, 8)
    page.goto("/console/map?group_by=aggregate")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "8")
    page.locator("canvas").focus()
    page.keyboard.press("Home")
    tip = page.locator(".tip")
    boxes = []
    for number in range(8):
        expect(tip).to_contain_text(f"host {number}:")
        boxes.append(tip.bounding_box())
        page.keyboard.press("ArrowRight")
    places = [(box["x"], box["y"]) for box in boxes if box]
    assert len({y for _, y in places}) == 2
    assert len(set(places)) == 8


def test_map_names_hosts_by_mouse_and_keys(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.goto("/console/map?fill=VCPU")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "4")
    page.locator("canvas").hover(position={"x": 20, "y": 20})
    expect(page.locator(".tip")).to_have_text("bare: no such inventory")
    page.locator("canvas").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#map-status")).to_have_text("cn1: VCPU 16 % (4 / 24)")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/console/hosts/{uuid_of('cn1')}")


def test_an_arrow_key_begins_at_the_first_host(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.goto("/console/map?fill=VCPU")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "4")
    page.locator("canvas").hover(position={"x": 20, "y": 20})
    page.locator("canvas").focus()
    page.locator("h1").hover()
    expect(page.locator(".tip")).to_be_hidden()
    for key, host in (("ArrowRight", "bare"), ("ArrowRight", "cn1"), ("ArrowLeft", "bare")):
        page.keyboard.press(key)
        expect(page.locator(".tip")).to_contain_text(f"{host}:")


def test_escape_hides_the_tip_and_keeps_the_place(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.goto("/console/map?fill=VCPU")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "4")
    canvas, tip = page.locator("canvas"), page.locator(".tip")
    canvas.press("Home")
    canvas.press("Escape")
    expect(tip).not_to_be_visible()
    with page.expect_response("**/map.json*"):
        page.locator("#map").dispatch_event("refresh")
    page.wait_for_load_state("networkidle")
    expect(tip).not_to_be_visible()
    canvas.press("ArrowRight")
    expect(tip).to_have_text("cn1: VCPU 16 % (4 / 24)")
    canvas.press("Escape")
    canvas.press("Enter")
    page.wait_for_url(f"**/console/hosts/{uuid_of('cn1')}")


def test_map_leaves_shortcuts_to_the_browser(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.goto("/console/map?fill=VCPU")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "4")
    page.evaluate("addEventListener('keydown', (event) => { window.isTaken = event.defaultPrevented; })")
    canvas = page.locator("canvas")
    canvas.press("Home")
    tip = page.locator(".tip")
    for modifier in ("altKey", "ctrlKey", "metaKey"):
        for key in ("ArrowRight", "ArrowDown", "End", "Escape"):
            canvas.dispatch_event("keydown", {"key": key, modifier: True})
            assert not page.evaluate("isTaken"), (modifier, key)
            expect(tip).to_have_text("bare: no such inventory")
    canvas.press("ArrowRight")
    assert page.evaluate("isTaken")
    expect(tip).to_have_text("cn1: VCPU 16 % (4 / 24)")


def test_map_opens_a_host_in_a_new_tab(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.goto("/console/map?fill=VCPU")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "4")
    canvas = page.locator("canvas")
    canvas.focus()
    page.keyboard.press("Home")
    for open_tab in (
        lambda: canvas.click(position={"x": 20, "y": 20}, modifiers=["Control"]),
        lambda: canvas.click(position={"x": 20, "y": 20}, button="middle"),
        lambda: canvas.press("Control+Enter"),
    ):
        with page.context.expect_page() as opened:
            open_tab()
        opened.value.wait_for_url(f"**/console/hosts/{uuid_of('bare')}")
        opened.value.close()
        page.bring_to_front()
    assert page.url.endswith("/console/map?fill=VCPU")


def test_name_of_a_host_at_the_end_of_the_window_is_visible(new_page: NewPage, hostile_cloud: None) -> None:
    page = new_page("narrow")
    page.goto("/console/map")
    wait_for_script(page)
    canvas = page.locator("canvas")
    box = canvas.bounding_box()
    assert box
    end = int(box["y"] + box["height"])
    page.set_viewport_size({"width": 400, "height": end})
    for height in (box["height"] - 20, 20):
        canvas.hover(position={"x": 20, "y": height})
        tip = page.locator(".tip").bounding_box()
        assert tip
        assert tip["y"] + tip["height"] <= end


def test_map_and_table_have_the_same_percentages(new_page: NewPage, load_cloud: LoadCloud) -> None:
    load_cloud(read("a{VCPU100 used29}; b{VCPU200 used1}; c{VCPU1000 used999}; d{VCPU2}; e{VCPU2 used2}"))
    percentages = ["29 %", "<1 %", "99 %", "0 %", "100 %"]
    page = new_page()
    page.goto("/console/map?fill=VCPU")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "5")
    expect(page.locator("tbody td:nth-child(3)")).to_have_text(percentages)
    page.locator("canvas").focus()
    for key, percentage in zip(["Home", *["ArrowRight"] * 4], percentages, strict=True):
        page.keyboard.press(key)
        expect(page.locator("#map-status")).to_contain_text(f": VCPU {percentage} (")


def test_refresh_describes_the_same_host_again(
    new_page: NewPage, cloud: None, call: Callable[..., Any]
) -> None:
    page = new_page()
    page.goto("/console/map?fill=VCPU")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "4")
    status = page.locator("#map-status")
    page.locator("canvas").press("Home")
    expect(status).to_have_text("bare: no such inventory")
    path = f"/resource_providers/{uuid_of('bare')}"
    inventories = {"inventories": {"VCPU": {"total": 8}}, "resource_provider_generation": 0}
    call("PUT", f"{path}/inventories", inventories)
    page.get_by_role("link", name="Refresh").click()
    expect(status).to_have_text("bare: VCPU 0 % (0 / 8)")
    status.evaluate("line => { line.firstChild.id = 'not-replaced'; }")
    with refreshed(page), page.expect_response("**/map.json*"):
        page.get_by_role("link", name="Refresh").click()
    page.wait_for_load_state("networkidle")
    expect(page.locator("#not-replaced")).to_be_attached()
    call("DELETE", path)
    page.get_by_role("link", name="Refresh").click()
    expect(page.locator("#map")).to_have_attribute("data-loaded", "3")
    expect(status).to_contain_text("Hover over a host")


def test_map_shows_an_inventory_without_capacity(new_page: NewPage, load_cloud: LoadCloud) -> None:
    load_cloud(read("none{MEMORY_MB8}; reserved{VCPU8 res8}"))
    page = new_page()
    page.goto("/console/map?fill=VCPU")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "2")
    page.locator("canvas").focus()
    page.keyboard.press("Home")
    expect(page.locator("#map-status")).to_have_text("none: no such inventory")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#map-status")).to_have_text("reserved: VCPU – (0 / 0)")


def test_map_says_that_it_could_not_be_read(browser: Browser, live: str, cloud: None) -> None:
    errors: list[str] = []
    with closing(browser.new_context(base_url=live)) as context:
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.route("**/map.json*", lambda route: route.abort())
        page.goto("/console/map")
        status = page.locator("#map-status")
        expect(status).to_contain_text("The map could not be read.")
        page.unroute("**/map.json*")
        page.get_by_role("link", name="Refresh").click()
        expect(page.locator("#map")).to_have_attribute("data-loaded", "4")
        expect(status).to_contain_text("Hover over a host")
    assert errors == []


def test_hostile_names_are_text(new_page: NewPage, hostile_cloud: None) -> None:
    page = new_page()
    page.goto(f"/console/hosts/{uuid_of('hostile 0')}")
    expect(page.locator("h1")).to_have_text(SCRIPT)
    assert page.title() == f"{SCRIPT} · Placement"
    page.goto("/console/map")
    wait_for_script(page)
    canvas = page.locator("canvas")
    canvas.focus()
    said = set()
    for key in ["Home", *["ArrowRight"] * (3 + len(HOSTILE))]:
        page.keyboard.press(key)
        said.add(page.locator("#map-status").text_content())
    assert any(str(text).startswith(SCRIPT) for text in said)
    assert len(said) == 4 + len(HOSTILE)


def test_names_beside_the_map_are_isolated(new_page: NewPage, hostile_cloud: None) -> None:
    page = new_page()
    page.goto(f"/console/map?text={uuid_of(f'hostile {HOSTILE.index(RIGHT_TO_LEFT)}')}")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "1")
    page.locator("canvas").focus()
    page.keyboard.press("Home")
    for place in ("#map-status", ".tip"):
        assert page.locator(place).inner_html() == f"<bdi>{RIGHT_TO_LEFT}</bdi>: VCPU 25 % (2 / 8)"


def test_page_with_a_problem_is_accessible_and_refreshed_as_a_whole(
    browser: Browser, live: str, cloud: None, call: Callable[..., Any]
) -> None:
    with closing(browser.new_context(base_url=live, viewport=SIZES["narrow"])) as context:
        page = context.new_page()
        page.goto("/console/map?fill=CUSTOM_GOLD")
        expect(page.get_by_role("alert")).to_have_text(
            "Invalid 'Fill by': No such resource class CUSTOM_GOLD."
        )
        expect(page.get_by_label("Fill by")).to_have_value("CUSTOM_GOLD")
        assert violations(page) == []
        call("PUT", "/resource_classes/CUSTOM_GOLD")
        page.get_by_role("link", name="Refresh").click()
        expect(page.locator("#map")).to_have_attribute("data-loaded", "4")
        page.goto("/console/ask?q=hello")
        expect(page.get_by_label("A query, a URL or a curl command")).to_have_value("hello")
        assert violations(page) == []


@pytest.mark.parametrize(
    "name",
    [" \u00a0", "\u200b\u2060", "\ufeff", "\u202e", "\u0301", "\ue000", "\u115f\u1160\u2800\u3164\uffa0"],
)
def test_invisible_names_have_a_visible_link(new_page: NewPage, call: Callable[..., Any], name: str) -> None:
    call("POST", "/resource_providers", {"name": name})
    page = new_page()
    page.goto("/console/map")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "1")
    expect(page.locator("tbody th a")).to_have_text("(no name)")
    page.locator("canvas").focus()
    page.keyboard.press("Home")
    expect(page.locator("#map-status")).to_have_text("(no name): no such inventory")


# A face of Unicode 15, and a character that is in no version.
@pytest.mark.parametrize("name", ["\U0001fae8", "\u0378", "\u3164a"])
def test_names_of_new_characters_are_shown(new_page: NewPage, call: Callable[..., Any], name: str) -> None:
    call("POST", "/resource_providers", {"name": name})
    page = new_page()
    page.goto("/console/map")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "1")
    page.locator("canvas").press("Home")
    assert page.locator("tbody th a").inner_text() == name
    assert page.locator("#map-status").inner_text() == f"{name}: no such inventory"


def test_blanks_of_names_are_shown(new_page: NewPage, call: Callable[..., Any]) -> None:
    names = ["  a  b", "a b"]
    for name in names:
        call("POST", "/resource_providers", {"name": name})
    page = new_page()
    page.goto("/console/hosts")
    assert page.locator("tbody th").evaluate_all("cells => cells.map(cell => cell.innerText)") == names


@pytest.mark.parametrize(("size", "first"), [("wide", 8), ("narrow", 5)])
def test_levels_that_are_not_indented_are_written(
    new_page: NewPage, load_cloud: LoadCloud, size: str, first: int
) -> None:
    load_cloud(read("; ".join(["p1", *(f"p{number}<p{number - 1}" for number in range(2, 13))])))
    page = new_page(size)
    page.goto(f"/console/hosts/{uuid_of('p1')}")
    providers = page.locator(".tree > li")
    expect(providers).to_have_count(12)
    indents = providers.evaluate_all("items => items.map(item => item.getBoundingClientRect().left)")
    for number in range(1, 13):
        level = providers.nth(number - 1).locator(".level")
        expect(level).to_have_text([f"level {number}"] if number > 1 else [])
        if number > 1:
            is_visible = level.evaluate("span => span.getBoundingClientRect().width > 1")
            assert is_visible == (number >= first)
            assert is_visible or indents[number - 1] > indents[number - 2]
    assert violations(page) == []


def test_printed_pages_are_light_and_whole(new_page: NewPage, hostile_cloud: None) -> None:
    page = new_page("narrow", color_scheme="dark")
    page.goto("/console/map?fill=VCPU")
    wait_for_script(page)
    page.emulate_media(media="print")
    style = "(selector, name) => getComputedStyle(document.querySelector(selector))[name]"
    assert page.evaluate(f"({style})('body', 'backgroundColor')") == "rgb(255, 255, 255)"
    assert page.evaluate(f"({style})('.scroll', 'overflowX')") == "visible"
    expect(page.get_by_role("navigation", name="Views")).not_to_be_visible()
    expect(page.get_by_role("search")).not_to_be_visible()
    corner = "document.querySelector('canvas').getContext('2d').getImageData(0, 0, 1, 1).data.join()"
    # The map is drawn again in the next frame.
    wait_until(lambda: page.evaluate(corner) == "255,255,255,255")
    shape = page.evaluate(
        """() => {
            const canvas = document.querySelector("canvas");
            return [canvas.offsetHeight / innerHeight, getComputedStyle(canvas).objectFit];
        }"""
    )
    assert shape[0] <= 0.7
    assert shape[1] == "contain"
    page.emulate_media(media="screen")
    wait_until(lambda: page.evaluate(corner) != "255,255,255,255")


def test_printed_table_fits_its_frame_and_the_page(new_page: NewPage, load_cloud: LoadCloud) -> None:
    host = "{VCPU128 used100 MEMORY_MB1048576 used1000 DISK_GB100000 used500 PCPU128 used7 VGPU16 used8}"
    load_cloud(read("; ".join(f"computenode{number:018}{host}" for number in range(3))))
    page = new_page()
    page.goto("/console/hosts")
    page.emulate_media(media="print")
    # The width of A4. Chromium prints pages in three quarters of their size, or smaller if they are wider.
    page.set_viewport_size({"width": 794, "height": 1123})
    right = "element => element.getBoundingClientRect().right"
    frame, table = (page.locator(each).evaluate(right) for each in (".scroll", "table"))
    assert table <= frame
    assert frame <= 794 * 4 / 3


@pytest.mark.parametrize(
    ("path", "button"),
    [
        ("/console/ask", "Use this query"),
        (f"/console/hosts/{uuid_of('cn1')}", "Explain for this host"),
    ],
)
def test_token_of_a_pasted_command_is_in_no_url(
    new_page: NewPage, cloud: None, path: str, button: str
) -> None:
    page = new_page()
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.goto(path)
    command = "curl -H 'X-Auth-Token: secret' 'http://h/allocation_candidates?resources=VCPU:2'"
    page.get_by_label("A query, a URL or a curl command").fill(command)
    page.get_by_role("button", name=button).click()
    expect(page.get_by_label("resources", exact=True)).to_have_value("VCPU:2")
    assert "/console/ask?resources=VCPU%3A2" in page.url
    assert not any("secret" in url for url in urls)


def test_slash_goes_to_the_search(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.goto("/console")
    page.keyboard.press("/")
    page.keyboard.type("numa1")
    page.keyboard.press("Enter")
    expect(page.locator("tbody th")).to_have_text(["cn1"])


@pytest.mark.parametrize("has_script", [True, False])
def test_added_group_has_the_focus(new_page: NewPage, cloud: None, has_script: bool) -> None:
    page = new_page(java_script_enabled=has_script)
    page.goto("/console/ask?resources=VCPU:2")
    for suffix in ("_1", "_2"):
        page.get_by_role("button", name="Add a group").press("Enter")
        expect(page.get_by_label(f"resources{suffix}", exact=True)).to_be_focused()
    page.keyboard.type("MEMORY_MB:1")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/ask?resources=VCPU%3A2&resources_2=MEMORY_MB%3A1")
    assert page.locator(":focus").count() == 0


def test_names_are_completed(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.goto("/console/ask")
    field = page.get_by_label("resources", exact=True)
    field.fill("VCPU:1,mem")
    option = f"#{field.get_attribute('list')} option"
    expect(page.locator(option)).to_have_attribute("value", "VCPU:1,MEMORY_MB:")


@pytest.mark.parametrize("answer", [None, {"status": 503, "body": "{}"}, {"body": "<p>A page of a proxy"}])
def test_names_are_completed_after_a_failure(
    browser: Browser, live: str, cloud: None, answer: dict[str, Any] | None
) -> None:
    errors: list[str] = []

    def is_completed() -> bool:
        field.fill("NUM")
        field.fill("NUMA")
        return option.count() == 1

    with closing(browser.new_context(base_url=live)) as context:
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.route("**/names.json", lambda route: route.fulfill(**answer) if answer else route.abort())
        page.goto("/console/ask")
        field = page.get_by_label("required", exact=True)
        option = page.locator(f"#{field.get_attribute('list')} option")
        end = "requestfinished" if answer else "requestfailed"
        with page.expect_event(end, lambda request: request.url.endswith("/names.json")):
            field.focus()
        page.unroute("**/names.json")
        wait_until(is_completed)
        expect(option).to_have_attribute("value", "HW_NUMA_ROOT")
    assert errors == []


LABELED_BY_ANOTHER_TEXT = """
    Array.from(document.querySelectorAll("a[aria-label], button[aria-label]"))
        .filter(element => !element.ariaLabel.toLowerCase().includes(
            Array.from(element.querySelectorAll("[aria-hidden]")).reduce(
                (text, hidden) => text.replace(hidden.innerText, ""), element.innerText
            ).trim().toLowerCase()
        ))
        .map(element => element.outerHTML)
"""
"""The links and buttons that a speech user cannot call by the text that they show."""


def test_names_of_links_contain_their_texts(
    new_page: NewPage, hostile_cloud: None, database: Database
) -> None:
    database.write(empty_answers.add, [empty_answer("resources=VCPU:400")], 1)
    page = new_page()
    for path in [*VIEWS, "/console/hosts?sort_by=free:VCPU"]:
        page.goto(path)
        assert (path, page.evaluate(LABELED_BY_ANOTHER_TEXT)) == (path, [])


def test_fields_have_their_visible_labels_as_names(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.goto("/console/ask?resources=VCPU:1&required=HW_NUMA_ROOT&resources_A=VCPU:1")
    for name in (
        "Resources resources",
        "Resources resources_A",
        "Traits required",
        "Traits required, one more",
    ):
        # A text field with a list of names is a combobox.
        expect(page.get_by_role("combobox", name=name, exact=True)).to_have_count(1)
    assert violations(page) == []


@pytest.mark.parametrize(
    ("label", "typed", "options"),
    [
        ("isolate", "_A,b", ["_A,_B"]),
        ("same_subtree", "_A,!_", ["_A,!_A", "_A,!_B"]),
        ("order_by", "s", ["spread:VCPU", "spread:MEMORY_MB"]),
        ("root_required", "!numa", ["!HW_NUMA_ROOT"]),
        ("preferred", "HW_NUMA_ROOT,comp", ["HW_NUMA_ROOT,COMPUTE_NODE"]),
        ("preferred", "HW_NUMA_ROOT, comp", ["HW_NUMA_ROOT, COMPUTE_NODE"]),
    ],
)
def test_fields_of_the_whole_request_are_completed(
    new_page: NewPage, cloud: None, label: str, typed: str, options: list[str]
) -> None:
    page = new_page()
    page.goto("/console/ask?resources_A=VCPU:1&resources_B=MEMORY_MB:1")
    field = page.get_by_label(label, exact=True)
    field.fill(typed)
    option = page.locator(f"#{field.get_attribute('list')} option")
    expect(option).to_have_count(len(options))
    assert option.evaluate_all("options => options.map(option => option.value)") == options


def test_overview_shows_the_codes_of_empty_answers(
    new_page: NewPage, cloud: None, database: Database
) -> None:
    database.write(empty_answers.add, [empty_answer("resources=VCPU:400")], 1)
    page = new_page()
    page.goto("/console")
    expect(page.locator("[data-code]")).to_have_text("impossible: capacity")


def test_code_of_equal_empty_answers_is_computed_once_a_minute(
    new_page: NewPage, cloud: None, database: Database
) -> None:
    database.write(empty_answers.add, [empty_answer("resources=VCPU:400") for _ in range(2)], 2)
    page = new_page()
    page.clock.install()
    sent = []
    page.on("request", lambda request: sent.append(request.url) if "code.json" in request.url else None)
    page.goto("/console#refresh=10")
    expect(page.locator("[data-code]")).to_have_text(["impossible: capacity"] * 2)
    for count, seconds in [(1, 11), (2, 61)]:
        with refreshed(page):
            page.clock.fast_forward(1000 * seconds)
        expect(page.locator("[data-code]")).to_have_text(["impossible: capacity"] * 2)
        assert len(sent) == count


def test_refresh_keeps_the_page_and_changes_its_content(
    new_page: NewPage, cloud: None, call: Callable[..., Any]
) -> None:
    page = new_page()
    page.goto("/console/hosts")
    page.evaluate("window.kept = true")
    before = page.locator(".as-of time").get_attribute("datetime")
    call("POST", "/resource_providers", {"name": "new"})
    page.get_by_role("link", name="Refresh").click()
    expect(page.locator("tbody th")).to_have_text(["bare", "cn1", "cn2", "new", "shared"])
    assert page.evaluate("window.kept")
    assert page.locator(".as-of time").get_attribute("datetime") != before


def test_refresh_by_interval_is_in_the_url_and_pauses_when_hidden(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.clock.install()
    page.goto("/console/hosts")
    page.get_by_label("Refresh", exact=True).select_option("10")
    assert page.url.endswith("/console/hosts#refresh=10")
    with refreshed(page):
        page.clock.run_for(11_000)
    hide = "Object.defineProperty(document, 'hidden', { value: %s, configurable: true })"
    page.evaluate(hide % "true")
    sent = []
    page.on("request", lambda request: sent.append(request.url))
    page.clock.run_for(30_000)
    assert not [url for url in sent if url.endswith("/console/hosts")]
    page.evaluate(hide % "false")
    with refreshed(page):
        page.clock.run_for(11_000)
    assert [url for url in sent if url.endswith("/console/hosts")]


def test_refresh_starts_while_the_list_of_intervals_has_the_focus(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.clock.install()
    page.goto("/console/projects")
    intervals = page.get_by_label("Refresh", exact=True)
    intervals.focus()
    intervals.select_option("10")
    with refreshed(page):
        page.clock.run_for(11_000)
    expect(intervals).to_be_focused()


def test_refresh_keeps_the_current_host_of_the_map(
    new_page: NewPage, cloud: None, call: Callable[..., Any]
) -> None:
    page = new_page()
    page.clock.install()
    page.goto("/console/map?fill=VCPU#refresh=10")
    expect(page.locator("#map")).to_have_attribute("data-loaded", "4")
    page.locator("canvas").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tip")).to_contain_text("cn1")
    call("POST", "/resource_providers", {"name": "a new first host"})
    with refreshed(page):
        page.clock.run_for(11_000)
    expect(page.locator("#map")).to_have_attribute("data-loaded", "5")
    expect(page.locator("canvas")).to_be_focused()
    expect(page.locator(".tip")).to_contain_text("cn1")


def test_link_to_the_content_keeps_the_interval(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.clock.install()
    page.goto("/console/hosts#refresh=10")
    page.get_by_role("link", name="Skip to the content").press("Enter")
    expect(page.locator("main")).to_be_focused()
    with refreshed(page):
        page.clock.run_for(11_000)
    assert page.url.endswith("/console/hosts#refresh=10")


def test_list_of_intervals_shows_the_interval_in_the_url(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.goto("/console/hosts#refresh=10")
    intervals = page.get_by_label("Refresh", exact=True)
    expect(intervals).to_have_value("10")
    page.evaluate("location.hash = 'refresh=60'")
    expect(intervals).to_have_value("60")
    page.evaluate("location.hash = 'refresh=1'")
    expect(intervals).to_have_value("")


def test_interval_in_the_url_is_one_of_the_list(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.clock.install()
    page.goto("/console/hosts#refresh=1")
    sent = []
    page.on("request", lambda request: sent.append(request.url))
    page.clock.run_for(5_000)
    page.wait_for_load_state("networkidle")
    assert not [url for url in sent if url.endswith("/console/hosts")]


@contextmanager
def refreshed(page: Page) -> Iterator[None]:
    """Wait until the block has replaced the content of the page."""
    time = page.locator(".as-of time")
    before = time.get_attribute("datetime")
    yield
    expect(time).not_to_have_attribute("datetime", before or "")


def test_refresh_of_the_map_changes_its_table(
    new_page: NewPage, cloud: None, call: Callable[..., Any]
) -> None:
    page = new_page()
    page.goto("/console/map?text=new")
    expect(page.locator(".empty")).to_be_visible()
    call("POST", "/resource_providers", {"name": "new"})
    with refreshed(page):
        page.get_by_role("link", name="Refresh").click()
    expect(page.locator("#map")).to_have_attribute("data-loaded", "1")
    expect(page.locator("#map canvas")).to_be_visible()
    expect(page.locator("tbody th")).to_have_text(["new"])
    expect(page.locator(".summary")).to_have_text("1 host")


def test_refresh_keeps_what_is_open_scrolled_and_focused(new_page: NewPage, hostile_cloud: None) -> None:
    page = new_page("narrow")
    page.goto("/console/hosts")
    page.evaluate("document.querySelector('.scroll').scrollLeft = 40")
    with refreshed(page):
        page.get_by_role("link", name="Refresh").click()
    assert page.evaluate("document.querySelector('.scroll').scrollLeft") == 40
    page.goto(f"/console/hosts/{uuid_of('cn1')}")
    page.clock.install()
    page.locator("details.traits summary").first.click()
    page.get_by_label("Refresh", exact=True).select_option("10")
    page.get_by_role("link", name="HW_NUMA_ROOT").focus()
    with refreshed(page):
        page.clock.run_for(11_000)
    expect(page.get_by_role("link", name="HW_NUMA_ROOT")).to_be_focused()
    expect(page.locator("details.traits").first).not_to_have_attribute("open", "")


def test_refresh_keeps_the_place_below_opened_details(
    new_page: NewPage, cloud: None, call: Callable[..., Any]
) -> None:
    path = f"/resource_providers/{uuid_of('numa1')}/traits"
    traits = ["HW_NUMA_ROOT", *(f"CUSTOM_T{number}" for number in range(60))]
    for name in traits[1:]:
        call("PUT", f"/traits/{name}")
    generation = call("GET", path)["resource_provider_generation"]
    call("PUT", path, {"traits": traits, "resource_provider_generation": generation})
    page = new_page("narrow")
    page.goto(f"/console/hosts/{uuid_of('cn1')}#p-{uuid_of('numa1')}")
    target = page.locator(f"#p-{uuid_of('numa1')}")
    background = "each => getComputedStyle(each).backgroundColor"
    highlighted = target.evaluate(background)
    target.locator("summary").click()
    page.mouse.wheel(0, 700)
    page.wait_for_function("scrollY > 300")
    page.wait_for_timeout(300)
    place = page.evaluate("scrollY")
    with refreshed(page):
        page.get_by_role("link", name="Refresh").evaluate("link => link.click()")
    assert page.evaluate("scrollY") == place
    assert target.evaluate(background) == highlighted
    links = page.get_by_role("link", name="HW_NUMA_ROOT")
    expect(links).to_have_count(2)
    links.last.focus()
    with refreshed(page):
        page.get_by_role("link", name="Refresh").evaluate("link => link.click()")
    expect(links.last).to_be_focused()


def test_refresh_keeps_what_is_selected(new_page: NewPage, cloud: None, call: Callable[..., Any]) -> None:
    page = new_page()
    page.clock.install()
    page.goto(f"/console/hosts/{uuid_of('cn1')}#refresh=10")
    place = page.locator(".tree .uuid").nth(1)
    place.select_text()
    selected = "getSelection().toString()"
    assert page.evaluate(selected) == uuid_of("numa0")
    with refreshed(page):
        page.clock.run_for(11_000)
    assert page.evaluate(selected) == uuid_of("numa0")
    call("POST", "/resource_providers", {"name": "first", "parent_provider_uuid": uuid_of("cn1")})
    with refreshed(page):
        page.clock.run_for(11_000)
    # Another provider is at this place now.
    assert page.evaluate(selected) == ""


def test_refresh_by_hand_keeps_what_is_typed_and_the_focus(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.goto("/console/map?text=c")
    group, trait = page.get_by_label("Group by"), page.get_by_label("Trait of the groups")
    group.select_option("trait")
    trait.fill("NUMA")
    held: list[Route] = []
    page.route("**/console/map?text=c", lambda route: held.append(route))
    with page.expect_request("**/console/map?text=c"):
        page.get_by_role("link", name="Refresh").click()
    trait.focus()
    page.keyboard.press("Home")
    page.keyboard.type("HW_")
    with refreshed(page):
        held[0].continue_()
    expect(trait).to_be_focused()
    page.keyboard.type("X")
    expect(trait).to_have_value("HW_XNUMA")
    expect(group).to_have_value("trait")
    page.keyboard.press("Backspace")
    expect(page.locator(f"#{trait.get_attribute('list')} option")).to_have_attribute("value", "HW_NUMA_ROOT")
    expect(page.locator("form.filters datalist")).to_have_count(2)
    page.unroute("**/console/map?text=c")
    page.get_by_label("Trait of the groups").fill("HW_NUMA_ROOT")
    page.get_by_role("button", name="Show").click()
    assert "group_trait=HW_NUMA_ROOT" in page.url


def test_refresh_by_interval_keeps_edited_fields(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.clock.install()
    page.goto("/console/ask#refresh=10")
    page.get_by_label("resources", exact=True).fill("VCPU:2")
    page.get_by_role("button", name="Ask", exact=True).focus()
    with page.expect_response("**/console/ask"):
        page.clock.run_for(11_000)
    page.wait_for_load_state("networkidle")
    expect(page.get_by_label("resources", exact=True)).to_have_value("VCPU:2")


def test_refresh_by_interval_goes_on_after_a_sent_form(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.clock.install()
    page.goto("/console/hosts#refresh=10")
    page.locator(".filters").get_by_label("Name or uuid").fill("cn")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**/console/hosts?text=cn**")
    page.go_back()
    expect(page.locator(".filters").get_by_label("Name or uuid")).to_have_value("cn")
    with refreshed(page):
        page.clock.run_for(11_000)
    expect(page.locator("tbody th")).to_have_text(["bare", "cn1", "cn2", "shared"])
    expect(page.locator(".filters").get_by_label("Name or uuid")).to_have_value("cn")


def test_refresh_by_interval_waits_for_the_search_field(new_page: NewPage, cloud: None) -> None:
    page = new_page()
    page.clock.install()
    page.goto("/console#refresh=10")
    page.get_by_role("search").get_by_role("searchbox").fill("cn")
    page.evaluate("document.querySelector('main').firstElementChild.id = 'not-replaced'")
    with page.expect_response("**/console"):
        page.clock.run_for(11_000)
    page.wait_for_load_state("networkidle")
    expect(page.locator("#not-replaced")).to_be_attached()


@pytest.mark.parametrize("problem", ["the service responded with 502", "the service did not respond"])
def test_failed_refresh_is_shown_until_one_succeeds(
    browser: Browser, live: str, cloud: None, problem: str
) -> None:
    errors: list[str] = []
    with closing(browser.new_context(base_url=live)) as context:
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto("/console/hosts")
        before = page.locator(".as-of time").get_attribute("datetime")
        if "502" in problem:
            page.route("**/console/hosts", lambda route: route.fulfill(status=502, body="Bad gateway"))
        else:
            page.route("**/console/hosts", lambda route: route.abort())
        page.get_by_role("link", name="Refresh").click()
        expect(page.get_by_role("status")).to_contain_text(f"The last refresh failed: {problem}.")
        assert page.locator(".as-of time").get_attribute("datetime") == before
        assert violations(page) == []
        page.unroute("**/console/hosts")
        with refreshed(page):
            page.get_by_role("link", name="Refresh").click()
        expect(page.get_by_role("status")).not_to_be_visible()
    assert errors == []


def test_refresh_that_is_not_answered_fails(browser: Browser, live: str, cloud: None) -> None:
    with closing(browser.new_context(base_url=live)) as context:
        page = context.new_page()
        page.clock.install()
        page.goto("/console/hosts")
        page.route("**/console/hosts", lambda route: None)
        link, main = page.get_by_role("link", name="Refresh"), page.locator("main")
        with page.expect_request("**/console/hosts"):
            link.click()
        expect(main).to_have_attribute("aria-busy", "true")
        page.clock.fast_forward(31_000)
        expect(page.get_by_role("status")).to_contain_text("failed: the service did not respond.")
        expect(main).not_to_have_attribute("aria-busy", "true")
        page.unroute("**/console/hosts")
        with refreshed(page):
            link.click()
        expect(page.get_by_role("status")).not_to_be_visible()


def test_older_response_does_not_replace_a_newer_one(browser: Browser, live: str, cloud: None) -> None:
    with closing(browser.new_context(base_url=live)) as context:
        page = context.new_page()
        page.goto("/console/hosts")
        held: list[Route] = []
        page.route("**/console/hosts", lambda route: route.continue_() if held else held.append(route))
        link, time = page.get_by_role("link", name="Refresh"), page.locator(".as-of time")
        with page.expect_request("**/console/hosts"):
            link.click()
        [older] = held
        response = older.fetch()
        with refreshed(page):
            link.click()
        newer = time.get_attribute("datetime")
        with page.expect_event("requestfinished"):
            older.fulfill(response=response)
        page.evaluate("new Promise((done) => setTimeout(done, 100))")
        assert time.get_attribute("datetime") == newer


@pytest.mark.parametrize("has_response", [True, False])
def test_map_without_data_says_so(browser: Browser, live: str, cloud: None, has_response: bool) -> None:
    errors: list[str] = []
    with closing(browser.new_context(base_url=live)) as context:
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.clock.install()
        if has_response:
            page.route("**/map.json*", lambda route: route.fulfill(body="<p>A page of a proxy"))
        else:
            page.route("**/map.json*", lambda route: None)
        with page.expect_request("**/map.json*"):
            page.goto("/console/map")
        if not has_response:
            page.clock.fast_forward(31_000)
        expect(page.locator("#map-status")).to_contain_text("The map could not be read.")
    assert errors == []


def test_refresh_replaces_an_error_with_the_whole_page(
    browser: Browser, live: str, cloud: None, call: Callable[..., Any]
) -> None:
    with closing(browser.new_context(base_url=live)) as context:
        page = context.new_page()
        page.goto(f"/console/hosts/{uuid_of('new')}")
        expect(page.locator("h1")).to_have_text("404 Not Found")
        call("POST", "/resource_providers", {"name": "new", "uuid": uuid_of("new")})
        page.get_by_role("link", name="Refresh").click()
        expect(page.locator("h1")).to_have_text("new")


@contextmanager
def logged_in(browser: Browser, url: str, token: str) -> Iterator[Page]:
    """Open a page of the service at `url`, and log in with the form."""
    context = browser.new_context(base_url=url)
    page = context.new_page()
    page.goto("/console/hosts?sort_by=-name")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    yield page
    context.close()


def test_log_in_and_log_out(browser: Browser, app: Flask, database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    token = token_file.add(file, "operator", "admin", ["admin"])
    with (
        serving(database_url=database_url, auth="token", token_file=file) as service,
        logged_in(browser, service.url, token) as page,
    ):
        assert page.url == f"{service.url}/console/hosts?sort_by=-name"
        assert page.evaluate("document.cookie") == ""
        assert violations(page) == []
        page.context.clear_cookies(name=COOKIE)
        page.goto("/console#refresh=10")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        assert page.url == f"{service.url}/console#refresh=10"
        page.context.clear_cookies(name=COOKIE)
        page.goto("/console/ask?resources=VCPU:1")
        expect(page.get_by_role("status")).to_contain_text("Your session has ended.")
        assert violations(page) == []
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        assert page.url == f"{service.url}/console/ask?resources=VCPU:1"
        page.get_by_role("button", name="Log out").click()
        assert page.url == f"{service.url}/console/login"
        assert violations(page) == []
        page.goto("/console")
        assert page.url == f"{service.url}/console/login?next=/console"


@pytest.mark.long
def test_map_of_ten_thousand_hosts(new_page: NewPage, engine: Engine) -> None:
    large_cloud.fill(engine, 10_000)
    page = new_page()
    with page.expect_response("**/map.json*") as received:
        page.goto("/console/map?group_by=aggregate")
    assert len(received.value.body()) < 1_000_000
    expect(page.locator("#map")).to_have_attribute("data-loaded", "10000")
    page.locator("canvas").focus()
    page.keyboard.press("End")
    expect(page.locator("#map-status")).to_contain_text("cn-")
