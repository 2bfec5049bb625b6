"""What every live picture states in large letters is what Python finds, and no last bit decides a word of it."""

import functools
import itertools
import random

import pytest
import torch
from picture_cases import CASES, born, told

from mha_course import models, pictures
from mha_course.models.next_words import GROUPS
from mha_course.pictures import birth_explorer, next_word_explorer
from mha_course.pictures.live import EXPORT, as_json, bundle
from mha_course.pictures.mask_explorer import SHIFTS
from mha_course.pictures.transpose_stepper import ORDERS

pytestmark = [pytest.mark.browser, pytest.mark.quarter]

PICTURES = CASES | {
    "digits": lambda: pictures.HeadExplorer(models.shipped_model("digits")),  # what a head is worth, training decides
    "births": lambda: pictures.BirthExplorer(born(), step=1),
}


@functools.cache
def picture_of(name):
    return PICTURES[name]()


def percent(share):
    return told(100 * share, 0)


def most_of(numbers, digits=2):
    """Where the largest number is, as they are told: the first of equal ones."""
    texts = [float(told(x, digits).replace("−", "-")) for x in numbers.tolist()]
    return texts.index(max(texts))


def counted(count, one, many):
    return f"{count} {one if count == 1 else many}"


def digit(number):
    return f"{'an' if number == 8 else 'a'} {number}"


def heads(p):
    """Which head matters most, that none does, or what becomes of the answer without those that are off."""
    batch, shape = p.batch(), torch.tensor(p.gates).shape
    if not batch.inputs[0].any():
        return "Draw a digit", ""

    def read(gates):
        with torch.no_grad():
            return p.learned.logits(p.model(batch.inputs, None, torch.as_tensor(gates).float()))[0]

    now, whole, blocks = read(p.gates), read(torch.ones(shape)), p.data["blocks"]
    own, every = whole.argmax().item(), list(itertools.product(*map(range, shape)))
    names = {place: f"{blocks[place[0]]}, head {place[1]}" for place in every}
    off = [place for place in every if p.gates[place[0]][place[1]] == 0]
    if all(gate == 1 for row in p.gates for gate in row):
        found = {}
        for place in every:
            gates = torch.ones(shape)
            gates[place] = 0
            less = read(gates)
            found[place] = less.argmax().item() != own, round(-less.log_softmax(dim=0)[own].item(), 2), less
        place = max(every, key=lambda place: found[place][:2])
        changes, _, less = found[place]
        if changes:
            claim = f"{names[place][0].upper()}{names[place][1:]} matters most: without it "
            return f"{claim}{digit(less.argmax())}, not {digit(own)}", ""
        hint = "“break it” looks for several heads that do."
        shares = [logits.softmax(dim=0)[own].item() for logits in (less, whole)]
        after, before = (told(100 * share, int(shares[0] > 0.995)) for share in shares)
        if after != before:
            hint = f"Without {names[place]}: {digit(own)} with {after} %, not {before} %. {hint}"
        return "No single head changes this answer", hint
    some = " and ".join(names[place] for place in off) if len(off) < 3 else f"these {len(off)} heads"
    which = "With these gates" if not off else f"Without {'any head' if len(off) == len(every) else some}"
    after, before = digit(now.argmax()), digit(own)
    return f"{which}: {f'still {after}' if after == before else f'{after}, not {before}'}", ""


def layer(p):
    weights, length, head = p.weights()[p.example], p.valid_lens[p.example], p.head
    query, key = divmod(p.cell, weights.shape[2])
    names = [p.data[own][p.example][at] for own, at in (("query_names", query), ("key_names", key))]
    share, trained = percent(weights[head, query, key].item()), p.layer.num_heads
    if not length:
        claim, beside = "With no valid key, every weight of every head is 0", []
    elif key >= length:
        claim, beside = f"No head attends to “{names[1]}”: it is masked", []
    else:
        claim = f"Head {head}: “{names[0]}” attends to “{names[1]}” with {share} % of its weight"
        rest = [own[query, key].item() for h, own in enumerate(weights) if h != head]
        which = "In the other head:" if len(rest) == 1 else f"In the {len(rest)} other heads: at most"
        beside = [f"{which} {percent(max(rest))} %."] if rest else []
    if p.num_heads == trained:
        return claim, " ".join([*beside, f"The layer was trained with {trained} heads."])
    right = p.data["accuracies"][p.divisors.index(p.num_heads)]
    heads = counted(p.num_heads, "head", "heads")
    split = f"{heads}, split from weights trained as {trained} heads: {percent(right)} % right"
    return split, " ".join([f"{claim}.", *beside])


