"""The pages in a browser, narrow and wide, light, dark and printed: nothing broken, cut off, fetched or illegible."""

import pytest
from browser import CHROMIUM, Browser
from embedding_records import embedding_record
from PIL import Image

from vsehub.report.build import build_report
from vsehub.report.pages.embeddings import embeddings_page

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: install it to have the pages opened"),
    pytest.mark.xdist_group("browser"),
]

SMALLEST = 11  # CSS pixels: of text, and of a figure's text as it is shown
FIGURE_TEXT = 14  # CSS pixels of a figure's text at its own size: 10.5 points
LOOK = """(async () => {
  const broken = [];
  for (const image of document.images) {
    try { await image.decode(); } catch { broken.push(image.alt); }
    if (!image.naturalWidth) broken.push(image.alt);
  }
  const over = [], small = [], pale = [];
  const light = part => (part /= 255) <= .03928 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => .2126 * light(r) + .7152 * light(g) + .0722 * light(b);
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  for (const element of document.body.querySelectorAll('*')) {
    const box = element.getBoundingClientRect();
    if (box.width && box.right > innerWidth + 1 && !element.parentElement.closest('.scroll'))
      over.push(`${element.tagName} ${element.className}: ${element.textContent.slice(0, 40)}`);
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()) || !box.width) continue;
    const style = getComputedStyle(element), told = element.textContent.slice(0, 40);
    if (parseFloat(style.fontSize) < SMALLEST) small.push(`${style.fontSize}: ${told}`);
    let behind = element, ground;
    do { ground = parts(getComputedStyle(behind).backgroundColor); behind = behind.parentElement; }
    while (behind && ground[3] === 0);
    const [one, other] = [luminance(parts(style.color)), luminance(ground)].sort();
    if ((other + .05) / (one + .05) < 4.5) pale.push(`${style.color} on ${ground}: ${told}`);
  }
  const figures = [...document.querySelectorAll('figure img')].map(image => {
    const box = image.getBoundingClientRect(), inside = getComputedStyle(image);
    const width = box.width - 2 * parseFloat(inside.paddingLeft) - 2;
    const cut = box.width > image.parentElement.clientWidth + 1;
    return {scale: width / image.naturalWidth,
      hidden: cut && getComputedStyle(image.closest('figure'), '::before').content === 'none'};
  });
  const tables = [...document.querySelectorAll('table')].map(table => table.getBoundingClientRect().right);
  return {width: innerWidth, page: document.documentElement.scrollWidth, broken, over, small, pale, figures, tables,
    ground: luminance(parts(getComputedStyle(document.body).backgroundColor))};
})()""".replace("SMALLEST", str(SMALLEST))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A running browser."""
    opened = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield opened
    opened.close()


def report_page(tmp_path, write_run, make_evaluation):
    """The page of a report that needs much room."""
    settings = {"parameters": {"k": 10}, "reference": "transductive", "reference_set": "test"}
    for label, seed in ((label, seed) for label in ("max", "hal+mb", "rescaled_sum") for seed in (0, 1)):
        evaluations = [make_evaluation(280.0, seed), make_evaluation(289.0, seed, "csls", **settings)]
        config = {"loss": {"_target_": f"vsehub.losses.{label}", "margin": seed and 0.2}}
        write_run(label, seed, evaluations=evaluations, config=config)
    return build_report([tmp_path / "runs"], tmp_path / "out")["index.html"]


def page_of_a_record(tmp_path, *_):
    """The page of a record with pictures and a warning."""
    files = [str(tmp_path / f"{item}.png") for item in range(400)]
    for item in range(0, 400, 2):
        Image.new("RGB", (90, 60), (item % 256, 80, 0)).save(files[item])
    record = embedding_record(criteria=("csls", "is"), images=files)
    record["rankings"][1]["hubness"]["largest_hub_10"] = 123_456.0  # worse than plain similarity
    page = tmp_path / "index.html"
    page.write_text(embeddings_page(record))
    return page


@pytest.mark.parametrize("write", [report_page, page_of_a_record])
def test_a_page_as_it_is_seen_and_printed(browser, write, tmp_path, write_run, make_evaluation):
    page = write(tmp_path, write_run, make_evaluation)
    for width, dark in ((360, False), (360, True), (1280, False), (1280, True)):
        browser.open(page, width, dark=dark)
        look = browser.evaluate(LOOK)
        urls = [event["request"]["url"] for event in browser.parameters("Network.requestWillBeSent")]
        assert [url for url in urls if not url.startswith("data:")] == [page.resolve().as_uri()]
        for event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed"):
            assert not browser.parameters(event)
        assert (look["width"], look["page"], look["ground"] < 0.05) == (width, width, dark)
        assert [look[fault] for fault in ("broken", "over", "small", "pale")] == [[], [], [], []], (width, dark)
        assert all(figure["scale"] * FIGURE_TEXT >= SMALLEST for figure in look["figures"]), look["figures"]
        assert not any(figure["hidden"] for figure in look["figures"]), "no sign that a figure scrolls"
    browser.open(page, 1031, dark=True, print_=True)  # A4 across, without its margins
    look = browser.evaluate(LOOK)
    # a dark page is printed on white
    assert [look[fault] for fault in ("broken", "over", "ground")] == [[], [], 1]
    assert max(look["tables"], default=0) <= 1031, "a table is cut off"
