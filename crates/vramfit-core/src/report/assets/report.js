
// The page: one drawing for each form of section, in the report's order.

const FORMS = {
  text: (body) => make("ul", { className: "points" }, ...body.points.map((point) => make("li", {}, ...sentence(textAt(point))))),
  figures: (body) => drawFigures(body.figures),
  table: (body) => drawTable(tableColumns(body), body.rows, textAt(body.note), textAt(body.title)),
  bars: (body) => make("div", {}, ...body.bars.map(drawBar)),
  tree: drawTree,
  timeline: drawTimeline,
  bands: drawBands,
  map: drawMap,
  curves: drawCurves,
  split: drawSplit,
};

function drawFigures(figures, words = false) {
  const list = make("dl", { className: words ? "figures words" : "figures" });
  for (const figure of figures) {
    const value = make("dd", { className: "value" }, textAt(figure.value));
    if (figure.bytes !== null) value.title = `${count(figure.bytes)} bytes`;
    const row = make("div", {}, make("dt", {}, textAt(figure.label)), value);
    if (!words) row.append(make("dd", { className: "note" }, ...sentence(textAt(figure.note))));
    list.append(row);
  }
  return list;
}

function drawBar(bar) {
  const fill = make("div", { className: "fill" });
  fill.style.width = `${bar.whole ? Math.min(100, bar.part / bar.whole * 100) : 100}%`;
  const amount = `${bytes(bar.part)} of ${bytes(bar.whole)}`;
  const track = make("div", { className: "track", role: "img", ariaLabel: `${textAt(bar.label)} ${amount}` }, fill);
  track.title = `${count(bar.part)} of ${count(bar.whole)} bytes`;
  return make("div", { className: bar.part > bar.whole ? "bar over" : bar.part ? "bar" : "bar none" }, make("span", {}, textAt(bar.label)), track, make("span", { className: "amount" }, amount));
}

function drawSections() {
  const main = document.getElementById("sections");
  const shown = new Set(["always"]);
  for (const body of data.sections) {
    const title = textAt(body.title);
    const section = make("section", { className: title ? "" : "untitled" });
    section.dataset.form = body.form;
    if (title) section.append(make("h2", {}, ...sentence(title)));
    section.append(FORMS[body.form](body));
    main.append(section);
    shown.add(body.form);
  }
  const help = document.getElementById("help");
  for (const part of help.querySelectorAll("[data-form]")) part.hidden = !shown.has(part.dataset.form);
  help.hidden = false;
  document.getElementById("facts").append(drawFigures(data.facts, true));
}

/** Follows the system until the reader chooses; the choice is kept where the browser lets it. */
function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  let chosen = null;
  try { chosen = localStorage.getItem("vramfit-theme"); } catch { /* not on this page */ }
  const apply = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.ariaLabel = `Switch to ${theme === "dark" ? "light" : "dark"} colours`;
    for (const follow of themes) follow();
  };
  const current = () => chosen ?? (system.matches ? "dark" : "light");
  system.addEventListener("change", () => apply(current()));
  button.addEventListener("click", () => {
    chosen = dark() ? "light" : "dark";
    try { localStorage.setItem("vramfit-theme", chosen); } catch { /* not on this page */ }
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

const answer = document.querySelector("h1");
answer.replaceChildren(...sentence(answer.textContent));
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
drawSections();
startTheme();
requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("pictures drawn")));
