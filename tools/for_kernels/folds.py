"""Let a folded part run after the main line as if it stood at its place: with the names and random numbers of there."""

import random
import sys

from IPython import get_ipython

places = []  # for every folded part the public names of the main line at its place, and the random numbers' states
part = None  # the one that runs now, by its number


def names():
    """Everything that the notebook has defined, by name."""
    return {name: value for name, value in get_ipython().user_ns.items() if not name.startswith("_")}


def generators():
    """How to read and how to set each global generator of random numbers that is there."""
    yield random.getstate, random.setstate
    if numpy := sys.modules.get("numpy"):
        yield numpy.random.get_state, numpy.random.set_state
    if torch := sys.modules.get("torch"):
        yield torch.get_rng_state, torch.set_rng_state


def keep():
    """Keep what a folded part would find here."""
    places.append((names(), [read() for read, _ in generators()]))


def go_back(number):
    """Go to the place of a folded part; what parts before it made stays, but for what the main line made anew since."""
    global part
    found, states = places[number]
    found = dict(found)
    if part is not None:
        before, _ = places[part]
        for name, value in names().items():
            if value is not before.get(name) and found.get(name) is before.get(name):
                found[name] = value
    everything = get_ipython().user_ns
    for name in names():
        del everything[name]
    everything.update(found)
    for (_, write), state in zip(generators(), states, strict=False):  # what was not imported then had no state
        write(state)
    part = number
