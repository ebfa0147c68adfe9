"""Equations as MathML, made when the site is built: no script, no network, and the colours of the page.

An equation with the label ``equation-8`` has the number 8 on whatever page it stands, so that docstrings can name it.
"""

import re
from xml.sax.saxutils import escape

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

logger = logging.getLogger(__name__)
NUMBERED = re.compile(r"equation-(\d+)")


def to_mathml(latex, display, node):
    try:
        found = convert(latex, display=display).replace(r"\_", "_")  # it keeps the escape inside of \text
    except Exception as error:
        logger.warning("equation %r: %s", latex, error, location=node)
        return f"<code>{escape(latex)}</code>"
    found = re.sub(
        r"<mi>(log|ln|exp)</mi>(?=<m[in])", r'<mi>\1</mi><mspace width="0.167em" />', found
    )  # log p, not logp
    left = re.search(r"\\\w+", found) or re.search(r"\\operatorname\*", latex)  # the star would be set as one
    if left:
        logger.warning("equation %r: %s is not known to latex2mathml", latex, left[0], location=node)
    return found


def visit_inline(writer, node):
    writer.body.append(to_mathml(node.astext(), "inline", node))
    raise nodes.SkipNode


def visit_block(writer, node):
    names = f' id="{node["ids"][0]}"' if node["ids"] else ""
    writer.body.append(f'<div class="equation"{names}>')
    writer.body.append(to_mathml(node.astext(), "block", node))
    number = number_of(node.get("label") or "")
    if number is not None:
        link = f' <a class="headerlink" href="#{node["ids"][0]}" title="Link to this equation">#</a>' if names else ""
        writer.body.append(f'<span class="equation-number">({number}){link}</span>')
    writer.body.append("</div>")
    raise nodes.SkipNode


def number_of(label):
    match = NUMBERED.fullmatch(label)
    return None if match is None else int(match[1])


def number_by_label(app, doctree):
    """References take their number from the domain: put the one of the label there."""
    equations = app.env.get_domain("math").equations
    for node in doctree.findall(nodes.math_block):
        label = node.get("label")
        if not label:
            continue
        number = number_of(label)
        if number is None:
            logger.warning("label %r: expected equation-NUMBER", label, location=node)
            continue
        equations[label] = (app.env.docname, number)


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.connect("doctree-read", number_by_label)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
