"use strict";
// Frames, search, keys: what ties the graph, the table and the details together.

const FRAMES = DATA.calls.flatMap((call) => call.frames.map((frame) => ({ call: call.name, ...frame })));
const MOST = 200; // hits that are listed and marked
const DARK = [...document.styleSheets[0].cssRules].find((rule) => rule.media?.mediaText.includes("dark"));

class Page {
  constructor() {
    this.graph = null;
    this.op = null;
    this.hits = [];
    this.hit = -1;
    this.go = { op: (op) => this.showOp(op), kernel: (kernel) => this.showKernel(kernel), reason: (why) => this.graph.showReason(why) };
    showTotals();
    this.table = new KernelTable(this.go);
    this.frames();
    this.listen();
  }

  frames() {
    const title = (frame) => `${frame.call}: ${frame.title} (${count(frame.ops.name.length)} ops)`;
    at("frame").replaceChildren(...FRAMES.map((frame, n) => make("option", { value: n }, title(frame))));
    const sizes = FRAMES.map((frame) => frame.ops.name.length);
    const largest = sizes.indexOf(Math.max(...sizes));
    if (largest >= 0) return this.showFrame(largest);
    this.nothing("No call got as far as a graph; the right side says why.");
    showOverview(null, this.go);
  }

  showFrame(number) {
    at("frame").value = String(number);
    this.number = number;
    this.graph?.destroy();
    this.op = null;
    this.graph = new FrameGraph(FRAMES[number], (op) => this.pick(op));
    this.begin();
    showOverview(this.graph, this.go);
    this.search();
    this.pictures();
  }

  pictures() {
    at("none").hidden = at("map").hidden = true;
    this.marks = new Marks(this.graph);
    if (this.graph.size) this.overview = new Overview(this.graph);
    else this.nothing("This frame has no ops to show: it returns what it is given, or constants.");
  }

  nothing(words) {
    at("none").textContent = words;
    at("none").hidden = false;
    at("map").hidden = true;
  }

  pick(op) {
    at("graph").focus({ preventScroll: true });
    if (op === null) this.back();
    else this.showOp(op);
  }

  /** All of a small graph; of a large one, the kernel that takes most time, as large as one can read it. */
  begin() {
    const inside = new Set(this.graph.ops.kernel);
    const longest = DATA.kernels.filter((k) => inside.has(k.number)).sort((a, b) => b.ours.seconds - a.ours.seconds)[0];
    this.graph.fit();
    if (this.graph.cy.zoom() > 0.3 || !this.graph.size) return;
    const op = longest ? this.graph.ops.kernel.indexOf(longest.number) : 0;
    this.graph.cy.zoom(READABLE);
    this.graph.center(op);
  }

  showOp(op) {
    this.op = op;
    this.graph.showOp(op);
    showOpDetails(this.graph, op, this.go);
    this.table.mark(this.graph.ops.kernel[op]);
    const kernel = this.graph.ops.kernel[op];
    say(`${this.graph.name(op)}, layer ${this.graph.ops.span[op]}, ${kernel < 0 ? "left to XLA" : `kernel ${kernel}`}`);
  }

  showKernel(kernel) {
    const home = FRAMES.findIndex((frame) => frame.ops.kernel.includes(kernel));
    if (home >= 0 && home !== this.number) this.showFrame(home);
    const { ops } = this.graph;
    const inside = ops.kernel.flatMap((k, op) => (k === kernel ? [[op, this.graph.name(op), text(ops.loc[op])]] : []));
    this.op = inside.length ? inside[0][0] : this.op;
    this.graph.showKernel(kernel);
    showKernelDetails(kernel, inside, this.go);
    this.table.mark(kernel);
    say(`kernel ${kernel}, ${DATA.kernels[kernel].name}, ${inside.length} ops`);
  }

  back() {
    this.op = null;
    this.graph?.clear();
    this.table.mark(-1);
    showOverview(this.graph, this.go);
    say("Overview");
  }

  // -- search ----------------------------------------------------------------------------------------------

