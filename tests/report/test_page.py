"""The report in a real browser: what is drawn, what leaves the page (nothing), who can use it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.conftest import LONG, SHARED, Answer
from tests.report.conftest import Open, Opened

Command = Callable[..., Answer]
CASES = SHARED / "cases"


def make(gptwright: Command, out: Path, *runs: Path) -> Path:
    answer = gptwright("report", *map(str, runs), "--out", str(out))
    assert answer.status == 0, answer.err
    assert answer.out == f"wrote {out}\n"
    return out


def data_of(path: Path) -> dict[str, Any]:
    text = path.read_text("utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


# What every plot holds, asked for at once: a question takes the browser some milliseconds.
DRAWN = """() => Object.fromEntries([...document.querySelectorAll("[id^='plot-']")].map((host) => {
  const all = (selector) => [...host.querySelectorAll(selector)];
  return [host.id, {
    points: all("svg.plot").map((plot) => plot.getAttribute("data-points")),
    buttons: all(".legend button").length,
    curves: all(".curve").length,
    shapes: all(".curve .line, .curve .area").map((path) => path.getAttribute("d")),
    dots: all(".dot").length,
    texts: all(".grid text").length,
  }];
}))"""


def assert_drawn(opened: Opened, path: Path) -> None:
    """Every figure has all of its points, lines that go somewhere, and nothing was said or asked for."""
    figures = data_of(path)["figures"]
    assert opened.page.locator("svg.plot").count() == len(figures)
    shown = opened.page.evaluate(DRAWN)
    for figure in figures:
        seen = shown[f"plot-{figure['id']}"]
        points = sum(len(curve["x"]) for curve in figure["curves"])
        assert points
        assert seen["points"] == [str(points)]
        assert seen["buttons"] == len({c["label"] for c in figure["curves"]})
        assert seen["curves"] == len(figure["curves"])
        assert any(shape and len(shape) > 8 for shape in seen["shapes"]) or seen["dots"]
        assert not any(shape and ("NaN" in shape or "undefined" in shape) for shape in seen["shapes"])
        assert seen["texts"] >= 4
    assert opened.console == []
    assert opened.requests == [path.as_uri()]


def serious(page: Any) -> list[str]:
    """What axe-core finds serious or critical."""
    response = Axe().run(page).response
    assert len(response["passes"]) > 20
    found = response["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html']}" for v in found if v["impact"] in ("serious", "critical")]


@pytest.fixture(scope="session")
def report(finished_run: Path) -> Path:
    from gptwright.cli.main import run

    assert run(["report", str(finished_run)]) == 0
    return finished_run / "report.html"


def test_a_finished_run_shows_everything_it_has(report: Path, open_page: Open) -> None:
    opened = open_page(report)
    assert_drawn(opened, report)
    page = opened.page
    assert page.title() == "first-words · gptwright"
    headings = page.locator("h2").all_inner_texts()
    assert [h for h in headings if h != "Where it is heading"] == [
        "In numbers",
        "What they say",
        "Curves",
        "Promise and outcome",
        "Samples",
        "Settings",
        "The record",
    ]
    ids = [figure["id"] for figure in data_of(report)["figures"]]
    assert ids == ["loss", "learning-rate", "grad-norm", "tokens-per-second", "mfu"]
    labels = page.locator("#plot-loss .legend button").all_inner_texts()
    assert {"validation", "train, evaluated"} <= set(labels)
    assert page.locator("#plot-loss .bar").count() == 13
    assert page.locator("#plot-loss .best").count() == 1
    changed = page.locator("#settings table").first.inner_text()
    assert "n_embd" in changed
    assert "dropout" not in changed
    assert "memory" in page.locator("#promise").inner_text()


def test_the_same_record_gives_the_same_bytes(report: Path, finished_run: Path, gptwright: Command) -> None:
    before = report.read_bytes()
    report.unlink()
    assert gptwright("report", str(finished_run)).status == 0
    assert report.read_bytes() == before


def test_nothing_can_leave_or_enter_the_page(report: Path, open_page: Open) -> None:
    opened = open_page(report)
    refused = opened.page.evaluate(
        """async () => {
          const script = document.createElement("script");
          script.textContent = "window.entered = true";
          document.body.append(script);
          const left = await fetch("https://example.org/").then(() => true, () => false);
          return [window.entered === undefined, left === false];
        }"""
    )
    assert refused == [True, True]
    assert all("Content Security Policy" in said or "Failed to fetch" in said for said in opened.console)


def test_axes_scales_curves_and_zoom(report: Path, open_page: Open) -> None:
    page = open_page(report).page
    plot = page.locator("#plot-loss")
    name = plot.locator(".grid .name").first
    for axis, text in (("tokens", "tokens"), ("hours", "hours of training"), ("flops", "FLOPs")):
        page.locator(f"input[value={axis}]").check()
        assert name.inner_html() == text
    assert page.evaluate("[[5e-4, 1e-3], [2e-4, 5e-4]].map((ticks) => tickText(ticks[0], '', ticks))") == [
        "0.0005",
        "2e-4",
    ]
    near = "((ticks) => ticks.map((tick) => tickText(tick, '', ticks)))([0.00099998, 0.00099999, 0.001])"
    assert page.evaluate(near) == ["0.00099998", "0.00099999", "0.001"]
    page.locator("input[value=steps]").check()
    before = plot.locator(".validation, .curve").last.inner_html()
    plot.locator(".toggles button", has_text="log y").click()
    assert plot.locator(".toggles button", has_text="log y").get_attribute("aria-pressed") == "true"
    assert plot.locator(".curve").last.inner_html() != before
    everything = int(plot.locator("svg.plot").get_attribute("data-points"))
    toggle = plot.locator(".legend button", has_text="validation")
    toggle.click()
    assert toggle.get_attribute("aria-pressed") == "false"
    assert int(plot.locator("svg.plot").get_attribute("data-points")) == everything - 13
    box = plot.locator("svg.plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 120)
    page.mouse.up()
    zoomed = [
        float(t) for t in plot.locator(".grid text[text-anchor=middle]:not(.name)").all_text_contents() if t
    ]
    assert zoomed
    assert 35 < min(zoomed) < max(zoomed) < 90
    plot.locator(".toggles button", has_text="whole run").click()
    assert plot.locator(".toggles button", has_text="whole run").is_hidden()


def test_a_first_fall_is_cut_and_a_first_rise_is_not(report: Path, open_page: Open) -> None:
    heights = """(y) => {
      const x = y.map((_, i) => i);
      const drawn = [{ curve: { shape: "line", y }, xs: x, rows: [0, y.length] }];
      const chart = { drawn, log: {}, window: null, whole: false, start: {} };
      return Chart.prototype.heights.call(chart, 0, y.length - 1);
    }"""
    page = open_page(report).page
    settled = [1.0 + 0.01 * (i % 2) for i in range(50)]
    low, high = page.evaluate(heights, [9.0, 5.0, *settled])
    assert 0.9 < low < 1.0 < high < 1.1
    low, high = page.evaluate(heights, [0.0, 0.5, *settled])
    assert low == 0
    assert 1.0 < high < 1.1


def test_titles_of_wide_tables_stay_within_a_phone(report: Path, open_page: Open) -> None:
    page = open_page(report, width=390).page
    edges = page.evaluate(
        """() => [...document.querySelectorAll("caption span")].filter((title) => title.checkVisibility())
          .map((title) => title.getBoundingClientRect().right)"""
    )
    assert edges
    assert max(edges) <= 390


def test_nothing_on_a_chart_writes_over_anything_else(report: Path, open_page: Open) -> None:
    for width in (390, 1280):
        page = open_page(report, width=width).page
        crossed = page.evaluate(
            """() => [...document.querySelectorAll("svg.plot")].flatMap((plot) => {
              const texts = [...plot.querySelectorAll("text")].map((t) => [t, t.getBoundingClientRect()]);
              return texts.flatMap(([a, p], i) => texts.slice(i + 1).filter(([b, q]) =>
                p.left < q.right && q.left < p.right && p.top < q.bottom && q.top < p.bottom)
                .map(([b]) => `${a.textContent} | ${b.textContent}`));
            })"""
        )
        assert crossed == []
    # Two marks close together stand on two lines, one far from both on the first; then one from the right.
    lines = page.evaluate(
        """() => { const ends = [];
          return [[100, false], [110, false], [300, false], [400, true]].map(([x, near]) =>
            freeLine(ends, x, near, "resumed")); }"""
    )
    assert lines == [0, 1, 0, 1]


def test_words_and_numbers_of_a_table_stay_whole_on_a_phone(report: Path, open_page: Open) -> None:
    page = open_page(report, width=390).page
    heights = page.evaluate(
        """() => [...document.querySelectorAll("tbody th, td.number")].filter((cell) =>
          !/\\s/.test(cell.textContent.trim()) && cell.textContent && cell.checkVisibility()).map((cell) => {
            const range = document.createRange();
            range.selectNodeContents(cell);
            return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size;
          })"""
    )
    assert heights
    assert set(heights) == {1}


def test_the_keyboard_reads_the_curve(report: Path, open_page: Open) -> None:
    page = open_page(report).page
    curves = data_of(report)["figures"][0]["curves"]
    walked = next(curve for curve in curves if curve["shape"] == "dots")
    page.locator("#plot-loss svg.plot").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    spoken = page.locator("#plot-loss .spoken").inner_text()
    assert f"{walked['label']} {walked['y'][1]:.4f}" in spoken
    assert f"optimizer steps {walked['x'][1]:,}" in spoken
    page.keyboard.press("+")
    assert page.locator("#plot-loss .toggles button", has_text="whole run").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#plot-loss .toggles button", has_text="whole run").is_hidden()


def test_every_plot_is_a_table_too(report: Path, open_page: Open) -> None:
    page = open_page(report).page
    page.locator("#table-loss summary").click()
    figure = data_of(report)["figures"][0]
    rows = page.locator("#table-loss tbody tr")
    # Rows come when the browser says that the table was opened, which is after the click.
    expect(rows).to_have_count(
        sum(-(-len(c["x"]) // max(1, -(-len(c["x"]) // 100))) for c in figure["curves"])
    )
    shown = page.locator("#table-loss").inner_text()
    validation = next(curve for curve in figure["curves"] if curve["label"] == "validation")
    assert all(f"{value:.4f}" in shown for value in validation["y"])


# What a width changes and what a scheme does are independent: each is seen once, in the long form in both.
@pytest.mark.parametrize(
    ("width", "scheme"),
    [(390, "dark"), (1200, "light"), *([(390, "light"), (1200, "dark")] if LONG else [])],
)
def test_no_serious_violation_at_any_width_and_in_the_dark(
    report: Path, open_page: Open, width: int, scheme: str
) -> None:
    page = open_page(report, width=width, scheme=scheme).page
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    lightness = sum(map(int, re.findall(r"\d+", paper)))
    assert (lightness > 600) == (scheme == "light")


def test_a_comparison_begins_with_what_differs(
    finished_run: Path, slower_run: Path, tmp_path: Path, gptwright: Command, open_page: Open
) -> None:
    path = make(gptwright, tmp_path / "both.html", finished_run, slower_run)
    opened = open_page(path)
    assert_drawn(opened, path)
    page = opened.page
    assert page.locator("h2").all_inner_texts()[:2] == ["What is not held fixed", "Side by side"]
    assert "learning_rate" in page.locator("#differences").inner_text()
    assert page.locator("header .verdict").inner_text().startswith("a is first-words, b is slower. ")
    assert page.locator("#runs tbody tr").count() == 2
    labels = page.locator("#plot-loss .legend button").all_inner_texts()
    assert any(label.startswith("first-words") for label in labels)
    assert any(label.startswith("slower") for label in labels)
    assert serious(page) == []


@pytest.mark.slow
def test_every_public_log_becomes_a_page(tmp_path: Path, gptwright: Command, open_page: Open) -> None:
    """All trainers' logs of the shared cases: drawn whole, silent, and as wide as a phone."""
    folders = sorted(path.parent for path in CASES.glob("*/log.txt"))
    if not folders:
        pytest.skip("needs ../shared/cases")
    opened = None
    for folder in folders:
        path = make(gptwright, tmp_path / f"{folder.name}.html", folder)
        opened = open_page(path, width=390, within=opened)
        assert_drawn(opened, path)
        assert opened.page.evaluate("document.documentElement.scrollWidth") == 390, folder.name


