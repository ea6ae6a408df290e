"use strict";
// The table of kernels, and what the right side shows of an op, a kernel, or all of the program.

const link = (words, act, label) => make("button", { type: "button", class: "link", onclick: act, "aria-label": label }, words);
const fact = (name, ...value) => [make("dt", {}, name), make("dd", {}, ...value)];
const change = (before, after, show) => [make("span", { class: "soft" }, `${show(before)} → `), show(after)];
const shown = (name, ...children) => (children.flat().length ? [make("h3", {}, name), ...children.flat()] : []);

function show(heading, ...children) {
  at("details").replaceChildren(make("h2", {}, heading), ...children.flat());
  at("details").scrollTop = 0;
}

// -- ops ---------------------------------------------------------------------------------------------------

function showOpDetails(graph, op, go) {
  const { ops } = graph;
  const kernel = ops.kernel[op], loc = text(ops.loc[op]);
  const whose = kernel < 0
    ? make("p", { class: "soft" }, "In no kernel: left to XLA.")
    : make("p", {}, badge(kernel), " ", link(DATA.kernels[kernel].name, () => go.kernel(kernel)));
  const layer = `${ops.span[op]} of ${graph.frame.layers - 1}: the longest way from here to the end of the frame`;
  show(
    `${ops.value[op]} ${text(ops.name[op])}`,
    whose,
    shown("StableHLO", make("pre", { class: "wrap" }, ops.line[op])),
    shown("Source", loc ? sourceLines(loc) : make("p", { class: "soft" }, "The module does not say where the op comes from.")),
    make("h3", {}, "Place"),
    make("dl", { class: "facts" }, fact("Span layer", layer), ...(ops.scope[op] ? fact("Scope", text(ops.scope[op])) : []),
      ...(ops.schedule[op] ? fact("Schedule", make("code", {}, text(ops.schedule[op]))) : [])),
    neighbours("Reads", graph, op, graph.reads[op], go),
    neighbours("Read by", graph, op, graph.users[op], go),
  );
}

function sourceLines(loc) {
  const lines = DATA.lines[loc] ?? [];
  const own = +(/:(\d+)(?: \(.*\))?$/s.exec(loc)?.[1] ?? 0);
  const show = lines.flatMap(([n, line]) => {
    const words = `${String(n).padStart(5)}  ${line}`;
    return [n === own ? make("mark", {}, words) : words, "\n"];
  });
  return [make("p", {}, make("code", {}, loc)), ...(show.length ? [make("pre", {}, ...show)] : [])];
}

function neighbours(title, graph, op, others, go) {
  const items = others.map(([other, why]) => {
    const kernel = graph.ops.kernel[other];
    const inside = kernel >= 0 && kernel === graph.ops.kernel[op];
    const said = inside
      ? make("p", { class: "good" }, `in one kernel, #${kernel}`)
      : reason(why, kernel < 0 ? "left to XLA" : `in kernel #${kernel}`);
    return make("li", {}, link(graph.name(other), () => go.op(other)), said);
  });
  return shown(`${title} (${others.length})`, items.length ? [make("ul", { class: "list" }, ...items)] : []);
}

function reason(why, otherwise) {
  if (why < 0) return make("p", { class: "soft" }, otherwise);
  const { rule, reason: words, remedy } = DATA.reasons[why];
  return make("div", {},
    make("p", {}, "not fused: ", make("span", { class: "rule" }, rule), ` ${words}`),
    make("p", { class: "soft" }, `Remedy: ${remedy}`));
}

// -- kernels -----------------------------------------------------------------------------------------------

