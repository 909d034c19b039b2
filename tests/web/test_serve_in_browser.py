"""The pages of `vsehub serve` in a browser: no error, nothing cut off, no request elsewhere."""

import threading
from importlib.util import find_spec

import pytest
from browser import CHROMIUM, Browser
from collections_served import catalogue
from test_application import Asked

pytestmark = [
    pytest.mark.skipif(find_spec("fastapi") is None, reason="pip install 'vsehub[serve]'"),
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: install it to have the pages opened"),
    pytest.mark.xdist_group("browser"),
]

PAGES = ("/", "/?query=0", "/?text=7", "/hubs", "/items/item%2020")


@pytest.fixture(scope="module")
def address():
    import uvicorn

    from vsehub.web.application import application
    from vsehub.web.server import bind

    known = catalogue()
    app = application(catalogue(encoder=Asked(known.vectors)), "127.0.0.1")
    bound = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("chromium") / "profile")
    yield opened
    opened.close()


@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_broken_or_cut_off(browser, address, path):
    for width, dark in ((360, False), (1200, True)):
        browser.open(address + path, width, dark=dark)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        boxes = "[...document.querySelectorAll('figure .scroll')]"
        assert browser.evaluate(f"{boxes}.every(one => one.scrollWidth <= one.clientWidth)")
        assert not browser.parameters("Runtime.exceptionThrown") + browser.parameters("Log.entryAdded")
        urls = [event["request"]["url"] for event in browser.parameters("Network.requestWillBeSent")]
        assert all(url.startswith((address, "data:")) for url in urls), urls
        fields = "[...document.querySelectorAll('input:not([type=hidden]), select')]"
        assert browser.evaluate(f"{fields}.filter(one => !one.labels.length).length") == 0
