"""How Sphinx makes pages of the notebooks that tools/site_source.py has run."""

import re

from docutils.nodes import SkipNode, comment, raw
from latex2mathml.converter import convert
from sphinx.search.en import SearchEnglish

from tools.languages import LANGUAGES
from tools.site_source import FOLDED

project = "Multi-head attention"
html_title = "Multi-head attention, taught by running it"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_codeautolink", "sphinx_design"]
nb_execution_mode = "off"
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_static_path = ["_static"]
html_extra_path = ["extra"]
html_css_files = ["live.css", "site.css"]
html_js_files = [("pictures.js", {"defer": "defer"})]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_math_renderer = "mathml"  # a browser's own: MathJax would be 24 MB
codeautolink_concat_default = True  # a cell knows what cells above it have imported
suppress_warnings = [
    "misc.highlighting_failure",  # cells with IPython's own commands
    "myst.header",  # exercises have the level that they have in the story
    "ref.python",  # two live pictures have an attribute of one name
]
# Chinese and Japanese put no space between words, so every pair of neighbouring signs counts as one.
SIGN = r"[\u3005\u3040-\u30ff\u3400-\u9fff]"
WORD = rf"(?=({SIGN}{{2}})){SIGN}|(?<!{SIGN})({SIGN})(?!{SIGN})|((?:(?!{SIGN})LETTER)+)"
LETTER_IN_JS = r"[\p{L}\p{M}\p{N}_]"


def write_in_line(translator, node):
    """A formula within a text."""
    translator.body.append(convert(node.astext()))
    raise SkipNode  # what the node holds is said


def write_block(translator, node):
    """A formula on lines of its own, which can be scrolled on a phone."""
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="formula" tabindex="0">{formula}</div>')
    raise SkipNode


class Search(SearchEnglish):
    """One index for all languages; the browser cuts a query as Python cuts the pages."""

    js_splitter_code = (
        f"var splitQuery = (text) => [...text.matchAll(/{WORD.replace('LETTER', LETTER_IN_JS)}/gu)]"
        ".map((found) => found[1] ?? found[2] ?? found[3]);"
    )

    def split(self, text):
        return ["".join(found) for found in re.findall(WORD.replace("LETTER", r"\w"), text)]


def say_language(app, page, template, context, tree):
    """Screen readers and the choice of Chinese or Japanese shapes need the language of a page."""
    folder = page.partition("/")[0]
    if folder in LANGUAGES:
        context["language"] = LANGUAGES[folder]["code"]


def fold_sections(app, doctree):
    """A section with a comment that says so is folded, but for its heading, with all that stands under it."""
    for found in [each for each in doctree.findall(comment) if each.astext().startswith(FOLDED)]:
        section, summary = found.parent, found.astext().removeprefix(FOLDED).strip()
        place = section.index(found)
        section[place] = raw("", f'<details class="deeper"><summary>{summary}</summary>', format="html")
        section += raw("", "</details>", format="html")


def setup(app):
    """Sphinx calls this once."""
    app.add_search_language(Search)
    app.connect("html-page-context", say_language)
    app.connect("doctree-read", fold_sections)
    app.add_html_math_renderer("mathml", (write_in_line, None), (write_block, None))
