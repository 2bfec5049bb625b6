// Runs in a worker of its own, behind MicroPython in one script, so that an endless loop can be ended.
const MARK = "\u0001"; // before a verdict, among what is printed
const SHOWN = 200; // lines that are passed on of one check
let python, said, printed;

const failed = (error) => ({ state: "error", text: String(error).trim().split("\n").pop(), evidence: "" });

function print(line) {
  if (line.startsWith(MARK)) said = JSON.parse(line.slice(1));
  else if (printed++ < SHOWN) postMessage({ print: line });
}

async function start(parts) {
  python = await globalThis.loadMicroPython({ wasm: parts.wasm, heapsize: 32 << 20, linebuffer: true, stdout: print });
  for (const name of ["tensor.py", "verdict.py", "layer.py", "words.json", "data.json"]) {
    python.FS.writeFile("/" + name, parts[name]);
  }
  python.runPython(`
import gc, json, sys
sys.path.append("/")
import layer, verdict
sys.modules["torch"] = verdict.T.torch
verdict.use(json.load(open("/words.json")))
checker = layer.checker(json.load(open("/data.json")))
`);
  postMessage({ ready: true });
}

function check(source) {
  said = null;
  printed = 0;
  python.FS.writeFile("/answer.py", source);
  try {
    python.runPython(`
gc.collect()
print("\\x01" + json.dumps(checker.check(open("/answer.py").read())))
`);
  } catch (error) { // of this page, or memory that has run out
    said = failed(error);
  }
  postMessage({ verdict: said, left: Math.max(0, printed - SHOWN) });
}

globalThis.onmessage = ({ data }) =>
  data.parts ? start(data.parts).catch((error) => postMessage({ verdict: failed(error) })) : check(data.source);