function showKernelDetails(number, inFrame, go) {
  const kernel = DATA.kernels[number];
  const memory = kernel.memory.flatMap((lane) => memoryPicture(lane));
  show(
    kernel.name,
    make("p", {}, badge(number), ` kernel ${number}, ${inFrame.length} ops, made by ${kernel.origin}`),
    kernel.refused ? [make("p", { class: "bad" }, `Stays XLA's: ${kernel.refused.rule}: ${kernel.refused.reason}`), make("p", { class: "soft" }, `Remedy: ${kernel.remedy}`)] : [],
    make("h3", {}, "XLA's kernels → this one (modelled)"),
    make("dl", { class: "facts" }, fact("Launches", ...change(kernel.xla.launches, kernel.ours.launches, count)),
      fact("Memory traffic", ...change(kernel.xla.nbytes, kernel.ours.nbytes, bytes)),
      fact("Time", ...change(kernel.xla.seconds, kernel.ours.seconds, time), ` (${ratio(kernel).toFixed(2)}×)`),
      fact("Inputs, outputs", `${kernel.inputs}, ${kernel.outputs}`),
      ...(kernel.occupancy === null ? fact("Arena", bytes(kernel.arena)) : [...fact("Shared memory", bytes(kernel.shared)), ...fact("Occupancy", percent(kernel.occupancy))]),
      ...(kernel.where ? fact("Source", make("code", {}, kernel.where)) : [])),
    shown("Why it is as it is", make("ul", { class: "why" }, ...kernel.why.map((line) => make("li", {}, line)))),
    shown(kernel.occupancy === null ? "Arena over its stages" : "Shared memory over its stages",
      memory.length ? memory : make("p", { class: "soft" }, "Nothing is kept between stages: every value is in a register.")),
    kernel.template ? shown("Schedule", make("pre", {}, kernel.template)) : [],
    kernel.source.length ? shown("Generated source", make("pre", { tabindex: 0, class: "source" }, ...kernel.source.map(piece))) : [],
    shown(`Ops (${inFrame.length})`, make("ul", { class: "list" }, ...inFrame.map(([op, name, loc]) => make("li", {}, link(name, () => go.op(op)), " ", make("code", { class: "soft" }, loc))))),
  );
}

const piece = (said) => (said[0] === " " ? said.slice(1) : make("span", { class: said[0] }, said.slice(1)));

const SVG = (tag, attributes, words = "") => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  made.append(words);
  return made;
};

/** Bytes downwards, stages to the right; values in registers below, with dashed borders. */
function memoryPicture(lane) {
  const wide = 440 / lane.stages.length, line = 14;
  const tall = lane.areas.some((area) => area.offset !== null) ? 110 : 0;
  const registers = lane.areas.filter((area) => area.offset === null);
  const end = Math.max(1, ...lane.areas.map((area) => (area.offset ?? 0) + (area.offset === null ? 0 : area.nbytes)));
  const height = line + tall + registers.length * line + 4;
  const times = lane.times > 1 ? `, ${lane.times} lanes alike` : "";
  const title = `phase ${lane.phase}, lane ${lane.lane}${times}: ${count(lane.nbytes)} bytes`;
  const picture = SVG("svg", { viewBox: `0 0 442 ${height}`, role: "img", "aria-label": title });
  lane.stages.forEach((note, n) => {
    picture.append(SVG("rect", { x: 1 + n * wide, y: line, width: wide, height: height - line - 1, fill: "none", stroke: "var(--rule)" }));
    picture.append(SVG("text", { x: 4 + n * wide, y: line - 3, fill: "var(--soft)" }, `${n}`));
  });
  lane.areas.forEach((area, n) => {
    const inside = area.offset !== null;
    const y = inside ? line + (area.offset / end) * tall : line + tall + registers.indexOf(area) * line + 2;
    const high = inside ? Math.max(4, (area.nbytes / end) * tall) : line - 2;
    const x = 2 + area.first * wide, width = (area.last - area.first + 1) * wide - 2;
    const hex = DATA.colours[n % DATA.colours.length];
    const words = `${area.name}: ${area.what}, ${inside ? `bytes ${area.offset} to ${area.offset + area.nbytes}` : "registers"}, stages ${area.first} to ${area.last}`;
    const rect = SVG("rect", { x, y, width, height: high, fill: tint(hex, 0.45), stroke: hex, "stroke-dasharray": inside ? "none" : "3 2" });
    rect.append(SVG("title", {}, words));
    picture.append(rect);
    if (high >= 10) picture.append(SVG("text", { x: x + 3, y: y + Math.min(high / 2 + 4, 10), fill: "var(--ink)" }, area.name));
  });
  const rows = lane.areas.map((a) => make("tr", {}, ...[a.name, a.what, a.offset === null ? "registers" : `${a.offset} to ${a.offset + a.nbytes}`, `${a.first} to ${a.last}`].map((w) => make("td", { class: "text" }, w))));
  const heads = make("tr", {}, ...["value", "holds", "bytes", "stages"].map((w) => make("th", { class: "text", scope: "col" }, w)));
  return [
    make("p", {}, title), picture,
    make("ol", { class: "soft", start: 0, style: "padding-left: 24px" }, ...lane.stages.map((note) => make("li", {}, note))),
    make("details", {}, make("summary", {}, "as a table"), make("table", {}, make("thead", {}, heads), make("tbody", {}, ...rows))),
  ];
}

