
// Numbers over the steps of a run, and a whole divided into its parts.

const HUES = ["#2f6db3", "#dd7a1e", "#16907f", "#a8478f", "#c2a012", "#8b7966"];
const DARK_HUES = ["#6aa5e6", "#f0a256", "#45c0ac", "#d583c0", "#e3c644", "#b9a894"];

/** Writes a number with the digits that are read. */
function short(value) {
  const size = Math.abs(value);
  return size === 0 ? "0" : size >= 0.001 && size < 10000 ? String(Number(value.toPrecision(4))) : value.toExponential(2);
}

/** Returns values for an axis: round in tens, or powers where the scale goes by factors. */
function attempts(least, most, byFactors) {
  const found = [];
  if (byFactors) {
    for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power++) {
      for (const digit of most / least > 1000 ? [1] : [1, 2, 5]) found.push(digit * 10 ** power);
    }
  } else {
    const rough = (most - least) / 4, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= rough);
    for (let value = Math.ceil(least / step) * step; value <= most + step / 1e6; value += step) found.push(value);
  }
  return found.filter((value) => value >= least * (1 - 1e-9) && value <= most * (1 + 1e-9));
}

function drawCurves(body) {
  const lines = body.lines.map((line) => ({ label: textAt(line.label), at: unpack(line.at), values: line.values }));
  if (!lines.some((line) => line.values.length)) return make("div");
  const every = lines.flatMap((line) => line.values), places = lines.flatMap((line) => [line.at[0], line.at[line.at.length - 1]]);
  let least = every.reduce((a, b) => Math.min(a, b)), most = every.reduce((a, b) => Math.max(a, b));
  const byFactors = least > 0 && most / least > 30;
  if (!byFactors) {
    if (least > 0 && least < most / 3) least = 0;
    const room = (most - least || Math.abs(most) || 1) * 0.04;
    [least, most] = [least === 0 ? 0 : least - room, most + room];
  }
  const first = Math.min(...places), span = Math.max(1, Math.max(...places) - first);
  const TOP = 12, BOTTOM = 24, LEFT = 64, RIGHT = 10;
  const part = (value) => byFactors ? Math.log(value / least) / Math.log(most / least || 2) : (value - least) / (most - least || 1);
  let cursor = null;

  function scales(width, height) {
    return [
      (at) => LEFT + (at - first) / span * (width - LEFT - RIGHT),
      (value) => height - BOTTOM - part(value) * (height - TOP - BOTTOM),
    ];
  }

  const hue = (number) => (dark() ? DARK_HUES : HUES)[number % HUES.length];
  const stage = new Stage(300, `${textAt(body.title)} by ${body.unit}`, (ctx, width, height) => {
    const [x, y] = scales(width, height);
    type(ctx, 12);
    ctx.textAlign = "right";
    for (const value of attempts(least, most, byFactors)) {
      ctx.fillStyle = themed("--soft");
      ctx.fillText(short(value), LEFT - 8, y(value));
      ctx.fillStyle = themed("--rule");
      ctx.fillRect(LEFT, Math.round(y(value)), width - LEFT - RIGHT, 1);
    }
    for (const [number, line] of lines.entries()) {
      ctx.strokeStyle = ctx.fillStyle = hue(number);
      ctx.lineWidth = 1.8;
      ctx.lineJoin = "round";
      ctx.beginPath();
      for (const [row, value] of line.values.entries()) ctx.lineTo(x(line.at[row]), y(value));
      ctx.stroke();
      // Few points are seen as what they are.
      if (line.values.length <= 60) {
        for (const [row, value] of line.values.entries()) {
          ctx.beginPath();
          ctx.arc(x(line.at[row]), y(value), 2.8, 0, 7);
          ctx.fill();
        }
      }
    }
    ctx.fillStyle = themed("--soft");
    ctx.textAlign = "left";
    ctx.fillText(`${body.unit} ${count(first)}`, LEFT, height - 9);
    ctx.textAlign = "right";
    ctx.fillText(count(first + span), width - RIGHT, height - 9);
  }, (ctx, width, height) => {
    if (cursor === null) return;
    const [x, y] = scales(width, height);
    ctx.fillStyle = themed("--soft");
    ctx.fillRect(Math.round(x(cursor)), TOP, 1, height - TOP - BOTTOM);
    for (const [number, line] of lines.entries()) {
      const row = nearest(line.at, cursor);
      ctx.beginPath();
      ctx.arc(x(line.at[row]), y(line.values[row]), 4.5, 0, 7);
      ctx.fillStyle = hue(number);
      ctx.fill();
      ctx.strokeStyle = themed("--paper");
      ctx.stroke();
    }
  });

  const about = () => described(null, `${body.unit} ${count(cursor)}`, ...lines.map((line) => {
    const row = nearest(line.at, cursor), where = line.at[row] === cursor ? "" : ` at ${count(line.at[row])}`;
    return `${line.label}: ${short(line.values[row])}${where}`;
  }));
  const densest = lines.reduce((a, b) => (b.at.length > a.at.length ? b : a)).at;
  function move(row) {
    cursor = densest[Math.min(Math.max(row, 0), densest.length - 1)];
    stage.point();
  }
  const keep = () => panel.replaceChildren(...(cursor === null ? [] : about()));

  stage.element.classList.add("cross");
  stage.element.addEventListener("pointermove", (event) => {
    move(nearest(densest, first + (stage.at(event)[0] - LEFT) / (stage.width - LEFT - RIGHT) * span));
    showTip(about(), event.clientX, event.clientY);
  });
  stage.element.addEventListener("pointerleave", () => showTip(null));
  stage.element.addEventListener("click", keep);
  stage.element.addEventListener("keydown", (event) => {
    const now = cursor === null ? -1 : nearest(densest, cursor);
    const moves = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: densest.length - 1 };
    if (!(event.key in moves)) return;
    move(moves[event.key]);
    keep();
    event.preventDefault();
  });
  const panel = make("div", { className: "pinned hint", ariaLive: "polite" }, "Point at the picture, or use the arrow keys, to read values; click to keep them here.");
  return make("div", {}, stage.element, hueLegend(lines.map((line) => line.label), hue), panel);
}

/** Returns the row whose position is nearest. */
function nearest(at, wanted) {
  const row = before(at, wanted);
  return row + 1 < at.length && at[row + 1] - wanted < wanted - at[row] ? row + 1 : row;
}

function hueLegend(labels, hue) {
  const list = make("ul", { className: "legend" });
  for (const [number, label] of labels.entries()) {
    const swatch = make("i", { className: "stroke" });
    themes.push(() => { swatch.style.borderColor = hue(number); });
    list.append(make("li", {}, swatch, label));
  }
  return list;
}

function drawSplit(body) {
  const bar = make("div", { className: "split", role: "img", ariaLabel: body.portions.map((portion) => `${textAt(portion.label)} ${share(portion.share)}`).join(", ") });
  const list = make("ul", { className: "parts" });
  for (const [number, portion] of body.portions.entries()) {
    const piece = make("div"), swatch = make("i");
    piece.style.flex = `${portion.share} 0 0`;
    piece.title = `${textAt(portion.label)}: ${textAt(portion.amount)}, ${share(portion.share)}`;
    themes.push(() => { piece.style.background = swatch.style.background = (dark() ? DARK_HUES : HUES)[number % HUES.length]; });
    bar.append(piece);
    list.append(make("li", {}, swatch, textAt(portion.label), make("span", {}, `${textAt(portion.amount)} · ${share(portion.share)}`)));
  }
  return make("div", {}, bar, list);
}
