// The picture: terms as regions in the plane of two outputs, or as lines above a number line for one.

import { byId, colour, isDate, readable, svg, written } from "./dom.js";

const WIDEST = 560;
const NARROWEST = 300;
const TICK = 70; // pixels that a number beside an axis wants
const MARGIN = { left: 58, right: 14, top: 14, bottom: 40 };
const HIGHEST = 430;
const MOST_LABELS = 30;
const MANY = 60; // lines beyond which each is drawn thin
const MOST_NAMES = 4;
const CLICK = 4; // pixels: a pointer that moved less was not dragged

function niceTicks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) ticks.push(k * step);
  return ticks.slice(0, 50).map((at) => ({ at, text: readable(Math.abs(at) < 1e-9 * step ? 0 : at) }));
}

// Ticks of days, or of times in days, hours or minutes.
function dateTicks(variable, low, high, most) {
  const unit = variable.kind === "date" ? 1 : 1 / 86400;
  const rough = ((high - low) * unit) / most;
  const days = [1 / 1440, 1 / 96, 1 / 24, 1 / 4, 1, 2, 7, 14, 30, 61, 91, 182, 365, 730, 3652, 36524, 365243];
  const found = days.find((each) => each >= rough && (variable.kind === "datetime" || each >= 1)) ?? 365243;
  const step = found / unit;
  const ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high; k += 1) ticks.push(k * step);
  return ticks.slice(0, 50).map((at) => {
    const words = written(variable, at);
    return { at, text: variable.kind === "date" || found >= 1 ? words.slice(0, 10) : words.slice(5, 16) };
  });
}

function ticksOf(variable, low, high, most) {
  if (variable.labels) {
    const labels = variable.labels.map((text, at) => ({ at, text })).filter(({ at }) => at >= low && at <= high);
    const longest = Math.max(1, ...labels.map(({ text }) => text.length));
    const every = Math.ceil(labels.length / Math.max(2, Math.min(2 * most, Math.floor((9 * most) / longest))));
    return labels.filter((_, k) => k % every === 0);
  }
  if (isDate(variable)) return dateTicks(variable, low, high, Math.max(2, Math.round(0.6 * most)));
  const ticks = niceTicks(low, high, most);
  return variable.kind === "int" ? ticks.filter(({ at }) => Number.isInteger(at)) : ticks;
}

export class Picture {
  constructor(root, { picked, framed }) {
    this.root = root;
    this.picked = picked;
    this.framed = framed;
    this.clip = svg("rect");
    const clipped = { "clip-path": "url(#inside)" };
    this.layers = Object.fromEntries(
      ["axes", "regions", "grids", "samples", "row", "labels", "images"].map((name) => [
        name,
        svg("g", name === "axes" ? { "data-layer": name } : { "data-layer": name, ...clipped }),
      ]),
    );
    this.moving = svg("g", {}, ...Object.values(this.layers).slice(1));
    root.append(
      svg("defs", {}, svg("clipPath", { id: "inside" }, this.clip)),
      this.layers.axes,
      this.moving,
    );
    this.#listen();
  }

  get isLine() {
    return this.axes.length === 1;
  }

  // --- places ---

