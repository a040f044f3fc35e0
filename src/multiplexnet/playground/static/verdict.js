// What is known of the rules, in words and tables.

import { colour, counted, el } from "./dom.js";

const SHORT = 24;
const MOST_LABELS = 12;

function short(text) {
  return text.length <= SHORT ? text : `≈ ${Number(text).toPrecision(6)}`;
}

// The range of a category in its labels.
function labelled(labels) {
  if (labels.length === 1) return `= ${labels[0]}`;
  const shown = labels.slice(0, MOST_LABELS).join(", ");
  return labels.length > MOST_LABELS ? `${shown}, … (${labels.length} labels)` : shown;
}

function interval({ lower, lower_attained, upper, upper_attained }) {
  if (lower !== null && lower === upper) return `= ${short(lower)}`;
  const from = lower === null ? "(−∞" : `${lower_attained ? "[" : "("}${short(lower)}`;
  const to = upper === null ? "∞)" : `${short(upper)}${upper_attained ? "]" : ")"}`;
  return `${from}, ${to}`;
}

const place = (rule) => (rule.line === null ? rule.text : `line ${rule.line}: ${rule.text}`);

function list(rules, kind) {
  return el("ul", { class: `plain mono ${kind}` }, ...rules.map((rule) => el("li", {}, place(rule))));
}

function headline(answer) {
  const { diagnosis, problem } = answer;
  if (diagnosis.contradiction.length) {
    const one = diagnosis.contradiction.length === 1;
    return [
      el(
        "p",
        { class: "headline bad" },
        one
          ? "No output obeys: this rule contradicts itself."
          : `No output obeys: these ${diagnosis.contradiction.length} rules contradict each other. Change any one of them.`,
      ),
      list(diagnosis.contradiction, "bad"),
    ];
  }
  if (problem !== null) return [el("p", { class: "headline bad" }, problem)];
  const input = diagnosis.input_without_output;
  if (input !== null) {
    const point = Object.entries(input).map(([name, value]) => `${name} = ${value}`).join(", ");
    return [el("p", { class: "headline bad" }, `For the input ${point} no output obeys.`)];
  }
  const exact = answer.cascades.every((cascade) => cascade.complete);
  const end = exact ? "exactly the outputs that obey." : "every output obeys; some that would obey are not reached.";
  return [el("p", { class: "headline good" }, `${structure(answer)}: ${end}`)];
}

