"""Reports in headless Chromium: `make test-browser`. The actions of a reader, on pages of real replays."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bft.replay.cli.main import run

pytestmark = pytest.mark.browser
AXE = (
    Path(__file__).parents[2]
    / "build"
    / "axe"
    / "node_modules"
    / "axe-core"
    / "axe.min.js"
)
HOSTILE = "</script><img src=x onerror=alert(1)>$$\\alpha$$ <b>J"
WIDTHS = {"phone": 375, "desk": 1440}
# The page asked for a chart, and it is there with all that page.js adds to it.
DRAWN = (
    "key => 'drawn' in document.querySelector(`.figure[data-chart='${key}']`).dataset"
)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's run and another policy's, one of jobs with hostile names, and the pages of all."""
    folder = tmp_path_factory.mktemp("pages")
    for name, policy in (("demo", "milp"), ("other", "equal-share")):
        more = [
            "--backend",
            "exact",
            "--policy",
            policy,
            "--out",
            str(folder / name),
            "-print",
            "0",
        ]
        assert run(["-Tfwd", "120", *more]) == 0
    rows = [
        {"name": f"{HOSTILE}{k}", "Jmin": 1, "Jmax": 4, "Pmax": 4e5, "Tsub": f"2021-02-10T00:{k % 60:02}:00Z",
         "Tcup": 6, "Tcdw": 3, "Ns": [0, 1, 4], "Ps": [0, 10, 38], "Os": [0, 10, 38], "user": f"{HOSTILE}{k % 3}"}
        for k in range(130)
    ]  # fmt: skip
    (folder / "jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    jobs = [
        "--cluster",
        "8x4",
        "--jobs",
        str(folder / "jobs.jsonl"),
        "--policy",
        "fifo",
    ]
    assert run([*jobs, "--out", str(folder / "hostile"), "-print", "0"]) == 0
    assert (
        run(
            [
                "generate",
                "trace",
                "-o",
                str(folder / "trace.parquet"),
                "--nodes",
                "40",
                "--days",
                "3",
            ]
        )
        == 0
    )
    axes = [
        "-Tfwd",
        "10,120,600",
        "-maxJ",
        "2,0",
        "--backend",
        "exact",
        "--no-u",
        "--workers",
        "0",
    ]
    trace = [
        "-ndmap",
        str(folder / "trace.parquet"),
        "--jobs",
        str(folder / "jobs.jsonl"),
        "--option",
        "align-jobs=yes",
    ]
    assert run(["sweep", *trace, *axes, "--out", str(folder / "swept")]) == 0
    assert (
        run(
            [
                "report",
                str(folder / "swept" / "results.parquet"),
                "-o",
                str(folder / "sweep.html"),
            ]
        )
        == 0
    )
    assert run(["report", str(folder / "demo")]) == 0
    assert run(["report", str(folder / "hostile"), "--title", HOSTILE]) == 0
    assert (
        run(
            [
                "report",
                str(folder / "demo"),
                str(folder / "other"),
                "-o",
                str(folder / "two.html"),
            ]
        )
        == 0
    )
    return folder


class Opened:
    """A page in a browser that has no network, with all that it said and asked for."""

    def __init__(self, chromium: Any, path: Path, width: str, scheme: str) -> None:
        size = {"width": WIDTHS[width], "height": 900}
        self.context = chromium.new_context(
            viewport=size, color_scheme=scheme, offline=True
        )
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.page.on(
            "console",
            lambda line: (
                self.said.append(line.text)
                if line.type in ("error", "warning")
                else None
            ),
        )
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on(
            "dialog",
            lambda dialog: (self.said.append(dialog.message), dialog.dismiss()),
        )
        self.asked: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.charts = [
            str(key)
            for key in self.page.eval_on_selector_all(
                ".figure", "all => all.map(f => f.dataset.chart)"
            )
        ]
        for more in self.page.locator("details.more").all():
            more.evaluate("node => { node.open = true }")
        for key in self.charts:
            self.page.locator(
                f".figure[data-chart='{key}']"
            ).scroll_into_view_if_needed()
            self.page.wait_for_function(DRAWN, arg=key)

    def model(self, key: str, expression: str) -> Any:
        """What an expression of the Bokeh figure `f` of a chart is."""
        figure = (
            f"Bokeh.documents.find(document => document.title() === '{key}').roots()[0]"
        )
        return self.page.evaluate(
            f"(() => {{ const f = {figure}; return {expression} }})()"
        )

    def quiet(self) -> bool:
        """There was no error, and no request left the file."""
        assert self.said == []
        assert [
            url for url in self.asked if not url.startswith(("file:", "data:", "blob:"))
        ] == []
        return True


