"""The director's page in headless Chromium: what if, by keyboard, with the figures of the table; and used by all."""

from pathlib import Path
from typing import Any

import pytest

from bft.replay.cli.main import run

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
AXE = ROOT / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
PRICES = ["--price-per-node-hour", "0.4", "--node-watts", "200,700", "--price-per-kwh", "0.2"]  # fmt: skip


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evaluation")
    log = [str(ROOT / "examples" / "synthetic-sacct.txt"), "--nodes", "cn[01-64]"]
    window = ["--tz", "Europe/Berlin", "--from", "2024-03-04", "--to", "2024-03-07"]
    assert run(["evaluate", *log, *window, *PRICES, "--out", str(out), "-q"]) == 0
    return out / "evaluation.html"


def opened(chromium: Any, path: Path, **look: Any) -> tuple[Any, list[str]]:
    """The page, and what went wrong on it."""
    page = chromium.new_context(offline=True, **look).new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda line: said.append(line.text) if line.type == "error" else None)  # fmt: skip
    page.goto(path.as_uri())
    return page, said


def rows(page: Any, table: str) -> list[list[str]]:
    found: list[list[str]] = page.eval_on_selector_all(
        f"{table} tbody tr",
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))",
    )
    return found


@pytest.mark.parametrize(
    ("width", "scheme"), [(375, "dark"), (1280, "light"), (1280, "dark")]
)
def test_the_page_fits_is_quiet_and_can_be_used_by_all(
    chromium: Any, page_file: Path, width: int, scheme: str
) -> None:
    look = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    page, said = opened(chromium, page_file, **look)
    for figure in page.locator(".figure").all():
        figure.scroll_into_view_if_needed()
    page.wait_for_function("!document.querySelector('.figure:not([data-drawn])')")
    assert page.locator(".figure").count() == 4
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert said == []
    assert AXE.exists(), "no axe-core here: `make test-browser` installs it"
    page.evaluate(AXE.read_text("utf-8"))
    assert [
        (rule["id"], rule["nodes"][0]["target"])
        for rule in page.evaluate("axe.run()")["violations"]
    ] == []


def test_what_if_has_the_figures_of_the_replays_at_any_return_time(
    chromium: Any, page_file: Path
) -> None:
    page, said = opened(chromium, page_file)
    table = rows(page, "#replayed table")
    assert len(table) == 12
    field = page.get_by_label("Seconds until a node is back, as a number")
    slider = page.get_by_label("Seconds until a node is back", exact=True)
    for seconds in ("30", "120", "300"):
        field.fill(seconds)
        assert slider.input_value() == seconds
        assert rows(page, "#what-if-table") == [
            row for row in table if row[0].strip(" ◂") == seconds
        ]
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert field.input_value() == "301"
    page.get_by_label("0", exact=True).focus()
    page.keyboard.press("ArrowRight")
    answer = page.locator("#what-if-answer").inner_text()
    assert "takes 301 s to come back and 1 node is kept free" in answer
    price = page.get_by_label("counts as so many of training, as a number")
    price.fill("1000")
    assert "It does not pay." in page.locator("#what-if-answer").inner_text()
    field.fill("901")  # beyond what is known: nothing changes
    assert "takes 301 s" in page.locator("#what-if-answer").inner_text()
    assert said == []


def test_without_scripts_the_sentences_and_the_table_are_there(
    chromium: Any, page_file: Path
) -> None:
    page, _ = opened(chromium, page_file, java_script_enabled=False)
    assert page.locator(".said dd").count() == 6
    assert page.locator("#replayed tbody tr").count() == 12
    assert not page.locator(".controls").is_visible()
    assert not page.locator("#what-if-table").is_visible()


def test_it_prints_what_was_asked(chromium: Any, page_file: Path) -> None:
    page, said = opened(chromium, page_file)
    page.get_by_label("Seconds until a node is back, as a number").fill("45")
    page.emulate_media(media="print")
    assert "takes 45 s" in page.locator("#what-if-answer").inner_text()
    assert not page.get_by_label("Seconds until a node is back", exact=True).is_visible()  # fmt: skip
    assert len(page.pdf(format="A4")) > 10_000
    assert said == []
