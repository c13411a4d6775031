'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const byId = id => document.getElementById(id);
const chart = byId('curve');
const edge = {left: 58, right: 14, top: 10, bottom: 46}; // pixels around the axes
let zoom = null; // the range of x that was dragged over

function put(parent, tag, attributes, text = '') {
  const node = parent.appendChild(document.createElementNS('http://www.w3.org/2000/svg', tag));
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
}

// Means of `width` neighbours, of fewer at both ends; points without a number count for nothing.
function smooth(values, width) {
  return values.map((value, i) => {
    const reach = Math.min((width - 1) / 2, i, values.length - 1 - i);
    const near = values.slice(i - reach, i + reach + 1).filter(v => v !== null);
    return value === null ? null : near.reduce((a, b) => a + b) / near.length;
  });
}

// What is to be drawn of each run that is shown: x, y and deviations, or why there is nothing.
function series(metric, against, width) {
  const boxes = document.querySelectorAll('#legend input');
  return data.runs.filter((_, i) => boxes[i].checked).map(run => {
    const curve = run.curves[metric];
    if (!curve) return {run, why: 'did not measure it'};
    if (against === 'up' && run.up === null) return {run, why: 'is not finished, and only then says its bytes'};
    const x = curve.round.map(r => (against === 'up' ? (run.before + r * run.up) / 1e6 : r));
    return {run, x, y: smooth(curve.mean, width), std: smooth(curve.std, width)};
  });
}

