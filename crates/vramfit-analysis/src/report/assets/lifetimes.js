
// Every buffer of one program: horizontally when it is live, vertically its offset.

function drawLifetimes(content) {
  const name = unpack(content.label), kind = unpack(content.kind), offset = unpack(content.offset);
  const size = unpack(content.bytes), start = unpack(content.start), length = unpack(content.length), note = unpack(content.note), stack = unpack(content.stack);
  /** The innermost line, where it is known; else the operation. */
  const title = (buffer) => textAt(stack[buffer]).split(" < ")[0] || textAt(name[buffer]);
  const instructions = unpack(content.instructions), live = unpack(content.live);
  const last = Math.max(1, instructions.length, live.length);
  const maxLive = live.reduce((a, b) => Math.max(a, b), 1);
  const indices = Float64Array.from(live.keys());
  const LEFT = 76, RIGHT = 8, CURVE_HEIGHT = 84, TOP = 24, GAP = 14, BOTTOM = 20;
  // The visible range: first and last instruction, first and last byte; `viewStack` has those to zoom out to.
  const whole = [0, last, 0, Math.max(1, content.height)];
  let view = whole, viewStack = [], hovered = -1, pinned = -1, drag = null, bySize = null;

  const x = (position) => LEFT + (position - view[0]) / (view[1] - view[0]) * (canvas.width - LEFT - RIGHT);
  const y = (byte) => canvas.height - BOTTOM - (byte - view[2]) / (view[3] - view[2]) * (canvas.height - BOTTOM - TOP - CURVE_HEIGHT - GAP);
  const floor = TOP + CURVE_HEIGHT;

  const canvas = new LayeredCanvas(520, `Buffers of ${textAt(content.program)}: arrow down for the largest`, (ctx, width, height) => {
    drawCurve(ctx, width);
    drawBoxes(ctx, width, height);
    drawPeaks(ctx, width, height);
    drawInstructions(ctx, width, height);
  }, (ctx) => {
    if (drag?.to) {
      const [[x0, y0], [x1, y1]] = [drag.from, drag.to];
      ctx.strokeStyle = themeColor("--ink");
      ctx.setLineDash([4, 3]);
      ctx.strokeRect(x0, y0, x1 - x0, y1 - y0);
      ctx.setLineDash([]);
    }
    for (const buffer of [pinned, hovered]) if (buffer >= 0) outline(ctx, buffer);
  });

  function drawCurve(ctx, width) {
    const up = (value) => floor - value / maxLive * (CURVE_HEIGHT - 4);
    setFont(ctx, 12);
    ctx.textAlign = "right";
    ctx.fillStyle = themeColor("--soft");
    ctx.fillText(bytes(maxLive), LEFT - 8, up(maxLive) + 4);
    ctx.fillText("live", LEFT - 8, up(0) - 6);
    ctx.save();
    ctx.beginPath();
    ctx.rect(LEFT, TOP - 2, width - LEFT - RIGHT, CURVE_HEIGHT + 3);
    ctx.clip();
    ctx.strokeStyle = ctx.fillStyle = themeColor("--accent");
    ctx.lineWidth = 1.4;
    drawSteps(ctx, indices, live, last, x, up, true);
    ctx.restore();
    ctx.fillStyle = themeColor("--rule");
    ctx.fillRect(LEFT, floor, width - LEFT - RIGHT, 1);
  }

  function drawBoxes(ctx, width, height) {
    const top = floor + GAP, bottom = height - BOTTOM;
    setFont(ctx, 12);
    ctx.textAlign = "right";
    for (const [value, name] of ticks(view[2], view[3], 6)) {
      ctx.fillStyle = themeColor("--soft");
      ctx.fillText(name, LEFT - 8, y(value));
    }
    ctx.fillStyle = themeColor("--panel");
    ctx.fillRect(LEFT, top, width - LEFT - RIGHT, bottom - top);
    ctx.save();
    ctx.beginPath();
    ctx.rect(LEFT, top, width - LEFT - RIGHT, bottom - top);
    ctx.clip();
    const colors = data.kinds.map((_, number) => kindColor(number));
    for (let wanted = 0; wanted < colors.length; wanted++) {
      ctx.fillStyle = colors[wanted];
      let before = NaN;
      for (let buffer = 0; buffer < size.length; buffer++) {
        if (kind[buffer] !== wanted) continue;
        const [left, right, low, high] = box(buffer);
        if (right < LEFT || left > width || high > bottom || low < top) continue;
        if (low - high <= 1) {
          // Whole pixels, and none twice: many buffers fall on those of the one before.
          const upper = Math.floor(high * 2) / 2;
          const dots = Math.round(left * 2) * 1e9 + Math.round(right * 2) * 1e5 + upper * 2;
          if (dots !== before) ctx.fillRect(left, upper, Math.max(0.5, right - left), 0.5);
          before = dots;
          continue;
        }
        // A gap separates adjacent buffers where there is space for one.
        const thin = low - high > 3 ? 0.7 : 0, slim = right - left > 4 ? 0.7 : 0;
        ctx.fillRect(left, high, Math.max(0.5, right - left - slim), low - high - thin);
      }
    }
    nameBoxes(ctx, top, bottom, width, colors);
    ctx.restore();
  }

  /** Writes names into the boxes that are large enough. */
  function nameBoxes(ctx, top, bottom, width, colors) {
    setFont(ctx, 11);
    ctx.textAlign = "left";
    for (let buffer = 0; buffer < size.length; buffer++) {
      const [left, right, low, high] = box(buffer);
      const [from, to] = [Math.max(left, LEFT), Math.min(right, width - RIGHT)];
      const [upper, lower] = [Math.max(high, top), Math.min(low, bottom)];
      const isUpright = to - from < 90 && lower - upper >= 90;
      const [along, across] = isUpright ? [lower - upper, to - from] : [to - from, lower - upper];
      if (along < 40 || across < 15) continue;
      const shown = shortenName(title(buffer), (text) => ctx.measureText(text).width <= along - 12);
      ctx.fillStyle = textColorOn(colors[kind[buffer]]);
      ctx.save();
      ctx.translate(isUpright ? (from + to) / 2 : from + 6, isUpright ? lower - 6 : (upper + lower) / 2);
      if (isUpright) ctx.rotate(-Math.PI / 2);
      ctx.fillText(shown, 0, 0);
      ctx.restore();
    }
  }

  /** Draws a line at the peak, and a dashed one at the peak that follows it. */
  function drawPeaks(ctx, width, height) {
    const peaks = [["peak", content.peak_index, "--mark", 9], ["next peak", content.next_peak_index, "--soft", 9]];
    let taken = null;
    for (const [name, index, color, top] of peaks) {
      const at = x(index + 0.5);
      if (index === null || at < LEFT || at > width - RIGHT) continue;
      ctx.strokeStyle = themeColor(color);
      ctx.lineWidth = 1.5;
      ctx.setLineDash(taken ? [4, 3] : []);
      ctx.beginPath();
      ctx.moveTo(at, TOP);
      ctx.lineTo(at, height - BOTTOM);
      ctx.stroke();
      ctx.setLineDash([]);
      // The second label takes the side that the first one leaves.
      const [left, right] = !taken ? [LEFT, width - RIGHT] : at > taken[0] ? [taken[2] + 12, width - RIGHT] : [LEFT, taken[1] - 12];
      const label = `${name} ${bytes(live[index] ?? 0)}, ${textAt(instructions[index]) ?? ""}`;
      const [from, to] = drawLabel(ctx, label, at, top, left, right, themeColor(color));
      taken = [at, from, to];
    }
  }

  function drawInstructions(ctx, width, height) {
    setFont(ctx, 12);
    ctx.fillStyle = themeColor("--soft");
    ctx.textAlign = "left";
    ctx.fillText(`instruction ${count(Math.floor(view[0]))}`, LEFT, height - 8);
    ctx.textAlign = "right";
    ctx.fillText(count(Math.ceil(view[1])), width - RIGHT, height - 8);
  }

  /** Left, right, bottom and top of a buffer. */
  function box(buffer) {
    return [x(start[buffer]), x(start[buffer] + length[buffer] + 1), y(offset[buffer]), y(offset[buffer] + size[buffer])];
  }

  /** Draws a frame around a buffer, so that its own color stays visible however thin it is. */
  function outline(ctx, buffer) {
    const [left, right, low, high] = box(buffer);
    const top = Math.max(high, floor + GAP), bottom = Math.min(low, canvas.height - BOTTOM);
    if (bottom < top) return;
    ctx.lineWidth = 1.5;
    ctx.strokeStyle = themeColor("--ink");
    const from = Math.max(left, LEFT), to = Math.min(right, canvas.width - RIGHT);
    ctx.strokeRect(from - 1, top - 1, Math.max(1, to - from) + 2, Math.max(1, bottom - top) + 2);
  }

  /** Returns the buffer at a point: the smallest, where several overlap. */
  function bufferAt([px, py]) {
    if (px < LEFT || py < floor + GAP) return -1;
    const position = view[0] + (px - LEFT) / (canvas.width - LEFT - RIGHT) * (view[1] - view[0]);
    const byte = view[2] + (canvas.height - BOTTOM - py) / (canvas.height - BOTTOM - floor - GAP) * (view[3] - view[2]);
    let best = -1;
    for (let buffer = 0; buffer < size.length && start[buffer] <= position; buffer++) {
      const hit = position < start[buffer] + length[buffer] + 1 && byte >= offset[buffer] && byte < offset[buffer] + size[buffer];
      if (hit && (best < 0 || size[buffer] < size[best])) best = buffer;
    }
    return best;
  }

  function details(buffer) {
    const end = start[buffer] + length[buffer];
    const when = [start[buffer], end].map((position) => textAt(instructions[position]) ?? count(position));
    return describe(
      kind[buffer], textAt(name[buffer]), `${exactBytes(size[buffer])}, at offset ${count(offset[buffer])}`,
      data.kinds[kind[buffer]].name, textAt(note[buffer]),
      ...textAt(stack[buffer]).split(" < ").map((line, depth) => (depth ? `called from ${line}` : line)),
      `from ${when[0]} to ${when[1]} (${plural(length[buffer] + 1, "instruction", "instructions")})`,
    );
  }

  function pinBuffer(buffer) {
    pinned = buffer;
    canvas.repaintOverlay();
    panel.replaceChildren(...(buffer < 0 ? [HINT] : details(buffer)));
  }

  function setView(next) {
    view = next;
    canvas.repaint();
    resetButton.hidden = view === whole;
  }

  function zoomOut() {
    if (drag) drag = null;
    else if (view !== whole) setView(viewStack.pop() ?? whole);
    else pinBuffer(-1);
    canvas.repaintOverlay();
  }

  const element = canvas.element;
  element.classList.add("cross");
  element.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType !== "touch") drag = { from: canvas.position(event), to: null };
  });
  element.addEventListener("pointermove", (event) => {
    const at = canvas.position(event);
    if (drag && event.buttons === 1 && Math.hypot(at[0] - drag.from[0], at[1] - drag.from[1]) > 6) {
      drag.to = at;
      showTooltip(null);
    } else {
      hovered = bufferAt(at);
      showTooltip(hovered < 0 ? null : details(hovered), event.clientX, event.clientY);
    }
    canvas.repaintOverlay();
  });
  element.addEventListener("pointerup", (event) => {
    if (drag?.to) {
      const selected = viewOf(drag.from, drag.to);
      viewStack.push(view);
      drag = null;
      setView(selected);
      return;
    }
    drag = null;
    pinBuffer(bufferAt(canvas.position(event)));
  });
  element.addEventListener("pointerleave", () => {
    hovered = -1;
    drag = null;
    showTooltip(null);
    canvas.repaintOverlay();
  });

  /** Returns the instructions and bytes of a rectangle; one over the curve chooses instructions only. */
  function viewOf([x0, y0], [x1, y1]) {
    const fraction = (value, low, high) => Math.min(1, Math.max(0, (value - low) / (high - low)));
    const over = Math.max(y0, y1) < floor + GAP;
    const wide = [x0, x1].sort((a, b) => a - b).map((value) => fraction(value, LEFT, canvas.width - RIGHT));
    const high = [y0, y1].sort((a, b) => b - a).map((value) => fraction(value, canvas.height - BOTTOM, floor + GAP));
    const [rise, run] = [view[3] - view[2], view[1] - view[0]];
    const from = view[0] + wide[0] * run;
    const bottom = over ? view[2] : view[2] + high[0] * rise;
    return [from, Math.max(from + 1, view[0] + wide[1] * run), bottom, over ? view[3] : Math.max(bottom + 1, view[2] + high[1] * rise)];
  }

  element.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape" || event.key === "Backspace") zoomOut();
    else if (step && size.length) {
      bySize ??= Uint32Array.from(size.keys()).sort((a, b) => size[b] - size[a]);
      const at = pinned < 0 ? (step > 0 ? 0 : size.length - 1) : bySize.indexOf(pinned) + step;
      pinBuffer(bySize[Math.min(Math.max(at, 0), size.length - 1)]);
    } else return;
    event.preventDefault();
  });

  const HINT = "Hover over a buffer for details; click to pin them here. Drag to zoom in, Escape to zoom out.";
  const panel = makeElement("div", { className: "pinned hint", ariaLive: "polite" }, HINT);
  const resetButton = makeElement("button", { type: "button", hidden: true }, "Reset zoom");
  resetButton.addEventListener("click", () => { viewStack = []; setView(whole); });
  const columns = [
    { name: "buffer", format: "name", values: name },
    { name: "kind", format: "kind", values: kind },
    { name: "bytes", format: "bytes", values: size },
    { name: "start", format: "count", values: start },
    { name: "instructions", format: "count", values: length.map((instructions) => instructions + 1) },
    { name: "lines", format: "name", values: stack },
    { name: "details", format: "name", values: note },
  ];
  const list = makeElement("details", {}, makeElement("summary", {}, `All ${plural(size.length, "buffer", "buffers")} as a table`));
  list.addEventListener("toggle", () => {
    if (list.open && list.children.length === 1) list.append(drawTable(columns, size.length, "", "buffers"));
  });
  return makeElement("div", {}, element, makeElement("div", { className: "tools" }, makeLegend(kind), resetButton), panel, list);
}
