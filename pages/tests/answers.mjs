// node answers.mjs FOLDER: what the page's own MicroPython says of the answers in FOLDER/answers.json.
import fs from "node:fs";
const folder = process.argv[2], lines = [];
const read = (name) => fs.readFileSync(`${folder}/${name}`);
(0, eval)(read("runtime").toString());
const url = `${folder}/wasm`;
const python = await globalThis.loadMicroPython({
  url,
  heapsize: 32 << 20,
  linebuffer: true,
  stdout: (line) => lines.push(line),
});
for (const name of ["tensor.py", "verdict.py", "words.json", "data.json", "answers.json"]) {
  python.FS.writeFile("/" + name, read(name));
}
python.runPython(`
import json, sys, gc
sys.path.append("/")
import verdict
verdict.use(json.load(open("/words.json")))
checker = verdict.Checker(json.load(open("/data.json")))
for source in json.load(open("/answers.json")):
    gc.collect()
    print("\\x01" + json.dumps(checker.check(source)))
`);
console.log(JSON.stringify(lines.filter((line) => line[0] === "\u0001").map((line) => JSON.parse(line.slice(1)))));
