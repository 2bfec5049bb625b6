// An editor for a few lines of Python. Its colours are those of the page, in light and dark.
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { EditorState } from "@codemirror/state";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { tags } from "@lezer/highlight";

const COLOURS = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword], color: "var(--keyword)" },
  { tag: [tags.string, tags.number, tags.bool, tags.null], color: "var(--value)" },
  { tag: tags.comment, color: "var(--comment)" },
]);
const THEME = EditorView.theme({
  "&": { fontSize: "16px", backgroundColor: "var(--ground)", color: "var(--ink)" },
  ".cm-content": { fontFamily: "monospace", caretColor: "var(--ink)", minHeight: "9em" },
  ".cm-gutters": { backgroundColor: "var(--ground)", color: "var(--comment)", border: "none" },
  "&.cm-focused": { outline: "3px solid var(--focus)" },
});

export function edit(parent, doc, label, check, changed) {
  const run = () => (check(), true);
  return new EditorView({
    parent,
    state: EditorState.create({
      doc,
      extensions: [
        [lineNumbers(), history(), indentOnInput(), bracketMatching(), indentUnit.of("    "), python()],
        [syntaxHighlighting(COLOURS), THEME, EditorView.lineWrapping],
        EditorView.contentAttributes.of({ "aria-label": label, "aria-describedby": "keys" }),
        keymap.of([{ key: "Mod-Enter", run }, indentWithTab, ...defaultKeymap, ...historyKeymap]),
        EditorView.updateListener.of((update) => update.docChanged && changed(update.state.doc.toString())),
      ],
    }),
  });
}
