"""From a template to one HTML file that needs nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from lmfcn.files import write_text


def write_page(path: Path, template: str, content: Mapping[str, Any]) -> None:
    """Write the page; a file of that name is replaced whole or not at all."""
    environment = Environment(
        loader=PackageLoader("lmfcn.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    write_text(path, environment.get_template(template).render(content))
