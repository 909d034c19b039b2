"""Check the built pages: every relative link and image has its file, every anchor its element."""

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and the ids of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: set[str] = set()
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name == "id" and value:
                self.ids.add(value)


page = cache(Page)


def broken(path: Path) -> list[str]:
    """The links of a page that lead nowhere. Those to other hosts are not followed."""
    missing = []
    for link in sorted(page(path).links):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        anchor = unquote(parts.fragment)
        if not target.is_file() or (anchor and target.suffix == ".html" and anchor not in page(target).ids):
            missing.append(link)
    return missing


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    pages = sorted(root.rglob("*.html"))
    faults = [f"{path.relative_to(root)}: {link}" for path in pages for link in broken(path)]
    if faults or not pages:
        sys.exit("\n".join([*faults, f"{len(faults)} broken links on {len(pages)} pages"]))
    print(f"{len(pages)} pages, no broken link")


if __name__ == "__main__":
    main()
