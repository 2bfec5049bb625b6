"""What JavaScript computes is what torch computes, to 1e-5, with random gates and lengths."""

import base64
import re

import pytest
import torch
from picture_cases import model

from mha_lib import MultiHeadAttention
from mha_lib.pictures.live import bundle, pack
from mha_lib.tasks import find_task

pytestmark = pytest.mark.browser

LOAD = """
async text => {
    window.code = await import(URL.createObjectURL(new Blob([text], { type: 'text/javascript' })));
    window.bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
}
"""


@pytest.fixture(scope="module")
def page(browser):
    page = browser.new_page()
    yield page
    page.close()


def load(page, module):
    """Make all functions of a module and of those that it imports callable as ``code.name``."""
    text = re.sub(r"^export ", "", bundle(module), flags=re.MULTILINE)
    names = re.findall(r"^(?:function|const|class) (\w+)", text, re.MULTILINE)
    page.evaluate(LOAD, f"{text}\nexport {{ {', '.join(names)} }};")


RUN = """
({ parameters, shapes, blocks, cases }) => {
    const model = code.transformer(code.unpack(bytes(parameters), shapes), blocks);
    return cases.map(({ inputs, gates }) => {
        if (inputs.patches) inputs.patches = code.matrix(16, 4, Float32Array.from(inputs.patches));
        const { weights, logits } = model.run(inputs, gates);
        return [[...logits.data], weights.flat().flatMap(head => [...head.data])];
    });
}
"""


def inputs_for_browser(name, batch, example):
    if name == "digits":
        return {"patches": batch.inputs[example].flatten().tolist()}
    if name == "lookups":
        return {"ids": batch.inputs[example].flatten().tolist(), "fields": 3}
    source, target = (part[example].tolist() for part in batch.inputs)
    return {"source": source, "target": target, "valid": batch.valid_lens[example].item()}


@pytest.mark.parametrize("name", ["digits", "lookups", "dates"])
def test_forward_pass(page, name):
    task, net, generator = find_task(name), model(name), torch.Generator().manual_seed(1)
    batch = task.held_out[torch.randperm(len(task.held_out), generator=generator)[:50]]
    if name == "dates":  # any length may come, none included
        lengths = torch.randint(0, 19, (50,), generator=generator)
        lengths[:2] = torch.tensor([0, 18])
        batch = type(batch)(batch.inputs, lengths, batch.targets)
    shape = 50, len(net.blocks), net.attentions[0].num_heads
    gates = torch.rand(shape, generator=generator)
    gates[::2] = gates[::2].round()
    gates[0] = 0
    with torch.no_grad():
        logits = net(batch.inputs, batch.valid_lens, gates)
    packed = pack(net.state_dict())
    load(page, "transformer.js")
    found = page.evaluate(
        RUN,
        {
            "parameters": base64.b64encode(packed["parameters"]).decode(),
            "shapes": packed["shapes"],
            "blocks": list(net.blocks),
            "cases": [{"inputs": inputs_for_browser(name, batch, i), "gates": gates[i].tolist()} for i in range(50)],
        },
    )
    for example, (found_logits, found_weights) in enumerate(found):
        weights = torch.cat([layer[example].flatten() for layer in net.attention_weights])
        torch.testing.assert_close(torch.tensor(found_weights), weights, atol=1e-5, rtol=0)
        torch.testing.assert_close(torch.tensor(found_logits), logits[example].flatten(), atol=1e-5, rtol=1e-5)


def test_heads_of_a_layer(page):
    """Every number of heads that divides 60, lengths from 0 to all."""
    load(page, "attention.js")
    generator = torch.Generator().manual_seed(2)
    for case in range(50):
        num_heads = [1, 2, 3, 4, 5, 6, 10, 12, 20][case % 9]
        num_queries, num_keys = (int(torch.randint(1, 9, (), generator=generator)) for _ in range(2))
        length = case % (num_keys + 1)
        queries, keys = (torch.randn(1, n, 60, generator=generator) for n in (num_queries, num_keys))
        layer = MultiHeadAttention(60, num_heads, query_size=60, key_size=60, value_size=60, bias=case % 2 == 1)
        projections = {"W_q": layer.W_q, "W_k": layer.W_k}
        packed = pack(
            {"queries": queries, "keys": keys}
            | {f"{name}.{part}": tensor for name, p in projections.items() for part, tensor in p.named_parameters()}
        )
        with torch.no_grad():
            layer(queries, keys, keys, torch.tensor([length]))
        found = page.evaluate(
            """({ parameters, shapes, heads, length }) => {
                const t = code.unpack(bytes(parameters), shapes);
                const [q, k] = ["W_q", "W_k"].map((name, i) =>
                    code.linear([t.queries, t.keys][i], t[`${name}.weight`], t[`${name}.bias`]));
                return code.attentionWeights(q, k, heads, length).flatMap(head => [...head.data]);
            }""",
            {
                "parameters": base64.b64encode(packed["parameters"]).decode(),
                "shapes": packed["shapes"],
                "heads": num_heads,
                "length": length,
            },
        )
        torch.testing.assert_close(torch.tensor(found).float(), layer.attention_weights.flatten(), atol=1e-5, rtol=0)