  #resize() {
    const rows = this.isLine && !this.answer.cascade ? Math.max(this.shown.length, 1) : Number(this.isLine);
    this.width = Math.min(Math.max(this.root.clientWidth || WIDEST, NARROWEST), WIDEST); // so that words keep their size
    const highest = Math.min(HIGHEST, this.width);
    this.height = this.isLine ? Math.min(Math.max(130, 70 + 30 * rows), highest) : highest;
    this.inner = {
      left: this.#leftMargin(),
      right: this.width - MARGIN.right,
      top: MARGIN.top,
      bottom: this.height - MARGIN.bottom,
    };
    this.root.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    const { left, right, top, bottom } = this.inner;
    for (const [name, value] of Object.entries({ x: left, y: top, width: right - left, height: bottom - top })) {
      this.clip.setAttribute(name, value);
    }
  }

  // Room for what is written beside the axis that goes up.
  #leftMargin() {
    const up = this.axes[1];
    if (!up) return MARGIN.left;
    if (isDate(up)) return MARGIN.left + 28;
    const longest = Math.max(0, ...(up.labels ?? []).map((label) => label.length));
    return Math.max(MARGIN.left, Math.min(24 + 7 * longest, 150));
  }

  x(value) {
    const [[low], [high]] = this.frame;
    return this.inner.left + ((value - low) / (high - low)) * (this.inner.right - this.inner.left);
  }

  y(value) {
    const low = this.frame[0][1];
    const high = this.frame[1][1];
    return this.inner.bottom - ((value - low) / (high - low)) * (this.inner.bottom - this.inner.top);
  }

  // On a number line every term has a height of its own.
  lane(number) {
    const row = Math.max(this.shown.findIndex((region) => region.number === number), 0);
    const step = (this.inner.bottom - this.inner.top - 24) / Math.max(this.shown.length, 1);
    return this.inner.top + step * (row + 0.5);
  }

  place(point, number) {
    return this.isLine ? [this.x(point[0]), number === null ? this.inner.bottom - 12 : this.lane(number)] : [this.x(point[0]), this.y(point[1])];
  }

  // --- terms ---

  draw(answer, variables) {
    this.axes = answer.axes.map((name) => variables.find((variable) => variable.name === name));
    this.frame = answer.frame;
    this.shown = answer.regions;
    this.answer = answer;
    this.#resize();
    this.moving.removeAttribute("transform");
    for (const layer of Object.values(this.layers)) layer.replaceChildren();
    this.#drawAxes();
    for (const same of this.#alike()) this.#drawRegion(same[0], same.map((region) => region.label));
    const words = answer.cascade
      ? `what the rules leave for ${answer.axes.join(" and ")}`
      : `${answer.regions.length} of ${answer.terms} terms in ${answer.axes.join(" and ")}`;
    this.root.setAttribute("aria-label", words);
  }

  #drawAxes() {
    const { left, right, top, bottom } = this.inner;
    const axes = this.layers.axes;
    const [across, up] = this.axes;
    for (const { at, text } of ticksOf(across, this.frame[0][0], this.frame[1][0], Math.round(this.width / TICK))) {
      const x = this.x(at);
      axes.append(svg("line", { x1: x, x2: x, y1: top, y2: bottom, class: at === 0 ? "zero" : "faint" }));
      axes.append(svg("text", { x, y: bottom + 16, "text-anchor": "middle", class: "tick" }, text));
    }
    axes.append(svg("text", { x: (left + right) / 2, y: bottom + 33, "text-anchor": "middle" }, across.name));
    if (up) {
      for (const { at, text } of ticksOf(up, this.frame[0][1], this.frame[1][1], 8)) {
        const y = this.y(at);
        axes.append(svg("line", { x1: left, x2: right, y1: y, y2: y, class: at === 0 ? "zero" : "faint" }));
        axes.append(svg("text", { x: left - 6, y: y + 4, "text-anchor": "end", class: "tick" }, text));
      }
      const middle = (top + bottom) / 2;
      axes.append(
        svg("text", { x: 13, y: middle, "text-anchor": "middle", transform: `rotate(-90 13 ${middle})` }, up.name),
      );
    } else {
      axes.append(svg("line", { x1: left, x2: right, y1: bottom - 12, y2: bottom - 12, class: "zero" }));
    }
    axes.append(svg("rect", { x: left, y: top, width: right - left, height: bottom - top, fill: "none", class: "rule-line" }));
  }

  // Terms that differ elsewhere have the same outline here; it is drawn once.
  #alike() {
    const found = new Map();
    for (const region of this.shown.filter((each) => each.points.length)) {
      const corners = region.points.map((point) => this.place(point, region.number).map(Math.round).join());
      const key = corners.sort().join(";");
      found.set(key, [...(found.get(key) ?? []), region]);
    }
    return found.values();
  }

  #drawRegion(region, labels) {
    const points = region.points.map((point) => this.place(point, region.number));
    const words = this.answer.cascade ? "what is left by the rules" : `term ${region.label}: ${region.text}`;
    const group = svg("g", { "data-term": region.number }, svg("title", {}, words));
    if (points.length > 2) this.#drawPolygon(group, region, points);
    else this.#drawThin(group, region, points);
    this.layers.regions.append(group);
    if (this.shown.length <= MOST_LABELS) this.#drawLabel(region, points, labels);
  }

  #drawPolygon(group, region, points) {
    const tint = colour(region.number);
    group.append(svg("polygon", { points: points.map((p) => p.join(",")).join(" "), style: `fill: ${tint}; opacity: 0.22` }));
    region.kinds.forEach((kind, k) => {
      if (kind === "frame") return;
      const [x1, y1] = points[k];
      const [x2, y2] = points[(k + 1) % points.length];
      const dash = kind === "open" ? "5 4" : null;
      group.append(svg("line", { x1, y1, x2, y2, style: `stroke: ${tint}; stroke-width: 2`, "stroke-dasharray": dash }));
    });
  }

  #drawThin(group, region, [[x1, y1], [x2, y2]]) {
    const tint = colour(region.number);
    const isMany = this.shown.length > MANY;
    group.append(svg("line", { x1, y1, x2, y2, style: `stroke: ${tint}; stroke-width: ${isMany ? 1 : 4}` }));
    if (isMany) return;
    [[x1, y1], [x2, y2]].forEach(([cx, cy], k) => {
      if (region.ends[k] === "frame") return;
      const fill = region.ends[k] === "closed" ? tint : "var(--sunken)";
      group.append(svg("circle", { cx, cy, r: 4.5, style: `fill: ${fill}; stroke: ${tint}; stroke-width: 2` }));
    });
  }

  #drawLabel(region, points, labels) {
    if (this.shown.length === 1 || this.answer.cascade) return;
    const x = points.reduce((sum, p) => sum + p[0], 0) / points.length;
    const y = points.reduce((sum, p) => sum + p[1], 0) / points.length;
    const thin = points.length < 3;
    const place = this.isLine ? { x: this.inner.left - 12, y: y + 4 } : { x: x + (thin ? 9 : 0), y: y + (thin ? -8 : 4) };
    const words = labels.slice(0, MOST_NAMES).join(", ") + (labels.length > MOST_NAMES ? ", …" : "");
    const layer = this.isLine ? this.layers.axes : this.layers.labels;
    layer.append(
      svg("text", { ...place, class: "label", "text-anchor": thin && !this.isLine ? "start" : "middle", style: `fill: ${colour(region.number)}` }, words),
    );
  }

  // --- what the layer does ---

  drawGrids(grids) {
    this.layers.grids.replaceChildren(
      ...grids.map(({ number, lines }) =>
        svg("g", { "data-grid": number, style: `stroke: ${colour(number)}; fill: ${colour(number)}; opacity: 0.45` }, ...lines.map((line) => this.#gridLine(line, number))),
      ),
    );
  }

  #gridLine(line, number) {
    if (this.isLine) {
      const [x, y] = this.place(line[0], number);
      return svg("line", { x1: x, x2: x, y1: y - 6, y2: y + 6 });
    }
    const points = line.map((point) => this.place(point, number).map((each) => each.toFixed(1)).join(","));
    return svg("polyline", { points: points.join(" "), fill: "none", "stroke-width": 0.8 });
  }

  drawImages(images) {
    const { left, right, top, bottom } = this.inner;
    this.layers.images.replaceChildren(
      ...images.filter((image) => this.answer.cascade || this.shown.some((region) => region.number === image.number)).map((image) => {
        const [x, y] = this.place(image.at, image.number);
        const cx = Math.min(Math.max(x, left + 3), right - 3);
        const cy = Math.min(Math.max(y, top + 3), bottom - 3);
        const beyond = cx !== x || cy !== y ? " beyond" : "";
        const broken = image.obeys ? "" : " broken";
        const numbers = Object.entries(image.row).map(([name, value]) => `${name} = ${value}`).join("\n");
        return svg(
          "circle",
          {
            cx,
            cy,
            r: 7,
            class: `image${beyond}${broken}`,
            style: `fill: ${colour(image.number)}`,
            "data-image": image.number,
            "data-at": image.at.join(" "),
            "data-obeys": String(image.obeys),
          },
          svg("title", {}, `${this.answer.cascade ? "one choice of options" : `the map of term ${image.number}`}:\n${numbers}\n${image.obeys ? "obeys the rules, exactly" : "BREAKS the rules"}`),
        );
      }),
    );
  }

  drawSamples(points) {
    this.layers.samples.replaceChildren(
      ...points.map((point, k) => {
        const [cx, cy] = this.place(point, null);
        return svg("circle", { cx: cx.toFixed(1), cy: (this.isLine ? cy + (((k * 7) % 9) - 4) : cy).toFixed(1), r: 1.8, class: "sample" });
      }),
    );
  }

  // The row to check as a cross, and where repair moved it from.
  drawRow(row, before) {
    const layer = this.layers.row;
    layer.replaceChildren();
    if (!row || !this.frame || row.at.length !== this.axes.length || row.at.includes(null)) return;
    const [x, y] = this.place(row.at, null);
    if (before && !before.includes(null)) {
      const [x1, y1] = this.place(before, null);
      layer.append(svg("line", { x1, y1, x2: x, y2: y, class: "move" }), svg("circle", { cx: x1, cy: y1, r: 4, class: "cross-bad", fill: "none" }));
    }
    const kind = row.obeys ? "cross-good" : "cross-bad";
    for (const [dx, dy] of [[6, 6], [6, -6]]) {
      layer.append(svg("line", { x1: x - dx, y1: y - dy, x2: x + dx, y2: y + dy, class: kind }));
    }
  }

  clear(words) {
    for (const layer of Object.values(this.layers)) layer.replaceChildren();
    this.frame = null;
    byId("picture-words").textContent = words;
  }

  // --- hands ---

  #listen() {
    let start = null;
    this.root.addEventListener("pointerdown", (event) => {
      if (!this.frame || event.button !== 0) return;
      start = { x: event.clientX, y: event.clientY, scale: this.#scale() };
      this.root.setPointerCapture(event.pointerId);
    });
    this.root.addEventListener("pointermove", (event) => {
      if (!start) return;
      const dx = (event.clientX - start.x) * start.scale;
      const dy = (event.clientY - start.y) * start.scale;
      if (Math.hypot(dx, dy) > CLICK) this.moving.setAttribute("transform", `translate(${dx} ${this.isLine ? 0 : dy})`);
    });
    this.root.addEventListener("pointerup", (event) => {
      if (!start) return;
      const dx = (event.clientX - start.x) * start.scale;
      const dy = (event.clientY - start.y) * start.scale;
      const from = start;
      start = null;
      if (Math.hypot(dx, dy) > CLICK) this.#pan(dx, dy);
      else this.#pick(event, from.scale);
    });
    this.root.addEventListener("pointercancel", () => {
      start = null;
      this.moving.removeAttribute("transform");
    });
  }

  #scale() {
    return this.width / this.root.getBoundingClientRect().width;
  }

  #units() {
    const width = this.frame[1].map((high, k) => high - this.frame[0][k]);
    return [width[0] / (this.inner.right - this.inner.left), (width[1] ?? 0) / (this.inner.bottom - this.inner.top)];
  }

  #pan(dx, dy) {
    const [ux, uy] = this.#units();
    const move = [-dx * ux, dy * uy].slice(0, this.axes.length);
    this.framed(this.frame.flatMap((ends) => ends.map((end, k) => end + move[k])));
  }

  zoom(factor) {
    if (!this.frame) return;
    const [low, high] = this.frame;
    const middle = low.map((end, k) => (end + high[k]) / 2);
    const half = low.map((end, k) => ((high[k] - end) / 2) * factor);
    this.framed([...middle.map((at, k) => at - half[k]), ...middle.map((at, k) => at + half[k])]);
  }

  // A click is a row to check: rounded to what one can point at, whole for whole numbers.
  #pick(event, scale) {
    const box = this.root.getBoundingClientRect();
    const [ux, uy] = this.#units();
    const across = this.frame[0][0] + ((event.clientX - box.left) * scale - this.inner.left) * ux;
    const up = this.isLine ? null : this.frame[0][1] + (this.inner.bottom - (event.clientY - box.top) * scale) * uy;
    const digits = (unit) => Math.min(Math.max(Math.ceil(-Math.log10(unit)), 0), 12);
    const rounded = (value, unit, variable) => {
      if (variable.kind === "real") return value.toFixed(digits(unit));
      if (variable.labels) return String(Math.min(Math.max(Math.round(value), 0), variable.labels.length - 1));
      const step = Number(variable.step ?? 1);
      return written(variable, Math.round(value / step) * step);
    };
    const values = { [this.axes[0].name]: rounded(across, ux, this.axes[0]) };
    if (up !== null) values[this.axes[1].name] = rounded(up, uy, this.axes[1]);
    this.picked(values);
  }
}
