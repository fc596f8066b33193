
// The page: each section by the renderer of its type, in the report's order.

const RENDERERS = {
  actions: (content) => makeElement("ul", { className: "points actions" }, ...content.actions.map(([text, command]) => makeElement("li", {}, ...withCode(textAt(text)), ...(textAt(command) ? [makeElement("pre", {}, textAt(command))] : [])))),
  list: (content) => makeElement("ul", { className: "points" }, ...content.points.map((point) => makeElement("li", {}, ...withCode(textAt(point))))),
  metrics: (content) => drawMetrics(content.metrics),
  table: (content) => drawTable(tableColumns(content), content.rows, textAt(content.note), textAt(content.title)),
  bars: (content) => makeElement("div", {}, ...content.bars.map(drawBar)),
  tree: drawTree,
  timeline: drawTimeline,
  lifetimes: drawLifetimes,
  map: drawMap,
  curves: drawCurves,
  breakdown: drawBreakdown,
  tradeoff: drawTradeoff,
  stacks: drawStacks,
};

function drawMetrics(metrics, isText = false) {
  const list = makeElement("dl", { className: isText ? "metrics text" : "metrics" });
  for (const metric of metrics) {
    const value = makeElement("dd", { className: "value" }, textAt(metric.value));
    if (metric.bytes !== null) value.title = `${count(metric.bytes)} bytes`;
    const row = makeElement("div", {}, makeElement("dt", {}, textAt(metric.label)), value);
    if (!isText) row.append(makeElement("dd", { className: "note" }, ...withCode(textAt(metric.note))));
    list.append(row);
  }
  return list;
}

function drawBar(bar) {
  // Both are to scale: what exceeds the limit is hatched, behind a tick at the limit.
  const scale = Math.max(bar.part, bar.whole, 1);
  const fill = makeElement("div", { className: "fill" });
  fill.style.width = `${Math.min(bar.part, bar.whole || bar.part) / scale * 100}%`;
  const amount = `${bytes(bar.part)} of ${bytes(bar.whole)}`;
  const track = makeElement("div", { className: "track", role: "img", ariaLabel: `${textAt(bar.label)} ${amount}` }, fill);
  if (bar.part > bar.whole && bar.whole) {
    const over = makeElement("div", { className: "excess" });
    over.style.width = `${(bar.part - bar.whole) / scale * 100}%`;
    track.append(over);
  }
  track.title = `${count(bar.part)} of ${count(bar.whole)} bytes`;
  return makeElement("div", { className: bar.part > bar.whole ? "bar over" : bar.part ? "bar" : "bar none" }, makeElement("span", {}, textAt(bar.label)), track, makeElement("span", { className: "amount" }, amount));
}

function drawSections() {
  const main = document.getElementById("sections");
  const shown = new Set(["always"]);
  for (const content of data.sections) {
    const title = textAt(content.title);
    const section = makeElement("section", { className: title ? "" : "untitled" });
    section.dataset.type = content.type;
    if (title) section.append(makeElement("h2", {}, ...withCode(title)));
    section.append(RENDERERS[content.type](content));
    main.append(section);
    shown.add(content.type);
  }
  const help = document.getElementById("help");
  for (const part of help.querySelectorAll("[data-type]")) part.hidden = !shown.has(part.dataset.type);
  help.hidden = false;
  document.getElementById("metadata").append(drawMetrics(data.metadata, true));
}

/** Follows the system until the user chooses a theme; the choice is stored where the browser permits it. */
function setUpTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  let chosen = null;
  try { chosen = localStorage.getItem("vramfit-theme"); } catch { /* storage is blocked */ }
  const apply = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.ariaLabel = `Switch to the ${theme === "dark" ? "light" : "dark"} theme`;
    for (const listener of themeListeners) listener();
  };
  const current = () => chosen ?? (system.matches ? "dark" : "light");
  system.addEventListener("change", () => apply(current()));
  button.addEventListener("click", () => {
    chosen = isDark() ? "light" : "dark";
    try { localStorage.setItem("vramfit-theme", chosen); } catch { /* storage is blocked */ }
    apply(chosen);
  });
  addEventListener("beforeprint", () => {
    document.getElementById("help").open = true;
    apply("light");
  });
  addEventListener("afterprint", () => apply(current()));
  button.hidden = false;
  apply(current());
}

for (const sentence of document.querySelectorAll("h1, .cause")) sentence.replaceChildren(...withCode(sentence.textContent));
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
drawSections();
setUpTheme();
requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("charts drawn")));