def ring(p):
    count, off, right = p.heads, p.off, p.accuracy()
    share = f"all four right for {told(100 * right, 1 if 0.0005 < right < 0.0095 or 0.99 < right < 1 else 0)} %"
    heads = counted(count, "head", "heads")
    weights, _ = p.look()
    on_neighbours = torch.stack([weights[:, range(12), [(i - s) % 12 for i in range(12)]] for s in (1, -1, 2, -2)])
    means = on_neighbours.mean(dim=2).T.tolist()  # (heads, 4)
    named = [[i for i in range(4) if own[i] >= max(0.15, max(own) / 2)] for own in means]
    shared = count == 4 and sorted(named) == [[0], [1], [2], [3]]
    twice = not p.data["ranges"] and count == 8  # the laboratory as it was trained
    if p.split_into and count != p.num_heads:
        claim = f"{heads} split from {counted(p.num_heads, 'head', 'heads')}"
    elif off:
        claim = f"{count - len(off)} of {count} heads on"
    elif p.valid_lens < 12:
        claim = f"{p.valid_lens} of 12 keys valid"
    elif shared or twice:
        claim = f"{heads}, {'one' if shared else 'two'} per neighbour"
    else:
        claim = f"{heads} for four neighbours" if count < 4 else f"{heads} of {p.num_hiddens // count} features"
    why = ""
    if count < 4:
        why = " One head gives one average of all four." if count == 1 else f" {heads} give {count} averages of them."
    elif shared or twice:
        why = " Each head attends to one of them." if shared else " Two heads attend to each of them."
    elif count == p.num_heads == 12:
        why = " Narrow heads need more than 400 steps."
    return f"{claim}: {share}", f"Each letter must predict its four neighbours.{why}"


def transpose(p):
    steps, step, wrong, h = p.steps(), p.step, p.strangers(), p.num_heads
    count = steps[0].tensor.numel()
    moved = int((steps[step].tensor.flatten() != steps[max(step - 1, 0)].tensor.flatten()).sum())
    moves = f"{'back: ' * (step > 3)}{'permute' if step in (2, 5) else 'reshape'} moves {moved} of {count} numbers"
    axes = [("batch", "tokens", "heads", "features")[axis] for axis in ORDERS[p.axes]]
    lost = f"{wrong} of {count} numbers"
    after = [
        f"X: a row is a token, its {h} heads side by side",
        f"{moves}: it cuts each row into {h} heads",
        f"{moves}: {'each head’s tokens come together' if p.axes == '0, 2, 1, 3' else ', '.join(axes)}",
        f"reshape: {lost} are in another’s place"
        if wrong
        else f"{moves}: {p.batch_size * h} matrices, one head of one example each",
        f"{moves}, the first axis is split again",
        f"{moves}, each token’s heads come together",
        f"back: every number is where it was{f', though {lost} were in another’s place' * (wrong > 0)}",
    ]
    return after[step], ""


def masks(p):
    valid, n, noun = p.valid_len, len(p.scores), p.data["noun"]
    leak = p.ways()["fill −1e6"][valid:].sum().item()
    many = f"the {f'one {noun}' if valid == 1 else f'{valid} {noun}s'}"
    if not valid:
        return "With no valid key, −1e6 gives padding all the weight and −∞ gives NaN", ""
    if leak > 0.995:
        return f"−1e6 gives padding all the weight, {many} {'gets' if valid == 1 else 'get'} none", ""
    if leak >= 0.005:
        return f"−1e6 gives padding {percent(leak)} % of the weight", ""
    if valid == n:
        return f"Nothing is masked: all {n} {noun}s share the weight", ""
    return f"Padding gets nothing: {many} {'has' if valid == 1 else 'share'} all the weight", ""