HOSTILE = "<script>window.hacked=1</script><img src=x onerror=hacked=1>\"'</style></script>"


def test_a_hostile_log_shows_as_text(tmp_path: Path, gptwright: Command, open_page: Open) -> None:
    folder = tmp_path / "<img src=x onerror=hacked=1>"
    (folder / "samples").mkdir(parents=True)
    lines = [{"v": 1, "kind": "start", "step": 0, "device": HOSTILE, "dtype": HOSTILE, "tokens_per_step": 64}]
    lines += [
        {"v": 1, "kind": "train", "step": step, "loss": 4 - step / 100, "seconds": 0.1, "lr": 1e-3,
         "tokens_per_second": 640.0, "mfu": 0.1, "grad_norm": 1.0}
        for step in range(60)
    ]  # fmt: skip
    lines.append({"v": 1, "kind": "end", "step": 60, "state": "failed", "reason": HOSTILE})
    lines.append({"v": 1, "kind": "end", "step": 60, "state": "failed", "reason": "half a letter: \ud800"})
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    fact = {"name": "dropout", "value": HOSTILE, "text": HOSTILE, "origin": HOSTILE, "reason": HOSTILE}
    told = {"machine": {"device": HOSTILE, HOSTILE: HOSTILE}, "facts": [fact], "dataset": {"name": HOSTILE}}
    (folder / "run.json").write_text(json.dumps(told))
    (folder / "facts.toml").write_text(f"note = {json.dumps(HOSTILE)}\n")
    (folder / "config.py").write_text(f"dataset = {HOSTILE!r}  # {HOSTILE}\nn_layer = 12\n")
    (folder / "samples" / "step-00000060.txt").write_text(HOSTILE)
    path = make(gptwright, tmp_path / "hostile.html", folder)
    opened = open_page(path)
    assert_drawn(opened, path)
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator("h1").inner_text() == folder.name
    assert HOSTILE in opened.page.locator("#samples pre").inner_text()
    assert HOSTILE in opened.page.locator("#record").inner_text()
    assert HOSTILE in opened.page.locator("#settings").inner_text()
    compared = make(gptwright, tmp_path / "two.html", folder, folder)
    assert_drawn(open_page(compared), compared)


