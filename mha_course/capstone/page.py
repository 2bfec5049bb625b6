"""One page of a claim: as it was locked, what came of it, two pictures, and its limits; as HTML and as Markdown."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from mha_course.capstone.claim import Event, history, is_changed
from mha_course.capstone.claim_verdict import Verdict, told
from mha_course.pictures import Picture

UNWRITTEN = "Not written."
CHANGED, REHEARSED = " (changed)", " (rehearsed on calibration rows)"  # after a verdict
AGAIN = " (test rows opened more than once)"
STYLE = """@page { size: A4; margin: 12mm }
body { font: 10pt/1.3 sans-serif; max-width: 186mm; margin: 5mm auto; color: #111; background: #fff }
h1 { font-size: 15pt; margin: 0 } h2 { font-size: 11pt; margin: 3mm 0 1mm } p, ol { margin: 1mm 0 }
td { padding: 0 4mm .5mm 0; vertical-align: top }
.pictures img { width: 100%; max-height: 90mm; object-fit: contain; object-position: left; margin-top: 3mm }
figcaption { display: none } @media (max-width: 500px) { body { margin: 3mm } }"""


def page(
    file: str | Path, claim_file: str | Path, result: Verdict, numbers: Mapping[str, object],
    pictures: Sequence[Picture], limits: str,
) -> str:  # fmt: skip
    """Write one printable page, ``file`` as HTML and beside it as Markdown with its images; return a line about it.

    Args:
        file: where to, such as "page.html".
        claim_file: of ``lock``: all claims come onto the page, with the times when test rows were opened.
        result: of ``verdict``.
        numbers: further rows of its table, by name.
        pictures: two.
        limits: what the result does not say, in your own words.

    Raises:
        ValueError: there are not two pictures, or the claim's file is empty or was edited.
    """
    file, events = Path(file), history(claim_file)
    if len(pictures) != 2:
        raise ValueError(f"pictures must be two, got {len(pictures)}")
    if not events:
        raise ValueError(f"{claim_file} holds no claim: lock one first")
    limits = limits.strip() if isinstance(limits, str) else ""
    claim, opened = events[-1].claim, sum(event.what == "test rows opened" for event in events)
    table = {
        "rise of the loss": f"{told(result.rise)} nats; promised: at most {claim.promise}: {result.promise}",
        "draws minus plan": f"{told(result.ahead)} nats; {result.share:.0%} of the draws cost more: {result.baseline}",
        "draws that break the promise": f"{result.breaking} of {len(result.draws)}",
        "test rows opened": str(opened),
        **{name: _in_words(value) for name, value in numbers.items()},
    }
    marks = CHANGED * is_changed(events) + AGAIN * (opened > 1) + REHEARSED * (opened == 0)
    heading = f"Verdict: {result.outcome}{marks}"
    title = f"One claim: {claim.model}"
    lines = [_line(event) for event in events]
    refuted, limits = f"Refuted by: {claim.refuted_by or 'not written'}", limits or UNWRITTEN
    images = [file.with_name(f"{file.stem}-{number}.png") for number in (1, 2)]
    for image, picture in zip(images, pictures, strict=True):
        image.write_bytes(picture.png)
    drawn = [f"![{picture.alt.split('. ')[0]}]({image.name})" for image, picture in zip(images, pictures, strict=True)]
    text = [f"# {title}", str(claim), refuted, *(f"- {line}" for line in lines), f"## {heading}"]
    rows = "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in table.items())
    text += [f"| | |\n|---|---|\n{rows}", result.next_step, *drawn, "## Limits", limits]
    file.with_suffix(".md").write_text("\n\n".join(text) + "\n", encoding="utf-8")
    file.write_text(_as_html(title, [str(claim), refuted], lines, heading, table, result, pictures, limits), "utf-8")
    unwritten = "Not yet finished: write the limits. " * (limits == UNWRITTEN)
    return f"{unwritten}{file.name} and {file.stem}.md: {result.outcome}, claim {claim.eight}."


def _line(event: Event) -> str:
    """An event in words."""
    claim = event.claim
    locked = f"claim {claim.eight} locked: {claim.remove} heads, {claim.promise} nats"
    return f"{event.time}: {locked if event.what == 'claim' else event.what}"


def _in_words(value: object) -> str:
    return ", ".join(f"{name} {one}" for name, one in value.items()) if isinstance(value, Mapping) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _as_html(
    title: str, claim: Sequence[str], lines: Sequence[str], heading: str, table: Mapping[str, str], result: Verdict,
    pictures: Sequence[Picture], limits: str,
) -> str:  # fmt: skip
    said = html.escape
    paragraphs = "".join(f"<p>{said(one)}</p>" for one in claim)
    rows = "".join(f"<tr><td>{said(name)}</td><td>{said(value)}</td></tr>" for name, value in table.items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{said(title)}</title><style>{STYLE}</style><h1>{said(title)}</h1>{paragraphs}"
        f"<ol>{''.join(f'<li>{said(line)}</li>' for line in lines)}</ol><h2>{said(heading)}</h2><table>{rows}</table>"
        f"<p>{said(result.next_step)}</p>"
        f"<div class='pictures'>{''.join(picture._repr_html_() for picture in pictures)}</div>"
        f"<h2>Limits</h2><p>{said(limits)}</p></html>\n"
    )
