
// Bytes divided among owners: width is bytes, each row divides the one above.

const LEVEL = 33; // the height of a row, with the gap below it
const NARROWEST = 4; // in pixels; what is narrower is gathered

function drawTree(body) {
  const parent = unpack(body.parent), label = unpack(body.label), kind = unpack(body.kind);
  const size = unpack(body.bytes), note = unpack(body.note);
  const children = Array.from(parent, () => []);
  for (let node = 1; node < parent.length; node++) children[parent[node]].push(node);
  for (const list of children) list.sort((a, b) => size[b] - size[a]);
  const depth = new Uint8Array(parent.length);
  for (let node = 1; node < parent.length; node++) depth[node] = depth[parent[node]] + 1;
  const deepest = depth.reduce((most, level) => Math.max(most, level), 0);

  const picture = make("div", { className: "icicle", role: "tree", ariaLabel: "Bytes by owner" });
  picture.style.height = `${(deepest + 1) * LEVEL - 2}px`;
  let zoomed = 0, active = 0, width = 0, buttons = new Map();

  const path = (node) => {
    const names = [];
    for (let at = node; at > 0; at = parent[at]) names.unshift(textAt(label[at]));
    return names.slice(0, -1).join(" › ");
  };
  const about = (node) => described(
    kind[node], textAt(label[node]), exact(size[node]),
    node ? `${share(size[node] / size[0])} of the whole` : "",
    node ? data.kinds[kind[node]].name : "",
    path(node), textAt(note[node]),
  );

  // Of the whole, so that it fits on paper, too.
  const part = (pixels) => `${pixels / width * 100}%`;

  function render() {
    if (!width || !parent.length) return;
    const shown = [];
    buttons = new Map();
    const ancestors = [];
    for (let at = zoomed; at >= 0; at = parent[at]) ancestors.unshift(at);
    for (const node of ancestors) place(node, 0, width, shown);
    divide(zoomed, 0, width, shown);
    picture.replaceChildren(...shown);
    if (!buttons.has(active)) active = zoomed;
    buttons.get(active).tabIndex = 0;
  }

  /** Places the parts of a node below it; what is too narrow is gathered at its end. */
  function divide(node, left, room, shown) {
    if (!size[node]) return;
    let at = left;
    for (const [index, child] of children[node].entries()) {
      const wide = room * size[child] / size[node];
      if (wide < NARROWEST) {
        const hidden = children[node].slice(index);
        gather(hidden, at, left + room - at, depth[child], shown);
        return;
      }
      place(child, at, wide, shown);
      divide(child, at, wide, shown);
      at += wide;
    }
  }

  function place(node, left, wide, shown) {
    const colour = mix(colourOf(kind[node]), dark() ? "#14181d" : "#ffffff", Math.max(0, depth[node] - 1) * 0.09);
    const button = make("button", { type: "button", tabIndex: -1, role: "treeitem", ariaLevel: depth[node] + 1 }, textAt(label[node]));
    if (wide > 70) button.append(make("span", {}, bytes(size[node])));
    button.ariaLabel = `${textAt(label[node])}, ${bytes(size[node])}`;
    Object.assign(button.style, {
      left: part(left), width: `max(1px, calc(${part(wide)} - 1px))`, top: `${depth[node] * LEVEL}px`,
      background: node ? colour : themed("--panel"), color: node ? inkOn(colour) : themed("--ink"),
      padding: wide < 26 ? "0" : "",
    });
    if (wide < 26) button.textContent = "";
    button.addEventListener("click", () => zoom(node === zoomed && node ? parent[node] : node));
    button.addEventListener("focus", () => {
      active = node;
      for (const other of buttons.values()) other.tabIndex = -1;
      button.tabIndex = 0;
      panel.replaceChildren(...about(node));
    });
    button.addEventListener("pointermove", (event) => showTip(about(node), event.clientX, event.clientY));
    buttons.set(node, button);
    shown.push(button);
  }

  function gather(hidden, left, wide, level, shown) {
    if (wide < 2) return;
    const more = make("div", { className: "more" });
    const sum = hidden.reduce((sum, node) => sum + size[node], 0);
    Object.assign(more.style, { left: part(left), width: `calc(${part(wide)} - 1px)`, top: `${level * LEVEL}px` });
    const says = () => described(null, `${plural(hidden.length, "part", "parts")} too narrow to draw`, exact(sum));
    more.addEventListener("pointermove", (event) => showTip(says(), event.clientX, event.clientY));
    shown.push(more);
  }

  function zoom(node) {
    zoomed = node;
    active = node;
    showTip(null);
    render();
    buttons.get(node)?.focus();
  }

  picture.addEventListener("pointerleave", () => showTip(null));
  picture.addEventListener("keydown", (event) => {
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
    if (picture.clientWidth === width) return;
    width = picture.clientWidth;
    render();
  }).observe(picture);
  themes.push(render);
  const panel = make("div", { className: "pinned hint", ariaLive: "polite" }, "Click a part, or press Enter on it, to zoom in. Escape goes up.");
  return make("div", {}, picture, legend([...kind].filter((_, node) => node)), panel);
}
