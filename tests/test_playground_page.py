"""The playground's page in a real browser: typed into, dragged, clicked, and judged by what it shows.

Skipped where there is no Chromium (``apt-get install chromium``) or no Playwright (``pip install playwright``); the
browser is never downloaded.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from playground_server import ended, exploding, started

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="needs Playwright: pip install playwright"
)
NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium: apt-get install chromium"
)

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE = 40_000
"""Milliseconds: the tests share their machine with others."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    process, port = started("--port", "0", "--seconds", "60")
    yield f"http://127.0.0.1:{port}/"
    ended(process)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page that has asked nobody else, and that complained about nothing, when the test ends."""
    context = browser.new_context(
        viewport={"width": 1440, "height": 1000}, color_scheme="light"
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on(
        "console", lambda message: complaints.append(f"{message.type}: {message.text}")
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    page.wait_for_selector("[data-image]")
    settled(page)
    yield page
    settled(page)
    assert [url for url in asked if not url.startswith(address)] == []
    assert complaints == []
    context.close()


def write(page: Page, text: str) -> None:
    """Replace what is in the editor."""
    page.click(".cm-content")
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)


def settled(page: Page) -> None:
    """Wait until nothing is asked any more."""
    sync_api.expect(page.locator("main")).to_have_attribute(
        "aria-busy", "false", timeout=PATIENCE
    )


def drawn(page: Page, text: str) -> None:
    """Write these rules and wait for their picture."""
    write(page, text)
    shown(page, "#code", text.splitlines()[-1])
    settled(page)


def shown(page: Page, selector: str, text: str | re.Pattern[str]) -> None:
    """Wait until an element says this."""
    sync_api.expect(page.locator(selector)).to_contain_text(text, timeout=PATIENCE)


def images(page: Page) -> list[list[Fraction]]:
    """Where the maps of the terms send the raw point, exactly; the page says of all of them that they obey."""
    found = page.locator("[data-image]").all()
    assert {image.get_attribute("data-obeys") for image in found} == {"true"}
    return [
        [Fraction(float(x)) for x in (image.get_attribute("data-at") or "").split()]
        for image in found
    ]


def drag(
    page: Page, selector: str, start: tuple[float, float], end: tuple[float, float]
) -> None:
    """From one place of an element to another, both as parts of its width and height."""
    box = page.locator(selector).bounding_box()
    assert box is not None
    places = [
        (box["x"] + x * box["width"], box["y"] + y * box["height"])
        for x, y in (start, end)
    ]
    page.mouse.move(*places[0])
    page.mouse.down()
    page.mouse.move(*places[1], steps=8)
    page.mouse.up()


# --- rules and verdict -----------------------------------------------------------------------------------------------


def test_rules_that_are_typed_have_terms(page: Page) -> None:
    page.click(".cm-content")
    page.keyboard.press("Control+a")
    page.keyboard.type(
        "x: real; y: real\nx >= 2 or x <= -2\n0 <= y <= 1 or y == 5\n", delay=5
    )
    shown(page, "#verdict .headline", "4 terms in 2 blocks")
    assert page.locator("table.terms").count() == 2
    shown(page, "table.ranges", "[0, 5]")
    sync_api.expect(page.locator("[data-image]")).to_have_count(4)
    assert {"tok-number", "tok-type", "tok-keyword"} <= {
        name
        for span in page.locator(".cm-line span").all()
        for name in (span.get_attribute("class") or "").split()
    }


def test_an_error_is_underlined_at_its_column(page: Page) -> None:
    write(page, "x: real; 𝒙𝒙: real\n𝒙𝒙 + x >= limt + 1")
    sync_api.expect(page.locator(".cm-lintRange-error")).to_have_text("limt")
    shown(page, "#problem", "line 2, column 11: unknown name `limt`")
    write(page, "x: real\nx >= 1")
    shown(page, "#verdict .headline", "1 term in 1 block")
    sync_api.expect(page.locator(".cm-lintRange-error")).to_have_count(0)
    sync_api.expect(page.locator("#problem")).to_have_text("")


def test_the_rules_of_a_contradiction_are_marked(page: Page) -> None:
    write(
        page, "x: real; y: real\nx >= 1\ny >= 0; x + y <= 10\nx >= 0\nx <= 0 or y > 12"
    )
    shown(page, "#verdict .headline", "these 3 rules contradict each other")
    marked = ["x >= 1", "x + y <= 10", "x <= 0 or y > 12"]
    assert [
        mark.inner_text() for mark in page.locator(".cm-contradiction").all()
    ] == marked
    sync_api.expect(page.locator("[data-term]")).to_have_count(0)
    write(page, "x: real; y: real\nx >= 1; y >= 0; x + y <= 10")
    sync_api.expect(page.locator("[data-term]")).to_have_count(1)
    sync_api.expect(page.locator(".cm-contradiction")).to_have_count(0)


def test_superfluous_rules_are_greyed(page: Page) -> None:
    write(page, "x: real; y: real\nx >= 10; y - x >= 1; x >= 1\n(y > 0 or\n  x > 0)")
    shown(page, "#verdict", "follows from the other rules: line 2: x >= 1")
    found = page.evaluate(
        "[...document.querySelectorAll('.cm-superfluous')].map((mark) => mark.textContent)"
    )
    assert found == ["x >= 1", "(y > 0 or", "  x > 0)"]
    before = page.evaluate(
        "document.querySelector('.cm-superfluous').previousSibling.textContent"
    )
    assert before.endswith("; "), (
        "the last rule of the line is meant, not the beginning of the first"
    )


def test_rules_that_take_too_long_can_be_cancelled(page: Page) -> None:
    write(page, exploding())
    page.wait_for_selector("#cancel", state="visible")
    page.click("#cancel")
    shown(page, "#verdict", "Cancelled")
    write(page, "x >= 1 or x <= 0")
    shown(page, "#verdict .headline", "2 terms in 1 block")


def test_who_types_on_does_not_wait_for_what_was_there_before(page: Page) -> None:
    write(page, exploding())
    page.wait_for_selector("#cancel", state="visible")
    write(page, "x >= 1 or x <= 0")
    shown(page, "#verdict .headline", "2 terms in 1 block")


# --- the picture -----------------------------------------------------------------------------------------------------


def test_the_raw_point_is_dragged_and_every_image_obeys(page: Page) -> None:
    drawn(page, "x: real; y: real\nx >= 1; y >= 0; x + y <= 10\nabs(x - y) > 1")
    sync_api.expect(page.locator("[data-grid]")).to_have_count(2)
    seen = [images(page)]
    for place in ((0.9, 0.1), (0.05, 0.5), (0.5, 0.97)):
        drag(page, "#pad", (0.5, 0.5), place)
        settled(page)
        seen.append(images(page))
    page.select_option("#raw-range", "1000000")
    drag(page, "#pad", (0.5, 0.5), (0.95, 0.95))
    settled(page)
    seen.append(images(page))
    assert len({str(points) for points in seen}) == len(seen)
    for x, y in (point for points in seen for point in points):
        assert x >= 1
        assert y >= 0
        assert x + y <= 10
        assert abs(x - y) > 1
    assert [len(points) for points in seen] == [2] * len(seen)
    shown(page, "#image-words", "2 images, all obey, exactly")


def test_a_cascade_is_drawn_and_dragged(page: Page) -> None:
    """Twelve lots have no list of terms; what they leave for two of them is drawn, and every image obeys."""
    text = "x: real[12]\nall(v == 0 or 10 <= v <= 100 for v in x)\nsum(x) <= 300"
    drawn(page, text)
    shown(page, "#verdict .headline", "A cascade of 12 outputs, one after another")
    sync_api.expect(page.locator("[data-term]").first).to_be_attached()
    sync_api.expect(page.locator("[data-image]")).to_have_count(4)
    shown(page, "#image-words", "4 images, all obey, exactly; one for each choice")
    before = images(page)
    drag(page, "#pad", (0.5, 0.5), (0.9, 0.2))
    settled(page)
    after = images(page)
    assert after != before
    for x, y in after:
        assert all(v == 0 or 10 <= v <= 100 for v in (x, y))
    shown(page, "table.cascade", "one output after another, since")
    shown(page, "#code", "-branches.log_prob(data)")


def test_dates_are_typed_and_drawn_as_dates(page: Page) -> None:
    text = (
        'start: date["2024-01-01", "2024-12-31"]; end: date["2024-01-01", "2025-12-31"]\n'
        "0 <= end - start <= 30"
    )
    drawn(page, text)
    ticks = page.locator("[data-layer=axes] text").all_text_contents()
    assert any(re.fullmatch(r"2024-\d\d-\d\d", words) for words in ticks)
    page.fill("[data-row=start]", "2024-02-29")
    page.fill("[data-row=end]", "2024-04-30")
    shown(page, "#row-verdict", "breaks the rules")
    shown(page, "#row-rules", "by 31")
    page.click("#repair")
    shown(page, "#row-verdict", "obeys all rules, exactly (moved")
    assert re.fullmatch(r"2024-0\d-\d\d", page.input_value("[data-row=end]"))


def test_a_missing_value_is_an_empty_field(page: Page) -> None:
    drawn(page, "low: real?; high: real\n0 <= low <= high; high <= 9")
    shown(page, "#sample-words", "have a missing value and no place here")
    page.fill("[data-row=low]", "")
    page.fill("[data-row=high]", "8")
    shown(page, "#row-verdict", "obeys all rules, exactly")
    assert page.get_attribute("[data-row=low]", "placeholder") == "missing"


def test_samples_of_a_fresh_layer_are_judged(page: Page) -> None:
    shown(page, "#sample-words", "400 of 400 outputs of a fresh layer obey, exactly")
    sync_api.expect(page.locator(".sample")).to_have_count(400)
    first = page.locator(".sample").first.get_attribute("cy")
    page.click("#again")
    page.wait_for_function(
        "first => document.querySelector('.sample').getAttribute('cy') !== first",
        arg=first,
    )
    page.uncheck("#show-samples")
    sync_api.expect(page.locator(".sample")).to_have_count(0)


def test_a_slider_moves_what_an_input_bounds(page: Page) -> None:
    polygon = page.locator("[data-term='1'] polygon")
    before = polygon.get_attribute("points")
    page.locator("[data-slider=limit]").fill("0")
    page.wait_for_function(
        "before => document.querySelector(\"[data-term='1'] polygon\").getAttribute('points') !== before",
        arg=before,
    )
    page.locator("[data-slider=limit]").fill("40")
    shown(page, "#sliders output", "400")


def test_another_output_is_free_or_fixed(page: Page) -> None:
    write(page, "x: real[3]\nall(0 <= v <= 1 for v in x)\nsum(x) <= 2")
    shown(page, "#picture-words", "a projection")
    page.check("[data-fix='x[2]']")
    shown(page, "#picture-words", "a slice at x[2] = 0.5")
    page.select_option("#axis-x", "x[2]")
    sync_api.expect(page.locator("[data-slider='x[0]']")).to_have_count(1)
    shown(page, "#picture-words", "a projection")


def test_one_output_is_a_number_line(page: Page) -> None:
    drawn(page, "rain == 0 or rain > 0")
    sync_api.expect(page.locator("#axis-y")).to_have_value("")
    dry, wet = images(page)
    assert dry == [0]
    assert wet[0] > 0


def test_a_frame_is_zoomed_moved_and_fitted(page: Page) -> None:
    def ticks() -> str:
        return " ".join(page.locator("[data-layer=axes] .tick").all_text_contents())

    start = ticks()
    for act in ("zoom", "drag"):
        before = ticks()
        if act == "zoom":
            page.click("#zoom-in")
        else:
            drag(page, "#picture", (0.5, 0.5), (0.7, 0.3))
        page.wait_for_function(
            "before => [...document.querySelectorAll('[data-layer=axes] .tick')].map(t => t.textContent).join(' ')"
            " !== before",
            arg=before,
        )
    page.click("#fit")
    settled(page)
    assert ticks() == start


# --- row, code, links, examples --------------------------------------------------------------------------------------


def test_a_row_is_checked_and_repaired(page: Page) -> None:
    page.fill("[data-row=a]", "200")
    page.fill("[data-row=b]", "700")
    shown(page, "#row-verdict", "breaks the rules")
    shown(page, "#row-rules", "on the boundary, which is excluded: line 7")
    shown(page, "#row-rules", "by 75: line 9")
    sync_api.expect(page.locator(".cross-bad")).to_have_count(2)
    page.click("#repair")
    shown(page, "#row-verdict", "obeys all rules, exactly (moved")
    a, b = (Fraction(float(page.input_value(f"[data-row={name}]"))) for name in "ab")
    assert a == 0 or 200 < a < 400
    assert b <= 625
    assert a <= 0 or b >= a + 2


def test_a_click_into_the_picture_is_a_row(page: Page) -> None:
    settled(page)
    page.locator("#picture").click(position={"x": 200, "y": 200})
    shown(page, "#row-verdict", "breaks the rules")
    assert 0 < float(page.input_value("[data-row=a]")) < 200


def test_the_code_follows_the_rules(page: Page) -> None:
    write(page, "z: real\nz >= 1")
    shown(page, "#code", "z >= 1")
    page.click("#tab-density")
    shown(page, "#code", "RulesDistribution")
    page.keyboard.press("ArrowRight")
    shown(page, "#code", "rules.violation")
    assert page.locator("#tab-check").get_attribute("aria-selected") == "true"


def test_an_example_is_loaded(page: Page) -> None:
    page.select_option("#examples", label="l1 ball")
    shown(page, ".cm-content", "sum(abs(v) for v in x) <= 1")
    shown(page, "#verdict .headline", "1 term in 1 block")
    shown(page, "#sample-words", "400 of 400")
    sync_api.expect(page.locator("#sliders .slider")).to_have_count(2)


def test_rules_are_a_link(page: Page, address: str) -> None:
    write(page, 'été: real  # «naïve»\nété >= 1; c: {"a b", "𝒙"}')
    shown(page, "#code", "été")
    link = page.url
    other = page.context.new_page()
    other.set_default_timeout(PATIENCE)
    other.goto(link)
    shown(other, "#code", "été")
    assert (
        other.locator(".cm-line").all_inner_texts()
        == page.locator(".cm-line").all_inner_texts()
    )
    other.goto(f"{address}#rules=%%%")
    other.reload()
    shown(other, ".cm-content", "actuator")


def test_text_from_a_link_never_becomes_markup(page: Page, address: str) -> None:
    write(
        page,
        'c: {"<img src=x onerror=alert(1)>", "b"}\nc == "<img src=x onerror=alert(1)>"',
    )
    shown(page, "#verdict .headline", "1 term")
    settled(page)
    assert page.locator("main img").count() == 0


# --- hands and eyes --------------------------------------------------------------------------------------------------


def test_the_keyboard_is_enough(page: Page) -> None:
    page.click(".cm-content")
    page.keyboard.press("Tab")
    assert page.evaluate("!document.activeElement.closest('.cm-editor')"), (
        "Tab has to leave the editor"
    )
    settled(page)
    before = images(page)
    page.focus("#pad")
    for _ in range(4):
        page.keyboard.press("Shift+ArrowUp")
    settled(page)
    assert images(page) != before
    assert page.locator("#raw-words").inner_text() == "(0, 2)"
    page.keyboard.press("Home")
    shown(page, "#raw-words", "(0, 0)")


def test_everything_that_is_used_has_a_name(page: Page) -> None:
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, [role=application], svg[role]')]
            .filter((node) => !(node.textContent.trim() && node.tagName === 'BUTTON')
                && !node.getAttribute('aria-label') && !(node.labels && node.labels.length))
            .map((node) => node.outerHTML.slice(0, 80))"""
    )
    assert nameless == []


def test_light_and_dark(page: Page) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = background()
    page.click("#theme")
    assert background() != light
    page.reload()
    page.wait_for_selector("[data-image]")
    assert background() != light
    page.click("#theme")
    assert background() == light


def test_a_narrow_page_does_not_scroll_sideways(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
