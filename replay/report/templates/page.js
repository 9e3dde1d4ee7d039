"use strict";
// The page without it is readable: text, numbers and tables are HTML. This adds charts, sorting and the switch.
(() => {
  const root = document.documentElement;
  const frames = [...document.querySelectorAll(".figure")];
  const drawing = new Map();  // key of a chart -> promise of its drawing
  let time = null;            // what the charts over time show, once somebody zoomed
  const figures = new Map();  // key of a chart -> Bokeh figure
  const hidden = new Map();   // key of a chart of blocks -> classes that are switched off
  const CELLS = [900, 380];   // what is painted of a chart of blocks: about one cell a pixel

  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  function colourise(light) {
    const styles = getComputedStyle(root);
    const [ink, soft, grid] = light ? ["#1c2530", "#55616f", "#e3e8ee"] : ["--ink", "--soft", "--grid"].map((name) => styles.getPropertyValue(name).trim());
    for (const figure of figures.values()) {
      for (const part of [...figure.left, ...figure.below, ...figure.right, ...figure.center]) {
        if (part.type.endsWith("Axis"))
          part.setv({axis_label_text_color: ink, major_label_text_color: soft, axis_line_color: soft,
            major_tick_line_color: part.major_tick_line_color === null ? null : soft, minor_tick_line_color: null});
        else if (part.type === "Grid") part.setv({grid_line_color: grid});
      }
    }
  }

  // Who is in the middle of each cell of what is in view.
  function paint(key) {
    const figure = figures.get(key), [spans, image, origin, classOf] = figure.tags;
    const [columns, rows] = CELLS, off = hidden.get(key) ?? new Set();
    const {start: left, end: right} = figure.x_range, {start: low, end: high} = figure.y_range;
    const width = (right - left) / columns, height = (high - low) / rows;
    const {who, first, last, begin, end} = Object.fromEntries(["who", "first", "last", "begin", "end"].map((name) => [name, spans.get_column(name)]));
    const old = image.get_column("image")[0];
    const cells = new old.constructor(columns * rows, [rows, columns]);
    for (let k = 0; k < who.length; k++) {
      if (off.has(classOf[who[k] - 1])) continue;
      const c0 = Math.max(0, Math.ceil((origin + begin[k] * 1000 - left) / width - 0.5));
      const c1 = Math.min(columns, Math.ceil((origin + end[k] * 1000 - left) / width - 0.5));
      if (c0 >= c1) continue;
      const r0 = Math.max(0, Math.ceil((first[k] - low) / height - 0.5));
      const r1 = Math.min(rows, Math.ceil((last[k] - low) / height - 0.5));
      for (let r = r0; r < r1; r++) cells.fill(who[k], r * columns + c0, r * columns + c1);
    }
    image.data = {image: [cells], x: [left], y: [low], dw: [right - left], dh: [high - low]};
  }

  // Calls once a frame, however often an edge of a range moves.
  function onZoom(ranges, action) {
    let waiting = false;
    const soon = () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; action(); });
    };
    for (const range of ranges)
      for (const edge of [range.properties.start, range.properties.end]) edge.change.connect(soon);
  }

  // All charts over time show the same time; one that is drawn later takes it over.
  function linked(figure) {
    const range = figure.x_range;
    if (!range.tags.includes("time")) return;
    if (time) range.setv(time);
    onZoom([range], () => {
      time = {start: range.start, end: range.end};
      for (const {x_range: other} of figures.values())
        if (other.tags.includes("time") && (other.start !== time.start || other.end !== time.end)) other.setv(time);
    });
  }

  function zoom(range, factor, shift) {
    const log = range.start > 0 && range.end / range.start > 50 && range.tags.includes("log");
    const [a, b] = log ? [Math.log(range.start), Math.log(range.end)] : [range.start, range.end];
    const middle = (a + b) / 2 + shift * (b - a), half = (b - a) / 2 * factor;
    range.setv(log ? {start: Math.exp(middle - half), end: Math.exp(middle + half)} : {start: middle - half, end: middle + half});
  }

  const KEYS = {ArrowLeft: [1, -0.15], ArrowRight: [1, 0.15], "+": [0.7, 0], "=": [0.7, 0], "-": [1 / 0.7, 0]};

  function keyboard(frame) {
    frame.addEventListener("keydown", (event) => {
      const figure = figures.get(frame.dataset.chart);
      if (event.target !== frame || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "0") figure.reset.emit();
      else if (KEYS[event.key]) zoom(figure.x_range, ...KEYS[event.key]);
      else return;
      event.preventDefault();
    });
  }

  function toggle(button) {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    const key = button.dataset.chart, entry = Number(button.dataset.entry), figure = figures.get(key);
    if (figure.tags.length) {
      if (!hidden.has(key)) hidden.set(key, new Set());
      hidden.get(key)[on ? "delete" : "add"](entry);
      paint(key);
    } else for (const renderer of figure.renderers) if (renderer.tags[0] === entry) renderer.visible = on;
  }

  // Jobs: the rows of the page, or all of them once asked for; sorted by what stands in a column.
  function jobs(table) {
    const body = table.tBodies[0], all = JSON.parse(document.getElementById("jobs").textContent);
    let shown = body.rows.length, order = all.map((_, k) => k);
    const fill = () => body.replaceChildren(...order.slice(0, shown).map((k) => {
      const row = document.createElement("tr");
      all[k].forEach((cell, column) => {
        const made = row.appendChild(document.createElement(column ? "td" : "th"));
        made.textContent = Array.isArray(cell) ? cell[1] : cell;
        if (column) made.className = "number"; else made.scope = "row";
      });
      return row;
    }));
    const value = (k, column) => { const cell = all[k][column]; return Array.isArray(cell) ? cell[0] : cell; };
    table.querySelectorAll("th button").forEach((button, column) => button.addEventListener("click", () => {
      const head = button.parentElement, down = head.getAttribute("aria-sort") === "ascending";
      table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      order.sort((a, b) => {
        const [one, other] = [value(a, column), value(b, column)];
        if (one === null || other === null) return (one === null) - (other === null) || a - b;  // unknown: last
        return (one < other ? -1 : one > other ? 1 : 0) * (down ? -1 : 1) || a - b;
      });
      fill();
    }));
    document.getElementById("all-jobs")?.addEventListener("click", (event) => {
      shown = all.length;
      fill();
      event.target.remove();
    });
  }

  // A chart is drawn when it is about to be seen.
  function draw(frame) {
    const key = frame.dataset.chart;
    drawing.set(key, drawing.get(key) ?? (async () => {
      const content = JSON.parse(document.getElementById(`data-${key}`).textContent), root = content.roots[0].id;
      const item = {docid: key, roots: {[root]: frame.firstElementChild}, root_ids: [root]};
      await Bokeh.embed.embed_items({[key]: content}, [item]);
      const figure = Bokeh.documents.find((document) => document.title() === key).roots()[0];
      figures.set(key, figure);
      if (matchMedia("(pointer: coarse)").matches) figure.toolbar.active_drag = null;  // a finger scrolls the page
      linked(figure);
      if (figure.tags.length) { paint(key); onZoom([figure.x_range, figure.y_range], () => paint(key)); }
      colourise(false);
      keyboard(frame);
      frame.parentElement.querySelectorAll(".legend button").forEach((button) => button.addEventListener("click", () => toggle(button)));
      frame.dataset.drawn = "";
      if (figures.size === 1) requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("first chart")));
    })());
    return drawing.get(key);
  }

  performance.mark("script");
  const theme = document.getElementById("theme");
  document.querySelectorAll(".buttons button").forEach((button) => { button.hidden = false; });
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; colourise(false); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => colourise(false));
  addEventListener("beforeprint", () => { root.dataset.printing = root.dataset.theme ?? ""; root.dataset.theme = "light"; colourise(true); });
  document.getElementById("print").addEventListener("click", async () => { await Promise.all(frames.filter((frame) => !frame.closest("details:not([open])")).map(draw)); print(); });
  addEventListener("afterprint", () => {
    if (root.dataset.printing) root.dataset.theme = root.dataset.printing; else delete root.dataset.theme;
    delete root.dataset.printing;
    colourise(false);
  });
  // A link to a chart that is a click away shows it.
  const reveal = (hash) => { const more = hash.length > 1 && document.getElementById(hash.slice(1))?.closest("details"); if (more) more.open = true; };
  document.querySelectorAll(".contents a").forEach((link) => link.addEventListener("click", () => reveal(link.hash)));
  reveal(location.hash);
  const table = document.querySelector("table.jobs");
  if (table) jobs(table);
  const seen = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
    seen.unobserve(entry.target);
    draw(entry.target);
  }), {rootMargin: "600px"});
  if (frames.length) draw(frames[0]);
  frames.slice(1).forEach((frame) => seen.observe(frame));
})();
