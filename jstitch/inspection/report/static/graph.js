"use strict";
// The graph of one frame, drawn by Cytoscape.js at places that were worked out before.

const COLUMN = 156, ROW = 60, WIDTH = 142, HEIGHT = 36, READABLE = 0.75, FAR = 6, LETTERS = 22;

/** At most LETTERS of it: what has room in a box. */
const clip = (words) => (words.length > LETTERS ? `${words.slice(0, LETTERS - 1)}…` : words);

class FrameGraph {
  /** picked: called with the number of an op that was clicked, or null. */
  constructor(frame, picked) {
    this.frame = frame;
    this.ops = frame.ops;
    this.size = this.ops.name.length;
    this.reads = Array.from({ length: this.size }, () => []);
    this.users = Array.from({ length: this.size }, () => []);
    frame.edges.forEach(([a, b, why]) => {
      this.users[a].push([b, why]);
      this.reads[b].push([a, why]);
    });
    this.rows = Array.from({ length: frame.layers }, () => []);
    this.ops.span.forEach((span, op) => this.rows[span].push(op));
    this.rows.forEach((row) => row.sort((a, b) => this.ops.column[a] - this.ops.column[b]));
    this.cy = cytoscape({
      container: at("graph"),
      elements: { nodes: this.nodes(), edges: this.edges() },
      style: this.style(),
      layout: { name: "preset", fit: false },
      autoungrabify: true,
      boxSelectionEnabled: false,
      hideEdgesOnViewport: this.size > 1500,
      minZoom: 0.004,
      maxZoom: 3,
    });
    this.cy.on("tap", (event) => picked(event.target === this.cy ? null : event.target.isNode() ? +event.target.id() : null));
  }

  name(op) {
    return `${this.ops.value[op]} ${bare(text(this.ops.name[op]))}`.trim();
  }

  place(op) {
    return { x: this.ops.column[op] * COLUMN, y: (this.frame.layers - 1 - this.ops.span[op]) * ROW };
  }

  nodes() {
    return this.ops.name.map((_, op) => {
      const kernel = this.ops.kernel[op];
      const type = text(this.ops.type[op]).replaceAll(/tensor<([^<>]*)>/g, "$1");
      const whose = kernel < 0 ? "XLA" : `#${kernel}`;
      const data = { id: String(op), label: `${clip(this.name(op))}\n${clip(`${whose} · ${type}`)}`, hue: Math.max(kernel, 0) % DATA.colours.length };
      return { data, position: this.place(op), classes: kernel < 0 ? "xla" : `hue${data.hue}` };
    });
  }

  edges() {
    const kernel = this.ops.kernel;
    return this.frame.edges.map(([a, b, why], number) => {
      const inside = kernel[a] >= 0 && kernel[a] === kernel[b];
      const far = this.ops.span[a] - this.ops.span[b] > FAR;
      const classes = `${inside ? `inside hue${kernel[a] % DATA.colours.length}` : "open"}${far ? " far" : ""}`;
      return { data: { id: `e${number}`, source: String(a), target: String(b), why }, classes };
    });
  }

  style() {
    const css = getComputedStyle(document.documentElement);
    const value = (name) => css.getPropertyValue(name).trim();
    const hues = DATA.colours.flatMap((hex, n) => [
      { selector: `node.hue${n}`, style: { "background-color": tint(hex, 0.38), "border-color": hex } },
      { selector: `edge.hue${n}`, style: { "line-color": hex } },
    ]);
    return [
      {
        selector: "node",
        style: {
          width: WIDTH, height: HEIGHT, shape: "round-rectangle", "border-width": 1.5, "background-color": value("--xla"),
          label: "data(label)", "text-wrap": "wrap", "text-max-width": 2 * WIDTH,
          "text-valign": "center", "text-halign": "center", "font-size": 10.5, "line-height": 1.25,
          "font-family": "ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace", color: value("--ink"), "min-zoomed-font-size": 5,
        },
      },
      { selector: "node.xla", style: { "border-style": "dashed", "border-color": value("--edge") } },
      { selector: "edge", style: { "curve-style": "haystack", "haystack-radius": 0, width: 1.2, "line-color": value("--edge"), opacity: 0.75 } },
      { selector: "edge.inside", style: { width: 2.4, opacity: 0.9 } },
      { selector: "edge.open", style: { "line-style": "dashed" } },
      ...hues,
      { selector: "edge.far", style: { opacity: 0.22 } },
      { selector: ".faint", style: { opacity: 0.14 } },
      { selector: "edge.shown", style: { width: 3, opacity: 1, "z-index": 5 } },
      { selector: "node.found", style: { "border-width": 4, "border-color": value("--accent"), "border-style": "double" } },
      { selector: "node.shown", style: { "border-width": 4, "border-style": "solid", "border-color": value("--ink") } },
    ];
  }