// -- all kernels -------------------------------------------------------------------------------------------

const HEADS = [
  ["#", (k) => k.number, (k) => badge(k.number), ""],
  ["kernel", (k) => k.name, null, "text"],
  ["ops", (k) => Object.values(k.ops).reduce((a, b) => a + b, 0), (k, n) => count(n), ""],
  ["launches", (k) => k.xla.launches, (k) => change(k.xla.launches, k.ours.launches, count), ""],
  ["traffic", (k) => k.xla.nbytes - k.ours.nbytes, (k) => change(k.xla.nbytes, k.ours.nbytes, bytes), ""],
  ["time", (k) => k.ours.seconds, (k) => change(k.xla.seconds, k.ours.seconds, time), ""],
  ["ratio", ratio, (k, n) => `${n.toFixed(2)}×`, ""],
  ["memory", (k) => (k.occupancy === null ? k.arena : k.shared), (k, n) => (n ? bytes(n) : "–"), ""],
  ["occupancy", (k) => k.occupancy ?? 0, (k, n) => percent(n), ""],
  ["schemes", (k) => k.schemes.join(" "), (k, words) => (k.refused ? "stays XLA's" : words), "text"],
  ["source", (k) => k.where, (k, words) => words.slice(words.lastIndexOf("/") + 1).replace(/ \(.*\)$/s, ""), "text"],
];

class KernelTable {
  constructor(go) {
    this.go = go;
    this.heads = HEADS.filter(([name]) => name !== "occupancy" || DATA.kernels.some((k) => k.occupancy !== null));
    this.order = { head: this.heads.findIndex(([name]) => name === "time"), sign: -1 };
    this.current = -1;
    this.draw();
  }

  draw() {
    const { head, sign } = this.order;
    const key = this.heads[head][1];
    const compare = (a, b) => (key(a) < key(b) ? -sign : key(a) > key(b) ? sign : a.number - b.number);
    const rows = [...DATA.kernels].sort(compare).map((kernel) => this.row(kernel));
    const titles = this.heads.map(([name, , , kind], n) => make("th", { scope: "col", class: kind || undefined, "aria-sort": n === head ? (sign < 0 ? "descending" : "ascending") : undefined },
      make("button", { type: "button", onclick: () => this.sort(n) }, name + (n === head ? (sign < 0 ? " ▾" : " ▴") : ""))));
    const said = `${DATA.kernels.length} kernels; XLA's → ours, by the cost model; loop bodies count once`;
    if (!DATA.kernels.length) {
      at("kernels").replaceChildren(make("p", { class: "none" }, "No kernels: all of the program is left to XLA."));
      return;
    }
    at("kernels").replaceChildren(make("table", {}, make("caption", {}, said), make("thead", {}, make("tr", {}, ...titles)), make("tbody", {}, ...rows)));
  }

  row(kernel) {
    const cells = this.heads.map(([name, key, cell, kind]) => {
      const inside = name === "kernel" ? link(kernel.name, () => this.go.kernel(kernel.number)) : cell ? cell(kernel, key(kernel)) : key(kernel);
      return make("td", { class: kind || undefined, title: kind === "text" ? key(kernel) : undefined }, inside);
    });
    return make("tr", { "data-kernel": kernel.number, "aria-current": kernel.number === this.current && "true" }, ...cells);
  }

