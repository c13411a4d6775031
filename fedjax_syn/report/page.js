'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const byId = id => document.getElementById(id);
const coarse = matchMedia('(pointer: coarse)').matches; // fingers scroll the page, not the chart
// No bar of buttons: one of them sends the chart to plotly.com, and dragging and double-clicking do what the others do.
const config = {responsive: true, displayModeBar: false, displaylogo: false, showSendToCloud: false, plotlyServerURL: ''};

function layout(more) {
  const axis = {gridcolor: colour('--line'), linecolor: colour('--line'), zeroline: false, automargin: true};
  return {
    font: {family: 'system-ui, sans-serif', size: 13, color: colour('--ink')},
    paper_bgcolor: 'rgba(0,0,0,0)',
    plot_bgcolor: 'rgba(0,0,0,0)',
    margin: {l: 48, r: 12, t: 12, b: 44},
    showlegend: false,
    dragmode: coarse ? false : 'zoom',
    hoverlabel: {bgcolor: colour('--panel'), font: {color: colour('--ink')}, namelength: -1},
    ...more,
    xaxis: {...axis, ...more.xaxis},
    yaxis: {...axis, ...more.yaxis},
  };
}

// Plotly reads a little markup in its texts; labels are none.
const plain = text => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

// A share: drawn in per cent, as in the tables.
const isShare = name => /accuracy|generalisation|_f1|precision|recall/.test(name);

function curveTraces(run, metric, against) {
  const curve = run.curves[metric];
  if (!curve || (against === 'up' && run.up === null)) return [];
  const scale = isShare(metric) ? 100 : 1;
  const x = curve.round.map(r => (against === 'up' ? (run.before + r * run.up) / 1e6 : r));
  const moved = sign => curve.mean.map((m, i) => (m === null ? null : scale * (m + sign * curve.std[i])));
  const common = {x, mode: 'lines', hoverinfo: 'skip', line: {width: 0, color: run.colour}};
  const band = curve.std.some(s => s > 0)
    ? [
        {...common, y: moved(-1)},
        {...common, y: moved(1), fill: 'tonexty', fillcolor: run.colour + '33'},
      ]
    : [];
  const line = {color: run.colour, width: 2, dash: run.dash};
  const mode = x.length > 1 ? 'lines' : 'markers';
  return [...band, {x, y: moved(0), mode, line, marker: {color: run.colour}, name: plain(run.label)}];
}

function drawCurves() {
  const chart = byId('curve');
  if (!chart) return;
  const metric = byId('metric').value;
  const against = byId('against').value;
  const boxes = [...document.querySelectorAll('#legend input')];
  const shown = data.runs.filter((_, i) => boxes[i].checked);
  const traces = shown.flatMap(run => curveTraces(run, metric, against));
  const unit = isShare(metric) ? ', %' : '';
  const xTitle = against === 'up' ? 'megabytes sent up by all clients' : 'round';
  Plotly.react(chart, traces, layout({
    hovermode: 'x unified',
    xaxis: {title: {text: xTitle}, rangemode: 'tozero'},
    yaxis: {title: {text: plain(metric.replaceAll('_', ' ')) + unit}},
  }), config);
  const ends = shown.filter(run => run.curves[metric]).map(run => {
    const last = run.curves[metric].mean.at(-1);
    return `${run.label} ends at ${last === null ? 'no number' : (isShare(metric) ? 100 * last : last).toPrecision(4)}`;
  });
  const what = `${metric}${unit} against ${xTitle}`;
  chart.setAttribute('aria-label', `${what}: ${ends.join('; ') || 'no run is shown'}`);
}

// Categories, so that names such as 007 stay as they are and no tick lies between two; at most `most` of them, evenly.
function ticks(names, most) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200];
  return {type: 'category', tick0: 0, dtick: steps.find(s => names.length / s <= most) ?? 500};
}

function drawPartitions() {
  for (const chart of document.querySelectorAll('.partition')) {
    const {counts: z, class_names, client_names} = data.partitions[chart.dataset.partition];
    Plotly.react(chart, [{
      type: 'heatmap',
      z,
      x: client_names.map(plain),
      y: class_names.map(plain),
      colorscale: [[0, colour('--panel')], [1, colour('--accent')]],
      colorbar: {title: {text: 'samples'}, thickness: 12, tickfont: {color: colour('--ink')}},
      hovertemplate: 'client %{x}, class %{y}: %{z} samples<extra></extra>',
      zmin: 0, // the palest colour is none, not the least that a client has
      zmax: Math.max(1, ...z.map(row => row.reduce((a, b) => Math.max(a, b)))),
      xgap: client_names.length > 200 ? 0 : 1,
      ygap: 1,
    }], layout({
      xaxis: {title: {text: 'client'}, showgrid: false, ...ticks(client_names, chart.clientWidth / 40)},
      yaxis: {title: {text: 'class'}, autorange: 'reversed', showgrid: false, ...ticks(class_names, 20)}, // as in sets
    }), config);
  }
}

function drawSpread() {
  const chart = byId('spread');
  if (!chart) return;
  const traces = data.spread.map(one => ({
    type: 'box',
    x: one.values.map(v => 100 * v),
    name: plain(one.label),
    marker: {color: one.colour, size: 4, opacity: 0.6},
    line: {color: one.colour},
    boxpoints: one.values.length > 400 ? 'outliers' : 'all',
    jitter: 0.5,
    pointpos: 0,
    hoverinfo: 'x',
  }));
  chart.style.height = `${6 + 5 * traces.length}rem`;
  Plotly.react(chart, traces, layout({
    xaxis: {title: {text: 'accuracy, %'}, range: [-2, 102]},
    yaxis: {autorange: 'reversed', tickangle: 0},
  }), config);
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

function draw() {
  drawCurves();
  drawPartitions();
  drawSpread();
}

document.querySelector('.controls')?.addEventListener('change', drawCurves);
for (const query of ['(prefers-color-scheme: dark)', 'print']) {
  matchMedia(query).addEventListener('change', draw);
}
followSliders();
draw();
