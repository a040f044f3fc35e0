// Small helpers for the page: elements without any markup from strings, so that no text can become markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

// A number for reading: six digits at most, and a real minus sign.
export function readable(number) {
  const text = Math.abs(number) >= 1e6 || (number !== 0 && Math.abs(number) < 1e-4)
    ? number.toExponential(3).replace(/\.?0+e/, "e")
    : String(Number(number.toPrecision(6)));
  return text.replace("-", "−");
}

// The colour of a term; beyond eight they repeat with other shades.
export function colour(number) {
  const base = `var(--t${number % 8})`;
  const round = Math.floor(number / 8);
  return round === 0 ? base : `color-mix(in srgb, ${base} ${Math.max(35, 80 - 15 * round)}%, var(--text))`;
}

const DAY = 86400;

// A value as people write it: a label, a date, or the plain number.
export function written(variable, value) {
  if (variable.labels) return variable.labels[value] ?? "";
  if (variable.kind === "date") return moment(value * DAY).slice(0, 10);
  if (variable.kind === "datetime") return moment(value).replace("T", " ");
  return String(Number(Number(value).toPrecision(12)));
}

// Seconds since 1970 as a date and time; beyond the years that have four digits, the number.
function moment(seconds) {
  const date = new Date(Math.round(seconds) * 1000);
  const year = date.getUTCFullYear();
  return year >= 1 && year <= 9999 ? date.toISOString().slice(0, 19) : String(seconds);
}

export const isDate = (variable) => variable.kind === "date" || variable.kind === "datetime";
