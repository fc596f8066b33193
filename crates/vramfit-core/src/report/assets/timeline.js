
// Bytes over the run, as steps: a value holds until the next position.

const STROKES = [
  { light: "#2f6db3", dark: "#6aa5e6", dash: [] },
  { light: "#dd7a1e", dark: "#f0a256", dash: [6, 3] },
  { light: "#16907f", dark: "#45c0ac", dash: [2, 3] },
  { light: "#a8478f", dark: "#d583c0", dash: [9, 3, 2, 3] },
];

/** Draws values as steps up to `end`; where many fall on one pixel, from their least to their most. */
function drawSteps(ctx, at, values, end, x, y, fill) {
  const path = new Path2D();
  let bottom = 0, column = null, low = 0, high = 0;
  const flush = () => {
    if (column === null) return;
    path.lineTo(column, y(bottom));
    path.lineTo(column, y(high));
    path.lineTo(column, y(low));
    path.lineTo(column, y(bottom = last));
  };
  let last = values[0] ?? 0;
  bottom = last;
  path.moveTo(x(at[0] ?? 0), y(last));
  for (let row = 0; row < values.length; row++) {
    const pixel = Math.round(x(at[row]) * 2) / 2;
    if (pixel !== column) {
      flush();
      column = pixel;
      low = high = values[row];
    }
    low = Math.min(low, values[row]);
    high = Math.max(high, values[row]);
    last = values[row];
  }
  flush();
  path.lineTo(x(end), y(last));
  ctx.lineJoin = "round";
  ctx.stroke(path);
  if (fill && values.length) {
    path.lineTo(x(end), y(0));
    path.lineTo(x(at[0]), y(0));
    ctx.globalAlpha = 0.14;
    ctx.fill(path);
    ctx.globalAlpha = 1;
  }
}

function drawTimeline(body) {
  const at = unpack(body.at);
  const lines = body.lines.map((line) => ({ label: textAt(line.label), bytes: unpack(line.bytes) }));
  const markAt = unpack(body.mark_at), markLabel = unpack(body.mark_label);
  const highest = lines.reduce((most, line) => line.bytes.reduce((a, b) => Math.max(a, b), most), body.limit ?? 0);
  const first = at[0] ?? 0, span = Math.max(1, (at[at.length - 1] ?? 1) - first);
  const TOP = 42, BOTTOM = 22, LEFT = 76, RIGHT = 8;
  let cursor = -1;

  const stage = new Stage(280, `Memory over the run, by ${body.unit}`, (ctx, width, height) => {
    const [x, y] = scales(width, height);
    drawAxis(ctx, highest, y, LEFT, width - RIGHT);
    for (const [number, line] of lines.entries()) {
      const stroke = STROKES[number % STROKES.length];
      ctx.strokeStyle = ctx.fillStyle = stroke[dark() ? "dark" : "light"];
      ctx.lineWidth = 1.6;
      ctx.setLineDash(stroke.dash);
      drawSteps(ctx, at, line.bytes, first + span, x, y, number === 0);
      ctx.setLineDash([]);
    }
    if (body.limit !== null) drawLimit(ctx, y, width);
    drawMarks(ctx, x, y, width, height);
    type(ctx, 12);
    ctx.fillStyle = themed("--soft");
    ctx.textAlign = "left";
    ctx.fillText(`${count(first)}`, LEFT, height - 9);
    ctx.textAlign = "right";
    ctx.fillText(`${count(first + span)} ${body.unit}`, width - RIGHT, height - 9);
  }, (ctx, width, height) => {
    if (cursor < 0) return;
    const [x, y] = scales(width, height);
    ctx.fillStyle = themed("--ink");
    ctx.fillRect(Math.round(x(at[cursor])), TOP, 1, height - TOP - BOTTOM);
    for (const line of lines) {
      ctx.beginPath();
      ctx.arc(x(at[cursor]), y(line.bytes[cursor]), 3.5, 0, 7);
      ctx.fill();
    }
  });

  function scales(width, height) {
    return [
      (value) => LEFT + (value - first) / span * (width - LEFT - RIGHT),
      (value) => height - BOTTOM - value / Math.max(1, highest) * (height - TOP - BOTTOM),
    ];
  }

  function drawLimit(ctx, y, width) {
    ctx.strokeStyle = themed("--ink");
    ctx.lineWidth = 1.2;
    ctx.setLineDash([5, 4]);
    ctx.beginPath();
    ctx.moveTo(LEFT, y(body.limit));
    ctx.lineTo(width - RIGHT, y(body.limit));
    ctx.stroke();
    ctx.setLineDash([]);
    drawLabel(ctx, `limit ${bytes(body.limit)}`, LEFT, y(body.limit) - 11, LEFT, width - RIGHT, themed("--ink"));
  }

  /** The peak as a line with its name; other marks as ticks, named by pointing at them. */
  function drawMarks(ctx, x, y, width, height) {
    for (const [row, position] of markAt.entries()) {
      const label = textAt(markLabel[row]), strong = label.startsWith("peak");
      ctx.fillStyle = themed(strong ? "--mark" : "--soft");
      const from = strong ? TOP : height - BOTTOM - 5;
      ctx.fillRect(Math.round(x(position)), from, strong ? 1.5 : 1, height - BOTTOM - from);
      if (strong) drawLabel(ctx, label, x(position), 8, LEFT, width - RIGHT, themed("--mark"));
    }
  }

  function about(row) {
    const near = [...markAt.keys()].filter((mark) => markAt[mark] === at[row]).map((mark) => textAt(markLabel[mark]));
    const values = lines.map((line) => `${line.label}: ${exact(line.bytes[row])}`);
    return described(null, `${body.unit} ${count(at[row])}`, ...values, ...near);
  }

  function move(row) {
    cursor = Math.min(Math.max(row, 0), at.length - 1);
    stage.point();
  }

  const keep = () => panel.replaceChildren(...(cursor < 0 ? [] : about(cursor)));

  stage.element.classList.add("cross");
  stage.element.addEventListener("pointermove", (event) => {
    if (!at.length) return;
    const wanted = first + (stage.at(event)[0] - LEFT) / (stage.width - LEFT - RIGHT) * span;
    move(before(at, wanted));
    showTip(about(cursor), event.clientX, event.clientY);
  });
  stage.element.addEventListener("pointerleave", () => showTip(null));
  stage.element.addEventListener("click", keep);
  stage.element.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: cursor - 1, ArrowRight: cursor + 1, Home: 0, End: at.length - 1 };
    if (!(event.key in moves) || !at.length) return;
    move(moves[event.key]);
    keep();
    event.preventDefault();
  });
  const panel = make("div", { className: "pinned hint", ariaLive: "polite" }, "Point at the picture, or use the arrow keys, to read values; click to keep them here.");
  return make("div", {}, stage.element, strokeLegend(lines.map((line) => line.label), body.limit !== null), panel);
}

/** Returns the last row at or before a position. */
function before(at, wanted) {
  let low = 0, high = at.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (at[middle] <= wanted) low = middle;
    else high = middle - 1;
  }
  return low;
}

function strokeLegend(labels, limit) {
  const list = make("ul", { className: "legend" });
  for (const [number, label] of labels.entries()) {
    const stroke = STROKES[number % STROKES.length];
    const swatch = make("i", { className: stroke.dash.length ? "stroke dashed" : "stroke" });
    themes.push(() => { swatch.style.borderColor = stroke[dark() ? "dark" : "light"]; });
    list.append(make("li", {}, swatch, label));
  }
  if (limit) list.append(make("li", {}, make("i", { className: "stroke dashed" }), "limit"));
  return list;
}
