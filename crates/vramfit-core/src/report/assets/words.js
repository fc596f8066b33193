
// Amounts and names as the page writes them. Names only ever become text, never markup.

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/** Writes an amount as `bytes.rs` does: binary units, one decimal, ties to the even digit. */
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
const exact = (number) => (number < 1024 ? bytes(number) : `${bytes(number)} (${count(number)} bytes)`);
const change = (number) => (number > 0 ? "+" : number < 0 ? "-" : "") + bytes(Math.abs(number));
const share = (part) => `${(part * 100).toFixed(1)} %`;
const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

/** Makes an element with properties and children; texts become text nodes. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Makes a sentence whose parts in backticks are code. */
function sentence(text) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return [text];
  return parts.map((part, at) => (at % 2 ? make("code", {}, part) : part));
}

const dark = () => document.documentElement.dataset.theme === "dark";
const colourOf = (kind) => data.kinds[kind][dark() ? "dark" : "light"];
const themed = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Returns black or white, whichever is read more easily on a colour. */
function inkOn(colour) {
  const part = (at) => {
    const value = parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  const light = 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
  return light > 0.19 ? "#101418" : "#ffffff";
}

/** Mixes a colour with another. */
function mix(colour, other, part) {
  const at = (from) => {
    const [a, b] = [colour, other].map((text) => parseInt(text.slice(from, from + 2), 16));
    return Math.round(a + (b - a) * part).toString(16).padStart(2, "0");
  };
  return `#${at(1)}${at(3)}${at(5)}`;
}

/** Makes the legend of the kinds that a picture shows. */
function legend(kinds) {
  const list = make("ul", { className: "legend" });
  const shown = [...new Set(kinds)].sort((a, b) => a - b);
  for (const kind of shown) {
    const swatch = make("i");
    themes.push(() => { swatch.style.background = colourOf(kind); });
    list.append(make("li", {}, swatch, data.kinds[kind].name || "not known"));
  }
  return list;
}

/** What is called when the colours change. */
const themes = [];

/** Returns what is said of a thing that is pointed at: its name, then lines. */
function described(kind, name, ...lines) {
  const parts = [];
  if (kind !== null) {
    const swatch = make("i");
    swatch.style.background = colourOf(kind);
    parts.push(swatch);
  }
  parts.push(make("b", {}, name));
  for (const line of lines) if (line && line !== name) parts.push(make("span", {}, ...sentence(line)));
  return parts;
}

const tip = document.getElementById("tip");

/** Shows what is said beside the pointer; nothing hides it. */
function showTip(parts, x, y) {
  tip.hidden = !parts;
  if (!parts) return;
  tip.replaceChildren(...parts);
  const box = tip.getBoundingClientRect();
  const right = x + 16 + box.width > innerWidth - 8;
  const low = y + 18 + box.height > innerHeight - 8;
  tip.style.left = `${Math.max(8, right ? x - 12 - box.width : x + 16)}px`;
  tip.style.top = `${Math.max(8, low ? y - 12 - box.height : y + 18)}px`;
}
