"""How Sphinx makes pages of the notebooks that tools/site_source.py has run."""

import contextlib
import html
import re
from pathlib import Path

from docutils.nodes import SkipNode, comment, paragraph, raw, reference
from latex2mathml.converter import convert
from sphinx.search.en import SearchEnglish

from mha_course.checking.wording import as_sentence
from mha_course.models import hugging_face
from tools import address, front_page
from tools.languages import LANGUAGES
from tools.site_source import FOLDED, SHARED_IMAGE

with contextlib.suppress(ImportError):  # it has to come before links from code follow its names
    hugging_face.load_transformers()

project = "Multi-head attention"
html_title = "Multi-head attention, taught by running it"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_codeautolink", "sphinx_design"]
nb_execution_mode = "off"
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_static_path = ["_static"]
html_extra_path = ["extra"]
html_favicon = "_static/favicon.svg"
html_baseurl = address.site(address.project()) or ""  # the canonical address of each page, where there is one
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
DESCRIPTION = (
    "Multi-head attention from the formula to pruning heads: notebooks that run, pictures that move without a kernel, "
    "and a check under each exercise that names the mistake."
)
SHARED_ALT = "Bars: with 1, 2, 3 and 4 heads a model names 0, 6, 69 and 100 % of the letters; below, the heads' maps"
LONGEST = 200  # letters of a description
DESCRIPTIONS = {row.stem: as_sentence(row.text.replace("`", "")) for row in front_page.rows()}
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


def describe(app, page, template, context, doctree):
    """What search engines and chats show beside a link to a page."""
    title = context.get("title") or html_title
    words = html_title if page == "index" else re.sub(r"<.*?>", "", html.unescape(title))
    image = f"{html_baseurl or context['content_root']}_static/{SHARED_IMAGE}"
    named = {
        "og:type": "website",
        "og:site_name": html_title,
        "og:title": words,
        "og:description": description(page, doctree),
        "og:image": image,
        "og:image:alt": SHARED_ALT,
    }
    lines = [f'<meta name="description" content="{html.escape(named["og:description"])}">']
    lines += [f'<meta property="{name}" content="{html.escape(value)}">' for name, value in named.items()]
    lines += ['<meta name="twitter:card" content="summary_large_image">']
    context["metatags"] = "\n".join([context.get("metatags", ""), *lines])


def description(page, doctree):
    """For a notebook what stands on its card, for another page its first paragraph that is more than links."""
    if page in DESCRIPTIONS:
        return DESCRIPTIONS[page]
    for found in doctree.findall(paragraph) if doctree and page != "index" else ():
        text = found.astext().replace("\n", " ")
        linked = sum(len(link.astext()) for link in found.findall(reference))
        if len(text) - linked >= 30 and len(text) > 2 * linked:
            return text if len(text) <= LONGEST else f"{text[:LONGEST].rpartition(' ')[0] or text[:LONGEST]} …"
    return DESCRIPTION


def write_sitemap(app, error):
    """Where the site has an address, tell search engines its pages."""
    if error or not html_baseurl:
        return
    pages = "".join(
        f"<url><loc>{html_baseurl}{app.builder.get_target_uri(name)}</loc></url>\n"
        for name in sorted(app.env.found_docs)
    )
    start = '<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
    Path(app.outdir, "sitemap.xml").write_text(f"{start}{pages}</urlset>\n", encoding="utf-8")
    Path(app.outdir, "robots.txt").write_text(f"Sitemap: {html_baseurl}sitemap.xml\n", encoding="utf-8")


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
    app.connect("html-page-context", describe)
    app.connect("build-finished", write_sitemap)
    app.connect("doctree-read", fold_sections)
    app.add_html_math_renderer("mathml", (write_in_line, None), (write_block, None))