def kernel(p):
    _, (weights,) = p.pool(torch.tensor([p.query]))
    sums = [round(x, 5) for x in weights.double().sort(descending=True).values.cumsum(0).tolist()]
    needed = next(i for i, x in enumerate(sums, start=1) if x >= 0.9)
    carry = "carries" if needed == 1 else "carry"
    return f"{needed} of {len(weights)} points {carry} 90 % of the weight at {told(p.query)} h", ""


def slow_motion(p):
    (queries, keys, _), (weights, output), n = p.tensors, p.result(), len(p.tensors[1])
    score, size, gone = keys @ queries[p.query], keys.shape[1], n - p.valid_len
    fits, most = most_of(score), most_of(weights)
    if p.step == 0:
        return f"q · k: key {fits} fits query {p.query} best, {told(score[fits].item())}", ""
    if p.step == 1:
        return f"÷ √{size}: {told(score[fits].item())} becomes {told(score[fits].item() / size**0.5)}", ""
    if p.step == 2:
        falls = {0: "all keys count", 1: "the last key falls out"}.get(gone, f"the last {gone} keys fall out")
        return f"mask: {falls}", ""
    if not p.valid_len:
        return "no key counts: every weight is 0", ""
    if p.step == 3:
        return f"softmax: key {most} gets {percent(weights[most].item())} % of the weight", ""
    return f"output: ({', '.join(map(told, output.tolist()))}), mostly value {most}", ""


def cache(p):
    weights, _, _ = p.result()
    how = {"one by one": "Token by token", "the whole at once": "In one piece", "4, 3, 1": "In pieces"}[p.pieces]
    if not len(weights):
        return "No token is read yet: the cache is empty", ""
    wrong = int(((weights > 0) != torch.ones_like(weights).tril().bool()).any(dim=1).sum())
    which = f"{wrong or len(weights)} of {counted(len(weights), 'query', 'queries')}"
    attend = "attends" if (wrong or len(weights)) == 1 else "attend"
    if wrong:
        return f"{how}, {which} {attend} to the wrong keys", ""
    despite = "" if p.mistake == "none" else ", despite the mistake"
    return f"{how}, {which} {attend} to the right keys{despite}", ""


def packed(p):
    (weights, _, far), ids = p.result(), torch.arange(12) >= 5
    due = (ids[:, None] == ids) & torch.ones(12, 12).tril().bool()
    leaks, missing = int(((weights > 0) & ~due).sum()), int(((weights == 0) & due).sum())
    wrong = int((far > 1e-5).sum())
    differ = counted(wrong, "token differs", "tokens differ")
    if not wrong:
        return "Each token gets what it gets in its text alone", ""
    if not leaks and not missing:
        return f"Every pair is right, but the positions of B go on: {differ}", ""
    return f"{counted(leaks, 'pair leaks', 'pairs leak')}, {missing} missing: {differ}", ""


def paged(p):
    here, tables, size, row = p.present(), p.tables(), p.block_size, p.row
    texts = p.data["texts"]
    held = {row: p.step - texts[i]["first"] + 1 for row, i in here.items()}
    taken = size * sum(map(len, tables.values()))
    unused = counted(taken - sum(held.values()), "unused place", "unused places")
    claim = f"Blocks of {size} reserve {unused}, the rectangle {48 - sum(held.values())}"
    if row not in here:
        return claim, f"Row {row} has no text, and its table is empty"
    blocks = f"{'block' if len(tables[row]) == 1 else 'blocks'} {', '.join(map(str, tables[row]))}"
    name = texts[here[row]]["name"]
    return claim, f"{name} in row {row} attends to {counted(held[row], 'place', 'places')}, in {blocks}"


def sentence(p):
    one, place = p.shown(), (p.layer, p.head)
    weights, where = one.weights[place][p.query], "layer {}, head {}".format(*place)
    key = most_of(weights)
    share, name = percent(weights[key].item()), p.named.get(place)
    claim = f"{one.tokens[p.query]} attends to {one.tokens[key]} with {share} % of its weight"
    return claim, f"{name}: {where}" if name else where


