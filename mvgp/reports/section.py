"""A section of the report, and what sections have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .figure import Figure
from .markup import text
from .svg import inline_svg, swatch
from .tables import Table

LONGEST = 40  # characters of a name in a legend


@dataclass(frozen=True)
class Section:
    """A part of the page.

    :param identity: its id, for links.
    :param title: its heading.
    :param body: HTML.
    :param figures: that it shows, to be written as files too.
    """

    identity: str
    title: str
    body: str
    figures: tuple[Figure, ...] = ()

    def html(self) -> str:
        """The section as HTML."""
        return (
            f'<section id="{self.identity}" aria-labelledby="{self.identity}-heading">'
            f'<h2 id="{self.identity}-heading">{text(self.title)}</h2>\n{self.body}\n</section>'
        )


def left_out(identity: str, title: str, table: Table | None) -> Section:
    """The place of a section whose table is not there, or has no lines yet.

    :param identity: of the section.
    :param title: of the section.
    :param table: that is empty, or None.
    """
    file = f"<code>tables/{identity}.tsv</code>"
    why = f"{file} is not in the study directory" if table is None else f"{file} has a header and no lines"
    return Section(identity, title, f'<p class="missing">Left out: {why}.</p>')


def source(name: str) -> str:
    """A link to the file of a table, beside the page."""
    return f'<p class="source"><a href="tables/{name}.tsv" download>tables/{name}.tsv</a></p>'


def shortened(name: str) -> str:
    """A name that fits into a legend."""
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def figure_html(figure: Figure, caption: str, *, legend_title: str) -> str:
    """A figure of the page: a legend of buttons, panels side by side, a caption with links to its files.

    :param figure: what is drawn.
    :param caption: HTML.
    :param legend_title: what the legend tells apart.
    """
    panels = "".join(inline_svg(one, f"{figure.name}-{place}") for place, one in enumerate(figure.panels))
    files = " ".join(f'<a href="figures/{figure.name}.{kind}" download>{kind.upper()}</a>' for kind in ("svg", "png"))
    legend = legend_html(figure.legend, legend_title) if figure.legend else ""
    return (
        f'<figure id="figure-{figure.name}">{legend}<div class="panels panels-{len(figure.panels)}">{panels}</div>'
        f'<figcaption>{caption} <span class="files">{files}</span></figcaption></figure>'
    )


def legend_html(names: Sequence[str], title: str) -> str:
    """Names and their lines; with JavaScript each is a button that shows or hides them."""
    entries = "".join(
        f'<li data-place="{place}">{swatch(place)}<bdi>{text(name)}</bdi></li>' for place, name in enumerate(names)
    )
    return f'<ul class="legend" aria-label="{text(title)}">{entries}</ul>'
