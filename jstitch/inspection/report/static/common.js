"use strict";
// What all parts of the page share: its data, numbers in words, and elements made of plain text only.

const DATA = JSON.parse(document.getElementById("data").textContent);
const text = (number) => DATA.strings[number];
const at = (id) => document.getElementById(id);
const bare = (name) => name.slice(name.lastIndexOf(".") + 1);

/** An element; strings among its children are text, whatever they look like. */
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

const count = (n) => n.toLocaleString("en-US");

function scaled(n, units, step = 1000) {
  let k = 0;
  while (k < units.length - 1 && Math.abs(n) >= step) {
    n /= step;
    k += 1;
  }
  const digits = n === 0 || (k === 0 && Number.isInteger(n)) ? 0 : n < 10 ? 2 : n < 100 ? 1 : 0;
  return `${n.toFixed(digits)} ${units[k]}`;
}

const bytes = (n) => scaled(n, ["B", "kB", "MB", "GB", "TB"]);
const time = (seconds) => scaled(seconds * 1e9, ["ns", "µs", "ms", "s"]);
const percent = (share) => `${Math.round(share * 100)} %`;
const ratio = (kernel) => (kernel.ours.seconds ? kernel.xla.seconds / kernel.ours.seconds : 0);

/** The kernel's colour; COLOURS repeat, so its number is always shown too. */
const colour = (kernel) => DATA.colours[kernel % DATA.colours.length];

/** `share` of a colour on the page's background. */
function tint(hex, share) {
  const ground = getComputedStyle(document.documentElement).getPropertyValue("--card").trim();
  const parse = (h) => (h.length === 4 ? [...h.slice(1)].map((c) => parseInt(c + c, 16)) : [1, 3, 5].map((i) => parseInt(h.slice(i, i + 2), 16)));
  const [a, b] = [parse(hex), parse(ground)];
  return `rgb(${a.map((x, i) => Math.round(x * share + b[i] * (1 - share))).join(",")})`;
}

function badge(kernel) {
  const box = make("span", { class: "box" }, String(kernel));
  box.style.borderColor = colour(kernel);
  box.style.background = tint(colour(kernel), 0.4);
  return box;
}

const say = (words) => (at("said").textContent = words);
