"""Check a built site: ``python docs/check_links.py FOLDER``. Exit code 1, and a line for each, if

- a link leads to a page, a file or an anchor of the site that is not there,
- a picture, a script or a style is not there, or
- a page would load one of these from the network.

Links to other sites are left alone: whether those are up is not ours to fix.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"img", "script", "iframe", "source", "audio", "video", "embed", "track", "object"}
LOADED_RELATIONS = {"stylesheet", "icon", "preload", "modulepreload"}  # of <link>


class Page(HTMLParser):
    """Anchors of a page, and where it points to: ``targets`` has (address, whether the page loads it)."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.targets = set(), []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors.update(found[key] for key in ("id", "name") if found.get(key))
        if found.get("href") is not None:
            relations = set((found.get("rel") or "").lower().split())
            self.targets.append((found["href"], tag == "link" and bool(relations & LOADED_RELATIONS)))
        for key in ("src", "data", "poster"):
            if tag in LOADED and found.get(key) is not None:
                self.targets.append((found[key], True))
        for part in (found.get("srcset") or "").split(", "):
            if part.strip():
                self.targets.append((part.split()[0], True))


def check(folder):
    """(number of addresses inside the site, list of what is wrong)."""
    root = Path(folder).resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.html"))}
    wrong, count = [], 0
    for path, page in pages.items():
        for address, loaded in page.targets:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if loaded and parts.scheme != "data":
                    wrong.append(f"{path.relative_to(root)}: would load {address}")
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            if not target.is_relative_to(root) or not target.is_file():
                wrong.append(f"{path.relative_to(root)}: {address} is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                wrong.append(f"{path.relative_to(root)}: {address} has no such anchor")
    return count, wrong


def main(folder):
    count, wrong = check(folder)
    for line in wrong:
        print(line, file=sys.stderr)
    if count == 0:
        return f"no page with a link in {folder}"
    print(f"{count} links inside the site, {len(wrong)} of them wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
