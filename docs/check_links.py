"""Check a built site: every link and picture between its pages leads somewhere. python docs/check_links.py FOLDER."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FEWEST_PAGES = 30


class Page(HTMLParser):
    """Collects what a page links to, and the places that can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        """Note the addresses and names of a tag."""
        values = {name: value or "" for name, value in attrs}
        self.targets |= {values[name] for name in ("href", "src") if name in values}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}


def find_errors(folder: Path) -> list[str]:
    """Return a line for each link that leads nowhere, and for each script or style from another server."""
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html"))}
    errors = [] if len(pages) >= FEWEST_PAGES else [f"{folder} has {len(pages)} pages, expected {FEWEST_PAGES}"]
    for path, page in pages.items():
        for target in sorted(page.targets):
            if not leads_somewhere(target, path, pages):
                errors.append(f"{path.relative_to(folder)}: {target}")
    return errors


def leads_somewhere(target: str, path: Path, pages: dict[Path, Page]) -> bool:
    """Return whether a link of a page leads to a file of the site, and to a place that is there."""
    address = urlsplit(target)
    if address.scheme or address.netloc:
        return True
    linked = (path.parent / unquote(address.path)).resolve() if address.path else path
    if linked in pages and address.fragment:
        return unquote(address.fragment) in pages[linked].anchors
    return linked.is_file()


def main() -> None:
    """Print all errors; exit with 1 if there are any."""
    folder = Path(sys.argv[1]).resolve()
    errors = find_errors(folder)
    print("\n".join(errors) or f"{len(list(folder.rglob('*.html')))} pages; all links between them lead somewhere.")
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
