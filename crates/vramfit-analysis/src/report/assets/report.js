
// The page: each section by the renderer of its type, in the report's order.

const RENDERERS = {
  actions: (content) => drawActions(content.actions),
  list: (content) => makeElement("ul", { className: "points" }, ...content.points.map((point) => makeElement("li", {}, ...withCode(textAt(point))))),
  metrics: (content) => drawMetrics(content.metrics),
  table: (content) => drawTable(tableColumns(content), content.rows, textAt(content.note), textAt(content.title)),
  bars: (content) => drawBars(content.bars),
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

/** Draws a command in a box, with a button that copies it. */
function drawCommand(command) {
  const code = makeElement("pre", { tabIndex: 0 }, command);
  const button = makeElement("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(command);
    } catch {
      // Not every browser gives a file the clipboard.
      document.execCommand("copy");
    }
    button.textContent = "Copied";
  });
  return makeElement("div", { className: "command" }, code, button);
}

function drawActions(actions) {
  return makeElement("ul", { className: "points actions" }, ...actions.map(([text, command]) => makeElement("li", {}, ...withCode(textAt(text)), ...(textAt(command) ? [drawCommand(textAt(command))] : []))));
}

function drawNextCommand([text, command]) {
  const section = makeElement("section", { className: "untitled next" }, makeElement("p", {}, "Next: ", ...withCode(textAt(text))), drawCommand(textAt(command)));
  section.dataset.type = "next";
  return section;
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
  if (data.next_command) {
    const bar = main.querySelector("section[data-type=bars]");
    if (bar) bar.after(drawNextCommand(data.next_command));
    else main.prepend(drawNextCommand(data.next_command));
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

for (const sentence of document.querySelectorAll("h1, .cause")) {
  // An amount stays on one line.
  sentence.replaceChildren(...withCode(sentence.textContent.replace(/ (?=[KMGTP]iB\b)/g, "\u00a0")));
}
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
drawSections();
setUpTheme();
requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("charts drawn")));
