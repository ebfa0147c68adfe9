// ---- the network of a list: candidates and known columns, at the places that were computed for them
function draw(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function network(list, data, columnName) {
  const frame = find("#network-frame");
  if (!frame) return;
  const drawn = list[5].network;
  const [rowWord, colWord, , colWords] = data.words;
  const body = find("#network-table").tBodies[0];
  find("#network-some").hidden = !drawn;
  find("#network-none").hidden = Boolean(drawn);
  if (!drawn) { frame.replaceChildren(); body.replaceChildren(); return; }
  const { width, height, nodes, edges, hidden } = drawn;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "network", role: "img", "aria-labelledby": "network-title" });
  const known = nodes.filter((node) => node[1]).length;
  const title = draw("title", { id: "network-title" });
  title.textContent = `${nodes.length - known} candidates and ${known} known ${colWords} of ${list[2] || list[1]}, ${edges.length} edges between them`;
  const heaviest = Math.max(...edges.map((edge) => edge[2]), 1e-12);
  const lines = draw("g", { class: "edges" });
  const neighbours = nodes.map(() => []);
  for (const [i, j, weight] of edges) {
    lines.append(draw("line", { x1: nodes[i][2], y1: nodes[i][3], x2: nodes[j][2], y2: nodes[j][3], "stroke-width": (0.6 + 2.4 * Math.sqrt(weight / heaviest)).toFixed(2), class: `edge-${i} edge-${j}` }));
    neighbours[i].push([j, weight]);
    neighbours[j].push([i, weight]);
  }
  const points = draw("g");
  nodes.forEach(([column, kind, x, y, rank], index) => {
    const group = draw("g", { class: kind ? "node known-node" : "node", transform: `translate(${x} ${y})` });
    const name = columnName(column);
    const tip = draw("title");
    tip.textContent = `${name}, ${kind ? `known ${colWord}` : `candidate ${rank}`}, ${neighbours[index].length} edges here`;
    group.append(tip, kind ? draw("rect", { x: -6, y: -6, width: 12, height: 12, rx: 2 }) : draw("circle", { r: 7 }));
    const label = draw("text", { y: 20, "text-anchor": "middle" });
    label.textContent = name.length > 14 ? `${name.slice(0, 13)}…` : name;
    group.append(label);
    group.addEventListener("pointerenter", () => { svg.classList.add("focus"); findAll(`.edge-${index}`, svg).forEach((line) => line.classList.add("strong")); });
    group.addEventListener("pointerleave", () => { svg.classList.remove("focus"); findAll(".strong", svg).forEach((line) => line.classList.remove("strong")); });
    points.append(group);
  });
  svg.append(title, lines, points);
  frame.replaceChildren(svg);
  find("#network-hidden").textContent = hidden ? ` The ${edges.length} strongest edges are drawn, ${hidden} weaker ones are not.` : "";
  body.replaceChildren(...nodes.map(([column, kind, , , rank], index) => {
    const row = make("tr");
    const head = make("th", "", { scope: "row" });
    head.append(make("bdi", columnName(column)));
    head.dataset.key = columnName(column);
    const what = make("td", kind ? "known" : `candidate ${rank}`);
    what.dataset.key = kind ? 0 : rank;
    const beside = make("td", neighbours[index].length ? "" : "none here");
    neighbours[index].sort((p, q) => q[1] - p[1]).forEach(([other], number) => beside.append(number ? ", " : "", make("span", columnName(nodes[other][0]), { dir: "auto" })));
    beside.dataset.key = neighbours[index].length;
    row.append(head, what, beside);
    return row;
  }));
  resort(find("#network-table"));
}