  sort(head) {
    this.order = { head, sign: this.order.head === head ? -this.order.sign : -1 };
    this.draw();
    at("kernels").querySelectorAll("thead button")[head].focus();
  }

  mark(number) {
    this.current = number;
    at("kernels").querySelector("tr[aria-current]")?.removeAttribute("aria-current");
    const row = at("kernels").querySelector(`tr[data-kernel="${number}"]`);
    row?.setAttribute("aria-current", "true");
    row?.scrollIntoView({ block: "nearest" });
  }
}

// -- all of the program ------------------------------------------------------------------------------------

function showTotals() {
  const { totals } = DATA;
  const one = (name, ...value) => make("div", {}, make("dt", {}, name), make("dd", {}, ...value.filter((part) => part !== null)));
  const both = (key, show) => [make("small", {}, `${show(totals.xla[key])} → `), show(totals.ours[key]), less(totals.xla[key], totals.ours[key])];
  const less = (before, after) => {
    const share = before ? Math.round((after / before - 1) * 100) : 0;
    return share ? make("small", { class: share < 0 ? "good" : "bad" }, `${share < 0 ? "−" : "+"}${Math.abs(share)} %`) : null;
  };
  at("what").querySelector("h1").textContent = DATA.name;
  at("what").querySelector("p").textContent = `target ${DATA.target} · planner ${DATA.planner}${DATA.version && ` · jstitch ${DATA.version}`} · before → after; bytes and times are modelled, not measured`;
  at("totals").replaceChildren(
    one("kernels", count(totals.kernels)),
    one("ops in kernels", count(totals.inside), make("small", {}, ` of ${count(totals.ops)}`)),
    one("launches", ...both("launches", count)),
    one("memory traffic", ...both("nbytes", bytes)),
    one("modelled time", ...both("seconds", time)),
    ...(totals.ratio === null ? [] : [one("modelled ratio", `${totals.ratio.toFixed(2)}×`)]),
  );
}

function showOverview(graph, go) {
  const open = new Map();
  graph?.frame.edges.forEach(([, , why]) => why >= 0 && open.set(why, (open.get(why) ?? 0) + 1));
  const rules = new Map();
  for (const [why, edges] of open) {
    const { rule } = DATA.reasons[why];
    rules.set(rule, [...(rules.get(rule) ?? []), [why, edges]]);
  }
  const sum = (found) => found.reduce((n, [, edges]) => n + edges, 0);
  const stayed = DATA.calls.filter((call) => call.reason).map((call) => make("li", {}, `${call.name} stays XLA's: ${call.reason}`, make("p", { class: "soft" }, `Remedy: ${call.remedy}`)));
  const items = [...rules].sort((a, b) => sum(b[1]) - sum(a[1])).map(([rule, found]) => {
    const said = found.sort((a, b) => b[1] - a[1]).slice(0, 5).map(([why, edges]) => make("p", {}, link(`${count(edges)} edges`, () => go.reason(why), `${edges} edges: show them`), ` ${DATA.reasons[why].reason}`));
    const more = found.length > 5 ? make("p", { class: "soft" }, `and ${found.length - 5} other reasons by this rule`) : null;
    return make("li", {}, make("p", {}, make("span", { class: "rule" }, rule), ` ${count(sum(found))} edges`), ...said, more, make("p", { class: "soft" }, `Remedy: ${DATA.reasons[found[0][0]].remedy}`));
  });
  show("Overview",
    make("p", { class: "soft" }, "Times and bytes are modelled, those of loop bodies once. Totals are of ops in kernels; all others are XLA's either way."),
    shown("Calls that stay XLA's", stayed.length ? make("ul", { class: "list" }, ...stayed) : []),
    shown("Against the saved plan", DATA.saved.length ? make("pre", {}, DATA.saved.join("\n")) : []),
    shown("Edges of this frame that are not in one kernel", items.length ? make("ul", { class: "list" }, ...items) : make("p", { class: "soft" }, "None.")));
}
