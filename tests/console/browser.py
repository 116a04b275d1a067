"""A real browser for the tests of the console: Chromium without a window, driven by Selenium."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

NODE = Path(__file__).parent / "node"
SECONDS = 120
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
DESKTOP, PHONE = (1280, 900), (390, 844)


@contextmanager
def opened_window(address: str, profile: Path) -> Iterator[Window]:
    """A browser at desktop size, looking at the console at `address`."""
    driver = open_browser(profile)
    try:
        window = Window(driver, address)
        window.size(*DESKTOP)
        yield window
    finally:
        driver.quit()


def open_browser(profile: Path) -> Chrome:
    """A browser with a new profile.  Skips the test where there is none."""
    selenium = pytest.importorskip("selenium", reason="needs the package selenium: the extra `browser`")
    assert selenium
    chromium, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs Chromium and its driver: `make test-tools` installs them")
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = chromium
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return Chrome(options=options, service=ChromeService(driver))


@cache
def axe() -> str:
    """The script that judges accessibility.  Skips the test where it cannot be had."""
    script = NODE / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        if shutil.which("npm") is None:
            pytest.skip("needs npm: `make test-tools` installs it")
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=NODE, check=True, capture_output=True, timeout=120)
    return script.read_text()


class Window:
    """One browser, looking at the console at `address`."""

    def __init__(self, driver: Chrome, address: str) -> None:
        self.driver = driver
        self.address = address

    def go(self, place: str = "#/") -> None:
        """Open a view, and wait until it is drawn."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}/console/{place}")
        self.wait(lambda: self.find("#page h1"))

    def size(self, width: int, height: int) -> None:
        """The size of the view, in pixels of the page."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def scheme(self, name: str) -> None:
        """`light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def find(self, selector: str, text: str = "") -> WebElement | None:
        """The first element that has the text."""
        for element in self.driver.find_elements("css selector", selector):
            if text in self.run("return arguments[0].textContent", element):
                return element
        return None

    def get(self, selector: str, text: str = "") -> WebElement:
        """The first element that has the text, once there is one."""
        self.wait(lambda: self.find(selector, text))
        found = self.find(selector, text)
        assert found is not None, (selector, text)
        return found

    def click(self, selector: str, text: str = "") -> None:
        """Click it, once it is there; the page may be drawn anew meanwhile."""
        from selenium.common.exceptions import StaleElementReferenceException

        def clicked() -> bool:
            try:
                self.get(selector, text).click()
            except StaleElementReferenceException:
                return False
            return True

        self.wait(clicked)

    def keys(self, text: str) -> None:
        """Type into what has the focus."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(text).perform()

    def run(self, script: str, *arguments: object) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: Callable[[], object]) -> None:
        """Until the condition holds."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        waiting = WebDriverWait(self.driver, SECONDS, 0.05, [StaleElementReferenceException])
        waiting.until(lambda _: condition())

    def faults(self) -> list[str]:
        """What the page's own scripts complained about since the last look."""
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]

    def asked(self) -> set[str]:
        """The hosts that were asked for anything since the last look."""
        hosts = set()
        for line in self.driver.get_log("performance"):
            message = json.loads(line["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if url.startswith(("http:", "https:", "ws:", "wss:")):
                    hosts.add(url.split("/")[2])
        return hosts

    def violations(self) -> list[str]:
        """What axe finds wrong with the page as it is."""
        self.run(axe())
        found = self.driver.execute_async_script(
            "const done = arguments[0];"
            "const told = (each) => `${each.id}: ${each.nodes.map((node) => node.html).join(' ')}`;"
            "axe.run(document, {resultTypes: ['violations']}).then("
            "(found) => done(found.violations.map(told)), (error) => done([`${error}`]))"
        )
        return list(found)
