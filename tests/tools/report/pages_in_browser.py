#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Opens pages of `castor report --html` and `castor plan --html` in headless Chromium and looks at them: every picture has marks, hover, click and keys work, nothing is
wider than the screen, and the console has no error. In CI there is no browser, so a person runs it before a change of the page lands:

    apt-get install chromium chromium-driver; pip install selenium
    tests/tools/report/pages_in_browser.py [--shots FOLDER] PAGE...

Each page is opened 1280 and 400 pixels wide, light and dark.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

failures = 0


def check(what: str, holds: Any) -> None:
    global failures
    if not holds:
        failures += 1
        print(f"FAILED: {what}")


def open_browser(width: int, dark: bool) -> Any:
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
    set_size(browser, width, 900)
    return browser


def set_size(browser: Any, width: int, height: int) -> None:
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})


def tip(browser: Any) -> str:
    found = browser.find_element(By.ID, "tip")
    return found.text if found.is_displayed() else ""


def hover(browser: Any, element: Any) -> str:
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    ActionChains(browser).move_to_element(element).perform()
    return tip(browser)


def marks(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements(By.CSS_SELECTOR, selector))


def look_at(browser: Any, page: Path, width: int) -> None:
    browser.get(page.resolve().as_uri())
    document = json.loads(browser.execute_script("return document.getElementById('document').textContent"))
    (look_at_plan if "fits" in document else look_at_run)(browser, document)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    check(f"nothing is wider than the screen: {wide} of {width}", wide <= width)
    errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    check(f"no error in the console: {errors}", not errors)


def look_at_plan(browser: Any, document: dict[str, Any]) -> None:
    check("a headline", marks(browser, "#headline")[0].text.startswith("It fits" if document["fits"] else "It does not fit"))
    cells = marks(browser, "#grid rect.budgets")
    check("a cell for each pair of budgets", len(cells) == len(document["budget_grid"]))
    if cells:
        check("a pair of budgets is told", hover(browser, cells[-1]).startswith("device "))
    if not document["fits"]:
        check("changes that fit", len(marks(browser, ".proposal code")) == len(document["changes"]))
        return
    tiers = [tier for tier in document["tiers"] if tier["planned_bytes"] > 0]
    check("a bar of each tier", len(marks(browser, "#tiers figure")) == len(tiers))
    parts = marks(browser, "#tiers rect.part")
    check("parts of bars are told", len(parts) >= len(tiers) and ":" in hover(browser, parts[0]))
    points = marks(browser, "#price circle.point")
    if points:
        check("a price is told", "a step" in hover(browser, points[0]))
    check("rows of choices", len(marks(browser, "#choices-made tbody tr")) == (len(document["alternatives"]) + 1 if document["alternatives"] else 0))
    homes = marks(browser, "#chunks rect.home")
    check("homes of all states", len(homes) == sum(len(chunk["homes"]) for chunk in document["chunk_list"]))
    check("a chunk's homes are told", hover(browser, homes[0]).startswith("chunk 0"))
    ActionChains(browser).move_to_element(homes[0]).click().perform()
    check("a click pins a chunk", marks(browser, "#chunks .pinned h3")[0].text.startswith("Chunk 0,"))
    stage = marks(browser, "#chunks .stage")[0]
    browser.execute_script("arguments[0].focus()", stage)
    stage.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    check("keys move and pin", marks(browser, "#chunks .pinned h3")[0].text.startswith("Chunk 1,"))


def look_at_run(browser: Any, document: dict[str, Any]) -> None:
    check("a headline", marks(browser, "#headline")[0].text == document["headline"])
    check("as many proposals as the document has", len(marks(browser, ".proposal code")) == sum(len(p["lines"]) for p in document["proposals"]))
    if document["detail"]:
        rank = document["detail"]["ranks"][0]
        check("a figure of each tier", len(marks(browser, "#memory figure")) == len(rank["tiers"]))
        check("areas of kinds", len(marks(browser, "#memory path.kind")) >= len(rank["tiers"]))
        check("moves on links", len(marks(browser, "#links rect.move")) == len(rank["moves"]))
        check("what lies on a tier is told", "MiB" in hover(browser, marks(browser, "#memory rect.pane")[0]) or "KiB" in tip(browser))
        canvas = marks(browser, "#chunks canvas")[0]
        check("what a chunk does is told", hover(browser, canvas).startswith("chunk "))
        painted = browser.execute_script(
            "const c = arguments[0]; const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            "let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n;", canvas)
        check("spans are painted", painted > 100)
        ActionChains(browser).move_to_element(canvas).click().perform()
        check("a click pins a chunk", marks(browser, "#chunks .pinned h3")[0].text.startswith("Chunk "))
        stage = marks(browser, "#chunks .stage")[0]
        browser.execute_script("arguments[0].focus()", stage)
        stage.send_keys(Keys.ARROW_UP * 2000, Keys.ENTER)
        check("keys move and pin", marks(browser, "#chunks .pinned h3")[0].text.startswith("Chunk 0,"))
        check("a pinned chunk has its homes", len(marks(browser, "#chunks .pinned table")) >= 1)
        if len(document["detail"]["ranks"]) > 1:
            marks(browser, "#rank option")[1].click()
            check("another rank is shown", "rank 1" in marks(browser, "#chunks figcaption")[0].text)
    if document["stalls"]:
        check("bars of waits", len(marks(browser, "#stalls rect.wait")) == sum(len(s["worst_chunks"]) + (s["time_ns"] - sum(w["time_ns"] for w in s["worst_chunks"]) > 0.01 * s["time_ns"]) for s in document["stalls"]))
        check("a wait is told", "waited for" in hover(browser, marks(browser, "#stalls rect.wait")[0]))
    check("bars of steps", len(marks(browser, "#steps rect.step")) == 2 * sum(step["complete"] for step in document["steps"]))
    check("bars of ranks", len(marks(browser, "#ranks rect.rank")) == (len(document["ranks"]) if document["complete_steps"] and len(document["ranks"]) > 1 else 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shots", type=Path, help="where screenshots go")
    parser.add_argument("pages", type=Path, nargs="+", metavar="PAGE")
    arguments = parser.parse_args()
    for page in arguments.pages:
        for width in (1280, 400):
            for dark in (False, True):
                browser = open_browser(width, dark)
                name = f"{page.stem}, {width} pixels, {'dark' if dark else 'light'}"
                print(name)
                look_at(browser, page, width)
                if arguments.shots:
                    browser.get(page.resolve().as_uri())
                    set_size(browser, width, browser.execute_script("return document.documentElement.scrollHeight"))
                    arguments.shots.mkdir(parents=True, exist_ok=True)
                    browser.save_screenshot(str(arguments.shots / f"{name.replace(', ', '_').replace(' ', '')}.png"))
                browser.quit()
    print(f"{failures} checks failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
