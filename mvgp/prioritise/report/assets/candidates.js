// ---- candidates: one list at a time, or what a search finds in all of them
const source = find("#candidates-data");
if (source) candidates(JSON.parse(source.textContent));

function candidates(data) {
  const maximum = 200; // lines of a result, options of the list
  const [COL, RANK, SCORE, STD, TOP, FLAG, CHANCE, LOW, HIGH, CLASS, WHY, REASONS] = Array(12).keys();
  const title = (list) => list[2] || list[1];
  const full = (list) => (list[2] && list[2] !== list[1] ? `${list[2]} (${list[1]})` : list[1]);
  const lower = (words) => words.toLocaleLowerCase();
  const names = data.columns.map(([id, name]) => lower(`${name} ${id}`));
  const rowNames = data.lists.map((list) => lower(`${list[2]} ${list[1]}`));
  const columnName = (index) => data.columns[index][1] || data.columns[index][0];
  const rowName = (index) => data.rows[index][1] || data.rows[index][0];
  const [rowWord, colWord, , colWords] = data.words;
  const input = find("#candidates-row"); // there is none if there is one list
  const options = find("#candidates-options");
  const modelPicker = find("#candidates-model");
  const classPicker = find("#candidates-class");
  const hide = find("#candidates-hide");
  const table = find("#candidates-table");
  const search = find("#candidates-search");
  const results = find("#search-results");
  const main = table.closest(".scroll");
  const widest = Math.max(0.1, ...data.lists.flatMap((list) => list[4].map((item) => item[HIGH] ?? item[CHANCE] ?? 0))); // end of the bars
  let current = 0;
  let active = -1;

  // ---- cells
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
    return (value) => (value === null || value === undefined ? "–" : minus(value.toFixed(decimals)));
  };
  const percent = (value) => (value > 0 && value < 0.001 ? "< 0.1" : (100 * value).toFixed(value >= 0.0995 ? 0 : 1));
  const drawn = (parts) => { // rectangles from left to right on a track, each [class, x, width]
    const svg = draw("svg", { class: "bar", viewBox: "0 0 60 8", "aria-hidden": "true" });
    svg.append(...[["track", 0, 60], ...parts].map(([kind, x, width]) => draw("rect", { class: kind, x, width: Math.max(0, width), height: 8, rx: kind === "tick" ? 0 : 2 })));
    return svg;
  };
  const bar = (probability) => {
    const part = document.createDocumentFragment();
    if (probability === null || probability === undefined) part.append("–");
    else part.append(drawn([["fill", 0, 60 * probability]]), probability.toFixed(3));
    return part;
  };
  const chance = (item) => {
    const part = document.createDocumentFragment();
    const [value, low, high] = [item[CHANCE], item[LOW], item[HIGH]];
    if (value === null || value === undefined) {
      part.append(item[FLAG] ? "–" : make("span", "order only", { className: "quiet", title: "too little to go by" }));
      return part;
    }
    const at = (probability) => 60 * probability / widest;
    const known = low !== null && low !== undefined && high !== null && high !== undefined;
    part.append(drawn([...(known ? [["range", at(low), at(high) - at(low)]] : []), ["tick", Math.min(58, Math.max(0, at(value) - 1)), 2]]), `${percent(value)}\u202f%`);
    if (known) part.append(" ", make("small", `${percent(low)} to ${percent(high)}\u202f%`));
    return part;
  };
  const marked = (yes) => (yes ? make("span", data.flag, { className: "held" }) : "");
  const grade = (letter) => (letter ? make("span", letter, { className: `grade grade-${letter}` }) : "–");
  const out = (pages) => pages.map(([site, key]) => {
    const [name, url] = data.sites[site];
    return make("a", name, { href: url.replace("{}", encodeURIComponent(key)), target: "_blank", rel: "noopener noreferrer", className: "out" });
  });
  const heading = (rank) => {
    const th = make("th", String(rank), { className: "n", scope: "row" });
    th.dataset.key = rank;
    return th;
  };

  // ---- reasons, which unfold below the line of a candidate
  const why = (item) => item[WHY] || (item[REASONS] || []).map(([share, , words]) => `${(100 * share).toFixed(0)} %: ${words}`).join("; ");
  const reasons = (item) => {
    if (!item[REASONS]) return make("p", why(item));
    const list = make("ul", "", { className: "reasons" });
    for (const [share, kind, words, ends] of item[REASONS].filter((part) => part[0] >= 0.005)) {
      const entry = make("li");
      entry.append(drawn([["fill", 0, 60 * share]]), make("b", `${(100 * share).toFixed(0)}\u202f%`), " ", bdi(words));
      if (kind) entry.append(" ", make("small", kind));
      if (ends) {
        const carried = make("p", "Known links that carry it: ", { className: "ends" });
        ends.forEach(([row, col, part], index) => carried.append(index ? ", " : "", bdi(rowName(row)), " – ", bdi(columnName(col)), part === null || part === undefined ? "" : ` (${percent(part)}\u202f%)`));
        entry.append(carried);
      }
      list.append(entry);
    }
    return list;
  };
  const whyButton = (row, item, number) => {
    if (!item[REASONS] && !item[WHY]) return "–";
    const button = make("button", "Why", { type: "button", className: "unfold" });
    button.setAttribute("aria-expanded", "false");
    button.setAttribute("aria-label", `Why ${columnName(item[COL])}`);
    button.addEventListener("click", () => {
      const open = !row.unfolded;
      button.setAttribute("aria-expanded", String(open));
      if (!open) { row.unfolded.remove(); row.unfolded = null; button.removeAttribute("aria-controls"); return; }
      row.unfolded = make("tr", "", { className: "unfolded", id: `why-${number}` });
      button.setAttribute("aria-controls", row.unfolded.id);
      const td = make("td", "", { colSpan: data.show.length });
      const frame = make("div");
      frame.append(reasons(item));
      td.append(frame);
      row.unfolded.append(td);
      row.after(row.unfolded);
    });
    return button;
  };

  // ---- the list of a row
  const about = (list) => {
    const { notes = [], known = [], lengths = {}, links = [], group = "" } = list[5];
    const parts = notes.map((note) => { const p = make("p", "", { className: "warning" }); p.append(bdi(note)); return p; });
    if (links.length) { const p = make("p", "", { className: "elsewhere" }); p.append(`This ${rowWord} elsewhere: `, ...out(links)); parts.push(p); }
    if (known.length) {
      const p = make("div", "", { className: "known" });
      const chips = make("ul");
      chips.append(...known.map((index) => { const li = make("li"); const [page] = out(data.columns[index][2]); if (page) { page.replaceChildren(bdi(columnName(index))); li.append(page); } else li.append(bdi(columnName(index))); return li; }));
      p.append(make("span", `${known.length.toLocaleString("en")} known ${known.length === 1 ? colWord : colWords}: `), chips);
      parts.push(p);
    } else if (list[5].known) parts.push(make("p", `No ${colWord} of this ${rowWord} is known.`, { className: "elsewhere" }));
    const guarantees = Object.entries(lengths).map(([level, length]) => `the first ${Number(length).toLocaleString("en")} with ${percent(Number(level))}\u202f%`);
    if (guarantees.length) parts.push(make("p", `A link that is still unknown is among ${guarantees.join(", among ")} probability${group ? ` (${rowWord} with ${group.includes("known") ? group : `${group} known links`})` : ""}.`, { className: "elsewhere" }));
    find("#candidates-about").replaceChildren(...parts);
  };
  const show = (index) => {
    current = index;
    const list = data.lists[index];
    const [modelIndex, , , k, items] = list;
    find("#candidates-title").textContent = full(list);
    find("#candidates-of").textContent = `ranked by ${data.models[modelIndex]}`;
    const place = data.show.indexOf("p_top");
    if (place >= 0) {
      const top = table.tHead.rows[0].cells[place];
      (find("button", top) || top).textContent = `P(top ${k ?? "k"})`;
    }
    const [scores, stds] = [column(items, SCORE), column(items, STD)];
    table.tBodies[0].replaceChildren(...items.map((item, number) => {
      const [columnId, , pages] = data.columns[item[COL]];
      const row = Object.assign(make("tr"), { item, list: index });
      const cells = {
        rank: () => heading(item[RANK]),
        name: () => cell(bdi(columnName(item[COL])), columnName(item[COL]), "name"),
        why: () => cell(whyButton(row, item, number)),
        class: () => cell(grade(item[CLASS]), item[CLASS], "class"),
        probability: () => cell(chance(item), item[CHANCE], "probability"),
        p_top: () => cell(bar(item[TOP]), item[TOP], "probability"),
        score: () => cell(scores(item[SCORE]), item[SCORE], "n"),
        std: () => cell(stds(item[STD]), item[STD], "n"),
        flag: () => cell(marked(item[FLAG]), item[FLAG] ? 1 : 0),
        id: () => { const td = cell(bdi(columnId), columnId, "id"); td.append(...out(pages)); return td; },
      };
      row.append(...data.show.map((key) => cells[key]()));
      return row;
    }));
    resort(table);
    about(list);
    if (input) input.value = title(list);
    network(list, data, columnName);
    if (!results) narrow(); else filter();
  };

  // ---- filters and the count of what is shown
  const passes = (item) => (!classPicker || !classPicker.value || (item[CLASS] && item[CLASS] <= classPicker.value)) && !(hide && hide.checked && item[FLAG]);
  const count = (shown, all) => { find("#candidates-count").textContent = `${shown.toLocaleString("en")} of ${all.toLocaleString("en")} ${all === 1 ? colWord : colWords} shown`; };
  const filter = (wanted = () => true) => {
    let shown = 0;
    const rows = [...table.tBodies[0].rows].filter((row) => row.item);
    for (const row of rows) {
      row.hidden = !(passes(row.item) && wanted(row.item));
      if (row.unfolded) row.unfolded.hidden = row.hidden;
      shown += !row.hidden;
    }
    count(shown, rows.length);
  };
  const words = () => lower(search.value).split(/\s+/).filter(Boolean);
  function narrow() { const parts = words(); filter((item) => parts.every((part) => names[item[COL]].includes(part))); } // of the only list
  const refresh = () => { if (!results) narrow(); else if (words().length) look(); else filter(); };
  classPicker?.addEventListener("change", refresh);
  hide?.addEventListener("change", refresh);

  // ---- the list of rows
  const close = () => { if (!input) return; options.hidden = true; active = -1; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); };
  const pick = (index) => { show(index); close(); };
  if (input) {
    const open = (typed) => {
      const parts = lower(typed).split(/\s+/).filter(Boolean);
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
      if (!matches.length) options.append(make("li", `No ${rowWord} matches`));
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
  }
  if (modelPicker) modelPicker.addEventListener("change", () => {
    const same = mine().find((index) => data.lists[index][1] === data.lists[current][1]);
    pick(same ?? mine()[0]);
    if (results && words().length) look();
  });

  // ---- the search over everything: each word in the name of the row or of the candidate
  function look() {
    const parts = words();
    results.hidden = !parts.length;
    main.hidden = Boolean(parts.length);
    find("#candidates-about").hidden = Boolean(parts.length);
    if (!parts.length) { filter(); return; }
    const phrase = parts.join(" "); // first whose name or id it is, then those that hold the words side by side
    const inColumn = parts.map((part) => names.map((text) => text.includes(part)));
    const closeness = (text, exact) => (exact ? 2 : Number(text.includes(phrase)));
    const columnCloseness = data.columns.map((pair, index) => closeness(names[index], pair.slice(0, 2).some((part) => lower(part) === phrase)));
    const rows = [];
    for (const index of mine()) {
      const inRow = parts.map((part) => rowNames[index].includes(part));
      const rowCloseness = closeness(rowNames[index], data.lists[index].slice(1, 3).some((part) => lower(part) === phrase));
      for (const item of data.lists[index][4]) {
        if (passes(item) && parts.every((_, number) => inRow[number] || inColumn[number][item[COL]])) rows.push([index, item, Math.max(rowCloseness, columnCloseness[item[COL]])]);
      }
    }
    rows.sort((p, q) => q[2] - p[2]);
    const shown = rows.length > maximum ? `, the first ${maximum} shown` : "";
    find("#search-count").textContent = rows.length ? `${rows.length.toLocaleString("en")} candidate${rows.length === 1 ? "" : "s"} found${shown}` : "Nothing found";
    find("#candidates-count").textContent = "";
    const body = find("#search-table").tBodies[0];
    const shownRows = rows.slice(0, maximum);
    const scores = column(shownRows.map((row) => row[1]), SCORE);
    body.replaceChildren(...shownRows.map(([index, item]) => {
      const link = make("button", "", { type: "button", className: "link" });
      link.append(bdi(title(data.lists[index])));
      link.addEventListener("click", () => { search.value = ""; look(); show(index); if (input) input.focus(); close(); });
      const head = make("th", "", { scope: "row" });
      head.append(link);
      head.dataset.key = title(data.lists[index]);
      const row = Object.assign(make("tr"), { item, list: index });
      const cells = {
        class: () => cell(grade(item[CLASS]), item[CLASS], "class"),
        probability: () => cell(chance(item), item[CHANCE], "probability"),
        p_top: () => cell(bar(item[TOP]), item[TOP], "probability"),
        score: () => cell(scores(item[SCORE]), item[SCORE], "n"),
        flag: () => cell(marked(item[FLAG]), item[FLAG] ? 1 : 0),
      };
      row.append(head, cell(bdi(columnName(item[COL])), columnName(item[COL])), cell(String(item[RANK]), item[RANK], "n"),
        ...Object.keys(cells).filter((key) => data.show.includes(key)).map((key) => cells[key]()));
      return row;
    }));
    resort(find("#search-table"));
  }
  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(results ? look : narrow, 120); });

  // ---- what is shown as a file, without any request
  const exported = () => [...(main.hidden ? find("#search-table") : table).tBodies[0].rows].filter((row) => row.item && !row.hidden).map(({ item, list }) => {
    const [modelIndex, rowId, name, k] = data.lists[list];
    const value = (at) => item[at] ?? null;
    return {
      row_id: rowId, row_name: name, rank: item[RANK], col_id: data.columns[item[COL]][0], col_name: data.columns[item[COL]][1], score: value(SCORE), std: value(STD), p_top: value(TOP), k,
      [data.flag.replace(" ", "_")]: Boolean(item[FLAG]), model: data.models[modelIndex], probability: value(CHANCE), low: value(LOW), high: value(HIGH), class: value(CLASS), why: why(item),
      reasons: (item[REASONS] || []).map(([share, kind, text, ends = []]) => ({ share, source: kind, text, links: ends.map(([row, col, part]) => ({ row_id: data.rows[row][0], row_name: data.rows[row][1], col_id: data.columns[col][0], col_name: data.columns[col][1], share: part })) })),
    };
  });
  // cells as mvgp writes them: harmless for spreadsheets and terminals
  const escaped = (letter) => ({ "\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\" }[letter] || (letter.charCodeAt(0) < 256 ? `\\x${letter.charCodeAt(0).toString(16).padStart(2, "0")}` : `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`));
  const asCell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value === "boolean") return value ? "1" : "0";
    if (typeof value === "number") return String(value);
    const text = value.replace(/[\\\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, escaped);
    return /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20'"]/.test(text) ? `'${text}` : text;
  };
  const save = (content, kind, ending) => {
    const address = URL.createObjectURL(new Blob([content], { type: kind }));
    const base = main.hidden ? "search" : data.lists[current][1].replace(/[^\w.-]+/g, "_").slice(0, 60) || "list";
    make("a", "", { href: address, download: `${base}.${ending}` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  };
  find("#export-tsv").addEventListener("click", () => {
    const lines = exported().map(({ reasons: _, ...line }) => line);
    const header = Object.keys(lines[0] || { row_id: "" });
    save([header, ...lines.map((line) => Object.values(line).map(asCell))].map((line) => `${line.join("\t")}\n`).join(""), "text/tab-separated-values", "tsv");
  });
  find("#export-json").addEventListener("click", () => save(`${JSON.stringify(exported(), null, 1)}\n`, "application/json", "json"));

  find(".candidates-controls").hidden = false;
  findAll("#candidates-unscripted, .unscripted").forEach((part) => { part.hidden = true; });
  show(mine()[0]);
}
