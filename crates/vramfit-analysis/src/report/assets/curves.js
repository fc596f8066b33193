
// Metrics over the steps of a training run, and the shares of a whole.

const COLORS = ["#2f6db3", "#dd7a1e", "#16907f", "#a8478f", "#c2a012", "#8b7966"];
const DARK_COLORS = ["#6aa5e6", "#f0a256", "#45c0ac", "#d583c0", "#e3c644", "#b9a894"];

/** Formats a number with four significant digits. */
function formatNumber(value) {
  const size = Math.abs(value);
  return size === 0 ? "0" : size >= 0.001 && size < 10000 ? String(Number(value.toPrecision(4))) : value.toExponential(2);
}

/** Returns ticks of an axis: round numbers, or powers of ten on a logarithmic scale. */
function axisValues(low, high, isLog) {
  const found = [];
  if (isLog) {
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const digit of high / low > 1000 ? [1] : [1, 2, 5]) found.push(digit * 10 ** power);
    }
  } else {
    const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= rough);
    for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) found.push(value);
  }
  return found.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
}

function drawCurves(content) {
  const curves = content.curves.map((curve) => ({ label: textAt(curve.label), at: unpack(curve.positions), values: curve.values }));
  if (!curves.some((curve) => curve.values.length)) return makeElement("div");
  const values = curves.flatMap((curve) => curve.values), ends = curves.flatMap((curve) => [curve.at[0], curve.at[curve.at.length - 1]]);
  let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  const isLog = low > 0 && high / low > 30;
  if (!isLog) {
    if (low > 0 && low < high / 3) low = 0;
    const margin = (high - low || Math.abs(high) || 1) * 0.04;
    [low, high] = [low === 0 ? 0 : low - margin, high + margin];
  }
  const first = Math.min(...ends), span = Math.max(1, Math.max(...ends) - first);
  const TOP = 12, BOTTOM = 24, LEFT = 64, RIGHT = 10;
  const relative = (value) => isLog ? Math.log(value / low) / Math.log(high / low || 2) : (value - low) / (high - low || 1);
  let cursor = null;

  function scales(width, height) {
    return [
      (at) => LEFT + (at - first) / span * (width - LEFT - RIGHT),
      (value) => height - BOTTOM - relative(value) * (height - TOP - BOTTOM),
    ];
  }

  const colorOf = (index) => (isDark() ? DARK_COLORS : COLORS)[index % COLORS.length];
  const canvas = new LayeredCanvas(300, `${textAt(content.title)} by ${content.unit}`, (ctx, width, height) => {
    const [x, y] = scales(width, height);
    setFont(ctx, 12);
    ctx.textAlign = "right";
    for (const value of axisValues(low, high, isLog)) {
      ctx.fillStyle = themeColor("--soft");
      ctx.fillText(formatNumber(value), LEFT - 8, y(value));
      ctx.fillStyle = themeColor("--rule");
      ctx.fillRect(LEFT, Math.round(y(value)), width - LEFT - RIGHT, 1);
    }
    for (const [index, curve] of curves.entries()) {
      ctx.strokeStyle = ctx.fillStyle = colorOf(index);
      ctx.lineWidth = 1.8;
      ctx.lineJoin = "round";
      ctx.beginPath();
      for (const [row, value] of curve.values.entries()) ctx.lineTo(x(curve.at[row]), y(value));
      ctx.stroke();
      // Few points get dots.
      if (curve.values.length <= 60) {
        for (const [row, value] of curve.values.entries()) {
          ctx.beginPath();
          ctx.arc(x(curve.at[row]), y(value), 2.8, 0, 7);
          ctx.fill();
        }
      }
    }
    ctx.fillStyle = themeColor("--soft");
    ctx.textAlign = "left";
    ctx.fillText(`${content.unit} ${count(first)}`, LEFT, height - 9);
    ctx.textAlign = "right";
    ctx.fillText(count(first + span), width - RIGHT, height - 9);
  }, (ctx, width, height) => {
    if (cursor === null) return;
    const [x, y] = scales(width, height);
    ctx.fillStyle = themeColor("--soft");
    ctx.fillRect(Math.round(x(cursor)), TOP, 1, height - TOP - BOTTOM);
    for (const [index, curve] of curves.entries()) {
      const row = nearestRow(curve.at, cursor);
      ctx.beginPath();
      ctx.arc(x(curve.at[row]), y(curve.values[row]), 4.5, 0, 7);
      ctx.fillStyle = colorOf(index);
      ctx.fill();
      ctx.strokeStyle = themeColor("--paper");
      ctx.stroke();
    }
  });

  const details = () => describe(null, `${content.unit} ${count(cursor)}`, ...curves.map((curve) => {
    const row = nearestRow(curve.at, cursor), where = curve.at[row] === cursor ? "" : ` at ${count(curve.at[row])}`;
    return `${curve.label}: ${formatNumber(curve.values[row])}${where}`;
  }));
  const densest = curves.reduce((a, b) => (b.at.length > a.at.length ? b : a)).at;
  function moveCursor(row) {
    cursor = densest[Math.min(Math.max(row, 0), densest.length - 1)];
    canvas.repaintOverlay();
  }
  const pinCursor = () => panel.replaceChildren(...(cursor === null ? [] : details()));

  canvas.element.classList.add("cross");
  canvas.element.addEventListener("pointermove", (event) => {
    moveCursor(nearestRow(densest, first + (canvas.position(event)[0] - LEFT) / (canvas.width - LEFT - RIGHT) * span));
    showTooltip(details(), event.clientX, event.clientY);
  });
  canvas.element.addEventListener("pointerleave", () => showTooltip(null));
  canvas.element.addEventListener("click", pinCursor);
  canvas.element.addEventListener("keydown", (event) => {
    const now = cursor === null ? -1 : nearestRow(densest, cursor);
    const moves = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: densest.length - 1 };
    if (!(event.key in moves)) return;
    moveCursor(moves[event.key]);
    pinCursor();
    event.preventDefault();
  });
  const panel = makeElement("div", { className: "pinned hint", ariaLive: "polite" }, "Hover over the chart, or use the arrow keys, to read values; click to pin them here.");
  return makeElement("div", {}, canvas.element, curveLegend(curves.map((curve) => curve.label), colorOf), panel);
}