  search() {
    const words = at("query").value.toLowerCase().split(/\s+/).filter(Boolean);
    this.hits = words.length && this.graph ? this.matches(words) : [];
    this.hit = -1;
    at("hits").textContent = words.length ? `${count(this.hits.length)} found` : "";
    this.graph?.mark(this.hits.slice(0, MOST));
    if (words.length) this.listHits();
  }

  matches(words) {
    const { ops } = this.graph;
    this.graph.haystack ??= ops.name.map((name, op) => {
      const kernel = ops.kernel[op];
      const whose = kernel < 0 ? "xla" : `#${kernel}# ${DATA.kernels[kernel].name}`;
      return `${ops.value[op].split(" ").map((v) => `${v}%`).join(" ")} ${text(name)} ${text(ops.loc[op])} ${text(ops.scope[op])} ${whose}`.toLowerCase();
    });
    // a whole %value or #kernel, so that %1 does not find %10
    const wanted = words.map((word) => (/^%\w+$/.test(word) ? `${word}%` : /^#\d+$/.test(word) ? `${word}#` : word));
    return this.graph.haystack.flatMap((hay, op) => (wanted.every((word) => hay.includes(word)) ? [op] : []));
  }

  listHits() {
    const items = this.hits.slice(0, MOST).map((op, n) => make("li", {}, link(this.graph.name(op), () => this.showHit(n)), " ", make("code", { class: "soft" }, text(this.graph.ops.loc[op]))));
    const more = this.hits.length > MOST ? make("p", { class: "soft" }, `and ${count(this.hits.length - MOST)} more`) : null;
    show(`Search: ${count(this.hits.length)} ops`, make("ul", { class: "list" }, ...items), ...(more ? [more] : []));
  }

  showHit(number) {
    if (!this.hits.length) return;
    this.hit = (number + this.hits.length) % this.hits.length;
    at("hits").textContent = `${count(this.hit + 1)} of ${count(this.hits.length)}`;
    this.showOp(this.hits[this.hit]);
  }

  // -- keys and buttons ------------------------------------------------------------------------------------

  listen() {
    at("frame").onchange = (event) => this.showFrame(+event.target.value);
    at("query").oninput = () => this.search();
    at("find").onsubmit = (event) => event.preventDefault();
    at("query").onkeydown = (event) => this.queryKey(event);
    at("graph").onkeydown = (event) => this.graphKey(event);
    at("overview").onclick = () => this.back();
    at("in").onclick = () => this.graph?.zoom(1.4);
    at("out").onclick = () => this.graph?.zoom(1 / 1.4);
    at("fit").onclick = () => this.graph?.fit();
    document.addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    addEventListener("message", (event) => event.source === parent && this.follow(event.data?.scheme));
  }

  key(event) {
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      at("query").select();
      at("query").focus();
    } else if (event.key === "Escape") {
      at("query").value = "";
      this.search();
      this.back();
      if (typing) at("graph").focus();
    }
  }

  queryKey(event) {
    if (event.key !== "Enter") return;
    event.preventDefault();
    this.showHit(event.shiftKey ? this.hit - 1 : this.hit + 1);
  }

  graphKey(event) {
    if (!this.graph?.size || event.ctrlKey || event.metaKey || event.altKey) return;
    const zooms = { "+": 1.4, "=": 1.4, "-": 1 / 1.4 };
    if (event.key.startsWith("Arrow")) {
      const next = this.op === null ? this.graph.nearest() : this.graph.beside(this.op, event.key);
      if (next !== null) this.showOp(next);
    } else if (event.key in zooms) this.graph.zoom(zooms[event.key]);
    else if (event.key === "0") this.graph.fit();
    else if (event.key === "Enter" && this.op !== null && this.graph.ops.kernel[this.op] >= 0) this.showKernel(this.graph.ops.kernel[this.op]);
    else return;
    event.preventDefault();
  }

  /** Light or dark as the notebook around the page is, whatever the system prefers. */
  follow(scheme) {
    if (scheme !== "light" && scheme !== "dark") return;
    DARK.media.mediaText = scheme === "dark" ? "all" : "not all";
    document.documentElement.style.colorScheme = scheme;
    this.recolour();
  }

  recolour() {
    this.graph?.restyle();
    this.table.draw();
    if (this.graph) this.pictures();
  }
}

const page = new Page();
