"""How Sphinx makes pages of the notebooks that tools/site_source.py has run."""

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

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
suppress_warnings = ["misc.highlighting_failure"]  # cells with IPython's own commands


def write_in_line(translator, node):
    """A formula within a text."""
    translator.body.append(convert(node.astext()))
    raise SkipNode  # what the node holds is said


def write_block(translator, node):
    """A formula on lines of its own, which can be scrolled on a phone."""
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="formula" tabindex="0">{formula}</div>')
    raise SkipNode


def setup(app):
    """Sphinx calls this once."""
    app.add_html_math_renderer("mathml", (write_in_line, None), (write_block, None))