  /** In colours of the scheme that is now in force. */
  restyle() {
    this.cy.style(this.style());
  }

  clear() {
    this.keep(null);
    this.cy.batch(() => this.cy.elements(".shown, .faint").removeClass("shown faint"));
  }

  /** Marks an op and its edges, and brings it into view. */
  showOp(op) {
    this.clear();
    const node = this.cy.getElementById(String(op));
    this.cy.batch(() => {
      node.addClass("shown");
      node.connectedEdges().addClass("shown");
    });
    this.look(node);
  }

  /** ops: the only ones that are not faint; null for all. */
  keep(ops) {
    this.kept = ops;
    this.changed?.();
  }

  /** Marks these elements by making the others faint. */
  showOnly(shown) {
    this.clear();
    this.keep(new Set(shown.nodes().map((node) => +node.id())));
    this.cy.batch(() => {
      this.cy.elements().addClass("faint");
      shown.removeClass("faint");
      shown.edges().addClass("shown");
    });
  }

  showKernel(number) {
    const nodes = this.cy.nodes().filter((node) => this.ops.kernel[+node.id()] === number);
    this.showOnly(nodes.union(nodes.connectedEdges()));
    if (nodes.nonempty()) this.fit(nodes.map((node) => +node.id()));
  }

  showReason(why) {
    const edges = this.cy.edges().filter((edge) => edge.data("why") === why);
    this.showOnly(edges.union(edges.connectedNodes()));
    if (edges.nonempty()) this.fit(edges[0].connectedNodes().map((node) => +node.id()));
  }

  mark(ops) {
    this.cy.batch(() => {
      this.cy.nodes(".found").removeClass("found");
      for (const op of ops) this.cy.getElementById(String(op)).addClass("found");
    });
  }

  /** Brings these ops into view, or all. (Cytoscape's own `fit` measures every label first.) */
  fit(ops = this.ops.name.keys()) {
    const { x1, y1, x2, y2 } = this.box(ops);
    const [w, h] = [this.cy.width(), this.cy.height()];
    const zoom = Math.min(1.2, (w - 60 - GUTTER) / (x2 - x1), (h - 60) / (y2 - y1));
    this.cy.viewport({ zoom, pan: { x: (w + GUTTER - zoom * (x1 + x2)) / 2, y: (h - zoom * (y1 + y2)) / 2 } });
  }

  box(ops) {
    const box = { x1: 0, y1: 0, x2: WIDTH, y2: HEIGHT };
    let first = true;
    for (const op of ops) {
      const { x, y } = this.place(op);
      box.x1 = first ? x - WIDTH / 2 : Math.min(box.x1, x - WIDTH / 2);
      box.x2 = first ? x + WIDTH / 2 : Math.max(box.x2, x + WIDTH / 2);
      box.y1 = first ? y - HEIGHT / 2 : Math.min(box.y1, y - HEIGHT / 2);
      box.y2 = first ? y + HEIGHT / 2 : Math.max(box.y2, y + HEIGHT / 2);
      first = false;
    }
    return box;
  }