@pytest.fixture
def opened(chromium: Any, runs: Path) -> Iterator[Any]:
    pages: list[Opened] = []

    def open_page(name: str, width: str = "desk", scheme: str = "light") -> Opened:
        pages.append(Opened(chromium, runs / f"{name}.html", width, scheme))
        return pages[-1]

    yield open_page
    for page in pages:
        page.context.close()


PAINTED = """async key => {
  const frame = document.querySelector(`.figure[data-chart='${key}']`);
  const canvas = [];
  const walk = node => {
    if (node.tagName === 'CANVAS') canvas.push(node);
    for (const child of [...(node.shadowRoot ? node.shadowRoot.children : []), ...node.children]) walk(child);
  };
  walk(frame);
  let coloured = 0;
  for (const one of canvas) {
    if (!one.width || !one.height) continue;
    const copy = new OffscreenCanvas(one.width, one.height).getContext('2d', {willReadFrequently: true});
    copy.drawImage(one, 0, 0);
    const {data} = copy.getImageData(0, 0, one.width, one.height);
    for (let k = 0; k < data.length; k += 4) {
      const [r, g, b, a] = [data[k], data[k + 1], data[k + 2], data[k + 3]];
      if (a > 60 && Math.max(r, g, b) - Math.min(r, g, b) > 40) coloured++;
    }
  }
  return coloured;
}"""


@pytest.mark.parametrize(("name", "width", "scheme"), [
    *(("demo", width, scheme) for width in WIDTHS for scheme in ("light", "dark")),
    *((name, *look) for name in ("two", "hostile", "sweep")
      for look in (("phone", "dark"), ("desk", "light"))),
])  # fmt: skip
def test_a_page_is_quiet_fits_has_marks_in_every_chart_and_can_be_used_by_all(
    opened: Any, name: str, width: str, scheme: str
) -> None:
    seen = opened(name, width, scheme)
    assert seen.page.locator(".figure").count() >= 3
    for key in seen.charts:
        assert seen.page.evaluate(PAINTED, key) > 100, key
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
    assert seen.quiet()
    assert AXE.exists(), "no axe-core here: `make test-browser` installs it"
    for details in seen.page.locator("details").all():
        details.evaluate("node => { node.open = true }")
    seen.page.evaluate(AXE.read_text("utf-8"))
    serious = [
        (rule["id"], rule["help"], [node["target"] for node in rule["nodes"]][:5])
        for rule in seen.page.evaluate("axe.run()")["violations"]
        if rule["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_names_stay_names(opened: Any) -> None:
    seen = opened("hostile")
    assert seen.page.locator("img").count() == 0
    assert HOSTILE in seen.page.locator("h1").inner_text()
    seen.page.locator("#all-jobs").click()
    assert seen.page.locator("table.jobs tbody tr").count() == 130
    assert seen.page.locator("table.jobs tbody th").first.inner_text() == f"{HOSTILE}0"
    assert seen.page.locator("img").count() == 0
    assert HOSTILE in hovered(seen, "progress")
    assert seen.page.locator("img").count() == 0
    assert seen.quiet()


def test_hovering_shows_the_numbers_of_every_chart(opened: Any) -> None:
    seen = opened("demo")
    for key in seen.charts:
        words = hovered(seen, key)
        assert any(character.isdigit() for character in words), key
        assert "???" not in words, key
    assert seen.quiet()


def hovered(seen: Opened, key: str) -> str:
    """The text of a hover somewhere along a chart."""
    figure = seen.page.locator(f".figure[data-chart='{key}']")
    figure.scroll_into_view_if_needed()
    box = figure.bounding_box()
    tips = seen.page.locator(".bk-tooltip-content")
    for step in range(1, 20):  # somewhere along the chart there is a mark
        seen.page.mouse.move(
            box["x"] + 60 + step * (box["width"] - 80) / 20, box["y"] + 55 + step * 7
        )
        seen.page.wait_for_timeout(40)
        if tips.count() and tips.first.inner_text().strip():
            break
    return str(tips.first.inner_text())


def test_a_sweep_has_the_means_in_its_table(opened: Any, runs: Path) -> None:
    import pandas as pd

    seen = opened("sweep")
    table = pd.read_parquet(runs / "swept" / "results.parquet")
    rows = seen.page.eval_on_selector_all(
        "#sweep-outcome details table tbody tr",
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))",
    )
    known = table.set_index(["tfwd_s", "max_jobs"])["outcome"]
    expected = {
        (f"-Tfwd {tfwd:g}", f"-maxJ {jobs}"): of for (tfwd, jobs), of in known.items()
    }
    shown = {
        (tfwd, jobs): float(mean.replace(",", "")) for tfwd, jobs, mean, *_ in rows
    }
    assert shown == pytest.approx(expected, abs=0.5)
    assert seen.quiet()