def next_word(p):
    text = p.without(p.cut)
    return next_word_explorer.claim(text, text.cuts.index(tuple(sorted(p.cut)))), ""


def births(p):
    losses, guesses, _ = p.read(p.cut)
    row, latest, known = p.letters, {}, []
    for i, (letter, after) in enumerate(itertools.pairwise(row), start=1):
        if latest.get(letter) == after:
            known.append(i)
        latest[letter] = after
    gone = " and ".join("layer {}, head {}".format(*head) for head in p.cut)
    small = f"without {gone}" if gone else "all heads are on"
    if not known:
        return f"Step {p.steps[p.step]}: nothing to predict: no piece of this row is repeated", small
    loss, right = losses[[i - 1 for i in known]].mean().item(), sum(guesses[i - 1] == row[i] for i in known)
    result = f"{told(loss, 1)} nats on the repeat, {right} of {len(known)} letters right"
    return f"Step {p.steps[p.step]}: {result}", small


def hand_made(p):
    weights = [told(x) for x in p.result()[2][p.query].tolist()]
    liked = [word for word, weight in zip(p.words, weights, strict=True) if weight == max(weights)]
    who, share = f"“{p.words[p.query]}” attends to", f", {max(weights)}"
    if len(liked) == len(weights):
        return f"{who} all words equally{share} each", ""
    if len(liked) == 1:
        return f"{who} “{liked[0]}” most{share}", ""
    return f"{who} {len(liked)} words equally{share} each", ", ".join(liked)


def switches(p):
    kept, count = p.kept(), len(p.means) - 1
    names = ["layer {}, head {}".format(*place) for place in itertools.product(*map(range, p.shape))]
    worth, full = (p.worth(own).double() for own in (kept, 2**count - 1))
    on = [i for i in range(count) if kept >> i & 1]
    gone = " and ".join(names[i] for i in range(count) if i not in on)
    few = f"With {f'{len(on)} of' if gone else 'all'} {count} heads"
    which = f"Without {gone}" if gone and count - len(on) < 3 else few
    after, before = told(p.values[kept].item()), told(p.values[-1].item())
    beside = "" if not gone else ", as with all" if after == before else f", not {before}"
    if not on:
        return f"{which}: {after} right{beside}", ""
    least = on[most_of(-worth[on])]
    among = f" here, {told(full[least].item())} with all on" if gone else ""
    framed = f"Framed, the cheapest to cut: {names[least]}, worth {told(worth[least].item())}{among}"
    return f"{which}: {after} right{beside}", framed


def scrubber(p):
    pattern, row = p.patterns[p.step][p.head], p.maps[p.step, p.head, p.query]
    weight, uniform, title = percent(pattern.weight), percent(pattern.uniform), p.titles[p.head].capitalize()
    key = most_of(row)
    small = (
        f"Step {p.steps[p.step]} · uniform attention: {uniform} % · {p.query} to {key}, {percent(row[key].item())} %"
    )
    if pattern.weight - pattern.uniform >= 0.1:
        return f"{title} attends to {pattern.words} with {weight} % of its weight", small
    return f"{title} has no clear pattern: {pattern.words}, {weight} %", small


def some_heads(draw, p):
    """All heads on, or some of them off, or gates between 0 and 1, and for digits one that is drawn."""
    layers, count = len(p.gates), len(p.gates[0])
    whole = [[1.0] * count for _ in range(layers)]
    some = [[float(draw.random() < 0.8) for _ in range(count)] for _ in range(layers)]
    half = [[0.5] * count for _ in range(layers)]
    gates = draw.choices([whole, some, half], [6, 5, 1])[0]
    own = {"drawn": [draw.random() * draw.choice([0, 1]) for _ in range(64)]} if draw.random() < 0.1 else {}
    if p.learned.name != "digits":
        own = {}
    return {"example": draw.randrange(p.data["count"]), "gates": gates, "drawn": None} | own


