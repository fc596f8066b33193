
// A tree as an icicle chart: width is bytes, each row divides the one above.

const LEVEL_HEIGHT = 33; // with the gap below
const MIN_WIDTH = 4; // in pixels; narrower nodes are merged

function drawTree(content) {
  const parent = unpack(content.parent), label = unpack(content.label), kind = unpack(content.kind);
  const size = unpack(content.bytes), note = unpack(content.note);
  const children = Array.from(parent, () => []);
  for (let node = 1; node < parent.length; node++) children[parent[node]].push(node);
  for (const list of children) list.sort((a, b) => size[b] - size[a]);
  const depth = new Uint8Array(parent.length);
  for (let node = 1; node < parent.length; node++) depth[node] = depth[parent[node]] + 1;
  const maxDepth = depth.reduce((most, level) => Math.max(most, level), 0);

  const chart = makeElement("div", { className: "icicle", role: "tree", ariaLabel: "Memory by owner" });
  chart.style.height = `${(maxDepth + 1) * LEVEL_HEIGHT - 2}px`;
  let zoomed = 0, active = 0, width = 0, buttons = new Map();

  const path = (node) => {
    const names = [];
    for (let at = node; at > 0; at = parent[at]) names.unshift(textAt(label[at]));
    return names.slice(0, -1).join(" › ");
  };
  const details = (node) => describe(
    kind[node], textAt(label[node]), exactBytes(size[node]),
    node ? `${percent(size[node] / size[0])} of the total` : "",
    node ? data.kinds[kind[node]].name : "",
    path(node), textAt(note[node]),
  );

  // Relative, so that it fits on paper, too.
  const relative = (pixels) => `${pixels / width * 100}%`;

  function render() {
    if (!width || !parent.length) return;
    const shown = [];
    buttons = new Map();
    const ancestors = [];
    for (let at = zoomed; at >= 0; at = parent[at]) ancestors.unshift(at);
    for (const node of ancestors) addNode(node, 0, width, shown);
    addChildren(zoomed, 0, width, shown);
    chart.replaceChildren(...shown);
    if (!buttons.has(active)) active = zoomed;
    buttons.get(active).tabIndex = 0;
  }

  /** Adds the children of a node below it; those that are too narrow are merged. */
  function addChildren(node, left, available, shown) {
    if (!size[node]) return;
    let at = left;
    for (const [index, child] of children[node].entries()) {
      const wide = available * size[child] / size[node];
      if (wide < MIN_WIDTH) {
        const hidden = children[node].slice(index);
        addMerged(hidden, at, left + available - at, depth[child], shown);
        return;
      }
      addNode(child, at, wide, shown);
      addChildren(child, at, wide, shown);
      at += wide;
    }
  }

  function addNode(node, left, wide, shown) {
    const color = mixColors(kindColor(kind[node]), isDark() ? "#14181d" : "#ffffff", Math.max(0, depth[node] - 1) * 0.09);
    const name = shortenName(textAt(label[node]), (text) => textWidth(text, 13) <= wide - 16);
    const button = makeElement("button", { type: "button", tabIndex: -1, role: "treeitem", ariaLevel: depth[node] + 1 }, name);
    if (textWidth(`${name} ${bytes(size[node])}`, 13) <= wide - 24) button.append(makeElement("span", {}, bytes(size[node])));
    button.ariaLabel = `${textAt(label[node])}, ${bytes(size[node])}`;
    Object.assign(button.style, {
      left: relative(left), width: `max(1px, calc(${relative(wide)} - 1px))`, top: `${depth[node] * LEVEL_HEIGHT}px`,
      background: node ? color : themeColor("--panel"), color: node ? textColorOn(color) : themeColor("--ink"),
      padding: wide < 26 ? "0" : "",
    });
    button.addEventListener("click", () => zoom(node === zoomed && node ? parent[node] : node));
    button.addEventListener("focus", () => {
      active = node;
      for (const other of buttons.values()) other.tabIndex = -1;
      button.tabIndex = 0;
      panel.replaceChildren(...details(node));
    });
    button.addEventListener("pointermove", (event) => showTooltip(details(node), event.clientX, event.clientY));
    buttons.set(node, button);
    shown.push(button);
  }

  function addMerged(hidden, left, wide, level, shown) {
    if (wide < 2) return;
    const merged = makeElement("div", { className: "merged" });
    const sum = hidden.reduce((sum, node) => sum + size[node], 0);
    Object.assign(merged.style, { left: relative(left), width: `calc(${relative(wide)} - 1px)`, top: `${level * LEVEL_HEIGHT}px` });
    const nodes = () => describe(null, `${plural(hidden.length, "entry", "entries")} too narrow to draw`, exactBytes(sum));
    merged.addEventListener("pointermove", (event) => showTooltip(nodes(), event.clientX, event.clientY));
    shown.push(merged);
  }

  function zoom(node) {
    zoomed = node;
    active = node;
    showTooltip(null);
    render();
    buttons.get(node)?.focus();
  }

  chart.addEventListener("pointerleave", () => showTooltip(null));
  chart.addEventListener("keydown", (event) => {
    const siblings = active ? children[parent[active]] : [0];
    const at = siblings.indexOf(active);
    const moves = {
      ArrowLeft: () => siblings[at - 1],
      ArrowRight: () => siblings[at + 1],
      ArrowUp: () => (active ? parent[active] : undefined),
      ArrowDown: () => children[active][0],
      Home: () => 0,
    };
    if (event.key === "Escape" || event.key === "Backspace") zoom(Math.max(0, parent[zoomed]));
    else if (event.key in moves) buttons.get(moves[event.key]())?.focus();
    else return;
    event.preventDefault();
  });
  new ResizeObserver(() => {
    if (chart.clientWidth === width) return;
    width = chart.clientWidth;
    render();
  }).observe(chart);
  themeListeners.push(render);
  const panel = makeElement("div", { className: "pinned hint", ariaLive: "polite" }, "Click an entry, or press Enter on it, to zoom in. Escape zooms out.");
  return makeElement("div", {}, chart, makeLegend([...kind].filter((_, node) => node)), panel);
}
