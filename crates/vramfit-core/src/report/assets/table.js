
// Rows and columns. However many rows there are, only those in sight are in the document.

const ROW = 28; // the height of a row, as in report.css
const SCROLLS_FROM = 16;
const SEARCH_FROM = 12;
const PRINTED = 60;

/** Unpacks the columns of a table. */
function tableColumns(body) {
  return body.columns.map((column) => ({
    name: textAt(column.name),
    form: column.cells,
    values: Array.isArray(column.values) ? Float64Array.from(column.values) : unpack(column.values),
  }));
}

/** Returns the words of a cell; numbers below zero, but for changes, are the place of a text, counted from -1. */
function cellText(column, row) {
  const value = column.values[row];
  if (column.form === "change") return change(value);
  if (value < 0) return textAt(-1 - value);
  switch (column.form) {
    case "bytes": return bytes(value);
    case "count": return count(value);
    case "share": return share(value);
    case "name": return textAt(value);
    case "kind": return data.kinds[value].name;
    default: return textAt(value);
  }
}

const isWords = (column) => column.form === "text" || column.form === "name" || column.form === "kind";

/** Draws a table of `rows` rows; `note` is what it leaves out. */
function drawTable(columns, rows, note, label) {
  const host = make("div");
  for (const column of columns) {
    // Text columns hold words as words: all below zero.
    column.words = isWords(column);
  }
  const scrolls = rows > SCROLLS_FROM;
  const body = make("tbody");
  const head = make("tr");
  const table = make("table", { className: scrolls ? "fixed" : "" }, make("thead", {}, head), body);
  const scroll = make("div", { className: "scroll", tabIndex: scrolls ? 0 : -1, role: "region", ariaLabel: label || "table" }, table);
  let order = Uint32Array.from({ length: rows }, (_, row) => row);
  let found = order, sorted = -1, rising = false, all = false;

  if (scrolls) table.prepend(columnWidths(columns, rows));
  for (const [at, column] of columns.entries()) {
    const button = make("button", { type: "button" }, column.name);
    const cell = make("th", { scope: "col", className: column.words ? "words" : "" }, button);
    button.addEventListener("click", () => {
      rising = sorted === at ? !rising : column.words;
      sorted = at;
      for (const other of head.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", rising ? "ascending" : "descending");
      order = sortedRows(column, rows, rising);
      search();
    });
    head.append(cell);
  }

  const status = make("span", { className: "soft", role: "status" });
  const input = make("input", { type: "search", placeholder: "Search", ariaLabel: `Search ${label || "the table"}` });
  if (rows >= SEARCH_FROM) {
    host.append(make("div", { className: "tools" }, input, status));
    input.addEventListener("input", () => { scroll.scrollTop = 0; search(); });
  }

  function search() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = words.length ? order.filter(matcher(columns, words)) : order;
    status.textContent = words.length ? `${count(found.length)} of ${plural(rows, "row", "rows")}` : plural(rows, "row", "rows");
    render();
  }

  function render() {
    const room = all ? PRINTED : Math.ceil((scroll.clientHeight || 460) / ROW) + 12;
    const first = scrolls && !all ? Math.max(0, Math.floor(scroll.scrollTop / ROW) - 6) : 0;
    const last = scrolls ? Math.min(found.length, first + room) : found.length;
    const shown = [gap(first)];
    for (let at = first; at < last; at++) shown.push(rowOf(found[at]));
    shown.push(gap(all ? 0 : found.length - last));
    body.replaceChildren(...shown);
  }

  function gap(hidden) {
    const cell = make("td", { colSpan: columns.length });
    cell.style.height = `${hidden * ROW}px`;
    return make("tr", { className: "gap", hidden: !hidden }, cell);
  }

  function rowOf(row) {
    const cells = columns.map((column) => {
      const text = cellText(column, row);
      const value = column.values[row];
      const cell = make("td", {}, ...sentence(text));
      if (column.words) cell.className = "words";
      else if (column.form === "change" ? value === 0 : value <= 0) cell.className = "missing";
      if (column.words) cell.title = text;
      else if (column.form === "change") cell.title = `${count(value)} bytes`;
      else if (column.form === "bytes" && value >= 0) cell.title = `${count(value)} bytes`;
      return cell;
    });
    return make("tr", {}, ...cells);
  }

  if (scrolls) scroll.addEventListener("scroll", render, { passive: true });
  addEventListener("beforeprint", () => { all = scrolls; render(); });
  addEventListener("afterprint", () => { all = false; render(); });
  search();
  host.append(scroll);
  if (note) host.append(make("p", { className: "soft" }, ...sentence(note)));
  return host;
}

/** Holds the columns still while rows come and go: by the longest text of a sample. */
function columnWidths(columns, rows) {
  const group = make("colgroup");
  const step = Math.max(1, Math.floor(rows / 400));
  for (const column of columns) {
    let longest = column.name.length + 2;
    for (let row = 0; row < rows; row += step) longest = Math.max(longest, cellText(column, row).length);
    const col = make("col");
    col.style.width = `calc(${Math.min(longest, 48)}ch + 26px)`;
    group.append(col);
  }
  return group;
}

/** Returns the rows in the order of a column; what is not known comes last. */
function sortedRows(column, rows, rising) {
  const rank = column.words ? rankOfStrings(column) : column.values;
  const sign = rising ? 1 : -1;
  return Uint32Array.from({ length: rows }, (_, row) => row).sort((a, b) => {
    const [x, y] = [rank[a], rank[b]];
    if (!column.words && column.form !== "change" && x < 0 !== y < 0) return x < 0 ? 1 : -1;
    return sign * (x - y) || a - b;
  });
}

/** Numbers the texts of a column by their order, so that each pair is compared once. */
function rankOfStrings(column) {
  const texts = [...new Set(column.values)].map((value) => [value, cellTextOf(column, value)]);
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  texts.sort((a, b) => compare(a[1], b[1]));
  const rank = new Map(texts.map(([value], at) => [value, at]));
  return column.values.map((value) => rank.get(value));
}

const cellTextOf = (column, value) => cellText({ form: column.form, values: [value] }, 0);

/** Says of a row whether every word occurs in one of its columns of words. Each text is looked at once. */
function matcher(columns, words) {
  const texts = columns.filter((column) => column.words);
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
