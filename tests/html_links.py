"""What a page asks a browser to do."""

from html.parser import HTMLParser


class Links(HTMLParser):
    """Collects the tags of a page, every address in it, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.addresses, self.texts = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href", "srcset", "data", "action")]

    def handle_data(self, data):
        if self.lasttag != "style":
            self.texts.append(data)

    @property
    def text(self):
        """The page's words, without its style."""
        return " ".join(" ".join(self.texts).split())


def assert_self_contained(page):
    """Nothing in the page runs, or is fetched from elsewhere."""
    links = Links(page)
    assert not {"script", "link", "iframe", "object", "base", "form"} & set(links.tags)
    assert all(address.startswith(("data:image/", "#")) for address in links.addresses)
    assert "url(" not in page
    assert "@import" not in page
    return links
