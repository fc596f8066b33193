
// What lies where: each region of the pool as rows of equal length, by address.

function drawMap(body) {
  const HIGH = 24, BETWEEN = 4;
  const host = make("div");
  const kinds = new Set();
  if (textAt(body.moment)) host.append(make("p", { className: "soft" }, ...sentence(textAt(body.moment))));
  const panel = make("div", { className: "pinned hint", ariaLive: "polite" }, "Point at a part; arrow keys go from part to part.");
  for (const span of body.spans) {
    const size = unpack(span.bytes), kind = unpack(span.kind), label = unpack(span.label);
    const from = new Float64Array(size.length);
    for (let piece = 1; piece < size.length; piece++) from[piece] = from[piece - 1] + size[piece - 1];
    kind.forEach((value) => kinds.add(value));
    const rows = Math.min(8, 1 + Math.floor(size.length / 24));
    const row = span.size / rows;
    let pointed = -1;

    /** Calls `paint` with each rectangle of a piece, which may go over several rows. */
    const boxes = (piece, width, paint) => {
      const end = from[piece] + size[piece];
      for (let at = Math.floor(from[piece] / row); at < rows && at * row < end; at++) {
        const left = Math.max(0, from[piece] - at * row) / row * width;
        const right = Math.min(row, end - at * row) / row * width;
        paint(left, at * (HIGH + BETWEEN), right - left);
      }
    };
    const stage = new Stage(rows * (HIGH + BETWEEN) - BETWEEN, `Region of ${bytes(span.size)}, ${plural(size.length, "part", "parts")}`, (ctx, width, height) => {
        for (let piece = 0; piece < size.length; piece++) {
        ctx.fillStyle = colourOf(kind[piece]);
        boxes(piece, width, (left, top, wide) => {
          ctx.fillRect(left, top, Math.max(0.5, wide - (wide > 4 ? 0.7 : 0)), HIGH);
        });
      }
    }, (ctx, width) => {
      if (pointed < 0) return;
      ctx.strokeStyle = themed("--ink");
      ctx.lineWidth = 2;
      boxes(pointed, width, (left, top, wide) => ctx.strokeRect(left + 1, top + 1, Math.max(1, wide - 2), HIGH - 2));
    });
    const about = (piece) => {
      const name = data.kinds[kind[piece]].name;
      return described(kind[piece], textAt(label[piece]) || name, exact(size[piece]), textAt(label[piece]) ? name : "", `at ${count(from[piece])} bytes into the region`);
    };
    stage.element.addEventListener("pointermove", (event) => {
      const [left, top] = stage.at(event);
      const at = Math.min(rows - 1, Math.floor(top / (HIGH + BETWEEN))) * row + left / stage.width * row;
      pointed = size.length ? before(from, at) : -1;
      stage.point();
      showTip(pointed < 0 ? null : about(pointed), event.clientX, event.clientY);
    });
    stage.element.addEventListener("pointerleave", () => {
      showTip(null);
    });
    stage.element.addEventListener("click", () => panel.replaceChildren(...(pointed < 0 ? [] : about(pointed))));
    stage.element.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || !size.length) return;
      pointed = Math.min(Math.max(pointed + step, 0), size.length - 1);
      stage.point();
      panel.replaceChildren(...about(pointed));
      event.preventDefault();
    });
    host.append(make("p", { className: "soft" }, `${bytes(span.size)} at ${span.address}`), stage.element);
  }
  host.append(legend(kinds), panel);
  return host;
}