/** Returns the row with the nearest position. */
function nearestRow(at, wanted) {
  const row = lastRowBefore(at, wanted);
  return row + 1 < at.length && at[row + 1] - wanted < wanted - at[row] ? row + 1 : row;
}

function curveLegend(labels, colorOf) {
  const list = makeElement("ul", { className: "legend" });
  for (const [index, label] of labels.entries()) {
    const swatch = makeElement("i", { className: "stroke" });
    themeListeners.push(() => { swatch.style.borderColor = colorOf(index); });
    list.append(makeElement("li", {}, swatch, label));
  }
  return list;
}

function drawBreakdown(content) {
  const bar = makeElement("div", { className: "breakdown", role: "img", ariaLabel: content.shares.map((share) => `${textAt(share.label)} ${percent(share.fraction)}`).join(", ") });
  const list = makeElement("ul", { className: "shares" });
  for (const [index, share] of content.shares.entries()) {
    const segment = makeElement("div"), swatch = makeElement("i");
    segment.style.flex = `${share.fraction} 0 0`;
    segment.title = `${textAt(share.label)}: ${textAt(share.amount)}, ${percent(share.fraction)}`;
    themeListeners.push(() => { segment.style.background = swatch.style.background = (isDark() ? DARK_COLORS : COLORS)[index % COLORS.length]; });
    bar.append(segment);
    list.append(makeElement("li", {}, swatch, textAt(share.label), makeElement("span", {}, `${textAt(share.amount)} · ${percent(share.fraction)}`)));
  }
  return makeElement("div", {}, bar, list);
}
