
// Memory over the run, as steps: a value holds until the next position.

const STROKES = [
  { light: "#2f6db3", dark: "#6aa5e6", dash: [] },
  { light: "#dd7a1e", dark: "#f0a256", dash: [6, 3] },
  { light: "#16907f", dark: "#45c0ac", dash: [2, 3] },
  { light: "#a8478f", dark: "#d583c0", dash: [9, 3, 2, 3] },
];

/** Draws values as steps up to `end`; where many fall on one pixel, from their minimum to their maximum. */
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

function drawTimeline(content) {
  const at = unpack(content.positions);
  const series = content.series.map((one) => ({ label: textAt(one.label), bytes: unpack(one.bytes) }));
  const markerAt = unpack(content.marker_positions), markerLabel = unpack(content.marker_labels);
  const steps = unpack(content.steps), stepAt = unpack(content.step_positions);
  const request = content.request;
  const requested = request ? request.in_use + request.bytes : 0;
  const highest = series.reduce((max, one) => one.bytes.reduce((a, b) => Math.max(a, b), max), Math.max(content.limit ?? 0, requested));
  const first = at[0] ?? 0, span = Math.max(1, (at[at.length - 1] ?? 1) - first);
  const TOP = 42, BOTTOM = 22, LEFT = 76, RIGHT = 8;
  let cursor = -1;

  const canvas = new LayeredCanvas(280, `Memory over the run, by ${steps.length > 1 ? "step" : content.unit}`, (ctx, width, height) => {
    const [x, y] = scales(width, height);
    drawAxis(ctx, highest, y, LEFT, width - RIGHT);
    for (const [index, one] of series.entries()) {
      const stroke = STROKES[index % STROKES.length];
      ctx.strokeStyle = ctx.fillStyle = stroke[isDark() ? "dark" : "light"];
      ctx.lineWidth = 1.6;
      ctx.setLineDash(stroke.dash);
      drawSteps(ctx, at, one.bytes, first + span, x, y, index === 0);
      ctx.setLineDash([]);
    }
    if (request) drawRequest(ctx, x, y, width);
    if (content.limit !== null) drawLimit(ctx, y, width);
    drawMarkers(ctx, x, y, width, height);
    if (steps.length > 1) drawStepAxis(ctx, x, width, height);
    else drawEventAxis(ctx, width, height);
  }, (ctx, width, height) => {
    if (cursor < 0) return;
    const [x, y] = scales(width, height);
    ctx.fillStyle = themeColor("--ink");
    ctx.fillRect(Math.round(x(at[cursor])), TOP, 1, height - TOP - BOTTOM);
    for (const one of series) {
      ctx.beginPath();
      ctx.arc(x(at[cursor]), y(one.bytes[cursor]), 3.5, 0, 7);
      ctx.fill();
    }
  });

  function scales(width, height) {
    return [
      (value) => LEFT + (value - first) / span * (width - LEFT - RIGHT),
      (value) => height - BOTTOM - value / Math.max(1, highest) * (height - TOP - BOTTOM),
    ];
  }

  function drawEventAxis(ctx, width, height) {
    setFont(ctx, 12);
    ctx.fillStyle = themeColor("--soft");
    ctx.textAlign = "left";
    ctx.fillText(`${count(first)}`, LEFT, height - 9);
    ctx.textAlign = "right";
    ctx.fillText(`${count(first + span)} ${content.unit}`, width - RIGHT, height - 9);
  }

  /** Names steps of the training at the events with which they begin. */
  function drawStepAxis(ctx, x, width, height) {
    setFont(ctx, 12);
    ctx.fillStyle = themeColor("--soft");
    const last = steps[steps.length - 1];
    let taken = LEFT - 8;
    const draw = (position, name, from) => {
      const wide = ctx.measureText(name).width;
      if (from <= taken || from + wide > width - RIGHT) return;
      if (position !== null) ctx.fillRect(Math.round(position), height - BOTTOM, 1, 4);
      ctx.fillText(name, from, height - 8);
      taken = from + wide + 8;
    };
    ctx.textAlign = "left";
    const begin = x(stepAt[0]);
    if (begin - LEFT > ctx.measureText("startup").width + 16) draw(null, "startup", LEFT);
    draw(begin, `step ${count(steps[0])}`, begin);
    for (const step of last > 1 ? axisValues(1, last, false) : []) {
      if (!Number.isInteger(step) || step <= 1) continue;
      const position = x(positionOf(step)), name = count(step);
      draw(position, name, position - ctx.measureText(name).width / 2);
    }
  }

  /** Returns where a step begins, between those that are known. */
  function positionOf(step) {
    const row = lastRowBefore(steps, step), next = Math.min(row + 1, steps.length - 1);
    const part = next === row ? 0 : (step - steps[row]) / (steps[next] - steps[row]);
    return stepAt[row] + part * (stepAt[next] - stepAt[row]);
  }

  /** Says in which step a position is. */
  function stepName(position) {
    if (steps.length < 2) return "";
    if (position < stepAt[0]) return "startup";
    const row = lastRowBefore(stepAt, position), next = steps[row + 1] ?? steps[row] + 1;
    return next - steps[row] > 1 ? `steps ${count(steps[row])} to ${count(next - 1)}` : `step ${count(steps[row])}`;
  }

  function drawLimit(ctx, y, width) {
    ctx.strokeStyle = themeColor("--ink");
    ctx.lineWidth = 1.2;
    ctx.setLineDash([5, 4]);
    ctx.beginPath();
    ctx.moveTo(LEFT, y(content.limit));
    ctx.lineTo(width - RIGHT, y(content.limit));
    ctx.stroke();
    ctx.setLineDash([]);
    drawLabel(ctx, `limit ${bytes(content.limit)}`, LEFT, y(content.limit) - 11, LEFT, width - RIGHT, themeColor("--ink"));
  }

  /** Draws what the failed request would have added, as a step to the end of the run. */
  function drawRequest(ctx, x, y, width) {
    const left = Math.min(x(request.position), width - RIGHT - 14), right = width - RIGHT;
    const top = y(requested), bottom = y(request.in_use);
    ctx.fillStyle = ctx.strokeStyle = themeColor("--bad");
    ctx.globalAlpha = 0.18;
    ctx.fillRect(left, top, right - left, bottom - top);
    ctx.globalAlpha = 1;
    ctx.lineWidth = 1.5;
    ctx.strokeRect(left, top, right - left, bottom - top);
    drawLabel(ctx, `request for ${bytes(request.bytes)} failed`, left, top - 11, LEFT, right, themeColor("--bad"));
  }

  /** Draws the peak as a line with its label, and other markers as ticks. */
  function drawMarkers(ctx, x, y, width, height) {
    for (const [row, position] of markerAt.entries()) {
      const label = textAt(markerLabel[row]), isPeak = label.startsWith("peak");
      ctx.fillStyle = themeColor(isPeak ? "--mark" : "--soft");
      const from = isPeak ? TOP : height - BOTTOM - 5;
      ctx.fillRect(Math.round(x(position)), from, isPeak ? 1.5 : 1, height - BOTTOM - from);
      if (isPeak) drawLabel(ctx, label, x(position), 8, LEFT, width - RIGHT, themeColor("--mark"));
    }
  }

  function details(row) {
    const markers = [...markerAt.keys()].filter((marker) => markerAt[marker] === at[row]).map((marker) => textAt(markerLabel[marker]));
    const values = series.map((one) => `${one.label}: ${exactBytes(one.bytes[row])}`);
    const name = `${content.unit} ${count(at[row])}`, step = stepName(at[row]);
    return describe(null, step || name, ...(step ? [name] : []), ...values, ...markers);
  }

  function moveCursor(row) {
    cursor = Math.min(Math.max(row, 0), at.length - 1);
    canvas.repaintOverlay();
  }

  const pinCursor = () => panel.replaceChildren(...(cursor < 0 ? [] : details(cursor)));

  canvas.element.classList.add("cross");
  canvas.element.addEventListener("pointermove", (event) => {
    if (!at.length) return;
    const wanted = first + (canvas.position(event)[0] - LEFT) / (canvas.width - LEFT - RIGHT) * span;
    moveCursor(lastRowBefore(at, wanted));
    showTooltip(details(cursor), event.clientX, event.clientY);
  });
  canvas.element.addEventListener("pointerleave", () => showTooltip(null));
  canvas.element.addEventListener("click", pinCursor);
  canvas.element.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: cursor - 1, ArrowRight: cursor + 1, Home: 0, End: at.length - 1 };
    if (!(event.key in moves) || !at.length) return;
    moveCursor(moves[event.key]);
    pinCursor();
    event.preventDefault();
  });
  const panel = makeElement("div", { className: "pinned hint", ariaLive: "polite" }, "Hover over the chart, or use the arrow keys, to read values; click to pin them here.");
  return makeElement("div", {}, canvas.element, seriesLegend(series.map((one) => one.label), content.limit !== null), panel);
}

/** Returns the last row at or before a position. */
function lastRowBefore(at, wanted) {
  let low = 0, high = at.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (at[middle] <= wanted) low = middle;
    else high = middle - 1;
  }
  return low;
}

function seriesLegend(labels, limit) {
  const list = makeElement("ul", { className: "legend" });
  for (const [index, label] of labels.entries()) {
    const stroke = STROKES[index % STROKES.length];
    const swatch = makeElement("i", { className: stroke.dash.length ? "stroke dashed" : "stroke" });
    themeListeners.push(() => { swatch.style.borderColor = stroke[isDark() ? "dark" : "light"]; });
    list.append(makeElement("li", {}, swatch, label));
  }
  if (limit) list.append(makeElement("li", {}, makeElement("i", { className: "stroke dashed" }), "limit"));
  return list;
}
