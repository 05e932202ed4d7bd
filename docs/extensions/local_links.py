"""Links between Markdown files that the site shows at other places than the repository does."""

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
PAGES = {
    ROOT / "README.md": DOCS / "index.md",
    ROOT / "CHANGELOG.md": DOCS / "changelog.md",
    ROOT / "CONTRIBUTING.md": DOCS / "contributing.md",
    ROOT / "src/lmfcn/method/README.md": DOCS / "method_code.md",
    ROOT / "examples": DOCS / "README.md",
}
"""Files outside of `docs`, and the pages that show them."""

_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]*)(#[^)\s]*)?\)")


def relink(text: str, folder: Path, shown_in: Path) -> str:
    """Return Markdown of a file in `folder` with its relative links as they are from the page's folder `shown_in`."""

    def replace(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / found[1]))
        page = PAGES.get(target, target)
        return f"]({os.path.relpath(page, shown_in)}{found[2] or ''})"

    return _LINK.sub(replace, text)


def _read_page(app: Any, name: str, source: list[str]) -> None:
    path = Path(app.env.doc2path(name))
    if path.suffix == ".md":
        source[0] = relink(source[0], path.parent, path.parent)


def _read_included(app: Any, path: Path, _: str, source: list[str]) -> None:
    file = (Path(app.srcdir) / path).resolve()
    if file.suffix == ".md":
        source[0] = relink(source[0], file.parent, DOCS)


def setup(app: Any) -> dict[str, bool]:
    """Rewrite links when files are read."""
    app.connect("source-read", _read_page)
    app.connect("include-read", _read_included)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
