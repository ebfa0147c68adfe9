"use strict";
(() => {
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
    const rows = [...body.rows];
    rows.sort((p, q) => order(p.cells[column].dataset.key, q.cells[column].dataset.key, sign));
    body.append(...rows);
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

  // ---- candidates
  const source = find("#candidates-data");
  if (source) candidates(JSON.parse(source.textContent));

  function candidates(data) {
    const maximum = 200; // lines of a result, options of the list
    const title = (list) => list[2] || list[1];
    const lower = (words) => words.toLocaleLowerCase();
    const names = data.columns.map(([id, name]) => lower(`${name} ${id}`));
    const rowNames = data.lists.map((list) => lower(`${list[2]} ${list[1]}`));
    const input = find("#candidates-row");
    const options = find("#candidates-options");
    const modelPicker = find("#candidates-model");
    const table = find("#candidates-table");
    const search = find("#candidates-search");
    const results = find("#search-results");
    const main = table.closest(".scroll");
    let current = 0;
    let active = -1;

    const model = () => (modelPicker ? Number(modelPicker.value) : 0);
    const mine = () => data.lists.map((_, index) => index).filter((index) => data.lists[index][0] === model());
    const cell = (content, key, className = "") => {
      const td = make("td", "", { className });
      td.append(content);
      if (key !== null && key !== undefined) td.dataset.key = key;
      return td;
    };
    const bdi = (words) => make("bdi", words);
    const column = (items, index) => { // four digits for the largest, and as many decimals for the others
      const largest = Math.max(0, ...items.map((item) => Math.abs(item[index] ?? 0))) || 1;
      const decimals = Math.min(10, Math.max(0, 3 - Math.floor(Math.log10(largest))));
      return (value) => (value === null ? "–" : minus(value.toFixed(decimals)));
    };
    const bar = (probability) => {
      const part = document.createDocumentFragment();
      if (probability === null) { part.append("–"); return part; }
      const space = "http://www.w3.org/2000/svg";
      const svg = document.createElementNS(space, "svg");
      svg.setAttribute("class", "bar");
      svg.setAttribute("viewBox", "0 0 60 8");
      svg.setAttribute("aria-hidden", "true");
      for (const [kind, width] of [["track", 60], ["fill", 60 * probability]]) {
        const rect = document.createElementNS(space, "rect");
        for (const [name, value] of [["class", kind], ["width", width], ["height", 8], ["rx", 2]]) rect.setAttribute(name, value);
        svg.append(rect);
      }
      part.append(svg, probability.toFixed(3));
      return part;
    };
    const held = (yes) => (yes ? make("span", "held out", { className: "held" }) : "");
    const rankHeading = (rank) => {
      const th = make("th", String(rank), { className: "n", scope: "row" });
      th.dataset.key = rank;
      return th;
    };

    const show = (index) => {
      current = index;
      const [modelIndex, id, name, k, items] = data.lists[index];
      find("#candidates-title").textContent = name ? `${name} (${id})` : id;
      find("#candidates-of").textContent = `ranked by ${data.models[modelIndex]}`;
      const heading = table.tHead.rows[0].cells[2];
      (find("button", heading) || heading).textContent = `P(top ${k ?? "k"})`;
      const [scores, stds] = [column(items, 2), column(items, 3)];
      table.tBodies[0].replaceChildren(...items.map(([item, rank, score, std, probability, out]) => {
        const [columnId, columnName] = data.columns[item];
        const row = make("tr");
        row.append(rankHeading(rank), cell(bdi(columnName || columnId), columnName || columnId, "name"), cell(bar(probability), probability, "probability"),
          cell(scores(score), score, "n"), cell(stds(std), std, "n"), cell(held(out), out), cell(bdi(columnId), columnId, "id"));
        return row;
      }));
      resort(table);
      input.value = title(data.lists[index]);
    };

    // the list of rows
    const close = () => { options.hidden = true; active = -1; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); };
    const open = (words) => {
      const parts = lower(words).split(/\s+/).filter(Boolean);
      const matches = mine().filter((index) => parts.every((part) => rowNames[index].includes(part)));
      const phrase = parts.join(" "); // names that hold the words side by side come first
      matches.sort((p, q) => rowNames[q].includes(phrase) - rowNames[p].includes(phrase));
      options.replaceChildren(...matches.slice(0, maximum).map((index, number) => {
        const option = make("li", "", { id: `candidates-option-${number}` });
        option.setAttribute("role", "option");
        option.setAttribute("aria-selected", "false");
        option.dataset.list = index;
        option.append(bdi(title(data.lists[index])), make("small", data.lists[index][2] ? data.lists[index][1] : ""));
        return option;
      }));
      if (matches.length > maximum) options.append(make("li", `${matches.length - maximum} more: type to narrow down`));
      if (!matches.length) options.append(make("li", `No ${data.words[0]} matches`));
      options.hidden = false;
      active = -1;
      input.setAttribute("aria-expanded", "true");
    };
    const activate = (number) => {
      const entries = findAll('[role="option"]', options);
      if (!entries.length) return;
      active = (number + entries.length) % entries.length;
      entries.forEach((entry, index) => entry.setAttribute("aria-selected", String(index === active)));
      input.setAttribute("aria-activedescendant", entries[active].id);
      entries[active].scrollIntoView({ block: "nearest" });
    };
    const pick = (index) => { show(index); close(); };
    input.addEventListener("focus", () => input.select());
    input.addEventListener("click", () => { if (options.hidden) open(""); });
    input.addEventListener("input", () => open(input.value));
    input.addEventListener("blur", () => { close(); input.value = title(data.lists[current]); });
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        if (options.hidden) open("");
        activate(active + (event.key === "ArrowDown" ? 1 : active < 0 ? 0 : -1));
        event.preventDefault();
      } else if (event.key === "Enter" && !options.hidden) {
        const entry = findAll('[role="option"]', options)[Math.max(active, 0)];
        if (entry) pick(Number(entry.dataset.list));
        event.preventDefault();
      } else if (event.key === "Escape") { close(); input.value = title(data.lists[current]); }
    });
    options.addEventListener("pointerdown", (event) => event.preventDefault()); // the input keeps the focus
    options.addEventListener("click", (event) => {
      const entry = event.target.closest('[role="option"]');
      if (entry) pick(Number(entry.dataset.list));
    });
    const step = (by) => {
      const indices = mine();
      pick(indices[(indices.indexOf(current) + by + indices.length) % indices.length]);
    };
    find("#candidates-previous").addEventListener("click", () => step(-1));
    find("#candidates-next").addEventListener("click", () => step(1));
    if (modelPicker) modelPicker.addEventListener("change", () => {
      const same = mine().find((index) => data.lists[index][1] === data.lists[current][1]);
      pick(same ?? mine()[0]);
      if (search.value.trim()) look();
    });

    // the search over everything: each word in the name of the row or of the candidate
    const look = () => {
      const parts = lower(search.value).split(/\s+/).filter(Boolean);
      results.hidden = !parts.length;
      main.hidden = Boolean(parts.length);
      if (!parts.length) return;
      const phrase = parts.join(" "); // first whose name or id it is, then those that hold the words side by side
      const inColumn = parts.map((part) => names.map((words) => words.includes(part)));
      const closeness = (words, exact) => (exact ? 2 : Number(words.includes(phrase)));
      const columnCloseness = data.columns.map((pair, index) => closeness(names[index], pair.some((part) => lower(part) === phrase)));
      const rows = [];
      for (const index of mine()) {
        const inRow = parts.map((part) => rowNames[index].includes(part));
        const rowCloseness = closeness(rowNames[index], data.lists[index].slice(1, 3).some((part) => lower(part) === phrase));
        for (const item of data.lists[index][4]) {
          if (parts.every((_, number) => inRow[number] || inColumn[number][item[0]])) rows.push([index, item, Math.max(rowCloseness, columnCloseness[item[0]])]);
        }
      }
      rows.sort((p, q) => q[2] - p[2]);
      const count = rows.length;
      const shown = count > maximum ? `, the first ${maximum} shown` : "";
      find("#search-count").textContent = count ? `${count.toLocaleString("en")} candidate${count === 1 ? "" : "s"} found${shown}` : "Nothing found";
      const body = find("#search-table").tBodies[0];
      const shownRows = rows.slice(0, maximum);
      const scores = column(shownRows.map((row) => row[1]), 2);
      body.replaceChildren(...shownRows.map(([index, [item, rank, score, , probability, out]]) => {
        const [columnId, columnName] = data.columns[item];
        const link = make("button", "", { type: "button", className: "link" });
        link.append(bdi(title(data.lists[index])));
        link.addEventListener("click", () => { search.value = ""; look(); show(index); find("#candidates-row").focus(); close(); });
        const head = make("th", "", { scope: "row" });
        head.append(link);
        head.dataset.key = title(data.lists[index]);
        const row = make("tr");
        row.append(head, cell(bdi(columnName || columnId), columnName || columnId), cell(String(rank), rank, "n"),
          cell(bar(probability), probability, "probability"), cell(scores(score), score, "n"), cell(held(out), out));
        return row;
      }));
      resort(find("#search-table"));
    };
    let waiting = 0;
    search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(look, 120); });

    find(".candidates-controls").hidden = false;
    find("#candidates-unscripted").hidden = true;
    show(mine()[0]);
  }
})();
