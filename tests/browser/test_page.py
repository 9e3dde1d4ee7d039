"""Reports and the director's page in headless Chromium (`make test-browser`): what a reader does, on real replays."""

import json
import shlex
from pathlib import Path

import pandas as pd
import pytest

from bft.replay.cli.main import run

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
AXE = ROOT / "build/axe/node_modules/axe-core/axe.min.js"
HOSTILE = "</script><img src=x onerror=alert(1)>$$\\alpha$$ <b>J"
WIDTHS = {"phone": 375, "desk": 1440}
# The page asked for a chart, and it is there with all that page.js adds to it.
DRAWN = (
    "key => 'drawn' in document.querySelector(`.figure[data-chart='${key}']`).dataset"
)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's run and another policy's, one of jobs with hostile names, a sweep, and the pages of all."""
    folder = tmp_path_factory.mktemp("pages")
    rows = [
        {"name": f"{HOSTILE}{k}", "Jmin": 1, "Jmax": 4, "Pmax": 4e5, "Tsub": f"2021-02-10T00:{k % 60:02}:00Z",
         "Tcup": 6, "Tcdw": 3, "Ns": [0, 1, 4], "Ps": [0, 10, 38], "Os": [0, 10, 38], "user": f"{HOSTILE}{k % 3}"}
        for k in range(130)
    ]  # fmt: skip
    (folder / "jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace, jobs = folder / "trace.parquet", folder / "jobs.jsonl"
    replay = "-Tfwd 120 --backend exact -print 0"
    swept = f"-ndmap {trace} --jobs {jobs} --option align-jobs=yes --backend exact --no-u --workers 0"
    for line in (
        f"{replay} --policy milp --out {folder}/demo",
        f"{replay} --policy equal-share --out {folder}/other",
        f"--cluster 8x4 --jobs {jobs} --policy fifo --out {folder}/hostile -print 0",
        f"generate trace -o {trace} --nodes 40 --days 3",
        f"sweep {swept} -Tfwd 10,120,600 -maxJ 2,0 --out {folder}/swept",
        f"report {folder}/swept/results.parquet -o {folder}/sweep.html",
        f"report {folder}/demo",
        f"report {folder}/hostile --title {shlex.quote(HOSTILE)}",
        f"report {folder}/demo {folder}/other -o {folder}/two.html",
    ):
        assert run(shlex.split(line)) == 0
    return folder


class Opened:
    """A page in a browser that has no network, with all that it said and asked for."""

    def __init__(self, chromium, path: Path, width: str, scheme: str) -> None:
        self.context = chromium.new_context(
            viewport={"width": WIDTHS[width], "height": 900},
            color_scheme=scheme,
            offline=True,
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
        self.charts = self.page.eval_on_selector_all(
            ".figure", "all => all.map(f => f.dataset.chart)"
        )
        for more in self.page.locator("details.more").all():
            more.evaluate("node => { node.open = true }")
        for key in self.charts:
            self.page.locator(
                f".figure[data-chart='{key}']"
            ).scroll_into_view_if_needed()
            self.page.wait_for_function(DRAWN, arg=key)

    def model(self, key: str, expression: str):
        """What an expression of the Bokeh figure `f` of a chart is."""
        figure = (
            f"Bokeh.documents.find(document => document.title() === '{key}').roots()[0]"
        )
        return self.page.evaluate(
            f"(() => {{ const f = {figure}; return {expression} }})()"
        )

    def press(self, key: str, on) -> None:
        """Press a key on what has the focus then, and let the charts follow."""
        on.press(key)
        self.page.wait_for_timeout(200)

    def close(self) -> None:
        """There was no error, and no request left the file."""
        outside = [
            url for url in self.asked if not url.startswith(("file:", "data:", "blob:"))
        ]
        self.context.close()
        assert (self.said, outside) == ([], [])


@pytest.fixture
def opened(chromium, runs: Path):
    pages: list[Opened] = []

    def open_page(name: str, width: str = "desk", scheme: str = "light") -> Opened:
        pages.append(Opened(chromium, runs / f"{name}.html", width, scheme))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()


def broken_rules(page) -> list[tuple[str, str, list[str]]]:
    """Rules of pages for all that are broken: impact, name, and where."""
    assert AXE.exists(), "no axe-core here: `make test-browser` installs it"
    page.evaluate(AXE.read_text("utf-8"))
    return [
        (rule["impact"], rule["help"], [node["target"] for node in rule["nodes"]][:5])
        for rule in page.evaluate("axe.run()")["violations"]
    ]


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
    opened, name: str, width: str, scheme: str
) -> None:
    seen = opened(name, width, scheme)
    assert seen.page.locator(".figure").count() >= 3
    for key in seen.charts:
        assert seen.page.evaluate(PAINTED, key) > 100, key
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
    for details in seen.page.locator("details").all():
        details.evaluate("node => { node.open = true }")
    broken = broken_rules(seen.page)
    assert not [rule for rule in broken if rule[0] in ("serious", "critical")]


def test_names_stay_names(opened) -> None:
    seen = opened("hostile")
    assert HOSTILE in seen.page.locator("h1").inner_text()
    seen.page.locator("#all-jobs").click()
    assert sorted(seen.page.locator("table.jobs tbody th").all_inner_texts()) == sorted(
        f"{HOSTILE}{k}" for k in range(130)
    )
    assert HOSTILE in hovered(seen, "progress")
    assert seen.page.locator("img").count() == 0


def test_hovering_shows_the_numbers_of_every_chart(opened) -> None:
    seen = opened("demo")
    for key in seen.charts:
        words = hovered(seen, key)
        assert any(character.isdigit() for character in words), key
        assert "???" not in words, key


def hovered(seen: Opened, key: str) -> str:
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


def test_a_sweep_has_the_means_in_its_table(opened, runs: Path) -> None:
    seen = opened("sweep")
    table = pd.read_parquet(runs / "swept" / "results.parquet")
    known = table.set_index(["tfwd_s", "max_jobs"])["outcome"]
    expected = {
        (f"-Tfwd {tfwd:g}", f"-maxJ {jobs}"): of for (tfwd, jobs), of in known.items()
    }
    shown = {
        (tfwd, jobs): float(mean.replace(",", ""))
        for tfwd, jobs, mean, *_ in rows(
            seen.page, "#sweep-outcome details table tbody tr"
        )
    }
    assert shown == pytest.approx(expected, abs=0.5)


def test_a_legend_takes_entries_out_and_puts_them_back(opened) -> None:
    seen = opened("demo")
    for key in ("idle", "times", "fragments", "progress"):
        button = seen.page.locator(f"#{key} .legend button").last
        painted = [seen.page.evaluate(PAINTED, key)]
        for pressed in ("false", "true"):
            button.click()
            assert button.get_attribute("aria-pressed") == pressed
            seen.page.wait_for_timeout(200)
            painted.append(seen.page.evaluate(PAINTED, key))
        assert painted[1] < painted[0] == pytest.approx(painted[2], rel=0.02)


def test_charts_over_time_zoom_together_by_mouse_and_by_keyboard(opened) -> None:
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
    seen.press("+", figure)
    nearer = seen.model("held", range_of)
    assert nearer[1] - nearer[0] == pytest.approx(0.7 * (near[1] - near[0]))
    seen.press("ArrowRight", figure)
    assert seen.model("progress", range_of)[0] > nearer[0]
    seen.press("0", figure)
    assert seen.model("progress", range_of) == whole


def test_who_held_what_shows_more_the_nearer_one_looks(opened, runs: Path) -> None:
    """At each of three zooms, the cells agree with the run's table of allocations."""
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