def test_a_legend_takes_entries_out_and_puts_them_back(opened: Any) -> None:
    seen = opened("demo")
    for key in ("idle", "times", "fragments", "progress"):
        button = seen.page.locator(f"#{key} .legend button").last
        before = seen.page.evaluate(PAINTED, key)
        button.click()
        assert button.get_attribute("aria-pressed") == "false"
        seen.page.wait_for_timeout(200)
        assert seen.page.evaluate(PAINTED, key) < before
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        seen.page.wait_for_timeout(200)
        assert seen.page.evaluate(PAINTED, key) == pytest.approx(before, rel=0.02)
    assert seen.quiet()


def test_charts_over_time_zoom_together_by_mouse_and_by_keyboard(opened: Any) -> None:
    seen = opened("demo")
    range_of = "[f.x_range.start, f.x_range.end]"
    whole = seen.model("idle", range_of)
    figure = seen.page.locator(".figure[data-chart='idle']")
    figure.scroll_into_view_if_needed()
    box = figure.bounding_box()
    seen.page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 90)
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 180, steps=8)
    seen.page.mouse.up()
    seen.page.wait_for_timeout(200)
    near = seen.model("idle", range_of)
    assert near[1] - near[0] < 0.3 * (whole[1] - whole[0])
    for key in ("held", "progress"):
        assert seen.model(key, range_of) == near
    figure.press("+")
    seen.page.wait_for_timeout(200)
    nearer = seen.model("held", range_of)
    assert nearer[1] - nearer[0] == pytest.approx(0.7 * (near[1] - near[0]))
    figure.press("ArrowRight")
    seen.page.wait_for_timeout(200)
    assert seen.model("progress", range_of)[0] > nearer[0]
    figure.press("0")
    seen.page.wait_for_timeout(200)
    assert seen.model("progress", range_of) == whole
    assert seen.quiet()


