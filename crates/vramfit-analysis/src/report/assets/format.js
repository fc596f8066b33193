
// Amounts and texts as the page shows them. Names only ever become text, never markup.

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/** Formats an amount as `bytes.rs` does: binary units, one decimal, ties to the even digit. */
function bytes(count) {
  if (count < 1024) return `${count} B`;
  let value = count / 1024, unit = 0;
  while (value >= 1023.95 && unit + 1 < UNITS.length) {
    value /= 1024;
    unit += 1;
  }
  const tie = Number.isInteger(value * 4) && !Number.isInteger(value * 2);
  const tenths = Math.floor(value * 10);
  const shown = tie ? (tenths + tenths % 2) / 10 : value;
  return `${shown.toFixed(1)} ${UNITS[unit]}`;
}

const count = (number) => number.toLocaleString("en-US");
const exactBytes = (number) => (number < 1024 ? bytes(number) : `${bytes(number)} (${count(number)} bytes)`);
const change = (number) => (number > 0 ? "+" : number < 0 ? "-" : "") + bytes(Math.abs(number));
const percent = (fraction) => `${(fraction * 100).toFixed(1)} %`;
const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

/** Makes an element with properties and children; strings become text nodes. */
function makeElement(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Splits a text into nodes; what stands in backticks becomes `code`. */
function withCode(text) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return [text];
  return parts.map((part, at) => (at % 2 ? makeElement("code", {}, part) : part));
}

const measuring = makeElement("canvas").getContext("2d");

/** Returns the width of a text of a size, in pixels. */
function textWidth(text, size) {
  setFont(measuring, size);
  return measuring.measureText(text).width;
}

/**
 * Shortens a name until it fits: a line of a program loses its directories and what follows it first, then any name
 * loses its middle. The number of a line is never cut. Returns an empty text if nothing of use fits.
 */
function shortenName(text, fits) {
  if (fits(text)) return text;
  const [, path, line, rest] = /^(.*?)(:\d+)( .*)?$/s.exec(text) ?? [text, text, "", ""];
  const scope = /^ \([^/]*\)/.exec(rest ?? "")?.[0] ?? "";
  const file = line ? path.replace(/(^|\s)\S*\/(?=[^/\s]*$)/, "$1") : path;
  for (const shorter of line ? [file + line + (rest ?? ""), file + line + scope, file + line] : []) if (fits(shorter)) return shorter;
  const name = line ? file : text;
  const shortened = (kept) => `${name.slice(0, Math.ceil(kept / 2))}…${name.slice(name.length - Math.floor(kept / 2))}${line}`;
  const least = line ? 0 : 3;
  if (name.length <= least || !fits(shortened(least))) return "";
  let [low, high] = [least, name.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (fits(shortened(middle))) low = middle;
    else high = middle - 1;
  }
  return shortened(low);
}

const isDark = () => document.documentElement.dataset.theme === "dark";
const kindColor = (kind) => data.kinds[kind][isDark() ? "dark" : "light"];
const themeColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Returns black or white, whichever has more contrast with a color. */
function textColorOn(color) {
  const linear = (at) => {
    const value = parseInt(color.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  const luminance = 0.2126 * linear(1) + 0.7152 * linear(3) + 0.0722 * linear(5);
  return luminance > 0.19 ? "#101418" : "#ffffff";
}

/** Mixes a color with a part of another. */
function mixColors(color, other, part) {
  const at = (from) => {
    const [a, b] = [color, other].map((text) => parseInt(text.slice(from, from + 2), 16));
    return Math.round(a + (b - a) * part).toString(16).padStart(2, "0");
  };
  return `#${at(1)}${at(3)}${at(5)}`;
}

/** Makes the legend of the kinds in a chart. */
function makeLegend(kinds) {
  const list = makeElement("ul", { className: "legend" });
  const shown = [...new Set(kinds)].sort((a, b) => a - b);
  for (const kind of shown) {
    const swatch = makeElement("i");
    themeListeners.push(() => { swatch.style.background = kindColor(kind); });
    list.append(makeElement("li", {}, swatch, data.kinds[kind].name || "unknown"));
  }
  return list;
}

/** Called when the theme changes. */
const themeListeners = [];

/** Returns the nodes of a tooltip: a name, then lines. */
function describe(kind, name, ...lines) {
  const nodes = [];
  if (kind !== null) {
    const swatch = makeElement("i");
    swatch.style.background = kindColor(kind);
    nodes.push(swatch);
  }
  nodes.push(makeElement("b", {}, name));
  for (const line of lines) if (line && line !== name) nodes.push(makeElement("span", {}, ...withCode(line)));
  return nodes;
}

const tooltip = document.getElementById("tooltip");

/** Shows a tooltip at the pointer, or hides it without nodes. */
function showTooltip(nodes, x, y) {
  tooltip.hidden = !nodes;
  if (!nodes) return;
  tooltip.replaceChildren(...nodes);
  const box = tooltip.getBoundingClientRect();
  const right = x + 16 + box.width > innerWidth - 8;
  const low = y + 18 + box.height > innerHeight - 8;
  tooltip.style.left = `${Math.max(8, right ? x - 12 - box.width : x + 16)}px`;
  tooltip.style.top = `${Math.max(8, low ? y - 12 - box.height : y + 18)}px`;
}
