// A row to check: typed values, the exact verdict rule by rule, repair.

import { ask, Latest } from "./ask.js";
import { byId, el } from "./dom.js";

const PAUSE = 200; // milliseconds after the last key

export class Row {
  constructor({ situation, judged }) {
    this.situation = situation;
    this.judged = judged;
    this.fields = new Map();
    this.before = null;
    this.checks = new Latest("row", (answer) => this.#show(answer), (error) => this.#refuse(error));
    byId("repair").addEventListener("click", () => this.repair());
  }

  // Fields for other outputs; values of outputs that stay are kept.
  build(outputs) {
    const old = this.values();
    this.before = null;
    this.fields.clear();
    const labels = outputs.map((variable) => {
      const field = this.#field(variable);
      this.fields.set(variable.name, field);
      if (old[variable.name] !== undefined) field.value = old[variable.name];
      return el("label", {}, el("span", { class: "mono" }, variable.name), field);
    });
    byId("row").replaceChildren(...labels);
    return outputs.every((variable) => this.fields.get(variable.name).value !== "" || variable.optional) && this.#typed();
  }

  // Whether anything is in the fields at all: outputs that may be missing begin empty.
  #typed() {
    return [...this.fields.values()].some((field) => field.value !== "");
  }

  #field(variable) {
    const changed = () => {
      this.before = null;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.check(), PAUSE);
    };
    if (variable.labels) {
      const options = variable.labels.map((label, k) => el("option", { value: k }, label));
      if (variable.optional) options.push(el("option", { value: "" }, "missing"));
      return el("select", { onchange: changed, "data-row": variable.name }, ...options);
    }
    const hint = variable.optional ? "missing" : { date: "2024-08-03", datetime: "2024-08-03 14:30" }[variable.kind];
    const mode = variable.kind.startsWith("date") ? "text" : "decimal";
    return el("input", { type: "text", inputmode: mode, placeholder: hint, autocomplete: "off", oninput: changed, "data-row": variable.name });
  }

  values() {
    return Object.fromEntries([...this.fields].map(([name, field]) => [name, field.value]));
  }

  fill(values) {
    for (const [name, value] of Object.entries(values)) {
      const field = this.fields.get(name);
      if (!field) continue;
      const isPlace = field.tagName === "SELECT" && value !== "";
      field.value = isPlace ? String(Number(value)) : value.replace(/^(-?\d+)\.0$/, "$1");
    }
  }

  check() {
    this.checks.ask({ ...this.situation(), row: this.values() });
  }

  async repair() {
    try {
      const before = await ask("row", { ...this.situation(), row: this.values() });
      const answer = await ask("repair", { ...this.situation(), row: this.values() });
      this.fill(answer.row);
      this.before = answer.moved.length ? before.at : null;
      this.#show(answer, false);
      const words = answer.moved.length ? `moved ${answer.moved.join(", ")}` : "nothing had to move";
      byId("row-verdict").textContent += ` (${words})`;
    } catch (error) {
      this.#refuse(error);
    }
  }

  clear(words) {
    this.checks.forget();
    byId("row-rules").replaceChildren();
    byId("row-verdict").textContent = words;
    byId("row-verdict").className = "";
  }

  #show(answer, isTyped = true) {
    const verdict = byId("row-verdict");
    verdict.textContent = answer.obeys ? "obeys all rules, exactly" : "breaks the rules";
    verdict.className = answer.obeys ? "good" : "bad";
    const broken = [...answer.outside.map((words) => el("li", { class: "bad" }, words))];
    const rules = answer.rules.map((rule) => {
      const place = rule.line === null ? "" : `line ${rule.line}: `;
      const words = rule.obeyed ? "✓" : `✗ ${rule.amount}:`;
      return el("li", { class: rule.obeyed ? "good" : "bad" }, `${words} `, el("code", {}, `${place}${rule.text}`));
    });
    const typed = this.values();
    const stored = Object.entries(answer.stored)
      .filter(([name, digits]) => isTyped && digits.endsWith("…") && /^[-+\d.e]+$/i.test(typed[name] ?? "") && typed[name].length < 18)
      .map(([name, digits]) => el("li", { class: "note" }, `${name} is judged as the float64 ${digits}`));
    byId("row-rules").replaceChildren(...broken, ...rules, ...stored);
    this.judged(answer, this.before);
  }

  #refuse(error) {
    byId("row-verdict").textContent = error.message;
    byId("row-verdict").className = "bad";
    byId("row-rules").replaceChildren();
    this.judged(null, null);
  }
}