// Round numbers in a range, at most `most` of them, no nearer to each other than `least`.
function ticks([low, high], most, least = 0) {
  const raw = Math.max((high - low) / most, least) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find(m => m * power >= raw * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({length: count}, (_, i) => +((first + i) * step).toPrecision(6));
}

function drawCurves() {
  if (!chart) return;
  const [metric, against] = [byId('metric').value, byId('against').value];
  const all = series(metric, against, +byId('smooth').value);
  const drawn = all.filter(one => one.x);
  const xTitle = against === 'up' ? 'megabytes sent up by all clients' : 'round';
  const yTitle = data.titles[metric];
  const why = all.filter(one => one.why).map(one => `${one.run.label} ${one.why}`).join('; ');
  const ends = drawn.map(one => `${one.run.label} ends at ${one.y.at(-1)?.toPrecision(4) ?? 'no number'}`);
  chart.setAttribute('aria-label', `${yTitle} against ${xTitle}: ${ends.join('; ') || 'no run is shown'}`);
  chart.replaceChildren();
  const xs = [...new Set(drawn.flatMap(one => one.x))].sort((a, b) => a - b);
  const xRange = zoom ?? [0, xs.at(-1) || 1];
  const inside = x => x >= xRange[0] && x <= xRange[1];
  const seen = drawn.flatMap(one => one.y.flatMap((y, i) =>
    y === null || !inside(one.x[i]) ? [] : [y - one.std[i], y + one.std[i]]));
  const nothing = all.length ? 'there is no number in this range' : 'no run is chosen above';
  byId('missing').textContent = seen.length ? (why && `Not drawn: ${why}.`) : `Nothing is drawn: ${why || nothing}.`;
  if (!seen.length) return;

  const [width, height] = [chart.clientWidth, chart.clientHeight];
  if (width <= edge.left + edge.right) return; // not laid out yet
  const [low, high] = [Math.min(...seen), Math.max(...seen)];
  const pad = 0.05 * (high - low || Math.abs(high) || 1);
  const yRange = [low - pad, high + pad];
  const xAt = x => edge.left + (x - xRange[0]) / (xRange[1] - xRange[0]) * (width - edge.left - edge.right);
  const yAt = y => height - edge.bottom - (y - yRange[0]) / (yRange[1] - yRange[0]) * (height - edge.top - edge.bottom);
  const svg = put(chart, 'svg', {width, height, viewBox: `0 0 ${width} ${height}`}); // scaled where it is printed
  const [right, bottom] = [width - edge.right, height - edge.bottom];
  for (const x of ticks(xRange, width / 80, against === 'up' ? 0 : 1)) {
    put(svg, 'path', {class: 'grid', d: `M${xAt(x)} ${edge.top}V${bottom}`});
    put(svg, 'text', {class: 'xtick', x: xAt(x), y: bottom + 18, 'text-anchor': 'middle'}, x);
  }
  for (const y of ticks(yRange, height / 50)) {
    put(svg, 'path', {class: 'grid', d: `M${edge.left} ${yAt(y)}H${right}`});
    put(svg, 'text', {class: 'ytick', x: edge.left - 6, y: yAt(y) + 4, 'text-anchor': 'end'}, y);
  }
  put(svg, 'text', {x: (edge.left + right) / 2, y: height - 8, 'text-anchor': 'middle'}, xTitle);
  put(svg, 'text', {transform: `translate(14 ${(edge.top + bottom) / 2}) rotate(-90)`, 'text-anchor': 'middle'}, yTitle);
  const clip = put(svg, 'clipPath', {id: 'axes'});
  put(clip, 'rect', {x: edge.left, y: 0, width: right - edge.left, height: bottom});
  const plot = put(svg, 'g', {'clip-path': 'url(#axes)'});
  // The first run is drawn last: where curves are the same, it is seen.
  for (const {run, x, y, std} of [...drawn].reverse()) {
    const known = y.map((_, i) => i).filter(i => y[i] !== null);
    const path = (points, at) => points.map((i, n) => `${n ? 'L' : 'M'}${xAt(x[i])} ${yAt(at(i))}`).join('');
    if (std.some(s => s > 0)) {
      const d = path([...known], i => y[i] + std[i]) + path([...known].reverse(), i => y[i] - std[i]).replace('M', 'L');
      put(plot, 'path', {class: 'band', d, fill: run.colour});
    }
    // A gap where there is no number.
    const d = path(known, i => y[i]).split(/(?=[ML])/).map((part, n) => (n && known[n] > known[n - 1] + 1 ? part.replace('L', 'M') : part)).join('');
    put(plot, 'path', {class: 'line', 'data-run': run.label, d, stroke: run.colour, 'stroke-dasharray': run.pattern});
    if (known.length === 1) put(plot, 'circle', {cx: xAt(x[known[0]]), cy: yAt(y[known[0]]), r: 4, fill: run.colour});
  }
  followPointer(svg, drawn, xs.filter(inside), xAt, x => xRange[0] + (x - edge.left) / (right - edge.left) * (xRange[1] - xRange[0]), bottom);
}

// Numbers under the pointer; a mouse that is dragged zooms in, a double click zooms out.
function followPointer(svg, drawn, xs, xAt, xOf, bottom) {
  const line = put(svg, 'path', {class: 'cursor'});
  const picked = put(svg, 'rect', {class: 'picked', y: edge.top, height: bottom - edge.top, width: 0});
  const tip = chart.appendChild(document.createElement('div'));
  tip.className = 'tip';
  tip.hidden = true;
  let from = null;
  const place = event => event.clientX - svg.getBoundingClientRect().left;
  svg.onpointermove = event => {
    const at = place(event);
    const x = xs.reduce((a, b) => (Math.abs(xAt(b) - at) < Math.abs(xAt(a) - at) ? b : a));
    line.setAttribute('d', `M${xAt(x)} ${edge.top}V${bottom}`);
    const values = drawn.map(one => [one.run.label, one.y[one.x.indexOf(x)]]).filter(([, y]) => y != null);
    tip.textContent = [byId('against').value === 'up' ? `${+x.toPrecision(4)} MB` : `round ${x}`, ...values.map(([label, y]) => `${label}: ${+y.toPrecision(4)}`)].join('\n');
    tip.hidden = false;
    tip.style.left = `${Math.max(0, Math.min(xAt(x) + 10, chart.clientWidth - tip.offsetWidth))}px`;
    if (from === null) return;
    picked.setAttribute('x', Math.min(from, at));
    picked.setAttribute('width', Math.abs(at - from));
  };
  svg.onpointerleave = () => { tip.hidden = true; line.removeAttribute('d'); };
  svg.onpointerdown = event => { if (event.pointerType === 'mouse') from = place(event); };
  svg.onpointerup = event => {
    const to = place(event);
    if (from !== null && Math.abs(to - from) > 8) {
      zoom = [from, to].map(xOf).sort((a, b) => a - b);
      drawCurves();
    }
    from = null;
  };
  svg.ondblclick = () => { zoom = null; drawCurves(); };
}

function followSliders() {
  for (const figure of document.querySelectorAll('.set')) {
    const {pictures, texts} = data.sets[figure.dataset.set];
    const [slider, image, output] = ['input', 'img', 'output'].map(tag => figure.querySelector(tag));
    slider.addEventListener('input', () => {
      const before = slider.getAttribute('aria-valuetext');
      const now = texts[slider.value];
      image.src = pictures[slider.value];
      image.alt = image.alt.replace(before, now);
      slider.setAttribute('aria-valuetext', now);
      output.textContent = now;
    });
  }
}

document.querySelector('.controls')?.addEventListener('change', event => {
  if (event.target.id === 'against') zoom = null;
  drawCurves();
});
if (chart) new ResizeObserver(drawCurves).observe(chart);
// A table that is wider than its place says that it scrolls.
const widths = new ResizeObserver(entries => {
  for (const {target} of entries) target.classList.toggle('wide', target.scrollWidth > target.clientWidth + 1);
});
for (const table of document.querySelectorAll('.scroll, pre')) widths.observe(table);
followSliders();
