// The page: what is typed goes to the server, what it answers is shown.

import { ask, Latest, Refusal } from "./ask.js";
import { byId, counted, el, written } from "./dom.js";
import { makeEditor } from "./editor.js";
import { fragmentOf, textOf } from "./link.js";
import { Pad } from "./pad.js";
import { Picture } from "./picture.js";
import { Row } from "./row.js";
import { valueSlider } from "./sliders.js";
import { showRefusal, showVerdict } from "./verdict.js";

const PAUSE = 150; // milliseconds after the last key before the rules are asked about
const PATIENCE = 400; // before the page says that it is working
const SAMPLES = 400;

const state = {
  verdict: null, // of the text that the picture shows
  text: null, // that text
  sliders: [],
  raw: {}, // raw values of outputs by name
  frame: null, // as chosen by hand; null: all of it
  seed: 1,
  code: "layer",
};

// --- rules ---

let typing = null;
let asking = null;

const editor = makeEditor(byId("editor"), "", () => {
  clearTimeout(typing);
  typing = setTimeout(typed, PAUSE);
});

function typed() {
  history.replaceState(null, "", fragmentOf(editor.text));
  judge(editor.text);
}

async function judge(text) {
  asking?.abort();
  const mine = new AbortController();
  asking = mine;
  const start = performance.now();
  const clock = setInterval(() => {
    const seconds = (performance.now() - start) / 1000;
    byId("working").hidden = seconds < PATIENCE / 1000;
    byId("working-words").textContent = `working… ${seconds.toFixed(0)} s`;
  }, 200);
  try {
    const answer = await ask("verdict", { text }, mine.signal);
    if (asking === mine) accepted(text, answer);
  } catch (error) {
    if (asking === mine) refused(error);
  } finally {
    clearInterval(clock);
    if (asking === mine) {
      asking = null;
      byId("working").hidden = true;
    }
  }
}

byId("cancel").addEventListener("click", () => {
  asking?.abort();
});

function refused(error) {
  const known = error instanceof Refusal ? error.error : { message: error.message };
  editor.mark([], []);
  state.text = null;
  stale(true);
  if (error.name === "AbortError") {
    byId("problem").textContent = "";
    showRefusal(byId("verdict"), "Cancelled. Change the rules to ask again.");
    return;
  }
  if (known.kind === "syntax") {
    editor.error(known.line, known.column, known.message);
    const place = known.line ? `line ${known.line}, column ${known.column}: ` : "";
    byId("problem").textContent = place + known.message;
    showRefusal(byId("verdict"), "The rules cannot be read yet.");
    return;
  }
  byId("problem").textContent = "";
  showRefusal(byId("verdict"), known.message);
}

// What belongs to other rules than those in the editor stays on the page, greyed.
function stale(isStale) {
  for (const id of ["picture-card", "terms-card", "row-card", "code-card"]) byId(id).classList.toggle("stale", isStale);
}

function accepted(text, answer) {
  byId("problem").textContent = "";
  editor.mark(answer.diagnosis.contradiction, [...answer.diagnosis.always_true, ...answer.diagnosis.implied]);
  showVerdict(byId("verdict"), byId("terms"), answer);
  const before = state.verdict;
  state.verdict = answer;
  state.text = text;
  showCode();
  const same = before && JSON.stringify(before.variables) === JSON.stringify(answer.variables);
  if (!same) buildControls(answer);
  if (answer.dtype === "float64" && byId("dtype").value !== "float64") byId("dtype").value = "float64";
  state.frame = null;
  stale(false);
  const filled = row.build(outputs());
  if (filled) row.check();
  else row.clear("");
  if (answer.blocks === null) {
    picture.clear("There is nothing to draw.");
    byId("image-words").textContent = "";
    byId("sample-words").textContent = "";
    return;
  }
  state.fillRow = !filled;
  if (!same) byId("picture").classList.add("stale");
  draw();
}

const outputs = () => state.verdict.variables.filter((variable) => variable.role === "output");

// --- what the picture shows ---

function buildControls(answer) {
  const names = outputs().map((variable) => variable.name);
  const reals = outputs().filter((variable) => variable.kind === "real").map((variable) => variable.name);
  const first = reals.length > 1 ? reals : names;
  byId("axis-x").replaceChildren(...names.map((name) => el("option", {}, name)));
  byId("axis-y").replaceChildren(el("option", { value: "" }, "nothing"), ...names.map((name) => el("option", {}, name)));
  byId("axis-x").value = first[0];
  byId("axis-y").value = first[1] ?? "";
  state.raw = {};
  pad.values = [0, 0];
  buildSliders(answer);
}

