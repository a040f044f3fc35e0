// The editor: CodeMirror with the rule language's colours, errors underlined, rules marked.

import {
  bracketMatching,
  Decoration,
  defaultKeymap,
  drawSelection,
  EditorState,
  EditorView,
  HighlightStyle,
  highlightActiveLine,
  highlightActiveLineGutter,
  history,
  historyKeymap,
  keymap,
  lineNumbers,
  setDiagnostics,
  StateEffect,
  StateField,
  StreamLanguage,
  syntaxHighlighting,
  tags,
} from "./codemirror.js";

const KEYWORDS = new Set(["and", "or", "not", "in", "if", "else", "for", "is", "assume", "step", "True", "False"]);
const TYPES = new Set(["real", "int", "bool", "input", "function", "decimal", "date", "datetime"]);
const FUNCTIONS = new Set(
  "abs all any argmax argmin ceil count dot floor iff implies is_sorted len max mean min missing norm range round sum xor year".split(" "),
);

const language = StreamLanguage.define({
  token(stream) {
    if (stream.eatSpace()) return null;
    if (stream.match(/#.*/)) return "comment";
    if (stream.match(/"(?:[^"\\]|\\.)*"?/) || stream.match(/'(?:[^'\\]|\\.)*'?/)) return "string";
    if (stream.match(/`(?:[^`]|``)*`?/)) return null;
    if (stream.match(/(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?/)) return "number";
    const word = stream.match(/[\p{L}_][\p{L}\p{N}_]*/u);
    if (!word) {
      stream.next();
      return null;
    }
    if (KEYWORDS.has(word[0])) return "keyword";
    if (TYPES.has(word[0])) return "typeName";
    return FUNCTIONS.has(word[0]) ? "macroName" : null;
  },
  languageData: { commentTokens: { line: "#" } },
});

const colours = HighlightStyle.define([
  { tag: tags.keyword, class: "tok-keyword" },
  { tag: tags.typeName, class: "tok-type" },
  { tag: tags.macroName, class: "tok-function" },
  { tag: tags.number, class: "tok-number" },
  { tag: tags.string, class: "tok-string" },
  { tag: tags.comment, class: "tok-comment" },
]);

const marked = StateEffect.define();
const marks = StateField.define({
  create: () => Decoration.none,
  update(decorations, transaction) {
    const effect = transaction.effects.find((each) => each.is(marked));
    return effect ? effect.value : decorations.map(transaction.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

// Where a rule stands: in its line, or from there on, after a semicolon or nothing.
function rangeOfRule(document, { line, text }) {
  if (line === null || line > document.lines) return null;
  const start = document.line(line);
  const source = document.sliceString(start.from, start.to + text.length);
  for (let at = source.indexOf(text); at >= 0 && at <= start.length; at = source.indexOf(text, at + 1)) {
    const isFirst = /(^|;)\s*$/.test(source.slice(0, at));
    const isLast = /^\s*($|[;#\n])/.test(source.slice(at + text.length));
    if (isFirst && isLast) return { from: start.from + at, to: start.from + at + text.length };
  }
  return { from: start.from, to: start.to };
}

// Columns count characters, CodeMirror counts UTF-16 units.
function rangeOfError(document, line, column) {
  const found = document.line(Math.min(Math.max(line ?? 1, 1), document.lines));
  const before = Array.from(found.text).slice(0, Math.max((column ?? 1) - 1, 0)).join("").length;
  const from = found.from + Math.min(before, Math.max(found.length - 1, 0));
  const word = /^[\p{L}\p{N}_]+/u.exec(document.sliceString(from, found.to));
  return { from, to: Math.min(from + Math.max(word?.[0].length ?? 1, 1), found.to) };
}

export function makeEditor(parent, text, changed) {
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(),
        highlightActiveLine(),
        highlightActiveLineGutter(),
        drawSelection(),
        history(),
        bracketMatching(),
        language,
        syntaxHighlighting(colours),
        marks,
        keymap.of([...defaultKeymap, ...historyKeymap]),
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": "Rules, one a line", spellcheck: "false" }),
        EditorView.updateListener.of((update) => update.docChanged && changed(view.state.doc.toString())),
      ],
    }),
  });
  return {
    get text() {
      return view.state.doc.toString();
    },
    set text(text) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    },
    error(line, column, message) {
      const range = rangeOfError(view.state.doc, line, column);
      view.dispatch(setDiagnostics(view.state, [{ ...range, severity: "error", message }]));
    },
    mark(contradiction, superfluous) {
      view.dispatch(setDiagnostics(view.state, []));
      const found = [];
      for (const [rules, name, title] of [
        [contradiction, "cm-contradiction", "this rule is part of the contradiction"],
        [superfluous, "cm-superfluous", "this rule follows from the others, or is always true"],
      ]) {
        for (const rule of rules) {
          const range = rangeOfRule(view.state.doc, rule);
          if (range && range.to > range.from) {
            found.push(Decoration.mark({ class: name, attributes: { title } }).range(range.from, range.to));
          }
        }
      }
      view.dispatch({ effects: marked.of(Decoration.set(found, true)) });
    },
    focus: () => view.focus(),
  };
}