def some_numbers(draw, shapes, numbers):
    """Numbers from a few, so that some of what is made of them is equal."""
    return {
        name: [[draw.choice(numbers) for _ in range(columns)] for _ in range(rows)]
        for name, (rows, columns) in shapes.items()
    }


def some_sizes(draw, _p):
    sizes = {"batch_size": 3, "num_tokens": 5, "num_heads": 4, "head_size": 4}
    axes = draw.choice(["0, 2, 1, 3", draw.choice(list(ORDERS))])
    return {name: draw.randint(1, most) for name, most in sizes.items()} | {"axes": axes, "step": draw.randrange(7)}


def some_layer(draw, p):
    count, example = draw.choice(p.divisors), draw.randrange(2)
    lengths, cell = [draw.choice([0, 5, 12, 12]) for _ in range(2)], draw.randrange(144)
    return {"num_heads": count, "valid_lens": lengths, "example": example, "head": draw.randrange(count), "cell": cell}


def some_words(draw, p):
    example = draw.randrange(len(p.maps))
    query = draw.randrange(len(p.maps[example].tokens))
    return {"example": example, "query": query, "layer": draw.randrange(6), "head": draw.randrange(12)}


def some_cut(draw, p):
    example = draw.randrange(len(p.kept))
    cut = draw.choice([(), draw.choice(list(GROUPS.values())), draw.choice(p.kept[example].cuts)])
    return {"example": example, "query": 1, "cut": list(cut)}


def some_row(draw, p):
    mixed = draw.sample(birth_explorer.ALPHABET, 22)
    letters = draw.choice([mixed + mixed[:11], draw.sample(birth_explorer.ALPHABET, 33)])
    cut = draw.choice([[], [[0, 0]], [[0, 1], [1, 0]]])
    return {"step": draw.randrange(len(p.steps)), "letters": "".join(letters), "cut": cut}


def some_off(draw, p):
    places = itertools.product(*map(range, p.shape))
    return {"cut": [list(place) for place in places if draw.random() < 0.4]}


def some_ring(draw, p):
    count, split = draw.choice([*p.models, *p.models, 4 if p.data["ranges"] else 8]), draw.choice([0, 0, 2, 6])
    return {
        "num_heads": count,
        "split_into": split,
        "off": sorted(draw.sample(range(split or count), draw.choice([0, 0, 1]))),
        "valid_lens": draw.choice([12, 12, draw.randint(1, 12)]),
        "letters": "".join(draw.choices("abcdefghij", k=12)),
    }


STATES = {  # how a state is drawn, and what the picture is to say of it
    "digits": (some_heads, heads),
    "layer": (some_layer, layer),
    "ring": (some_ring, ring),
    "ring of a model": (some_ring, ring),
    "transpose": (some_sizes, transpose),
    "masks": (lambda draw, p: {"valid_len": draw.randrange(7), "shift": draw.choice(SHIFTS)}, masks),
    "kernel": (
        lambda draw, p: {
            "query": draw.choice([sum(p.x[i : i + 2].tolist()) / 2 for i in range(11)]),  # as far from both
            "bandwidth": draw.choice([0.05, 0.3, 2.0, 1e6]),
        },
        kernel,
    ),
    "slow motion": (
        lambda draw, p: {
            "numbers": some_numbers(draw, p.shapes, [0, 1]),
            "query": draw.randrange(3),
            "valid_len": draw.randrange(5),
            "step": draw.randrange(5),
        },
        slow_motion,
    ),
    "cache": (
        lambda draw, p: {
            "pieces": draw.choice(["one by one", "the whole at once", "4, 3, 1"]),
            "mistake": draw.choice(p.offered),
            "step": draw.randrange(9),
        },
        cache,
    ),
    "packed texts": (
        lambda draw, p: {
            "border": draw.choice([5, draw.randrange(13)]),
            "masked": draw.random() < 0.7,
            "positions": draw.choice(["start again", "go on"]),
        },
        packed,
    ),
    "paged cache": (
        lambda draw, p: {
            "step": draw.randrange(18),
            "block_size": draw.choice([1, 2, 4, 8]),
            "row": draw.randrange(4),
        },
        paged,
    ),
    "sentence": (some_words, sentence),
    "next word": (some_cut, next_word),
    "births": (some_row, births),
    "hand-made head": (
        lambda draw, p: {"numbers": some_numbers(draw, p.shapes, [0, 0, 1, 2]), "query": draw.randrange(5)},
        hand_made,
    ),
    "head switches": (some_off, switches),
    "scrubber": (
        lambda draw, p: {"step": draw.randrange(5), "head": draw.randrange(3), "query": draw.randrange(4)},
        scrubber,
    ),
}