function buildSliders(answer) {
  const axes = axesNow();
  const changed = () => draw(true);
  state.sliders = answer.variables
    .filter((variable) => !axes.includes(variable.name))
    .map((variable) => {
      const range = answer.ranges.find((each) => each.name === variable.name);
      const isOutput = variable.role === "output";
      return { role: variable.role, ...valueSlider(variable, range, { free: isOutput, changed }) };
    });
  byId("sliders").replaceChildren(...state.sliders.map((slider) => slider.node));
}

function axesNow() {
  const across = byId("axis-x").value;
  const up = byId("axis-y").value;
  return up && up !== across ? [across, up] : [across];
}

function valuesOf(role) {
  const own = state.sliders.filter((slider) => slider.role === role).map((slider) => [slider.name, slider.value()]);
  return Object.fromEntries(own.filter(([, value]) => value !== null));
}

function situation() {
  return {
    text: state.text,
    axes: axesNow(),
    inputs: valuesOf("input"),
    fixed: valuesOf("output"),
    dtype: byId("dtype").value,
  };
}

const picture = new Picture(byId("picture"), {
  picked: (values) => {
    row.before = null;
    row.fill(values);
    row.check();
  },
  framed: (frame) => {
    state.frame = frame;
    draw();
  },
});

const told = (id) => (error) => {
  byId(id).textContent = error.message;
  byId(id).className = "note bad";
};

const pictures = new Latest("picture", drawn, (error) => {
  picture.clear("");
  told("picture-words")(error);
});
const points = new Latest("point", pointed, (error) => {
  picture.drawImages([]);
  picture.drawGrids([]);
  told("image-words")(error);
});
const samples = new Latest("samples", sampled, (error) => {
  picture.drawSamples([]);
  byId("sample-words").textContent = error.message;
});

// Asks for everything in the picture; with the frame that is there if only a slider moved.
function draw(keepFrame = false) {
  if (state.text === null || state.verdict.blocks === null) return;
  const axes = axesNow();
  const sameAxes = picture.frame && picture.answer.axes.join() === axes.join();
  const frame = state.frame ?? (keepFrame && sameAxes ? picture.frame.flat() : null);
  pictures.ask({ ...situation(), frame });
  pad.size = axes.length;
  pad.draw();
}

function drawn(answer, asked) {
  if (asked.text !== state.text || state.verdict.blocks === null) return;
  picture.draw(answer, state.verdict.variables);
  byId("picture").classList.remove("stale");
  const words = [];
  if (answer.empty) words.push(answer.empty);
  else if (answer.samples_only) words.push(`only samples are drawn: ${answer.samples_only}`);
  else if (answer.regions.length < answer.terms) words.push(`${answer.terms - answer.regions.length} of ${answer.terms} terms have no point here`);
  const fixed = Object.entries(asked.fixed).map(([name, value]) => {
    const variable = state.verdict.variables.find((each) => each.name === name);
    return `${name} = ${variable ? written(variable, value) : value}`;
  });
  if (fixed.length) words.push(`a slice at ${fixed.join(", ")} (images and samples are not limited to it)`);
  if (answer.projected && !answer.samples_only) words.push("a projection: each point goes with some values of the free outputs");
  byId("picture-words").className = answer.empty ? "note bad" : "note";
  byId("picture-words").textContent = words.join("; ") || "Click: a row to check. Drag: move the frame. Dashed: not included.";
  picture.drawRow(state.row, state.rowBefore);
  move(true);
  sample();
}

// --- the raw point ---

const pad = new Pad(byId("pad"), () => {
  axesNow().forEach((name, k) => {
    state.raw[name] = pad.values[k];
  });
  byId("raw-words").textContent = pad.words();
  byId("pad").setAttribute("aria-valuetext", pad.words());
  move(false);
});

function move(grid) {
  if (state.text === null || state.verdict.blocks === null) return;
  const raw = outputs().map((variable) => state.raw[variable.name] ?? 0);
  const wanted = grid && byId("show-grid").checked;
  points.ask({ ...situation(), raw, grid: wanted || points.next?.grid ? 1 : 0 });
  byId("raw-words").textContent = pad.words();
}

function pointed(answer, asked) {
  if (asked.text !== state.text || !picture.frame || asked.axes.join() !== picture.answer.axes.join()) return;
  picture.drawImages(answer.images);
  if (asked.grid) picture.drawGrids(answer.grids);
  const good = answer.images.filter((image) => image.obeys).length;
  const words = imageWords(answer, good);
  byId("image-words").textContent = words;
  byId("image-words").className = good === answer.images.length ? "note good" : "note bad";
  if (state.fillRow) {
    state.fillRow = false;
    row.fill(answer.best.row);
    row.check();
  }
}