def test_who_held_what_shows_more_the_nearer_one_looks(opened: Any, runs: Path) -> None:
    """At each of three zooms, the cells agree with the run's table of allocations."""
    import pandas as pd

    seen = opened("demo")
    held = pd.read_parquet(runs / "demo" / "allocations.parquet")
    names = list(held["job"].cat.categories)
    whole = seen.model("held", "[f.x_range.start, f.x_range.end]")
    for part in (1.0, 0.2, 0.02):
        middle = whole[0] + 0.93 * (whole[1] - whole[0])
        half = part * (whole[1] - whole[0]) / 2 if part < 1 else None
        left, right = whole if half is None else (middle - half, middle + half)
        seen.model("held", f"f.x_range.setv({{start: {left}, end: {right}}})")
        seen.page.wait_for_timeout(300)
        cells, (rows, columns) = seen.model(
            "held",
            "[Array.from(f.tags[1].get_column('image')[0]), f.tags[1].get_column('image')[0].shape]",
        )
        assert sum(cell > 0 for cell in cells) > 500
        for at in range(0, len(cells), len(cells) // 97):
            row, column = divmod(at, columns)
            ms = left + (column + 0.5) * (right - left) / columns
            unit = (row + 0.5) * 512 / rows
            when = pd.Timestamp(ms, unit="ms", tz="UTC")
            edge = pd.Timedelta(seconds=1)  # the page counts in whole seconds
            sure = held[(held["first_unit"] <= unit) & (held["last_unit"] + 1 > unit)]
            inside = sure[(sure["start"] + edge <= when) & (sure["end"] - edge > when)]
            near = sure[(sure["start"] - edge <= when) & (sure["end"] + edge > when)]
            shown = names[cells[at] - 1] if cells[at] else None
            if len(inside):
                assert shown in set(near["job"])
            elif not len(near):
                assert shown is None
    assert seen.quiet()


def test_jobs_are_sorted_by_what_a_column_means(opened: Any) -> None:
    seen = opened("demo")
    table = seen.page.locator("table.jobs")
    head = table.locator("th button", has_text="took, h")
    for order, sign in (("ascending", 1), ("descending", -1)):
        head.click()
        assert table.locator("th[aria-sort]").get_attribute("aria-sort") == order
        texts = table.locator("tbody tr td:nth-child(5)").all_inner_texts()
        known = [float(text) for text in texts if text != "-"]
        assert known == sorted(known, key=lambda hours, sign=sign: sign * hours)
        assert texts[-1] == "-"  # what is not known comes last either way
    assert seen.quiet()


def test_printed_columns_of_jobs_have_their_names(opened: Any) -> None:
    seen = opened("demo")
    seen.page.emulate_media(media="print")
    heads = seen.page.locator("table.jobs th button")
    assert all(head.is_visible() for head in heads.all())
    assert not seen.page.locator("#theme").is_visible()
    seen.page.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins
    box = seen.page.locator("table.jobs").bounding_box()
    assert box is not None
    assert box["width"] <= 718


def test_without_scripts_a_page_has_sentences_tiles_and_the_tables_of_charts(
    chromium: Any, runs: Path
) -> None:
    context = chromium.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    for name in ("demo", "two", "sweep"):
        page.goto((runs / f"{name}.html").as_uri())
        assert page.locator(".opening").inner_text()
        assert page.locator(".unscripted").is_visible()
        assert not page.locator(".figure").first.is_visible()
        details = page.locator("main > section details", has_text="Data of this chart")
        details.first.locator("summary").click()
        assert details.first.locator("table td").first.is_visible()
    page.goto((runs / "demo.html").as_uri())
    assert page.locator(".tiles li").count() >= 5
    context.close()


def test_a_link_shows_a_chart_that_is_a_click_away(opened: Any) -> None:
    seen = opened("demo")
    seen.page.evaluate("document.querySelector('details.more').open = false")
    seen.page.locator("nav summary").click()
    seen.page.locator(".contents a[href='#times']").click()
    assert seen.page.evaluate("document.querySelector('details.more').open")
    assert seen.page.locator("#times h2").is_visible()
    assert seen.quiet()


def test_the_switch_turns_light_into_dark_and_back(opened: Any) -> None:
    seen = opened("demo")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = seen.page.evaluate(paper)
    ink = seen.model(
        "idle",
        "f.below[0].axis_label_text_color.value ?? f.below[0].axis_label_text_color",
    )
    seen.page.locator("#theme").click()
    assert seen.page.evaluate(paper) != light
    assert (
        seen.model(
            "idle",
            "f.below[0].axis_label_text_color.value ?? f.below[0].axis_label_text_color",
        )
        != ink
    )
    seen.page.locator("#theme").click()
    assert seen.page.evaluate(paper) == light
    assert seen.quiet()


def test_the_first_chart_is_there_soon_and_says_when(opened: Any) -> None:
    """Its duration is for measurements only: machines are busy."""
    seen = opened("demo")
    marks = seen.page.evaluate(
        "performance.getEntriesByType('mark').map(mark => mark.name)"
    )
    assert "first chart" in marks
