"""`python -m tools.docstrings [PATH…]` lists docstrings of halog whose first sentence has no subject and verb.

The method: the first sentence ends at the first `.`, `?`, `!`, `;` or `:`. TextBlob's tagger names the part of speech
of each word. A sentence is taken if it begins with a verb ("Returns the nodes", "Return the nodes"): its subject is the
thing that is documented. So is one whose subject is "this module" or code, with a word in -s behind it ("`A` names
the nodes"). It is taken, too, if it has more finite verbs than words that open a clause of their own
("that", "which", "where", …): "The nodes that are up" has a verb, but no main clause. Code in backticks counts as a
noun; what stands in brackets does not count. A tagger errs now and then: a sentence that it takes wrongly for headless
can be put more plainly.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FINITE = {"VBZ", "VBP", "VBD", "MD"}
BEGINS = {"VB", "VBP", "VBZ", "MD"}
AUXILIARY = frozenset("is are was were be been has have had does do did am 's".split(" "))  # noqa: SIM905
"""A participle behind one of these is part of the same verb ("was asked"); the tagger may take it for a past tense."""
COMMANDS = frozenset(
    """
    act append ask begin bring build call carry cause change check close commit compare compile convert
    copy count create cut decode delay delete do drain draw drop encode end fill find finish fit follow
    forget get give guard hand handle hear hold join judge keep land leave let list load lock log look
    make map mark match measure merge move name note offer open order pack pass place plan play print
    pull push put raise read record refuse register remember remove rename replace replay report request
    reset restore retry return run say see send serve set show sort split start state step stop store
    switch take tell tie time turn undo update wait wake walk watch work wrap write yield
    """.split()  # noqa: SIM905
)
"""Verbs whose first form is a noun as well, or that the tagger takes for one at the head of a sentence."""
HEADS = ("a", "an", "the", "this")
OPENS_CLAUSE = frozenset(
    """
    after although as because before how if once since so that though unless until what whatever when
    where wherever whether which whichever while who whoever whom whose why
    """.split()  # noqa: SIM905
)
BEGINS_WITH_SUBJECT = re.compile(
    r"(this (module|room|package)|(an? )?thing) (?!as |its |across |always |less )\w+s ", re.I
)
"""A singular subject and a word in -s behind it: that is its verb, even where the tagger takes it for a noun."""


@functools.cache
def _tagger() -> Any:
    """Return TextBlob's tagger. Its import takes half a second, which each worker of pytest that only collects would
    spend."""
    from textblob.en.taggers import PatternTagger  # type: ignore[import-untyped]

    return PatternTagger()


class Docstring(NamedTuple):
    """A docstring stands at this line of this file; `name` is empty for a module."""

    path: Path
    line: int
    name: str
    text: str


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, code replaced by a noun and brackets left out."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    paragraph = re.sub(r"`+[^`]*`+", "Thing", paragraph)
    paragraph = re.sub(r"\s*\([^)]*\)", "", paragraph)
    found = re.match(r".*?[.?!;:](?=\s|$)", paragraph)
    return found[0] if found else paragraph


def has_verb(text: str) -> bool:
    """Says whether the first sentence of this docstring has a subject and a verb."""
    sentence = first_sentence(text)
    if not sentence[:1]:
        return False
    if BEGINS_WITH_SUBJECT.match(sentence):
        return True
    tags = _tagger().tag(sentence[0].lower() + sentence[1:])
    if not tags:
        return False
    first, tag = tags[0]
    if tag in BEGINS or first in COMMANDS or (first[-1:] == "s" and first[:-1] in COMMANDS):
        return True
    if _is_verb_of_head([word for word, _ in tags]):
        return True
    verbs, helped = 0, False
    for word, tag in tags:
        verbs += tag in FINITE and not (helped and tag == "VBD")
        helped = word.lower() in AUXILIARY or (helped and tag == "RB")
    return verbs > sum(word.lower() in OPENS_CLAUSE for word, _ in tags)


def _is_verb_of_head(words: list[str]) -> bool:
    """Says whether a known verb in the third person stands right behind "This module" or "A `Name`": the tagger often
    takes it for a plural there."""
    words = [word.lower() for word in words]
    if words[0] in HEADS:
        words = words[1:]
    if len(words) < 2 or words[0] not in ("module", "package", "thing"):
        return False
    verb = words[1]
    return verb[-1:] == "s" and not COMMANDS.isdisjoint((verb[:-1], verb[:-2], verb[:-3] + "y"))


def docstrings(path: Path) -> Iterator[Docstring]:
    """Yields every docstring of one file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield Docstring(path, getattr(node, "lineno", 1), getattr(node, "name", ""), text)


def headless(folder: Path) -> list[Docstring]:
    """Return the docstrings below a folder, or of a file, whose first sentence lacks a subject or a verb."""
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]
    return [d for f in files for d in docstrings(f) if not has_verb(d.text)]


def main(argv: list[str]) -> int:
    """Return 1 and print what was found, 0 if there is nothing."""
    found = [d for name in argv or ["halog"] for d in headless(ROOT / name)]
    for d in found:
        print(f"{d.path.relative_to(ROOT)}:{d.line}: {d.name}: {first_sentence(d.text)}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