// What a layer of these rules would consist of.
function structure({ sizes, cascades, outputs }) {
  const terms = sizes.reduce((sum, size) => sum + size, 0);
  const words = sizes.length ? [`${counted(terms, "term")} in ${counted(sizes.length, "block")}`] : [];
  const tied = cascades.filter((cascade) => cascade.outputs.length > 1);
  const names = new Set(outputs.map((output) => output.name));
  for (const cascade of tied) {
    const own = cascade.outputs.filter((name) => names.has(name)); // without «x is missing»
    words.push(`a cascade of ${counted(own.length, "output")}, one after another`);
  }
  const alone = cascades.length - tied.length;
  if (alone) words.push(`${counted(alone, "output")} with many values`);
  const text = words.join(", and ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function chips(answer) {
  const words = [
    counted(answer.outputs.length, "output"),
    answer.inputs.length ? counted(answer.inputs.length, "input") : null,
    counted(answer.rules.length, "rule"),
    answer.functions.length ? `functions: ${answer.functions.join(", ")}` : null,
    answer.certificate?.checks ? `proved by ${answer.certificate.solver} in ${counted(answer.certificate.checks, "check")}` : null,
    `${answer.seconds.toFixed(2)} s`,
  ];
  return el("ul", { class: "chips" }, ...words.filter(Boolean).map((word) => el("li", {}, word)));
}

function remarks({ diagnosis }) {
  const found = [];
  for (const [name, value] of Object.entries(diagnosis.fixed)) {
    found.push(el("li", {}, `${name} is always ${short(value)}`));
  }
  for (const rule of diagnosis.always_true) found.push(el("li", { class: "warn" }, `always true, and can go: ${place(rule)}`));
  for (const rule of diagnosis.implied) found.push(el("li", { class: "warn" }, `follows from the other rules: ${place(rule)}`));
  return found.length ? el("ul", { class: "plain" }, ...found) : null;
}

function row(...cells) {
  return el("tr", {}, ...cells);
}

function blockTable(block, number, several) {
  const head = row(el("th", { colspan: 2 }, "term"), el("th", {}, "dimension"), el("th", {}, "bounded"));
  const rows = block.terms.map((term, k) =>
    row(
      el("td", { class: "number" }, several ? null : el("span", { class: "swatch", style: `background: ${colour(k)}` }), ` ${k}`),
      el("td", { class: "mono" }, term.text),
      el("td", {}, String(term.dimension)),
      el("td", {}, term.bounded ? "yes" : "no"),
    ),
  );
  if (block.hidden) rows.push(row(el("td", { colspan: 4 }, `… and ${block.hidden.toLocaleString("en")} more`)));
  const title = `${several ? `block ${number + 1}: ` : ""}${block.outputs.join(", ")}: ${counted(block.terms.length + block.hidden, "term")}`;
  return el("table", { class: "terms" }, el("caption", {}, title), el("thead", {}, head), el("tbody", {}, ...rows));
}

function rangeTable(ranges, variables) {
  const rows = ranges.map((range) => {
    const own = variables.find((variable) => variable.name === range.name)?.labels;
    const bounds = own && !range.labels ? [range.lower, range.upper].map((place) => own[place]) : null;
    const words = range.labels ? labelled(range.labels) : bounds ? labelled([...new Set(bounds)]) : interval(range);
    return row(el("td", { class: "mono" }, range.name), el("td", {}, words));
  });
  const head = row(el("th", {}, "output"), el("th", {}, "range"));
  return el("table", { class: "ranges" }, el("caption", {}, "exact ranges"), el("thead", {}, head), el("tbody", {}, ...rows));
}

const MOST_STEPS = 60;

// A cascade: its outputs in the order of computing, how many options each has, and how fine it is.
function cascadeTable(cascade) {
  const head = row(el("th", {}, "step"), el("th", {}, "output"), el("th", {}, "options"), el("th", {}, "finest step"));
  const rows = cascade.order.slice(0, MOST_STEPS).map((name, k) =>
    row(
      el("td", { class: "number" }, String(k + 1)),
      el("td", { class: "mono" }, name),
      el("td", {}, cascade.options[k] > 1 ? String(cascade.options[k]) : "–"),
      el("td", {}, String(Number(Number(cascade.steps[name]).toPrecision(3)))),
    ),
  );
  if (cascade.order.length > MOST_STEPS) rows.push(row(el("td", { colspan: 4 }, `… and ${cascade.order.length - MOST_STEPS} more`)));
  const title = `one output after another, since ${cascade.why} (${cascade.dtype})`;
  return el("table", { class: "cascade" }, el("caption", {}, title), el("thead", {}, head), el("tbody", {}, ...rows));
}

function tablesOf(answer) {
  const blocks = answer.blocks ?? [];
  const tables = blocks.map((block, number) => blockTable(block, number, answer.sizes.length > 1));
  if ((answer.sizes?.length ?? 0) > blocks.length) {
    tables.push(el("p", {}, `… and ${answer.sizes.length - blocks.length} more blocks`));
  }
  tables.push(...answer.cascades.map(cascadeTable));
  return answer.ranges.length ? [rangeTable(answer.ranges, answer.variables), ...tables] : tables;
}

// The verdict in few words, and its details in tables.
export function showVerdict(words, details, answer) {
  words.replaceChildren(...[...headline(answer), chips(answer), remarks(answer)].filter(Boolean));
  details.replaceChildren(...tablesOf(answer));
}

export function showRefusal(words, message) {
  words.replaceChildren(el("p", { class: "headline bad" }, message));
}
