"""Equations as MathML, made when the site is built: no script, no network, and the colours of the page.

An equation with the label ``equation-8`` has the number 8 on whatever page it stands, so that docstrings can name it.
"""

import re
import unicodedata
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from docutils import nodes
from latex2mathml.converter import convert_to_element
from sphinx.util import logging

logger = logging.getLogger(__name__)
NUMBERED = re.compile(r"equation-(\d+)")
NAME = re.compile(r"[A-Za-z]{2,}")
LIMITS = ("min", "max", "sup", "inf")  # what they run over goes below them
CLOSING = "&#x00029;"  # a bracket
STYLES = {"script": "SCRIPT", "double-struck": "DOUBLE-STRUCK", "fraktur": "FRAKTUR", "bold": "BOLD"}
RELATIONS = {"&#x0007E;": "&#x0223C;", "~": "&#x0223C;", ":": ":"}  # latex2mathml sets these as letters


def to_mathml(latex, display, node):
    try:
        root = convert_to_element(latex, display=display)
    except Exception as error:
        logger.warning("equation %r: %s", latex, error, location=node)
        return f"<code>{escape(latex)}</code>"
    mend(root, display)
    found = ElementTree.tostring(root, encoding="unicode").replace("&amp;#", "&#").replace(r"\_", "_")
    left = re.search(r"\\[^\s<]*", found) or re.search(r"\\operatorname\*", latex)  # the star would be set as one
    if left:
        logger.warning("equation %r: %s is not known to latex2mathml", latex, left[0], location=node)
    return found


def mend(element, display):
    """Set names of functions as names, with a thin space to what stands beside them, and relations as relations."""
    for child in element:
        mend(child, display)
    text = element.text or ""
    if element.tag == "mo" and NAME.fullmatch(text):  # tr(A), not tr (A)
        element.tag = "mi"
        element.attrib.clear()
    elif element.tag == "mo" and text in (r"\{", r"\}"):  # after \Big
        element.text = text[1]
    elif element.tag == "mi" and text in RELATIONS:
        element.tag, element.text = "mo", RELATIONS[text]
    elif element.tag == "mi" and element.get("mathvariant") in STYLES and re.fullmatch(r"[A-Za-z]", text):
        element.text = styled(text, STYLES[element.attrib.pop("mathvariant")])
    elif element.tag == "msub" and display == "block" and element[0].text in LIMITS:
        element.tag = "munder"
    if element.tag in ("math", "mrow"):
        children = list(element)
        for place in range(len(children) - 1, 0, -1):
            before, after = children[place - 1 : place + 1]
            if "mspace" in (before.tag, after.tag):
                continue
            ends = before.tag != "mo" or before.text == CLOSING
            if (is_name(before) and after.tag not in ("mo", "mrow")) or (is_name(after) and ends):
                element.insert(place, ElementTree.Element("mspace", {"width": "0.167em"}))


def styled(letter, style):
    r"""The character itself: of \mathcal{GP} latex2mathml makes an attribute that browsers no longer heed."""
    name = f"{style} {'CAPITAL' if letter.isupper() else 'SMALL'} {letter.upper()}"
    try:
        return unicodedata.lookup(f"MATHEMATICAL {name}")
    except KeyError:
        return unicodedata.lookup(name.replace("FRAKTUR", "BLACK-LETTER"))  # the few that are older


def is_name(element):
    """A function such as log or tr, with an index or without."""
    first = element[0] if element.tag in ("msub", "munder", "msup") else element
    return first.tag == "mi" and NAME.fullmatch(first.text or "") is not None


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
