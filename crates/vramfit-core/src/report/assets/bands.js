
// Every buffer of one program: across when it is needed, upwards where it lies.

function drawBands(body) {
  const name = unpack(body.name), kind = unpack(body.kind), offset = unpack(body.offset);
  const size = unpack(body.bytes), start = unpack(body.start), length = unpack(body.length), note = unpack(body.note);
  const moments = unpack(body.moments), live = unpack(body.live);
  const last = Math.max(1, moments.length, live.length);
  const most = live.reduce((a, b) => Math.max(a, b), 1);
  const every = Float64Array.from(live.keys());
  const LEFT = 76, RIGHT = 8, CURVE = 84, TOP = 24, GAP = 14, BOTTOM = 20;
  // The part in sight: moments from and to, bytes from and to; those above it lie in `views`.
  const whole = [0, last, 0, Math.max(1, body.height)];
  let view = whole, views = [], pointed = -1, pinned = -1, dragged = null, bySize = null;

  const x = (moment) => LEFT + (moment - view[0]) / (view[1] - view[0]) * (stage.width - LEFT - RIGHT);
  const y = (byte) => stage.height - BOTTOM - (byte - view[2]) / (view[3] - view[2]) * (stage.height - BOTTOM - TOP - CURVE - GAP);
  const floor = TOP + CURVE;

  const stage = new Stage(520, `Buffers of ${textAt(body.label)}: arrow down for the largest`, (ctx, width, height) => {
    drawCurve(ctx, width);
    drawBoxes(ctx, width, height);
    drawPeak(ctx, width, height);
    drawMoments(ctx, width, height);
  }, (ctx) => {
    if (dragged?.to) {
      const [[x0, y0], [x1, y1]] = [dragged.from, dragged.to];
      ctx.strokeStyle = themed("--ink");
      ctx.setLineDash([4, 3]);
      ctx.strokeRect(x0, y0, x1 - x0, y1 - y0);
      ctx.setLineDash([]);
    }
    for (const band of [pinned, pointed]) if (band >= 0) outline(ctx, band);
  });

  function drawCurve(ctx, width) {
    const up = (value) => floor - value / most * (CURVE - 4);
    type(ctx, 12);
    ctx.textAlign = "right";
    ctx.fillStyle = themed("--soft");
    ctx.fillText(bytes(most), LEFT - 8, up(most) + 4);
    ctx.fillText("live", LEFT - 8, up(0) - 6);
    ctx.save();
    ctx.beginPath();
    ctx.rect(LEFT, TOP - 2, width - LEFT - RIGHT, CURVE + 3);
    ctx.clip();
    ctx.strokeStyle = ctx.fillStyle = themed("--accent");
    ctx.lineWidth = 1.4;
    drawSteps(ctx, every, live, last, x, up, true);
    ctx.restore();
    ctx.fillStyle = themed("--rule");
    ctx.fillRect(LEFT, floor, width - LEFT - RIGHT, 1);
  }

  function drawBoxes(ctx, width, height) {
    const top = floor + GAP, bottom = height - BOTTOM;
    type(ctx, 12);
    ctx.textAlign = "right";
    for (const [value, name] of ticks(view[2], view[3], 6)) {
      ctx.fillStyle = themed("--soft");
      ctx.fillText(name, LEFT - 8, y(value));
    }
    ctx.fillStyle = themed("--panel");
    ctx.fillRect(LEFT, top, width - LEFT - RIGHT, bottom - top);
    ctx.save();
    ctx.beginPath();
    ctx.rect(LEFT, top, width - LEFT - RIGHT, bottom - top);
    ctx.clip();
    const colours = data.kinds.map((_, number) => colourOf(number));
    for (let wanted = 0; wanted < colours.length; wanted++) {
      ctx.fillStyle = colours[wanted];
      let before = NaN;
      for (let band = 0; band < size.length; band++) {
        if (kind[band] !== wanted) continue;
        const [left, right, low, high] = box(band);
        if (right < LEFT || left > width || high > bottom || low < top) continue;
        if (low - high <= 1) {
          // Whole dots of the screen, and none twice: many a buffer falls on those of the one before.
          const upper = Math.floor(high * 2) / 2;
          const dots = Math.round(left * 2) * 1e9 + Math.round(right * 2) * 1e5 + upper * 2;
          if (dots !== before) ctx.fillRect(left, upper, Math.max(0.5, right - left), 0.5);
          before = dots;
          continue;
        }
        // A hairline of paper keeps neighbours apart where there is room for one.
        const thin = low - high > 3 ? 0.7 : 0, slim = right - left > 4 ? 0.7 : 0;
        ctx.fillRect(left, high, Math.max(0.5, right - left - slim), low - high - thin);
      }
    }
    nameBoxes(ctx, top, bottom, width, colours);
    ctx.restore();
  }

  /** Writes names into the boxes that have room for them. */
  function nameBoxes(ctx, top, bottom, width, colours) {
    type(ctx, 11);
    ctx.textAlign = "left";
    for (let band = 0; band < size.length; band++) {
      const [left, right, low, high] = box(band);
      const [from, to] = [Math.max(left, LEFT), Math.min(right, width - RIGHT)];
      const [upper, lower] = [Math.max(high, top), Math.min(low, bottom)];
      if (to - from < 90 || lower - upper < 15) continue;
      const text = textAt(name[band]);
      const room = Math.floor((to - from - 12) / 6.6);
      ctx.fillStyle = inkOn(colours[kind[band]]);
      ctx.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, from + 6, (upper + lower) / 2);
    }
  }

  function drawPeak(ctx, width, height) {
    const at = x(body.peak_at + 0.5);
    if (at < LEFT || at > width - RIGHT) return;
    ctx.fillStyle = themed("--mark");
    ctx.fillRect(Math.round(at) - 0.5, TOP, 1.5, height - BOTTOM - TOP);
    const label = `peak ${bytes(live[body.peak_at] ?? 0)}, ${textAt(moments[body.peak_at]) ?? ""}`;
    drawLabel(ctx, label, at, 9, LEFT, width - RIGHT, themed("--mark"));
  }

  function drawMoments(ctx, width, height) {
    type(ctx, 12);
    ctx.fillStyle = themed("--soft");
    ctx.textAlign = "left";
    ctx.fillText(`instruction ${count(Math.floor(view[0]))}`, LEFT, height - 8);
    ctx.textAlign = "right";
    ctx.fillText(count(Math.ceil(view[1])), width - RIGHT, height - 8);
  }

  /** Left, right, bottom and top of a buffer. */
  function box(band) {
    return [x(start[band]), x(start[band] + length[band] + 1), y(offset[band]), y(offset[band] + size[band])];
  }

  /** Draws a frame around a buffer, so that its own colour stays in sight however thin it is. */
  function outline(ctx, band) {
    const [left, right, low, high] = box(band);
    const top = Math.max(high, floor + GAP), bottom = Math.min(low, stage.height - BOTTOM);
    if (bottom < top) return;
    ctx.lineWidth = 1.5;
    ctx.strokeStyle = themed("--ink");
    const from = Math.max(left, LEFT), to = Math.min(right, stage.width - RIGHT);
    ctx.strokeRect(from - 1, top - 1, Math.max(1, to - from) + 2, Math.max(1, bottom - top) + 2);
  }

  /** Returns the buffer at a point: the smallest, where several are drawn over one another. */
  function find([px, py]) {
    if (px < LEFT || py < floor + GAP) return -1;
    const moment = view[0] + (px - LEFT) / (stage.width - LEFT - RIGHT) * (view[1] - view[0]);
    const byte = view[2] + (stage.height - BOTTOM - py) / (stage.height - BOTTOM - floor - GAP) * (view[3] - view[2]);
    let best = -1;
    for (let band = 0; band < size.length && start[band] <= moment; band++) {
      const hit = moment < start[band] + length[band] + 1 && byte >= offset[band] && byte < offset[band] + size[band];
      if (hit && (best < 0 || size[band] < size[best])) best = band;
    }
    return best;
  }

  function about(band) {
    const end = start[band] + length[band];
    const when = [start[band], end].map((moment) => textAt(moments[moment]) ?? count(moment));
    return described(
      kind[band], textAt(name[band]), `${exact(size[band])}, at offset ${count(offset[band])}`,
      data.kinds[kind[band]].name, textAt(note[band]),
      `from ${when[0]} to ${when[1]} (${plural(length[band] + 1, "instruction", "instructions")})`,
    );
  }

  function pin(band) {
    pinned = band;
    stage.point();
    panel.replaceChildren(...(band < 0 ? [HINT] : about(band)));
  }

  function look(next) {
    view = next;
    stage.repaint();
    up.hidden = view === whole;
  }

  function back() {
    if (dragged) dragged = null;
    else if (view !== whole) look(views.pop() ?? whole);
    else pin(-1);
    stage.point();
  }

  const element = stage.element;
  element.classList.add("cross");
  element.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType !== "touch") dragged = { from: stage.at(event), to: null };
  });
  element.addEventListener("pointermove", (event) => {
    const at = stage.at(event);
    if (dragged && event.buttons === 1 && Math.hypot(at[0] - dragged.from[0], at[1] - dragged.from[1]) > 6) {
      dragged.to = at;
      showTip(null);
    } else {
      pointed = find(at);
      showTip(pointed < 0 ? null : about(pointed), event.clientX, event.clientY);
    }
    stage.point();
  });
  element.addEventListener("pointerup", (event) => {
    if (dragged?.to) {
      const seen = seenIn(dragged.from, dragged.to);
      views.push(view);
      dragged = null;
      look(seen);
      return;
    }
    dragged = null;
    pin(find(stage.at(event)));
  });
  element.addEventListener("pointerleave", () => {
    pointed = -1;
    dragged = null;
    showTip(null);
    stage.point();
  });

  /** Returns the moments and bytes of a rectangle; one over the curve chooses moments only. */
  function seenIn([x0, y0], [x1, y1]) {
    const part = (value, low, high) => Math.min(1, Math.max(0, (value - low) / (high - low)));
    const over = Math.max(y0, y1) < floor + GAP;
    const wide = [x0, x1].sort((a, b) => a - b).map((value) => part(value, LEFT, stage.width - RIGHT));
    const high = [y0, y1].sort((a, b) => b - a).map((value) => part(value, stage.height - BOTTOM, floor + GAP));
    const [rise, run] = [view[3] - view[2], view[1] - view[0]];
    const from = view[0] + wide[0] * run;
    const bottom = over ? view[2] : view[2] + high[0] * rise;
    return [from, Math.max(from + 1, view[0] + wide[1] * run), bottom, over ? view[3] : Math.max(bottom + 1, view[2] + high[1] * rise)];
  }

  element.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape" || event.key === "Backspace") back();
    else if (step && size.length) {
      bySize ??= Uint32Array.from(size.keys()).sort((a, b) => size[b] - size[a]);
      const at = pinned < 0 ? (step > 0 ? 0 : size.length - 1) : bySize.indexOf(pinned) + step;
      pin(bySize[Math.min(Math.max(at, 0), size.length - 1)]);
    } else return;
    event.preventDefault();
  });

  const HINT = "Point at a buffer; click to keep it here. Drag to look closer, Escape to go back.";
  const panel = make("div", { className: "pinned hint", ariaLive: "polite" }, HINT);
  const up = make("button", { type: "button", hidden: true }, "Show all");
  up.addEventListener("click", () => { views = []; look(whole); });
  const columns = [
    { name: "buffer", form: "name", values: name },
    { name: "kind", form: "kind", values: kind },
    { name: "bytes", form: "bytes", values: size },
    { name: "from", form: "count", values: start },
    { name: "instructions", form: "count", values: length.map((moments) => moments + 1) },
    { name: "what it is", form: "name", values: note },
  ];
  const list = make("details", {}, make("summary", {}, `All ${plural(size.length, "buffer", "buffers")} as a table`));
  list.addEventListener("toggle", () => {
    if (list.open && list.children.length === 1) list.append(drawTable(columns, size.length, "", "buffers"));
  });
  return make("div", {}, element, make("div", { className: "tools" }, legend(kind), up), panel, list);
}
