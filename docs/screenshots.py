"""Make the pictures in docs/console.md from a running service: `python -m docs.screenshots URL`.

The service needs no log-in, such as that of `placement-svc demo`. Needs the extra `browser`, and Chromium.
"""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).with_name("images")

SIZE = {"width": 1280, "height": 800}

VIEWS = {
    "overview": "/console",
    "map": "/console/map",
    "hosts": "/console/hosts",
    "ask": "/console/ask?resources=DISK_GB:20&resources_1=VCPU:2&limit=3",
    "explanation": "/console/ask?resources=VCPU:4000",
}
"""The path of each picture, which works in every cloud with the common resource classes."""

EMPTY_SEARCH = "/allocation_candidates?resources=VCPU:4000"
"""A search without candidates, which the overview lists a moment later."""

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}

SECTIONS = {"ask": "#candidates", "explanation": "#explanation"}
"""The headings at which pictures of long pages begin."""


def main(url: str) -> None:
    """Write the pictures of the service at `url`."""
    IMAGES.mkdir(exist_ok=True)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page(viewport=SIZE, base_url=url, color_scheme="light")
        page.request.get(EMPTY_SEARCH, headers=HEADERS)
        page.wait_for_timeout(3000)
        for name, path in VIEWS.items():
            page.goto(path)
            _picture(page, name)
        page.goto(VIEWS["hosts"])
        page.locator("tbody th a").first.click()
        _picture(page, "host")
        browser.close()


def _picture(page: Page, name: str) -> None:
    """Write a picture of a page after its requests have ended."""
    page.wait_for_load_state("networkidle")
    if name in SECTIONS:
        page.locator(SECTIONS[name]).evaluate("heading => heading.scrollIntoView()")
    page.screenshot(path=IMAGES / f"console-{name}.png")


if __name__ == "__main__":
    main(sys.argv[1])
