// The page: what is written, kept and checked. SHOWN and PARTS stand before it.
const LIMIT = { seconds: 10 };
const SIGNS = { right: "✓ Right", wrong: "✗ Not right", "not yet": "… Not yet", error: "✗ Python stopped" };
const OTHERWISE = [ // what MicroPython says, and what it means here
  [/invalid syntax/, "Check colons, brackets, quotation marks and `==`; for `[*a, b]` write `list(a) + [b]` here."],
  [/unsupported types for __\w+__: '(int|float)', 'Tensor'/, "On this page, write the tensor first: `X > 0`."],
  [/no module named/i, "`torch`, `nn`, `F` and `math` are at hand here, and need no import."],
];
const KEY = `mha.page.${SHOWN.name}`;
const at = (id) => document.getElementById(id);
let text = kept() ?? SHOWN.start, tries = 0, given = 0, parts, worker, ready, broken, waiting, timer, view, box;

function kept() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // where a browser keeps nothing for files
  }
}

function keep(source) {
  text = source;
  try {
    localStorage.setItem(KEY, source);
  } catch { /* then it is only in the editor */ }
}

async function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function start() {
  ready = false;
  worker = new Worker(URL.createObjectURL(new Blob([parts.script], { type: "text/javascript" })));
  worker.onerror = ({ message }) => finish({ verdict: { state: "error", text: message, evidence: "" } });
  worker.onmessage = ({ data }) => {
    if (data.print !== undefined) at("prints").textContent += data.print + "\n";
    else if (data.verdict) finish(data);
    else {
      ready = true;
      document.body.dataset.ready = Math.round(performance.now());
      if (waiting) run();
    }
  };
  worker.postMessage({ parts });
}

function check() {
  if (timer) return; // it is running
  if (broken) return say(broken);
  document.body.dataset.verdict = "";
  at("prints").textContent = "";
  at("verdict").textContent = "Running …";
  if (ready) run();
  else waiting = true;
}

function run() {
  waiting = false;
  timer = setTimeout(() => {
    worker.terminate();
    finish({
      verdict: { state: "wrong", text: `Your code ran for more than ${LIMIT.seconds} seconds.`, evidence: "" },
    });
    start();
  }, LIMIT.seconds * 1000);
  worker.postMessage({ source: text });
}

function finish({ verdict, left }) {
  timer = clearTimeout(timer); // undefined
  if (!ready) broken = verdict; // Python has not started: no check can run, and none counts as a try
  if (left) at("prints").textContent += `… and ${left} more lines\n`;
  say(verdict);
}

function marked(parent, words) { // code between backticks as code
  words.split("`").forEach((part, number) => {
    const node = number % 2 ? document.createElement("code") : document.createTextNode(part);
    if (number % 2) node.textContent = part;
    parent.append(node);
  });
}

function say(verdict) {
  const shown = at("verdict"), sign = document.createElement("b");
  const meant = OTHERWISE.find(([pattern]) => pattern.test(verdict.text + verdict.evidence));
  sign.textContent = SIGNS[verdict.state] + ". ";
  shown.className = verdict.state.replace(" ", "-");
  shown.replaceChildren(sign);
  marked(shown, verdict.text + (verdict.state === "right" ? SHOWN.unchecked : meant ? " " + meant[1] : ""));
  if (verdict.evidence) {
    const details = document.createElement("details"), summary = document.createElement("summary");
    summary.textContent = "What was seen";
    details.append(summary);
    marked(details, verdict.evidence);
    shown.append(details);
  }
  if (verdict.state !== "not yet" && !broken) tries++;
  if (verdict.state === "right" || tries >= SHOWN.tries) at("answer").hidden = false;
  document.body.dataset.verdict = JSON.stringify(verdict);
}

function plain() { // a text box, for those whose screen reader gets on badly with the editor
  view?.dom.remove();
  at("plain").hidden = true;
  box = document.createElement("textarea");
  Object.assign(box, { value: text, spellcheck: false, oninput: () => keep(box.value), onkeydown: typed });
  box.setAttribute("aria-label", "Your code");
  at("editor").append(box);
  box.focus();
}

function typed(event) {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  check();
}

function put(source) {
  keep(source);
  if (box) box.value = source;
  else view?.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: source } });
}

function hint() {
  const [step, words] = Object.entries(SHOWN.hints)[given++] ?? [];
  const item = document.createElement("li");
  if (step) marked(item, `${step}: ${words}`);
  if (step) at("hints").append(item);
  at("hint").disabled = given >= Object.keys(SHOWN.hints).length;
}

async function open() {
  marked(at("task"), SHOWN.doc.replaceAll("``", "`"));
  const script = document.createElement("script");
  const decoder = new TextDecoder();
  parts = { script: decoder.decode(await unpacked(PARTS.runtime)) };
  for (const name of ["wasm", "tensor.py", "verdict.py", "layer.py", "words.json", "data.json"]) {
    parts[name] = await unpacked(PARTS[name]);
  }
  start(); // it loads beside the editor
  script.textContent = decoder.decode(await unpacked(PARTS.editor));
  document.head.append(script);
  view = globalThis.Editor.edit(at("editor"), text, "Your code", check, keep);
}

at("check").onclick = check;
at("hint").onclick = hint;
at("plain").onclick = plain;
at("again").onclick = () => put(SHOWN.start);
at("answer").onclick = () => at("worked").textContent = SHOWN.solution;
open().catch((error) => say({ state: "error", text: String(error), evidence: "" })); // an old browser, say
