const find = (selector, root = document) => root.querySelector(selector);
const findAll = (selector, root = document) => [...root.querySelectorAll(selector)];
const make = (tag, content = "", properties = {}) => {
  const element = Object.assign(document.createElement(tag), properties);
  if (content !== "") element.textContent = content;
  return element;
};
const minus = (words) => words.replace(/-/g, "−");

// ---- light and dark
const themes = ["auto", "light", "dark"];
const themeButton = find("#theme");
const remember = (value) => { try { localStorage.setItem("mvgp-theme", value); } catch { /* no storage for this page */ } };
const recall = () => { try { return localStorage.getItem("mvgp-theme"); } catch { return null; } };
const setTheme = (theme) => {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  themeButton.textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[theme];
  themeButton.setAttribute("aria-label", `Colours: ${theme}. Change`);
  themeButton.dataset.now = theme;
};
setTheme(themes.includes(recall()) ? recall() : "auto");
themeButton.hidden = false;
themeButton.addEventListener("click", () => {
  const next = themes[(themes.indexOf(themeButton.dataset.now) + 1) % themes.length];
  setTheme(next);
  remember(next);
});

// ---- the section that is being read
const links = new Map(findAll("nav a").map((link) => [link.getAttribute("href").slice(1), link]));
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) {
    for (const link of links.values()) link.removeAttribute("aria-current");
    links.get(entry.target.id)?.setAttribute("aria-current", "true");
  }
}, { rootMargin: "-20% 0px -70% 0px" });
findAll("main > section").forEach((section) => watcher.observe(section));

// ---- tables sorted by a column; what has no key comes last
const order = (a, b, sign) => {
  if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
  const [x, y] = [Number(a), Number(b)];
  const plain = a !== "" && b !== "" && !Number.isNaN(x) && !Number.isNaN(y);
  return sign * (plain ? x - y : a.localeCompare(b, undefined, { numeric: true }));
};
const sortBy = (heading, direction) => {
  const table = heading.closest("table");
  const column = [...heading.parentElement.children].indexOf(heading);
  const body = table.tBodies[0];
  const sign = direction === "ascending" ? 1 : -1;
  const rows = [...body.rows].filter((row) => !row.classList.contains("unfolded"));
  rows.sort((p, q) => order(p.cells[column].dataset.key, q.cells[column].dataset.key, sign));
  body.append(...rows.flatMap((row) => (row.unfolded ? [row, row.unfolded] : [row]))); // reasons stay below their line
  findAll("[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", direction);
};
const resort = (table) => {
  const heading = find("th[aria-sort]", table);
  if (heading) sortBy(heading, heading.getAttribute("aria-sort"));
};
for (const heading of findAll('th[data-sort="up"], th[data-sort="down"]')) {
  const button = make("button", "", { type: "button", className: "sort" });
  button.append(...heading.childNodes);
  heading.append(button);
  button.addEventListener("click", () => {
    const now = heading.getAttribute("aria-sort");
    const first = heading.dataset.sort === "up" ? "ascending" : "descending";
    const other = first === "ascending" ? "descending" : "ascending";
    sortBy(heading, now === first ? other : first);
  });
}

// ---- figures: a legend that shows and hides, and the numbers under the pointer
for (const figure of findAll("figure")) {
  const of = (place) => findAll(`.series[data-place="${place}"]`, figure);
  for (const entry of findAll(".legend li", figure)) {
    const { place } = entry.dataset;
    const button = make("button", "", { type: "button" });
    button.append(...entry.childNodes);
    button.setAttribute("aria-pressed", "true");
    entry.append(button);
    const focus = (on) => {
      figure.toggleAttribute("data-focus", on);
      of(place).forEach((series) => series.classList.toggle("strong", on));
    };
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", String(shown));
      of(place).forEach((series) => series.classList.toggle("off", !shown));
    });
    button.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") focus(true); });
    button.addEventListener("pointerleave", () => focus(false));
  }
  const reading = make("div", "", { className: "reading", hidden: true });
  reading.setAttribute("aria-hidden", "true");
  figure.append(reading);
  findAll("svg.panel", figure).forEach((panel) => readable(panel, figure, reading));
}

function readable(panel, figure, reading) {
  const lines = findAll(".series[data-points]", panel).map((series) => {
    const values = series.dataset.points.split(" ").map((pair) => pair.split(",").map(Number));
    const path = find(".line", series);
    const pixels = path ? path.getAttribute("d").match(/-?[\d.]+ -?[\d.]+/g).map((pair) => Number(pair.split(" ")[0])) : [];
    return { series, values, pixels };
  }).filter((line) => line.pixels.length);
  if (!lines.length) return;
  const { x: left, width } = panel.viewBox.baseVal;
  const ruler = document.createElementNS("http://www.w3.org/2000/svg", "path");
  ruler.setAttribute("stroke", "var(--muted)");
  ruler.setAttribute("stroke-width", "1");
  ruler.style.display = "none";
  panel.append(ruler);
  const hide = () => { reading.hidden = true; ruler.style.display = "none"; };
  panel.addEventListener("pointerleave", hide);
  panel.addEventListener("pointermove", (event) => {
    const box = panel.getBoundingClientRect();
    const x = left + (event.clientX - box.left) * width / box.width;
    const seen = lines.filter((line) => !line.series.classList.contains("off"));
    const pixels = seen.flatMap((line) => line.pixels);
    if (!pixels.length) { hide(); return; }
    const at = pixels.reduce((best, pixel) => (Math.abs(pixel - x) < Math.abs(best - x) ? pixel : best));
    const readings = seen.map((line) => ({ line, value: line.values[line.pixels.indexOf(at)] })).filter((hit) => hit.value);
    readings.sort((p, q) => q.value[1] - p.value[1]);
    ruler.setAttribute("d", `M${at} 32V238`);
    ruler.style.display = "";
    reading.replaceChildren(make("b", minus(String(Number(readings[0].value[0].toPrecision(3))))));
    for (const { line, value } of readings.slice(0, 16)) {
      const entry = make("div");
      const key = find(`.legend [data-place="${line.series.dataset.place}"] .swatch`, figure);
      if (key) entry.append(key.cloneNode(true));
      entry.append(make("span", line.series.dataset.label), make("span", minus(String(Number(value[1].toPrecision(4))))));
      reading.append(entry);
    }
    reading.hidden = false;
    const frame = figure.getBoundingClientRect();
    const pointer = box.left - frame.left + (at - left) * box.width / width;
    const room = frame.width - reading.offsetWidth;
    const right = pointer + 14;
    reading.style.left = `${Math.max(0, right <= room ? right : Math.min(room, pointer - reading.offsetWidth - 14))}px`;
    reading.style.top = `${box.top - frame.top + 24}px`;
  });
}

// ---- comparisons: one metric, one model
const comparisons = find("#comparisons-table");
if (comparisons) {
  const [metric, model, count] = ["metric", "model", "count"].map((part) => find(`#comparisons-${part}`));
  const filter = () => {
    let shown = 0;
    for (const row of comparisons.tBodies[0].rows) {
      const right = row.dataset.metric === metric.value && (!model.value || row.dataset.models.split("\t").includes(model.value));
      row.hidden = !right;
      shown += right;
    }
    count.textContent = `${shown} of ${comparisons.tBodies[0].rows.length} comparisons`;
  };
  metric.addEventListener("change", filter);
  model.addEventListener("change", filter);
  find(".controls[data-for=comparisons-table]").hidden = false;
  comparisons.classList.add("one-metric");
  filter();
}
