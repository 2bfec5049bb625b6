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
let text = kept() ?? SHOWN.start, tries = 0, printed, mine, parts, worker, ready, broken, waiting, timer, view, box;

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
    if (data.print !== undefined) printed.push(data.print);
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
  printed = [];
  at("said").ariaBusy = true; // a screen reader waits, and says the verdict once
  at("said").textContent = "Running …";
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
  say(verdict);
  if (left) printed.push(`… and ${left} more lines`);
  at("prints").ariaLive = printed?.length > 9 ? "off" : "polite";
  at("prints").textContent = printed?.join("\n");
}

function marked(words) { // code between backticks as code
  return words.split("`").map((part, number) => {
    const node = document.createElement(number % 2 ? "code" : "span");
    node.textContent = part;
    return node;
  });
}

function say(verdict) {
  const { state, evidence } = verdict, sign = document.createElement("b");
  const meant = OTHERWISE.find(([pattern]) => pattern.test(verdict.text + evidence));
  const more = state === "right" ? SHOWN.unchecked : meant ? " " + meant[1] : "";
  sign.textContent = SIGNS[state] + ". ";
  at("verdict").className = state.replace(" ", "-");
  at("said").ariaBusy = false;
  at("said").replaceChildren(sign, ...marked(verdict.text + more));
  Object.assign(at("evidence"), { open: false, hidden: !evidence });
  at("seen").replaceChildren(...marked(evidence));
  if (state !== "not yet" && !broken) tries++;
  if (state === "right" || tries >= SHOWN.tries) at("answer").hidden = false;
  at("verdict").scrollIntoView({ block: "nearest" }); // above an open keyboard, too
  document.body.dataset.verdict = JSON.stringify(verdict);
}

function plain() { // a text box, for those whose screen reader gets on badly with the editor
  view?.dom.remove();
  at("plain").hidden = true;
  box = document.createElement("textarea");
  Object.assign(box, { value: text, spellcheck: false, autocapitalize: "off", ariaLabel: "Your code" });
  Object.assign(box, { oninput: () => keep(box.value), onkeydown: typed });
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
  const left = Object.entries(SHOWN.hints).slice(at("hints").children.length), item = document.createElement("li");
  if (!left.length) return;
  item.append(...marked(left[0].join(": ")));
  at("hints").append(item);
  at("hint").ariaDisabled = left.length < 2; // and not disabled, which would lose the focus
}

function again() { // and back to what was written, for a phone has no Ctrl+Z
  const next = text === SHOWN.start ? mine ?? text : SHOWN.start;
  mine = text;
  put(next);
  at("said").textContent = "The same button brings back what was there.";
}

async function open() {
  at("task").append(...marked(SHOWN.doc.replaceAll("``", "`")));
  const script = document.createElement("script"), decoder = new TextDecoder();
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
at("again").onclick = again;
at("answer").onclick = () => Object.assign(at("worked"), { textContent: SHOWN.solution, hidden: false }).focus();
open().catch((error) => say({ state: "error", text: String(error), evidence: "" })); // an old browser, say
