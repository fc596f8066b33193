
// Alternatives by bytes and cost: those that no other one beats in both are joined by a line.

const TRADEOFF_COLORS = {
  "recommended": ["#16907f", "#45c0ac"],
  "as it is": ["#dd7a1e", "#f0a256"],
  "worth choosing": ["#2f6db3", "#6aa5e6"],
  "beaten": ["#9aa3ad", "#77818c"],
};

function drawTradeoff(content) {
  const points = content.alternatives.filter((point) => Number.isFinite(point.cost))
    .map((point) => ({ ...point, label: textAt(point.label) }))
    .sort((a, b) => a.bytes - b.bytes || a.cost - b.cost);
  if (!points.length) return makeElement("div");
  const costs = points.map((point) => point.cost), sizes = points.map((point) => point.bytes);
  const high = Math.max(...sizes, content.limit ?? 0) * 1.05;
  const [cheap, dear] = [Math.min(...costs), Math.max(...costs)], margin = (dear - cheap || dear || 1) * 0.06;
  const [from, span] = [cheap - margin, dear - cheap + 2 * margin];
  const TOP = 16, BOTTOM = 42, LEFT = 84, RIGHT = 14;
  const colorOf = (kind) => TRADEOFF_COLORS[kind][isDark() ? 1 : 0];
  let hovered = -1;

  const scales = (width, height) => [
    (cost) => LEFT + (cost - from) / span * (width - LEFT - RIGHT),
    (size) => height - BOTTOM - size / high * (height - TOP - BOTTOM),
  ];
  const canvas = new LayeredCanvas(340, `Peak memory by ${content.cost}`, (ctx, width, height) => {
    const [x, y] = scales(width, height);
    drawAxis(ctx, high, y, LEFT, width - RIGHT);
    setFont(ctx, 12);
    ctx.textAlign = "center";
    ctx.fillStyle = themeColor("--soft");
    for (const value of axisValues(from, from + span, false)) ctx.fillText(formatNumber(value), x(value), height - BOTTOM + 14);
    ctx.fillText(content.cost, LEFT + (width - LEFT - RIGHT) / 2, height - 8);
    // From the lowest peak on, what costs less than everything below it.
    const front = points.filter((point, at) => points.slice(0, at).every((lower) => lower.cost > point.cost));
    ctx.strokeStyle = colorOf("worth choosing");
    ctx.lineWidth = 1.5;
    ctx.beginPath();
    for (const point of front) ctx.lineTo(x(point.cost), y(point.bytes));
    ctx.stroke();
    // What matters most is drawn last.
    const rank = (point) => Object.keys(TRADEOFF_COLORS).indexOf(point.kind);
    for (const point of [...points].sort((a, b) => rank(b) - rank(a))) dot(ctx, x(point.cost), y(point.bytes), point.kind, point.kind === "recommended" ? 7 : 4.5);
    if (content.limit !== null) {
      ctx.strokeStyle = themeColor("--ink");
      ctx.setLineDash([5, 4]);
      ctx.beginPath();
      ctx.moveTo(LEFT, y(content.limit));
      ctx.lineTo(width - RIGHT, y(content.limit));
      ctx.stroke();
      ctx.setLineDash([]);
      drawLabel(ctx, `limit ${bytes(content.limit)}`, LEFT, y(content.limit) - 12, LEFT, width - RIGHT, themeColor("--ink"));
    }
  }, (ctx, width, height) => {
    if (hovered < 0) return;
    const [x, y] = scales(width, height), point = points[hovered];
    ctx.strokeStyle = themeColor("--ink");
    ctx.lineWidth = 2;
    ctx.beginPath();
    ctx.arc(x(point.cost), y(point.bytes), 9, 0, 7);
    ctx.stroke();
  });

  function dot(ctx, x, y, kind, radius) {
    ctx.fillStyle = colorOf(kind);
    ctx.beginPath();
    ctx.arc(x, y, radius, 0, 7);
    ctx.fill();
  }

  const details = () => {
    const point = points[hovered];
    return describe(null, point.label, `${point.kind}: peak ${exactBytes(point.bytes)}`, `${content.cost}: ${formatNumber(point.cost)}`);
  };
  function select(at) {
    hovered = at;
    canvas.repaintOverlay();
  }
  const pin = () => panel.replaceChildren(...(hovered < 0 ? [] : details()));

  canvas.element.addEventListener("pointermove", (event) => {
    const [x, y] = scales(canvas.width, canvas.height), [left, top] = canvas.position(event);
    const far = (point) => Math.hypot(x(point.cost) - left, y(point.bytes) - top);
    const nearest = points.reduce((best, point, at) => (far(point) < far(points[best]) ? at : best), 0);
    select(far(points[nearest]) < 24 ? nearest : -1);
    showTooltip(hovered < 0 ? null : details(), event.clientX, event.clientY);
  });
  canvas.element.addEventListener("pointerleave", () => showTooltip(null));
  canvas.element.addEventListener("click", pin);
  canvas.element.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: hovered - 1, ArrowRight: hovered + 1, Home: 0, End: points.length - 1 };
    if (!(event.key in moves)) return;
    select(Math.min(Math.max(moves[event.key], 0), points.length - 1));
    pin();
    event.preventDefault();
  });
  const kinds = Object.keys(TRADEOFF_COLORS).filter((kind) => points.some((point) => point.kind === kind));
  const panel = makeElement("div", { className: "pinned hint", ariaLive: "polite" }, "Hover over a point, or use the arrow keys, to see its plan; click to pin it here.");
  const legend = makeElement("ul", { className: "legend" }, ...kinds.map((kind) => {
    const swatch = makeElement("i");
    themeListeners.push(() => { swatch.style.background = colorOf(kind); });
    return makeElement("li", {}, swatch, kind);
  }));
  return makeElement("div", {}, canvas.element, legend, panel);
}