def test_a_loss_that_is_no_number_is_a_gap_with_a_mark(
    tmp_path: Path, gptwright: Command, open_page: Open
) -> None:
    losses = [f"{4 - step / 50:.4f}" if step < 60 else "nan" for step in range(80)]
    lines = [f"iter {step}: loss {loss}, time 100.00ms, mfu 10.00%" for step, loss in enumerate(losses)]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    path = make(gptwright, tmp_path / "gap.html", tmp_path / "log.txt")
    page = open_page(path).page
    assert page.locator("#plot-loss .marks text").all_text_contents() == ["loss is no number"]
    train = next(c for c in data_of(path)["figures"][0]["curves"] if c["shape"] == "line")
    assert train["y"][59:] == [2.82, *[None] * 20]


def test_a_config_alone_has_findings_and_no_charts(
    tmp_path: Path, gptwright: Command, open_page: Open
) -> None:
    (tmp_path / "config.py").write_text(
        "n_layer = 12  # 125M\nn_embd = 384\nn_head = 12\nvocab_size = 50304\n"
    )
    path = make(gptwright, tmp_path / "plan.html", tmp_path / "config.py")
    page = open_page(path).page
    assert page.locator("svg.plot").count() == 0
    assert "holds no series" in page.locator("#curves").inner_text()
    assert page.locator("header .verdict").inner_text().startswith("This config needs a look: ")
    assert "n_embd" in page.locator("#settings").inner_text()


def test_without_a_run_it_says_what_to_type(gptwright: Command) -> None:
    answer = gptwright("report")
    assert answer.status == 2
    assert "report needs a run" in answer.err
    assert "gptwright report FOLDER" in answer.err
