
// A canvas that follows size, resolution and theme, with a second one on top for highlights, so that
// hovering never draws a hundred thousand buffers again.

class LayeredCanvas {
  /** `draw(ctx, width, height)` draws the chart; `drawOverlay(ctx, width, height)` the highlights. */
  constructor(height, name, draw, drawOverlay) {
    Object.assign(this, { height, draw, drawOverlay, width: 0 });
    this.base = makeElement("canvas", { className: "base" });
    this.top = makeElement("canvas", { className: "overlay" });
    this.element = makeElement("div", { className: "layers", tabIndex: 0, role: "img", ariaLabel: name }, this.base, this.top);
    this.element.style.height = `${height}px`;
    new ResizeObserver(() => this.resize()).observe(this.element);
    themeListeners.push(() => this.repaint());
  }

  resize() {
    const width = this.element.clientWidth;
    if (!width || width === this.width) return;
    this.width = width;
    // Print has more dots than most screens.
    const density = Math.max(devicePixelRatio || 1, 2);
    for (const canvas of [this.base, this.top]) {
      canvas.width = Math.round(width * density);
      canvas.height = Math.round(this.height * density);
      canvas.getContext("2d").setTransform(density, 0, 0, density, 0, 0);
    }
    this.repaint();
    this.repaintOverlay();
  }

  /** Paints over the old chart: Chromium prints nothing of a canvas that was cleared or resized just before. */
  repaint() {
    if (!this.width) return;
    const ctx = this.base.getContext("2d");
    ctx.fillStyle = themeColor("--paper");
    ctx.fillRect(0, 0, this.width, this.height);
    this.draw(ctx, this.width, this.height);
  }

  repaintOverlay() {
    if (!this.width) return;
    const ctx = this.top.getContext("2d");
    ctx.clearRect(0, 0, this.width, this.height);
    this.drawOverlay(ctx, this.width, this.height);
  }

  /** Returns the position of an event in the chart. */
  position(event) {
    const box = this.element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

/** Returns ticks of an axis with their labels: round in binary units, at most `max` of them. */
function ticks(low, high, max) {
  let step = 1;
  while ((high - low) / step > max) step *= 2;
  // Ticks close together and far from zero would all have the same label in their own unit.
  const unit = Math.min(Math.floor(Math.log2(step) / 10), UNITS.length);
  const near = step * 10 < 1024 ** Math.floor(Math.log2(Math.max(1, high)) / 10);
  const name = (value) => (near ? `${count(value / 1024 ** unit)} ${unit ? UNITS[unit - 1] : "B"}` : bytes(value));
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push([value, name(value)]);
  return found;
}

function setFont(ctx, size, weight = 400) {
  ctx.font = `${weight} ${size}px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif`;
  ctx.textBaseline = "middle";
}

/** Draws the horizontal grid lines with their labels. */
function drawAxis(ctx, max, y, left, right) {
  setFont(ctx, 12);
  ctx.textAlign = "right";
  for (const [value, name] of ticks(0, max, 5)) {
    ctx.fillStyle = themeColor("--soft");
    ctx.fillText(name, left - 8, y(value));
    ctx.fillStyle = themeColor("--rule");
    ctx.fillRect(left, Math.round(y(value)), right - left, 1);
  }
}

/** Draws a label that stays between two positions, shortened where it must be, and returns where it begins and ends. */
function drawLabel(ctx, text, x, y, left, right, color) {
  setFont(ctx, 12, 600);
  ctx.textAlign = "left";
  text = shortenName(text, (shorter) => ctx.measureText(shorter).width <= right - left);
  const width = ctx.measureText(text).width;
  if (!text) return [x, x];
  const from = Math.min(Math.max(x - width / 2, left), right - width);
  ctx.fillStyle = themeColor("--paper");
  ctx.globalAlpha = 0.85;
  ctx.fillRect(from - 3, y - 9, width + 6, 18);
  ctx.globalAlpha = 1;
  ctx.fillStyle = color;
  ctx.fillText(text, from, y);
  return [from, from + width];
}
