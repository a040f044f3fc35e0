// Values of inputs, and of outputs that are not on an axis: fixed by a slider, or free.

import { el, isDate, readable, written } from "./dom.js";

const STEPS = 200;

function ends(variable, range) {
  const known = (text) => (text === null || text === undefined ? null : Number(fraction(text)));
  const low = known(variable.lower) ?? known(range?.lower);
  const high = known(variable.upper) ?? known(range?.upper);
  if (low !== null && high !== null) return [low, high];
  if (low !== null) return [low, low + 20];
  return high !== null ? [high - 20, high] : [-10, 10];
}

// "1/3" as a number.
function fraction(text) {
  const [over, under] = text.split("/");
  return under ? over / under : over;
}

// A number as it is sent: a decimal without noise at its end.
const sent = (value) => String(Number(value.toPrecision(12)));

export function valueSlider(variable, range, { free, changed }) {
  const [low, high] = ends(variable, range);
  const whole = variable.kind !== "real";
  const step = whole ? Number(fraction(variable.step ?? "1")) : (high - low) / STEPS;
  const least = whole ? Math.round(low / step) : 0;
  const most = whole ? Math.round(high / step) : STEPS;
  const begin = variable.start === null ? (low + high) / 2 : Number(fraction(variable.start));
  const begun = whole ? (variable.labels ? least : Math.round(begin / step)) : Math.round((begin - low) / step || 0);
  const output = el("output", { class: "mono" });
  const slider = el("input", {
    type: "range",
    min: least,
    max: most,
    step: 1,
    value: begun,
    "aria-label": `value of ${variable.name}`,
    "data-slider": variable.name,
  });
  const box = free ? el("input", { type: "checkbox", "aria-label": `fix ${variable.name}`, "data-fix": variable.name }) : null;
  let typed = variable.start; // exactly, until it is moved
  const value = () => typed ?? sent(whole ? slider.value * step : low + slider.value * step);
  const show = () => {
    const number = fraction(value());
    const text = variable.labels || isDate(variable) ? written(variable, Number(number)) : readable(Number(number));
    output.textContent = box && !box.checked ? "free" : text;
    slider.setAttribute("aria-valuetext", output.textContent);
  };
  slider.addEventListener("input", () => {
    typed = null;
    if (box) box.checked = true;
    show();
    changed();
  });
  box?.addEventListener("change", () => {
    show();
    changed();
  });
  show();
  const name = el("span", { class: "mono" }, box, box ? " " : null, variable.name);
  return {
    name: variable.name,
    node: el("div", { class: "slider" }, name, slider, output),
    value: () => (box && !box.checked ? null : value()),
  };
}
