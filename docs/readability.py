"""Words per sentence of each page, the longest first: ``python docs/readability.py [PAGE ...]``."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FENCED = re.compile(r"^[ \t]*(`{3,}|:{3,}|~{3,}).*?^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)
DISPLAYED = re.compile(r"\$\$.*?\$\$|<!--.*?-->", re.DOTALL)
NOT_PROSE = re.compile(r"^[ \t]*(\||#|<|!\[|\[!\[|\([\w-]+\)=).*$", re.MULTILINE)  # tables, headings, HTML, images
ONE_WORD = re.compile(r"`[^`]+`|\$[^$]+\$|\{\w+\}`[^`]+`")  # a name, a formula or a role reads as one word
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ITEM = re.compile(r"^[ \t]*(?:[-*]|\d+\.)[ \t]+", re.MULTILINE)
END = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[A-Z0-9*\"(\[-])")


def sentences(text: str) -> list[str]:
    """The sentences of a page's prose, in order: without code, displayed equations, tables and headings."""
    for pattern in (FENCED, DISPLAYED, NOT_PROSE):
        text = pattern.sub("\n\n", text)
    text = ONE_WORD.sub("Name", LINK.sub(r"\1", text))
    paragraphs = re.split(r"\n\s*\n", ITEM.sub("\n\n", text))
    found = [part for paragraph in paragraphs for part in END.split(" ".join(paragraph.split()))]
    return [part for part in found if len(re.findall(r"\w+", part)) > 2]


def words_per_sentence(text: str) -> float:
    """The average, 0 for a page without prose."""
    found = sentences(text)
    return sum(len(part.split()) for part in found) / len(found) if found else 0.0


def main(pages: list[Path]) -> None:
    measured = [(words_per_sentence(page.read_text()), page) for page in pages]
    for average, page in sorted(measured, reverse=True):
        print(f"{average:5.1f}  {page.name}")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))])