def test_jobs_are_sorted_by_what_a_column_means(opened) -> None:
    table = opened("demo").page.locator("table.jobs")
    head = table.locator("th button", has_text="took, h")
    for order, sign in (("ascending", 1), ("descending", -1)):
        head.click()
        assert table.locator("th[aria-sort]").get_attribute("aria-sort") == order
        texts = table.locator("tbody tr td:nth-child(5)").all_inner_texts()
        known = [float(text) for text in texts if text != "-"]
        assert known == sorted(known, key=lambda hours, sign=sign: sign * hours)
        assert texts[-1] == "-"  # what is not known comes last either way


def test_printed_columns_of_jobs_have_their_names(opened) -> None:
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
    chromium, runs: Path
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


def test_a_link_shows_a_chart_that_is_a_click_away(opened) -> None:
    seen = opened("demo")
    seen.page.evaluate("document.querySelector('details.more').open = false")
    seen.page.locator("nav summary").click()
    seen.page.locator(".contents a[href='#times']").click()
    assert seen.page.evaluate("document.querySelector('details.more').open")
    assert seen.page.locator("#times h2").is_visible()


def test_the_switch_turns_light_into_dark_and_back(opened) -> None:
    seen = opened("demo")
    paper = "getComputedStyle(document.body).backgroundColor"
    ink = "f.below[0].axis_label_text_color.value ?? f.below[0].axis_label_text_color"
    looks = []
    for _ in range(3):
        looks.append((seen.page.evaluate(paper), seen.model("idle", ink)))
        seen.page.locator("#theme").click()
    light, dark, again = looks
    assert light == again
    assert not {*light} & {*dark}