function imageWords(answer, good) {
  if (answer.kind === "nested") return "too many plain terms: no single maps to show";
  const obey = good === answer.images.length ? "all obey" : `${good} obey`;
  const words = [`${counted(answer.images.length, "image")}, ${obey}, exactly`];
  if (answer.kind === "cascade" && answer.images.length > 1) words.push("one for each choice of options");
  if (answer.missing) words.push(`${answer.missing} more with a missing value`);
  return words.join("; ");
}

// --- samples ---

function sample() {
  if (state.text === null || state.verdict.blocks === null) return;
  if (!byId("show-samples").checked) {
    picture.drawSamples([]);
    byId("sample-words").textContent = "";
    return;
  }
  samples.ask({ ...situation(), count: SAMPLES, seed: state.seed, spread: Number(byId("spread").value) });
}

function sampled(answer, asked) {
  if (asked.text !== state.text || !picture.frame || asked.axes.join() !== picture.answer.axes.join()) return;
  picture.drawSamples(answer.points);
  const missing = answer.missing ? `; ${answer.missing} of them have a missing value and no place here` : "";
  byId("sample-words").textContent =
    `${answer.obeying} of ${answer.count} outputs of a fresh layer obey, exactly (raw values N(0, ${asked.spread / 10}²))${missing}`;
  byId("sample-words").className = answer.obeying === answer.count ? "good" : "bad";
}

// --- the row ---

const row = new Row({
  situation: () => ({ ...situation(), text: state.text ?? editor.text }),
  judged: (answer, before) => {
    state.row = answer;
    state.rowBefore = before;
    if (picture.frame) picture.drawRow(answer, before);
  },
});

// --- code, links, examples, theme ---

function showCode() {
  for (const tab of document.querySelectorAll("[data-code]")) {
    const chosen = tab.dataset.code === state.code;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen) byId("code").setAttribute("aria-labelledby", tab.id);
  }
  byId("code").textContent = state.verdict?.code[state.code] ?? "";
}

const tabs = [...document.querySelectorAll("[data-code]")];
tabs.forEach((tab, k) => {
  tab.addEventListener("click", () => {
    state.code = tab.dataset.code;
    showCode();
  });
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(k + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
});

async function copied(button, text) {
  const words = button.dataset.words ?? button.textContent;
  button.dataset.words = words;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed to copy";
  }
  setTimeout(() => {
    button.textContent = words;
  }, 1500);
}

byId("copy").addEventListener("click", () => copied(byId("copy"), byId("code").textContent));
byId("link").addEventListener("click", () => copied(byId("link"), location.origin + location.pathname + fragmentOf(editor.text)));

function themed() {
  const dark = document.documentElement.dataset.theme === "dark";
  byId("theme").textContent = dark ? "Light" : "Dark";
}

byId("theme").addEventListener("click", () => {
  const chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem("theme", chosen);
  } catch {
    // It holds for this page, then.
  }
  themed();
});
themed();

for (const id of ["axis-x", "axis-y"]) {
  byId(id).addEventListener("change", () => {
    state.frame = null;
    buildSliders(state.verdict);
    pad.values = [...axesNow(), "", ""].slice(0, 2).map((name) => state.raw[name] ?? 0);
    draw();
    row.check();
  });
}
byId("dtype").addEventListener("change", () => draw(true));
byId("show-grid").addEventListener("change", () => (byId("show-grid").checked ? move(true) : picture.drawGrids([])));
byId("show-samples").addEventListener("change", sample);
byId("spread").addEventListener("input", sample);
byId("again").addEventListener("click", () => {
  state.seed += 1;
  sample();
});
byId("raw-range").addEventListener("change", () => {
  pad.range = Number(byId("raw-range").value);
  pad.set(pad.values);
});
byId("zoom-in").addEventListener("click", () => picture.zoom(0.7));
byId("zoom-out").addEventListener("click", () => picture.zoom(1 / 0.7));
byId("fit").addEventListener("click", () => {
  state.frame = null;
  draw();
});

async function start() {
  const examples = await (await fetch("/static/examples.json")).json();
  byId("examples").append(...examples.map(({ title }, k) => el("option", { value: k }, title)));
  byId("examples").addEventListener("change", () => {
    const chosen = examples[byId("examples").value];
    if (chosen) editor.text = chosen.text;
  });
  addEventListener("hashchange", () => {
    const text = textOf(location.hash);
    if (text !== null && text !== editor.text) editor.text = text;
  });
  editor.text = textOf(location.hash) ?? examples[0].text;
  editor.focus();
}

start();
