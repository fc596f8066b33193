"""The HTML report in a real browser: drawn without complaint, used by mouse and keyboard, inert."""

import json
import sys

import browser
import pytest
from commands import ROOT, run_example, run_vramfit

sys.path.append(str(ROOT / "scripts"))
import make_screenshots

TRACES = ROOT / "fixtures" / "traces"


@pytest.fixture(scope="module")
def chromium():
    program = browser.required()
    with browser.Browser(program) as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return a function that makes the page of a sample: a number of buffers, or a word."""
    folder = tmp_path_factory.mktemp("pages")

    def page(sample):
        path = folder / f"{sample}.html"
        if not path.exists():
            path.write_text(run_example("sample_report", sample))
        return path

    return page


@pytest.fixture(scope="module")
def opened(chromium, pages):
    return chromium.open(pages(200))


@pytest.fixture
def small(opened):
    """Return a page with 200 buffers, in front of those that other tests opened."""
    opened.call("Page.bringToFront")
    return opened


def shown_rows(page, table="section[data-type=table]"):
    return page.run(
        f"[...document.querySelectorAll('{table} tbody tr:not(.spacer)')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )


def picture(page, form):
    """Return the box of a picture of a form, in sight."""
    return page.box(f"section[data-type={form}] .layers, section[data-type={form}] .icicle")


def panel(page, form):
    return page.run(f"document.querySelector('section[data-type={form}] .pinned').textContent")


def tip(page):
    return page.run("document.getElementById('tooltip').hidden ? null : tooltip.textContent")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (420, False)])
def test_every_picture_is_drawn_without_complaint(chromium, pages, width, dark):
    path = pages(200)
    page = chromium.open(path, width=width, dark=dark)
    forms = page.run("data.sections.map(section => section.type)")
    memory = {"bars", "metrics", "tree", "lifetimes", "timeline", "map", "table", "list"}
    assert set(forms) == memory | {"curves", "breakdown", "tradeoff", "stacks"}
    # Something is on each canvas: more than one color.
    colors = page.run(
        "[...document.querySelectorAll('canvas.base')].map(canvas => {"
        " const dots = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
        " return new Set(new Uint32Array(dots.data.buffer)).size; })"
    )
    assert len(colors) == 6
    assert min(colors) > 2
    # The page fits its window: nothing but tables scrolls sideways.
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert page.complaints() == []
    assert page.requests() == [path.resolve().as_uri()]


def test_amounts_are_written_as_in_text(small):
    for count, shown in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        ((1 << 30) - 1, "1.0 GiB"),
        # Ties go to the even digit, as Rust's formatting has it.
        (5 << 28, "1.2 GiB"),
        (7 << 28, "1.8 GiB"),
        (79 * (1 << 30) + (1 << 28), "79.2 GiB"),
        (1 << 50, "1.0 PiB"),
    ]:
        assert small.run(f"bytes({count})") == shown


def test_the_bar_has_the_colors_of_the_owners_and_is_hatched_where_it_is_uncertain(small):
    parts = small.run(
        "[...document.querySelectorAll('.bar .owner')]"
        ".map(part => [part.style.background, part.clientWidth])"
    )
    assert [color for color, _ in parts] == ["rgb(22, 144, 127)", "rgb(47, 109, 179)"]
    track, uncertain = small.run(
        "['.track', '.uncertain'].map(part => document.querySelector(`.bar ${part}`).clientWidth)"
    )
    part, whole = small.run("[data.sections[0].bars[0].part, data.sections[0].bars[0].whole]")
    assert sum(width for _, width in parts) == pytest.approx(track * part / whole, abs=2)
    assert uncertain == pytest.approx(track * part / whole / 10, abs=2)
    assert "0 to" in small.run("document.querySelector('.bar .amount').textContent")


def test_the_next_command_is_copied_as_it_is(small):
    small.run("navigator.clipboard.writeText = async text => { window.copied = text; }")
    small.run("document.querySelector('.next button').click()")
    small.until("document.querySelector('.next button').textContent === 'Copied'")
    command = small.run("document.querySelector('.next pre').textContent")
    assert command.startswith("vramfit plan --gpu h100-80g --vary batch=32..512 -- python")
    assert small.run("window.copied") == command


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("/home/me/train_gpt.py:68 (GPT.__call__)", ":68"),
        ("params / layer / model.py:1234 (f (g))", ":1234"),
        ("<ipython-input-3-0123456789ab>:7", ":7"),
        ("train_gpt.py:67 (GPT.__call__) / dot_general f32[16384,50304]", ":67"),
    ],
)
def test_the_number_of_a_line_is_never_cut(small, name, line):
    widths = range(len(name) + 1)
    shown = small.run(
        f"{[*widths]}.map(width => shortenName({json.dumps(name)}, text => text.length <= width))"
    )
    for width, text in zip(widths, shown, strict=True):
        assert len(text) <= width
        assert text == "" or line in text
        assert bool(text) == (width > len(line))
    assert shown[-1] == name


def test_other_names_lose_their_middle(small):
    made = json.dumps("output of jit_where, /home/me/infer.py:46 (run)")
    assert small.run(f"shortenName({made}, text => text.length <= 40)") == (
        "output of jit_where, infer.py:46 (run)"
    )
    name = json.dumps("optimizer.opt_state.mu.blocks.down.kernel")
    assert small.run(f"shortenName({name}, text => text.length <= 12)") == "optimi…ernel"
    assert small.run(f"shortenName({name}, text => text.length <= 3)") == ""


def test_the_colors_follow_the_button(chromium, pages):
    page = chromium.open(pages(200))
    before = page.run("document.querySelector('.icicle button:nth-child(2)').style.background")
    page.run("document.getElementById('theme').click()")
    # The pages of other tests would open with what was chosen here.
    page.run("localStorage.clear()")
    assert page.run("document.documentElement.dataset.theme") == "dark"
    after = page.run("document.querySelector('.icicle button:nth-child(2)').style.background")
    assert before != after


def test_pointing_at_a_buffer_tells_it_and_a_click_keeps_it(small):
    left, top, width, height = picture(small, "lifetimes")
    # The lowest buffer of the sample is a parameter that lives from beginning to end.
    x, y = left + width / 2, top + height - 24
    small.point(x, y)
    said = tip(small)
    assert "params/layer_0/attention/qkv/kernel" in said
    assert "parameters" in said
    assert "bytes), at offset 0" in said
    assert "f32[1024,1024]" in said
    small.click(x, y)
    assert "params/layer_0/attention/qkv/kernel" in panel(small, "lifetimes")
    small.point(left + 5, top + 5)
    assert tip(small) is None
    assert "params/layer_0/attention/qkv/kernel" in panel(small, "lifetimes")
    small.press("Escape")
    assert "Hover over a buffer" in panel(small, "lifetimes")


def test_a_rectangle_looks_closer_and_escape_goes_back(small):
    left, top, width, height = picture(small, "lifetimes")
    seen = "document.querySelector('section[data-type=lifetimes] .tools button').hidden"
    assert small.run(seen)
    start, end = (left + width * 0.4, top + height * 0.4), (left + width * 0.6, top + height * 0.6)
    small.point(*start)
    small.point(*start, "mousePressed", button="left", buttons=1, clickCount=1)
    small.point(*end, "mouseMoved", button="left", buttons=1)
    small.point(*end, "mouseReleased", button="left", clickCount=1)
    assert not small.run(seen)
    small.press("Escape")
    assert small.run(seen)


def test_the_keyboard_goes_from_buffer_to_buffer(small):
    small.run("document.querySelector('section[data-type=lifetimes] .layers').focus()")
    sizes = []
    for _ in range(3):
        small.press("ArrowDown")
        sizes.append(
            int(panel(small, "lifetimes").split("(")[1].split(" bytes")[0].replace(",", ""))
        )
    assert sizes == sorted(sizes, reverse=True)
    largest = small.run(
        "Math.max(...unpack(data.sections.find(s => s.type === 'lifetimes').bytes))"
    )
    assert sizes[0] == largest
    small.press("Escape")


def test_the_tree_is_walked_and_zoomed(small):
    focused = "document.activeElement.ariaLabel"
    small.run("document.querySelector('.icicle button').focus()")
    assert small.run(focused).startswith("in use at the peak, ")
    small.press("ArrowDown")
    first = small.run(focused)
    small.press("ArrowRight")
    second = small.run(focused)
    assert first != second
    whole = small.run("document.querySelector('.icicle').clientWidth")
    width = "document.activeElement.getBoundingClientRect().width"
    assert small.run(width) < whole / 2
    small.press("Enter")
    assert small.run(focused) == second
    assert abs(small.run(width) - whole) <= 1
    small.press("Escape")
    assert small.run(focused).startswith("in use at the peak, ")


def test_a_cursor_on_the_run_reads_exact_bytes(small):
    left, top, width, _ = picture(small, "timeline")
    small.point(left + width / 2, top + 100)
    said = tip(small)
    assert said.startswith("step ")
    assert "events " in said
    assert "in use: " in said
    assert " bytes)" in said
    small.run("document.querySelector('section[data-type=timeline] .layers').focus()")
    small.press("Home")
    small.press("ArrowRight")
    assert panel(small, "timeline").startswith("step 1events 1in use: ")


def test_a_part_of_the_pool_describes_itself(small):
    left, top, _, _ = picture(small, "map")
    small.point(left + 10, top + 10)
    assert "params/layer_0" in tip(small)


MAP_LENGTHS = """
((regions, request) => {
  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const packOne = (value) => {
    let text = "";
    for (let left = value * 2, more = true; more; ) {
      more = left >= 32;
      text += digits[left % 32 + (more ? 32 : 0)];
      left = Math.floor(left / 32);
    }
    return text;
  };
  const pack = (values) => ({
    count: values.length, scale: 1, is_delta: false, digits: values.map(packOne).join(""),
  });
  const content = { request, regions: regions.map((segments) => ({
    size: segments.reduce((sum, size) => sum + size, 0),
    address: "0x0",
    bytes: pack(segments),
    kind: pack(segments.map((_, at) => at % 2)),
    label: pack(segments.map(() => 0)),
  })) };
  document.getElementById("map-under-test")?.remove();
  const host = makeElement("div", { id: "map-under-test" }, drawMap(content));
  document.querySelector("main").append(host);
  host.scrollIntoView({ block: "start", behavior: "instant" });
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
    const paper = themeColor("--paper");
    const drawn = (canvas) => {
      const ctx = canvas.getContext("2d"), density = canvas.width / canvas.clientWidth;
      let length = 0;
      for (let top = 12; top < canvas.clientHeight; top += 28) {
        const dots = ctx.getImageData(0, Math.round(top * density), canvas.width, 1).data;
        const empty = ctx.createImageData(1, 1).data;
        ctx.canvas.style.color = paper;
        const [r, g, b] = getComputedStyle(ctx.canvas).color.match(/\\d+/g).map(Number);
        let last = 0;
        for (let at = 0; at < canvas.width; at++) {
          const is = [dots[4 * at], dots[4 * at + 1], dots[4 * at + 2]];
          if (is[0] !== r || is[1] !== g || is[2] !== b) last = at + 1;
        }
        length += last / density;
      }
      return length;
    };
    const requests = [...host.querySelectorAll(".request")];
    const parts = requests.map((part) => part.getBoundingClientRect().width);
    done([
      [...host.querySelectorAll("canvas.base")].map(drawn),
      parts.reduce((sum, width) => sum + width, 0),
      parts.length,
      host.querySelector(".layers").clientWidth,
    ]);
  })));
})
"""
MIB, GIB = 1 << 20, 1 << 30
POOLS = {
    "one region": ([[4 * GIB, 7 * GIB]], None),
    "a request that is larger than what is free": ([[4 * GIB, 7 * GIB]], 10 * GIB),
    "small and large": ([[2 * MIB], [4 * GIB, 28 * GIB]], 10 * GIB),
    "many segments": ([[GIB // 8] * 240, [GIB] * 4, [16 * GIB]], 3 * GIB),
    "a pool that grows": ([[2**n * MIB] for n in range(1, 15)], 512 * MIB),
    "a request that is larger than anything": ([[2 * MIB], [8 * GIB]], 100 * GIB),
}


@pytest.mark.parametrize("name", POOLS)
def test_regions_and_request_have_one_scale(chromium, pages, name):
    regions, request = POOLS[name]
    page = chromium.open(pages(200))
    call = f"{MAP_LENGTHS}({json.dumps(regions)}, {json.dumps(request)})"
    lengths, requested, rows, width = page.run(call)
    sizes = [sum(segments) for segments in regions]
    shown = [*zip(sizes, lengths, strict=True)]
    if request:
        shown.append((request, requested))
        assert 1 <= rows <= 8
    # Bytes of a dot, from what is drawn longest; a picture ends at a whole dot, each row of it.
    largest, longest = max(shown)
    assert longest >= width - 3
    for size, length in shown:
        assert length == pytest.approx(size * longest / largest, abs=3 + length / width)


def test_search_and_sorting(small):
    small.box("section[data-type=table]")
    everything = shown_rows(small)
    small.run("document.querySelector('section[data-type=table] input').focus()")
    small.write("OPT_STATE mlp/up")
    found = shown_rows(small)
    assert 0 < len(found) < len(everything)
    assert all("opt_state" in row[0] and "mlp/up" in row[0] for row in found)
    status = small.run(
        "document.querySelector('section[data-type=table] [role=status]').textContent"
    )
    assert status.startswith(f"{len(found)} of ")
    heading = "document.querySelectorAll('section[data-type=table] th button')[2].click()"
    order = "document.querySelectorAll('section[data-type=table] th')[2].ariaSort"
    small.run(heading)
    assert small.run(order) == "descending"
    falling = shown_rows(small)
    small.run(heading)
    assert small.run(order) == "ascending"
    # Equal rows keep their order, so only the amounts are turned round.
    assert [row[2] for row in shown_rows(small)] == [row[2] for row in falling][::-1]


def test_pointing_at_a_curve_tells_the_values_of_all(small):
    left, top, width, height = picture(small, "curves")
    small.point(left + width / 2, top + height / 2)
    assert "train: " in tip(small)
    assert "validation: " in tip(small)
    # Three powers of ten: the scale goes by factors, and each of its names is a number.
    assert small.run("axisValues(0.001, 2, true).map(formatNumber)") == [
        "0.001",
        "0.01",
        "0.1",
        "1",
    ]
    assert small.run("axisValues(0, 1, false)") == [0, 0.5, 1]


def test_hostile_names_are_inert(chromium, pages):
    page = chromium.open(pages("hostile"))
    # Point at everything, so that every name is shown wherever names are shown.
    for form in ("tree", "lifetimes", "timeline", "map"):
        left, top, width, height = picture(page, form)
        shown = ""
        for across in (0.01, 0.2, 0.5, 0.8):
            for down in (0.3, 0.5, 0.7):
                page.click(left + width * across, top + height * down)
                shown += panel(page, form) + (tip(page) or "")
        assert "</script><script>" in shown
    assert page.run("document.title").startswith("</script><script>document.title='owned'")
    assert page.run("document.scripts.length") == 2
    assert page.run("document.images.length") == 0
    assert not page.run("/[\\u202e\\u001b]/.test(document.body.textContent)")
    assert page.complaints() == []


def test_the_picture_of_the_readme_shows_what_the_page_says_now(chromium, tmp_path):
    page = make_screenshots.open_report(chromium, tmp_path)
    is_current = make_screenshots.shows_text_of(make_screenshots.REPORT.read_bytes(), page)
    assert is_current, "make it again: `python scripts/make_screenshots.py`"


def test_pictures_of_nothing_are_empty_and_no_failure(chromium, pages):
    page = chromium.open(pages("nothing"))
    assert page.run("document.querySelectorAll('section').length") == 13
    for form in ("tree", "lifetimes", "timeline", "curves"):
        page.box(f"section[data-type={form}]")
        left, top, width, height = page.box(f"section[data-type={form}] > div")
        page.click(left + width / 2, top + height / 2)
        page.press("ArrowDown")
        page.press("Escape")
    assert page.complaints() == []


def test_the_policy_refuses_what_was_not_there(chromium, pages):
    page = chromium.open(pages(200))
    page.run(
        "document.body.append(Object.assign(document.createElement('script'),"
        " {textContent: 'window.owned = true'}))"
    )
    page.run("new Image().src = 'https://example.com/'")
    assert page.run("window.owned") is None
    refused = json.dumps(page.complaints())
    assert "script-src" in refused
    assert "img-src" in refused or "default-src" in refused


# How fast it opens, `scripts/bench/report.py` measures.
def test_of_100_000_buffers_only_rows_in_sight_exist(chromium, pages):
    path = pages(100_000)
    assert path.stat().st_size < 5_000_000
    page = chromium.open(path)
    assert page.run("performance.getEntriesByName('charts drawn').length") == 1
    page.run("document.querySelector('section[data-type=lifetimes] details').open = true")
    table = "section[data-type=lifetimes] details"
    page.until(f"document.querySelector('{table} tbody')")
    summary = page.run(f"document.querySelector('{table} summary').textContent")
    total = int(summary.split()[1].replace(",", ""))
    assert total > 99_000
    assert len(shown_rows(page, table)) < 60
    page.run(f"document.querySelector('{table} .scroll').scrollTop = 1e9")
    page.until(
        f"document.querySelector('{table} tbody tr:nth-last-child(2)').textContent"
        ".startsWith('custom-call.39')"
    )
    page.run(f"document.querySelector('{table} input').focus()")
    page.write("loop_fusion.1234")
    assert shown_rows(page, table)[0][0] == "loop_fusion.1234"
    assert page.complaints() == []


@pytest.mark.parametrize("gpu", ["t4", "h100-80g"])
def test_the_page_of_a_real_run(chromium, tmp_path, gpu):
    path = tmp_path / "report.html"
    trace = TRACES / f"train_gpt-{gpu}.trace"
    done = run_vramfit("report", trace, "--html", path, code=1 if gpu == "t4" else 0, cwd=ROOT)
    page = chromium.open(path)
    verdict = "does not fit" if gpu == "t4" else "fits"
    assert done.stdout.startswith(f"{verdict}: ")
    headline = page.run("document.querySelector('h1').textContent")
    assert headline.startswith(f"{verdict}: ")
    assert len(headline.split()) <= 25
    # The first chart shows the cause: the buffers of the step, where these are too large.
    pictures = page.run("data.sections.map(section => section.type)")
    pictures = [form for form in pictures if form in ("tree", "lifetimes", "timeline", "map")]
    assert pictures[0] == ("lifetimes" if gpu == "t4" else "tree")
    # The owners of the bar add up to what is needed.
    owners = "unpack(data.sections[0].bars[0].owners.bytes).reduce((sum, part) => sum + part)"
    assert page.run(owners) == page.run("data.sections[0].bars[0].part")
    command = "vramfit plan --gpu " + ("t4" if gpu == "t4" else "h100-80g --fastest")
    assert page.run("document.querySelector('.next pre').textContent").startswith(command)
    assert ["jit_train_step", "1" if gpu == "t4" else "3"] in [row[:2] for row in shown_rows(page)]
    assert page.complaints() == []


def test_it_prints_its_pictures_on_light_paper(chromium, pages):
    page = chromium.open(pages(200), dark=True)
    paper = page.pdf()
    assert paper.startswith(b"%PDF-")
    # The screen is as it was, and what the pictures add is in the file.
    assert page.run("document.documentElement.dataset.theme") == "dark"
    page.run("for (const e of document.querySelectorAll('.layers')) e.style.visibility = 'hidden'")
    assert len(paper) > len(page.pdf()) + 50_000
