"""Equations as MathML, which browsers draw themselves: no script and no network connection."""

from typing import Any

from docutils import nodes
from docutils.utils.math import wrap_math_code
from docutils.utils.math.latex2mathml import tex2mathml


def _inline(page: Any, node: nodes.math) -> None:
    page.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(page: Any, node: nodes.math_block) -> None:
    page.body.append(page.starttag(node, "div", CLASS="equation"))
    if node["number"] is not None:
        page.body.append(f'<span class="number">({node["number"]})</span>')
    page.body.append(tex2mathml(wrap_math_code(node.astext(), as_block=True), as_block=True))
    page.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Add the renderer and choose it."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