def drawn_states(name):
    draw = random.Random(0)
    return [STATES[name][0](draw, picture_of(name)) for _ in range(10)]


# Adds to what a picture unpacks and computes, or takes away, two units in the last place of single precision, by place.
NOISE = """
const noisy = (f) => (...args) => {
    const shake = (made) => ArrayBuffer.isView(made) && made.BYTES_PER_ELEMENT >= 4
        ? made.map((x, i) => x * (1 + NOISE_SIGN * (i * 2654435761 >>> 31 ? 1 : -1) * 2 ** -22))
        : Array.isArray(made) ? made.map((one) => shake(one))
        : made?.data ? { ...made, data: shake(made.data) }
        : made?.constructor === Object
        ? Object.fromEntries(Object.entries(made).map(([name, one]) => [name, shake(one)]))
        : made;
    return shake(f(...args));
};
"""
NOISY = "unpack", "linear", "softmax", "attentionWeights", "mix", "layerNorm"
SHOW = """
async ({ script, state, states }) => {
    const { picture, pageModel, decoded } = new Function(script)();
    const model = pageModel(JSON.parse(state, decoded).state), found = [];
    const place = document.body.appendChild(document.createElement('div'));
    const end = picture.render({ model, el: place }), plain = (text) => text.replace(/\\s+/g, ' ').trim();
    for (const choices of states) {
        Object.entries(choices).forEach(([name, value]) => model.set(name, value));
        do await new Promise(requestAnimationFrame); while (place.querySelector('[aria-busy=true]'));
        const line = place.querySelector('.looks').cloneNode(true), small = line.querySelector('small');
        small?.remove();
        const words = [line, small, place.querySelector('.reading')].map((node) => plain(node?.textContent ?? ''));
        found.push(words);
    }
    end();
    place.remove();
    return found;
}
"""


@functools.cache
def shown(page, name, sign=0):
    """Headline, its small line and the reading line, for each of the drawn states; ``sign`` is that of a noise."""
    picture = picture_of(name)
    text, noise = bundle(f"{picture.module}.js"), ""
    if sign:
        noise = NOISE.replace("NOISE_SIGN", str(sign))
        noise += "".join(f"{own} = noisy({own});\n" for own in NOISY if f"function {own}(" in text)
    text = text.replace("export default", f"{noise}\nreturn")
    script = f"{EXPORT.sub('', bundle('page.js'))}\nconst picture = (() => {{\n{text}}})();\n"
    script += "return { picture, pageModel, decoded };"
    sent = {"script": script, "state": as_json(picture.page_data()), "states": drawn_states(name)}
    return page.evaluate(SHOW, sent)


@pytest.fixture(scope="module", autouse=True)
def blank(page):
    page.goto("about:blank")


def test_every_live_picture_has_its_states():
    assert set(STATES) == set(CASES)


@pytest.mark.parametrize("name", STATES)
def test_a_headline_tells_what_python_finds(page, name):
    picture, claims = picture_of(name), []
    for choices, (*seen, _) in zip(drawn_states(name), shown(page, name), strict=True):
        for choice in picture.choices:
            if choice in choices:
                setattr(picture, choice, choices[choice])
        expected = [" ".join(words.split()) for words in STATES[name][1](picture)]
        assert seen == expected, choices
        claims.append(expected[0])
    assert len(set(claims)) > 2


@pytest.mark.parametrize("name", STATES)
def test_no_last_bit_decides_what_a_picture_says(page, name):
    before = shown(page, name)
    for sign in (1, -1):
        assert shown(page, name, sign) == before