  look(node) {
    if (this.cy.zoom() < READABLE) this.cy.zoom(READABLE);
    const { x, y } = node.renderedPosition();
    const inside = x > GUTTER + WIDTH && y > 2 * HEIGHT && x < this.cy.width() - WIDTH && y < this.cy.height() - 3 * HEIGHT;
    if (!inside) this.center(+node.id());
  }

  center(op) {
    const { x, y } = this.place(op), zoom = this.cy.zoom();
    this.cy.pan({ x: this.cy.width() / 2 - x * zoom, y: this.cy.height() / 2 - y * zoom });
  }

  zoom(factor) {
    const middle = { x: this.cy.width() / 2, y: this.cy.height() / 2 };
    this.cy.zoom({ level: this.cy.zoom() * factor, renderedPosition: middle });
  }

  /** The op next to `op` in the direction of an arrow key, or null. */
  beside(op, key) {
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const row = this.rows[this.ops.span[op]];
      return row[row.indexOf(op) + (key === "ArrowLeft" ? -1 : 1)] ?? null;
    }
    const near = (key === "ArrowUp" ? this.reads : this.users)[op].map(([other]) => other);
    const distance = (other) => Math.hypot(this.place(other).x - this.place(op).x, this.place(other).y - this.place(op).y);
    return near.sort((a, b) => distance(a) - distance(b))[0] ?? null;
  }

  /** The op that is nearest to the middle of what is in view. */
  nearest() {
    const { x1, x2, y1, y2 } = this.cy.extent();
    const away = (op) => Math.hypot(this.place(op).x - (x1 + x2) / 2, this.place(op).y - (y1 + y2) / 2);
    return this.ops.name.reduce((best, _, op) => (best === null || away(op) < away(best) ? op : best), null);
  }

  destroy() {
    this.cy.destroy();
  }
}

/** A small picture of the whole graph, with the part that is in view. */
class Overview {
  constructor(graph) {
    this.graph = graph;
    this.canvas = at("map");
    this.canvas.hidden = false;
    this.box = graph.box(graph.ops.name.keys());
    const [w, h] = [this.box.x2 - this.box.x1, this.box.y2 - this.box.y1];
    this.scale = Math.min(150 / w, 190 / h);
    this.canvas.width = Math.max(24, w * this.scale);
    this.canvas.height = Math.max(24, h * this.scale);
    this.ground = document.createElement("canvas");
    [this.ground.width, this.ground.height] = [this.canvas.width, this.canvas.height];
    this.ops();
    this.draw = () => requestAnimationFrame(() => this.view());
    graph.cy.on("viewport resize", this.draw);
    this.canvas.onpointerdown = (event) => this.go(event);
    this.canvas.onpointermove = (event) => event.buttons && this.go(event);
    this.view();
  }

  ops() {
    const pen = this.ground.getContext("2d");
    const gray = getComputedStyle(document.documentElement).getPropertyValue("--edge");
    const [w, h] = [Math.max(1, WIDTH * this.scale), Math.max(1, HEIGHT * this.scale)];
    this.graph.ops.kernel.forEach((kernel, op) => {
      const { x, y } = this.graph.place(op);
      pen.fillStyle = kernel < 0 ? gray : colour(kernel);
      pen.fillRect((x - this.box.x1) * this.scale - w / 2, (y - this.box.y1) * this.scale - h / 2, w, h);
    });
  }

  view() {
    if (this.graph.cy.destroyed()) return;
    const pen = this.canvas.getContext("2d");
    const { x1, y1, w, h } = this.graph.cy.extent();
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.drawImage(this.ground, 0, 0);
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink");
    pen.strokeRect((x1 - this.box.x1) * this.scale, (y1 - this.box.y1) * this.scale, Math.max(3, w * this.scale), Math.max(3, h * this.scale));
  }

  go(event) {
    const zoom = this.graph.cy.zoom();
    const x = this.box.x1 + event.offsetX / this.scale, y = this.box.y1 + event.offsetY / this.scale;
    this.graph.cy.pan({ x: this.graph.cy.width() / 2 - x * zoom, y: this.graph.cy.height() / 2 - y * zoom });
  }
}