def test_the_first_chart_is_there_soon_and_says_when(opened) -> None:
    """Its duration is for measurements only: machines are busy."""
    assert "first chart" in opened("demo").page.evaluate(
        "performance.getEntriesByType('mark').map(mark => mark.name)"
    )


PRICES = ["--price-per-node-hour", "0.4", "--node-watts", "200,700", "--price-per-kwh", "0.2"]  # fmt: skip


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evaluation")
    log = [str(ROOT / "examples" / "synthetic-sacct.txt"), "--nodes", "cn[01-64]"]
    window = ["--tz", "Europe/Berlin", "--from", "2024-03-04", "--to", "2024-03-07"]
    assert run(["evaluate", *log, *window, *PRICES, "--out", str(out), "-q"]) == 0
    return out / "evaluation.html"


def evaluation(chromium, path: Path, **look):
    page = chromium.new_context(offline=True, **look).new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda line: said.append(line.text) if line.type == "error" else None)  # fmt: skip
    page.goto(path.as_uri())
    return page, said


def rows(page, table: str) -> list[list[str]]:
    cells = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    return page.eval_on_selector_all(table, cells)


@pytest.mark.parametrize(
    ("width", "scheme"), [(375, "dark"), (1280, "light"), (1280, "dark")]
)
def test_the_page_fits_is_quiet_and_can_be_used_by_all(
    chromium, page_file: Path, width: int, scheme: str
) -> None:
    look = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    page, said = evaluation(chromium, page_file, **look)
    for figure in page.locator(".figure").all():
        figure.scroll_into_view_if_needed()
    page.wait_for_function("!document.querySelector('.figure:not([data-drawn])')")
    assert page.locator(".figure").count() == 4
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert (said, broken_rules(page)) == ([], [])


def test_what_if_has_the_figures_of_the_replays_at_any_return_time(
    chromium, page_file: Path
) -> None:
    page, said = evaluation(chromium, page_file)
    table = rows(page, "#replayed table tbody tr")
    assert len(table) == 12
    field = page.get_by_label("Seconds until a node is back, as a number")
    slider = page.get_by_label("Seconds until a node is back", exact=True)
    for seconds in ("30", "120", "300"):
        field.fill(seconds)
        assert slider.input_value() == seconds
        assert rows(page, "#what-if-table tbody tr") == [
            row for row in table if row[0].strip(" ◂") == seconds
        ]
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert field.input_value() == "301"
    page.get_by_label("0", exact=True).focus()
    page.keyboard.press("ArrowRight")
    answer = page.locator("#what-if-answer").inner_text()
    assert "takes 301 s to come back and 1 node is kept free" in answer
    page.get_by_label("counts as so many of training, as a number").fill("1000")
    assert "It does not pay." in page.locator("#what-if-answer").inner_text()
    field.fill("901")  # beyond what is known: nothing changes
    assert "takes 301 s" in page.locator("#what-if-answer").inner_text()
    assert said == []


def test_without_scripts_the_sentences_and_the_table_are_there(
    chromium, page_file: Path
) -> None:
    page, _ = evaluation(chromium, page_file, java_script_enabled=False)
    assert page.locator(".said dd").count() == 6
    assert page.locator("#replayed tbody tr").count() == 12
    assert not page.locator(".controls").is_visible()
    assert not page.locator("#what-if-table").is_visible()


def test_it_prints_what_was_asked(chromium, page_file: Path) -> None:
    page, said = evaluation(chromium, page_file)
    page.get_by_label("Seconds until a node is back, as a number").fill("45")
    page.emulate_media(media="print")
    assert "takes 45 s" in page.locator("#what-if-answer").inner_text()
    assert not page.get_by_label("Seconds until a node is back", exact=True).is_visible()  # fmt: skip
    assert len(page.pdf(format="A4")) > 10_000
    assert said == []
