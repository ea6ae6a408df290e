"use strict";
// What is written over the graph: span layers at its left, and kernels' numbers where boxes are too small to read.

const GUTTER = 42, LEGIBLE = 0.48, TINY = 0.12, LINE = 18, APART = 110, CLEAR = 30;
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

class Marks {
  constructor(graph) {
    this.graph = graph;
    this.canvas = at("marks");
    this.recolour();
    this.asked = false;
    graph.changed = () => this.soon();
    graph.cy.on("viewport resize", () => this.soon());
    this.draw();
  }

  recolour() {
    const css = getComputedStyle(document.documentElement);
    const value = (name) => css.getPropertyValue(name).trim();
    [this.card, this.ink, this.soft, this.rule, this.edge] = ["--card", "--ink", "--soft", "--rule", "--edge"].map(value);
  }

  soon() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      if (!this.graph.cy.destroyed()) this.draw();
    });
  }

  draw() {
    const { cy } = this.graph, dots = window.devicePixelRatio || 1;
    [this.width, this.height, this.zoom, this.pan] = [cy.width(), cy.height(), cy.zoom(), cy.pan()];
    [this.canvas.width, this.canvas.height] = [this.width * dots, this.height * dots];
    this.pen = this.canvas.getContext("2d");
    this.pen.scale(dots, dots);
    this.pen.textBaseline = "middle";
    if (this.zoom < LEGIBLE) this.kernels();
    this.layers();
  }

  /** The ops in view: kernel, place on the screen, and whether the op is faint. */
  seen() {
    const { kept } = this.graph;
    return this.graph.ops.kernel.flatMap((kernel, op) => {
      const place = this.graph.place(op), x = place.x * this.zoom + this.pan.x, y = place.y * this.zoom + this.pan.y;
      return x > GUTTER && y > 0 && x < this.width && y < this.height ? [[kernel, x, y, kept && !kept.has(op)]] : [];
    });
  }

  /** A kernel's number on some of its ops, so that numbers of one kernel are APART and none cover others. */
  kernels() {
    const seen = this.seen(), last = new Map(), taken = new Set();
    const cell = (x, y) => `${Math.floor(x / CLEAR)} ${Math.floor(y / CLEAR)}`;
    const mine = seen.filter(([kernel, x, y, faint]) => kernel >= 0 && !faint && x > GUTTER + 16 && y > 12 && x < this.width - 16 && y < this.height - 12);
    if (this.zoom < TINY) seen.forEach((op) => this.op(...op));
    this.pen.font = "600 11px system-ui, sans-serif";
    this.pen.textAlign = "center";
    for (const again of [false, true]) { // each kernel's first number goes before any second one
      for (const [kernel, x, y] of mine) {
        const others = last.get(kernel) ?? [];
        if ((!again && others.length) || taken.has(cell(x, y)) || others.some(([a, b]) => Math.hypot(a - x, b - y) < APART)) continue;
        for (const dx of [-CLEAR, 0, CLEAR]) for (const dy of [-CLEAR, 0, CLEAR]) taken.add(cell(x + dx, y + dy));
        last.set(kernel, [...others, [x, y]]);
        this.badge(kernel, x, y);
      }
    }
  }

  /** A box too small for the tint and border that it has otherwise. */
  op(kernel, x, y, faint) {
    this.pen.globalAlpha = faint ? 0.12 : 1;
    const wide = Math.max(3, WIDTH * this.zoom), tall = Math.max(3, HEIGHT * this.zoom);
    this.pen.fillStyle = kernel < 0 ? this.edge : colour(kernel);
    this.pen.fillRect(x - wide / 2, y - tall / 2, wide, tall);
    this.pen.globalAlpha = 1;
  }

  badge(kernel, x, y) {
    const words = `#${kernel}`, wide = this.pen.measureText(words).width + 10;
    this.pen.beginPath();
    this.pen.roundRect(x - wide / 2, y - 9, wide, 18, 4);
    this.pen.fillStyle = this.card;
    this.pen.fill();
    this.pen.strokeStyle = colour(kernel);
    this.pen.lineWidth = 2;
    this.pen.stroke();
    this.pen.fillStyle = this.ink;
    this.pen.fillText(words, x, y + 0.5);
  }

  layers() {
    const { layers } = this.graph.frame, tall = ROW * this.zoom;
    const step = STEPS.find((n) => n * tall >= LINE) ?? STEPS.at(-1);
    this.pen.fillStyle = this.card;
    this.pen.fillRect(0, 0, GUTTER, this.height);
    this.pen.fillStyle = this.rule;
    this.pen.fillRect(GUTTER, 0, 1, this.height);
    this.pen.fillStyle = this.soft;
    this.pen.font = "10px system-ui, sans-serif";
    this.pen.textAlign = "right";
    for (let span = 0; span < layers; span += step) {
      const y = (layers - 1 - span) * tall + this.pan.y;
      if (y < 22 || y > this.height - 6) continue;
      this.pen.fillText(String(span), GUTTER - 8, y);
      this.pen.fillRect(GUTTER - 4, y, 4, 1);
    }
    if (!layers) return;
    this.pen.font = "600 10px system-ui, sans-serif";
    this.pen.fillText("layer", GUTTER - 8, 10);
  }
}
