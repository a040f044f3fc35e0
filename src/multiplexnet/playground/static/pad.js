// The pad: two raw values (or one) as a point to drag, or to move with the arrow keys.

import { readable, svg } from "./dom.js";

const SIZE = 200;
const EDGE = 10;
const LOW = 56; // the height where there is one value only

export class Pad {
  constructor(root, moved) {
    this.root = root;
    this.moved = moved;
    this.range = 4;
    this.size = 2;
    this.values = [0, 0];
    this.lines = svg("g");
    this.handle = svg("circle", { r: 8, style: "fill: var(--accent); stroke: var(--card); stroke-width: 2", "data-handle": true });
    root.append(this.lines, this.handle);
    this.#listen();
    this.draw();
  }

  place(value) {
    const inner = SIZE - 2 * EDGE;
    return EDGE + ((Math.min(Math.max(value / this.range, -1), 1) + 1) / 2) * inner;
  }

  get height() {
    return this.size === 2 ? SIZE : LOW;
  }

  draw() {
    this.root.setAttribute("viewBox", `0 0 ${SIZE} ${this.height}`);
    const lines = [];
    for (let k = -4; k <= 4; k += 1) {
      const at = this.place((k / 4) * this.range);
      const kind = k === 0 ? "zero" : "faint";
      lines.push(svg("line", { x1: at, x2: at, y1: EDGE, y2: this.height - EDGE, class: kind }));
      if (this.size === 2) lines.push(svg("line", { y1: at, y2: at, x1: EDGE, x2: SIZE - EDGE, class: kind }));
    }
    if (this.size === 1) lines.push(svg("line", { y1: LOW / 2, y2: LOW / 2, x1: EDGE, x2: SIZE - EDGE, class: "zero" }));
    this.lines.replaceChildren(...lines);
    this.handle.setAttribute("cx", this.place(this.values[0]));
    this.handle.setAttribute("cy", this.size === 2 ? SIZE - this.place(this.values[1]) : LOW / 2);
  }

  words() {
    return `(${this.values.slice(0, this.size).map(readable).join(", ")})`;
  }

  set(values) {
    this.values = values.map((value) => Math.min(Math.max(value, -this.range), this.range));
    this.draw();
    this.moved();
  }

  #at(event) {
    const box = this.root.getBoundingClientRect();
    const inner = SIZE - 2 * EDGE;
    const unit = (pixels, length) => ((((pixels / length) * SIZE - EDGE) / inner) * 2 - 1) * this.range;
    const step = this.range / 400;
    const snapped = (value) => Math.round(value / step) * step;
    const up = this.size === 2 ? snapped(-unit(event.clientY - box.top, box.height)) : this.values[1];
    this.set([snapped(unit(event.clientX - box.left, box.width)), up]);
  }

  #listen() {
    let dragging = false;
    this.root.addEventListener("pointerdown", (event) => {
      dragging = true;
      this.root.setPointerCapture(event.pointerId);
      this.root.focus({ preventScroll: true });
      this.#at(event);
    });
    this.root.addEventListener("pointermove", (event) => dragging && this.#at(event));
    for (const end of ["pointerup", "pointercancel"]) {
      this.root.addEventListener(end, () => {
        dragging = false;
      });
    }
    this.root.addEventListener("keydown", (event) => {
      const step = (event.shiftKey ? 0.125 : 0.025) * this.range;
      const move = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] }[event.key];
      if (event.key === "Home") this.set([0, 0]);
      if (move) this.set(this.values.map((value, k) => value + move[k]));
      if (move || event.key === "Home") event.preventDefault();
    });
  }
}
