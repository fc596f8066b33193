
// Tables. However many rows there are, only the visible ones are in the document.

const ROW_HEIGHT = 28; // as in report.css
const MIN_ROWS_TO_SCROLL = 16;
const MIN_ROWS_TO_SEARCH = 12;
const MAX_PRINTED_ROWS = 60;
const MAX_COLUMN_CHARACTERS = 48;

/** Unpacks the columns of a table. */
function tableColumns(content) {
  return content.columns.map((column) => ({
    name: textAt(column.name),
    format: column.format,
    values: Array.isArray(column.values) ? Float64Array.from(column.values) : unpack(column.values),
  }));
}

/** Returns the text of a cell; negative numbers, except changes, are the index of a text, counted from -1. */
function cellText(column, row) {
  const value = column.values[row];
  if (column.format === "change") return change(value);
  if (value < 0) return textAt(-1 - value);
  switch (column.format) {
    case "bytes": return bytes(value);
    case "count": return count(value);
    case "fraction": return percent(value);
    case "name": return textAt(value);
    case "kind": return data.kinds[value].name;
    default: return textAt(value);
  }
}

const isText = (column) => column.format === "text" || column.format === "name" || column.format === "kind";

/** Draws a table of `rows` rows, with a note below. */
function drawTable(columns, rows, note, label) {
  const host = makeElement("div");
  for (const column of columns) {
    column.isText = isText(column);
  }
  const scrolls = rows > MIN_ROWS_TO_SCROLL;
  const body = makeElement("tbody");
  const head = makeElement("tr");
  const table = makeElement("table", { className: scrolls ? "fixed" : "" }, makeElement("thead", {}, head), body);
  const scroll = makeElement("div", { className: "scroll", tabIndex: scrolls ? 0 : -1, role: "region", ariaLabel: label || "table" }, table);
  let order = Uint32Array.from({ length: rows }, (_, row) => row);
  let found = order, sorted = -1, ascending = false, isPrinting = false;

  if (scrolls) table.prepend(columnWidths(columns, rows));
  for (const [at, column] of columns.entries()) {
    const button = makeElement("button", { type: "button" }, column.name);
    const cell = makeElement("th", { scope: "col", className: column.isText ? "text" : "" }, button);
    button.addEventListener("click", () => {
      ascending = sorted === at ? !ascending : column.isText;
      sorted = at;
      for (const other of head.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      order = sortedRows(column, rows, ascending);
      search();
    });
    head.append(cell);
  }

  const status = makeElement("span", { className: "soft", role: "status" });
  const input = makeElement("input", { type: "search", placeholder: "Search", ariaLabel: `Search ${label || "the table"}` });
  if (rows >= MIN_ROWS_TO_SEARCH) {
    host.append(makeElement("div", { className: "tools" }, input, status));
    input.addEventListener("input", () => { scroll.scrollTop = 0; search(); });
  }

  function search() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = words.length ? order.filter(matchesAll(columns, words)) : order;
    status.textContent = words.length ? `${count(found.length)} of ${plural(rows, "row", "rows")}` : plural(rows, "row", "rows");
    render();
  }

  function render() {
    const visible = isPrinting ? MAX_PRINTED_ROWS : Math.ceil((scroll.clientHeight || 460) / ROW_HEIGHT) + 12;
    const first = scrolls && !isPrinting ? Math.max(0, Math.floor(scroll.scrollTop / ROW_HEIGHT) - 6) : 0;
    const last = scrolls ? Math.min(found.length, first + visible) : found.length;
    const shown = [spacer(first)];
    for (let at = first; at < last; at++) shown.push(makeRow(found[at]));
    shown.push(spacer(isPrinting ? 0 : found.length - last));
    body.replaceChildren(...shown);
  }

  function spacer(hidden) {
    const cell = makeElement("td", { colSpan: columns.length });
    cell.style.height = `${hidden * ROW_HEIGHT}px`;
    return makeElement("tr", { className: "spacer", hidden: !hidden }, cell);
  }

  function makeRow(row) {
    const cells = columns.map((column) => {
      const text = cellText(column, row);
      const value = column.values[row];
      // Only columns of a fixed width cut what is longer.
      const shown = scrolls ? shortenName(text, (shorter) => shorter.length <= MAX_COLUMN_CHARACTERS) : text;
      const cell = makeElement("td", {}, ...withCode(shown));
      if (column.isText) cell.className = "text";
      else if (column.format === "change" ? value === 0 : value <= 0) cell.className = "missing";
      if (column.isText) cell.title = text;
      else if (column.format === "change") cell.title = `${count(value)} bytes`;
      else if (column.format === "bytes" && value >= 0) cell.title = `${count(value)} bytes`;
      return cell;
    });
    return makeElement("tr", {}, ...cells);
  }

  if (scrolls) scroll.addEventListener("scroll", render, { passive: true });
  addEventListener("beforeprint", () => { isPrinting = scrolls; render(); });
  addEventListener("afterprint", () => { isPrinting = false; render(); });
  search();
  host.append(scroll);
  if (note) host.append(makeElement("p", { className: "soft" }, ...withCode(note)));
  return host;
}

/** Fixes the column widths while rows come and go, by the longest text of a sample. */
function columnWidths(columns, rows) {
  const group = makeElement("colgroup");
  const step = Math.max(1, Math.floor(rows / 400));
  for (const column of columns) {
    let longest = column.name.length + 2;
    for (let row = 0; row < rows; row += step) longest = Math.max(longest, cellText(column, row).length);
    const col = makeElement("col");
    col.style.width = `calc(${Math.min(longest, MAX_COLUMN_CHARACTERS)}ch + 26px)`;
    group.append(col);
  }
  return group;
}

/** Returns the rows in the order of a column; missing values come last. */
function sortedRows(column, rows, ascending) {
  const rank = column.isText ? textRanks(column) : column.values;
  const sign = ascending ? 1 : -1;
  return Uint32Array.from({ length: rows }, (_, row) => row).sort((a, b) => {
    const [x, y] = [rank[a], rank[b]];
    if (!column.isText && column.format !== "change" && x < 0 !== y < 0) return x < 0 ? 1 : -1;
    return sign * (x - y) || a - b;
  });
}

/** Ranks the texts of a column, so that each distinct text is compared once. */
function textRanks(column) {
  const texts = [...new Set(column.values)].map((value) => [value, cellTextOf(column, value)]);
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  texts.sort((a, b) => compare(a[1], b[1]));
  const rank = new Map(texts.map(([value], at) => [value, at]));
  return column.values.map((value) => rank.get(value));
}

const cellTextOf = (column, value) => cellText({ format: column.format, values: [value] }, 0);

/** Returns whether every word occurs in a text column of a row. Each distinct text is searched once. */
function matchesAll(columns, words) {
  const texts = columns.filter((column) => column.isText);
  const known = texts.map(() => new Map());
  return (row) => {
    let missing = (1 << words.length) - 1;
    for (let at = 0; at < texts.length && missing; at++) {
      const value = texts[at].values[row];
      let bits = known[at].get(value);
      if (bits === undefined) {
        const text = cellText(texts[at], row).toLowerCase();
        bits = words.reduce((bits, word, at) => (text.includes(word) ? bits | (1 << at) : bits), 0);
        known[at].set(value, bits);
      }
      missing &= ~bits;
    }
    return !missing;
  };
}
