"""Results of long runs, which ship with the library: tables over many seeds, speeds."""

import json

from mha_lib.models.package_data import package_data

COMMANDS = {
    "heads": "make research-measures",
    "pruning_speed": "make bench-full",
    "births": "make research-births",
    "places": "make research-places",
    "real_heads": "make research-real",
    "next_word": "make research-next-word",
    "fresh_texts": "make research-fresh-texts",
}


def load_results(name: str) -> dict | list:
    """What a long run found, for notebooks that show it without running it.

    Args:
        name: "heads", what was found over thirty seeds: for "lookups" and "dates" the results of ``compare`` in
            ``research/league.py`` (with training after cuts for the first eight), for "planted" those of
            ``planted_controls`` there, for "company" those of ``research/relations.py`` on the look-ups, for
            "controls, …" those of ``research/signs.py``; ``kept_columns`` reads them.
            "pruning_speed": for each cut of a layer its shape, the number of heads kept, and how many times faster it
            became (median and quartiles), with ideals.
            "births": for each of eight seeds how heads come into being in ``mha_lib.models.induction``, with losses,
            scores of the heads, and losses without a head. "places": for each of ``RUNS`` of ``research/places.py``
            what five seeds give, by the names of its ``COLUMNS``, and the same for a guess. "real_heads": what was
            measured on the language model SmolLM2, part by part, as the functions of ``research/real_heads.py`` say.
            "next_word": what that model says next on texts that nobody chose, with heads cut, as
            ``research/next_word.py`` says. "fresh_texts": claims about it on texts that no measure saw, part by part,
            as ``research/fresh_texts.py`` says.

    Raises:
        ValueError: no such results are kept; the message lists those that are.
        FileNotFoundError: this copy of the library lacks them; the message names the command that makes them.
    """
    if name not in COMMANDS:
        raise ValueError(f"name must be one of {', '.join(COMMANDS)}, got {name!r}")
    return json.loads(package_data(f"heads/results/{name}.json", COMMANDS[name]))
