"use strict";
// The data are described in cases.py (`collect`). Captions reach the page as text only.

const RUN = 5; // position of the first run's entry in a case
const [RIGHT, TIE, RANK, TEXTS, SCORES] = [0, 1, 2, 3, 4]; // places in an entry
const ROW = 52; // pixels of a row of the list, as in cases.css

function textsOf(kase, run) {
  // 0 stands for the texts of the first run that has the case
  return kase[RUN + run][TEXTS] || kase.slice(RUN).find((entry) => entry)[TEXTS];
}

// The images of a case with their options: {text, score, isRight, isChosen}. Ties are errors.
function partsOf(kase, run) {
  const texts = textsOf(kase, run), scores = kase[RUN + run][SCORES];
  const rows = Array.isArray(scores[0]) ? scores : [scores];
  if (texts.length === 1 && rows.length > 1) { // images of one caption, the first is correct
    const chosen = preferred(rows.map((row) => row[0]), [0]);
    return rows.map((row, k) => [{text: texts[0], score: row[0], isRight: k === 0, isChosen: k === chosen}]);
  }
  return rows.map((row, k) => {
    const right = [k, ...(kase[4] || [])], chosen = preferred(row, right);
    return row.map((score, i) => ({text: texts[i], score, isRight: right.includes(i), isChosen: i === chosen}));
  });
}

function preferred(scores, right) {
  let best = -1;
  const isBetter = (i) => best < 0 || scores[i] > scores[best] || (scores[i] === scores[best] && right.includes(best) && !right.includes(i));
  scores.forEach((_, i) => { if (isBetter(i)) best = i; });
  return best;
}

// How far the worst correct option is above the best wrong one, in the worst image of a case.
function marginOf(kase, run) {
  if (!kase[RUN + run]) return Infinity;
  const parts = partsOf(kase, run);
  const pools = parts.every((part) => part.length === 1) ? [parts.flat()] : parts;
  return Math.min(...pools.map((pool) => {
    const [right, wrong] = [true, false].map((is) => pool.filter((o) => o.isRight === is).map((o) => o.score));
    return Math.min(...right) - Math.max(...wrong);
  }));
}

// What "Show" offers: [label, rule of the verdicts of both runs (1 right, 0 wrong)].
function outcomesOf(runs) {
  const [a, b] = runs;
  if (runs.length === 1) return [["all", () => true], ["right", (x) => x === 1], ["wrong", (x) => x === 0]];
  return [
    ["all", () => true],
    ["the runs disagree", (x, y) => x + y === 1 && x !== undefined && y !== undefined],
    [`only ${a} right`, (x, y) => x === 1 && y === 0],
    [`only ${b} right`, (x, y) => x === 0 && y === 1],
    ["both right", (x, y) => x === 1 && y === 1],
    ["both wrong", (x, y) => x === 0 && y === 0],
    [`${a} right`, (x) => x === 1], [`${a} wrong`, (x) => x === 0],
    [`${b} right`, (_, y) => y === 1], [`${b} wrong`, (_, y) => y === 0],
  ];
}

// Indices of the cases that pass: {benchmark, group: index or null; outcome: index; ties; search; order: run or null}.
function filtered(data, filter) {
  const rule = outcomesOf(data.runs)[filter.outcome][1], words = filter.search.trim().toLowerCase();
  const matches = words ? new Set() : null; // indices of texts with the words
  if (words) data.texts.forEach((text, i) => { if (text.toLowerCase().includes(words)) matches.add(i); });
  const passes = (kase) => {
    const entries = kase.slice(RUN);
    return (filter.benchmark === null || kase[0] === filter.benchmark)
      && (filter.group === null || kase[3].includes(filter.group))
      && rule(...entries.map((entry) => entry ? entry[RIGHT] : undefined))
      && (!filter.ties || entries.some((entry) => entry && entry[TIE]))
      && (!matches || kase[1].toLowerCase().includes(words)
        || entries.some((entry) => entry && entry[TEXTS] && entry[TEXTS].some((text) => matches.has(text))));
  };
  const indices = [];
  data.cases.forEach((kase, index) => { if (passes(kase)) indices.push(index); });
  if (filter.order === null) return indices;
  const margins = new Map(indices.map((index) => [index, marginOf(data.cases[index], filter.order)]));
  return indices.sort((a, b) => (margins.get(a) - margins.get(b)) || a - b);
}

// Right answers per benchmark among the cases that every run has: [[benchmark, cases, [right of each run]], ...].
function shares(data, indices) {
  const counts = new Map();
  for (const kase of indices.map((index) => data.cases[index])) {
    const entries = kase.slice(RUN);
    if (!counts.has(kase[0])) counts.set(kase[0], [kase[0], 0, data.runs.map(() => 0)]);
    if (!entries.every((entry) => entry)) continue; // shares of other cases are not comparable
    const share = counts.get(kase[0]);
    share[1] += 1;
    entries.forEach((entry, run) => { share[2][run] += entry[RIGHT] === 1; });
  }
  return [...counts.values()];
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const [list, rows, detail, count] = ["list", "rows", "case", "count"].map((id) => document.getElementById(id));
  const field = (id) => document.getElementById(id);
  let visible = [], chosen = 0;

  function make(tag, className = "", text = "") {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text) made.textContent = text;
    return made;
  }

  function verdict(entry) {
    const [sign, kind] = !entry ? ["–", ""] : [["✗", "is-wrong"], ["✓", "is-right"], ["?", ""]][entry[RIGHT]];
    return make("span", `verdict ${kind}`, sign);
  }

  function inWords(entry) {
    if (!entry) return "not evaluated";
    return ["wrong", "right", "unknown"][entry[RIGHT]] + (entry[TIE] ? ", tie" : "") + (entry[RANK] ? `, rank ${entry[RANK]}` : "");
  }

  const groupsOf = (kase) => kase[3].map((group) => data.groups[group]).join(", ");

  function drawRow(position) {
    const index = visible[position], kase = data.cases[index], entries = kase.slice(RUN);
    const row = make("div", "row"), first = make("div"), second = make("div", "muted");
    const run = entries.findIndex((entry) => entry), caption = data.texts[textsOf(kase, run)[0]];
    row.id = `row-${position}`;
    row.style.top = `${position * ROW}px`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", position === chosen);
    row.setAttribute("aria-posinset", position + 1);
    row.setAttribute("aria-setsize", visible.length);
    row.setAttribute("aria-label", `${entries.map(inWords).join("; ")}: ${caption}`);
    first.append(...entries.map(verdict), ` ${caption}`);
    second.textContent = [data.benchmarks[kase[0]][0], groupsOf(kase), kase[1], entries.some((entry) => entry && entry[TIE]) ? "tie" : ""].filter(Boolean).join(" · ");
    row.append(first, second);
    row.addEventListener("click", () => choose(position));
    return row;
  }

  // Only the rows in view are in the document, and a few beyond it.
  function drawRows() {
    const from = Math.max(0, Math.floor(list.scrollTop / ROW) - 5);
    const to = Math.min(visible.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 5);
    rows.style.height = `${visible.length * ROW}px`;
    rows.replaceChildren(...Array.from({length: to - from}, (_, i) => drawRow(from + i)));
    if (visible.length && chosen >= from && chosen < to) list.setAttribute("aria-activedescendant", `row-${chosen}`);
    else list.removeAttribute("aria-activedescendant");
  }

  function drawOption(option, [low, high]) {
    const kind = option.isRight ? "correct" : option.isChosen ? "mistake" : "";
    const line = make("li", `${kind} ${option.isChosen ? "chosen" : ""}`), fill = make("i", "fill");
    fill.style.width = `${high > low ? 4 + 96 * (option.score - low) / (high - low) : 50}%`;
    line.append(fill, make("span", "mark", option.isRight ? "✓" : option.isChosen ? "✗" : ""),
      make("span", "score", option.score.toPrecision(4)), make("span", "", data.texts[option.text]));
    return line;
  }

  function drawImage(index, k) {
    const uri = (data.images[index] || [])[k], kase = data.cases[index];
    if (!uri) return make("div", "missing", `image ${k + 1}, not kept by the run: ${kase[2]}`);
    const image = make("img");
    image.src = uri;
    image.alt = `image ${k + 1} of case ${kase[1]}`;
    image.addEventListener("load", () => image.classList.toggle("pixels", image.naturalWidth <= 128));
    return image;
  }

  function drawCase() {
    detail.scrollTop = 0;
    if (!visible.length) return detail.replaceChildren(make("p", "", "No case passes these filters."));
    const index = visible[chosen], kase = data.cases[index], [name, decision, ranges] = data.benchmarks[kase[0]];
    const parts = [make("h2", "", kase[1]), make("p", "muted", [name, groupsOf(kase), `right by ${decision}`].filter(Boolean).join(" · "))];
    kase.slice(RUN).forEach((entry, run) => {
      const head = make("h3");
      head.append(verdict(entry), ` ${data.runs[run]}: ${inWords(entry)}`);
      parts.push(head);
      if (entry) partsOf(kase, run).forEach((options, k) => {
        const scored = make("div", "scored"), lines = make("ol");
        lines.append(...options.sort((a, b) => b.score - a.score).map((option) => drawOption(option, ranges[run])));
        scored.append(drawImage(index, k), lines);
        parts.push(scored);
      });
    });
    detail.replaceChildren(...parts);
  }

  function choose(position) {
    if (!visible.length) return;
    chosen = Math.min(Math.max(position, 0), visible.length - 1);
    const top = chosen * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    drawRows();
    drawCase();
  }

  function apply() {
    const number = (id) => field(id).value === "" ? null : Number(field(id).value);
    visible = filtered(data, {
      benchmark: number("benchmark"), group: number("group"), outcome: number("outcome"),
      ties: field("ties").checked, search: field("search").value, order: number("order"),
    });
    const whole = (n) => n.toLocaleString("en"), several = data.runs.length > 1;
    const lines = shares(data, visible).map(([benchmark, cases, right]) => {
      const name = data.benchmarks[benchmark][0];
      if (!cases) return `${name}: no case that both runs have`;
      const percents = right.map((n, run) => `${several ? `${data.runs[run]} ` : ""}${(100 * n / cases).toFixed(1)} %`);
      return `${name}: right ${percents.join(", ")} of ${whole(cases)}${several ? " that both have" : ""}`;
    });
    count.replaceChildren(`${whole(visible.length)} of ${whole(data.cases.length)} cases`, ...lines.map((line) => make("span", "share", line)));
    chosen = 0;
    list.scrollTop = 0;
    drawRows();
    drawCase();
  }

  function fill(id, options) {
    field(id).replaceChildren(...options.map(([value, label]) => {
      const option = make("option", "", label);
      option.value = value;
      return option;
    }));
  }

  function fillGroups() {
    const benchmark = field("benchmark").value, counts = new Map();
    for (const kase of data.cases)
      if (benchmark === "" || kase[0] === Number(benchmark))
        for (const group of kase[3]) counts.set(group, (counts.get(group) || 0) + 1);
    fill("group", [["", "all"], ...[...counts].sort((a, b) => b[1] - a[1]).map(([group, n]) => [group, `${data.groups[group]} (${n})`])]);
  }

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, select");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping) {
      if (event.key === "Escape") list.focus();
      return;
    }
    const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
    const letters = {j: chosen + 1, k: chosen - 1};
    const arrows = {ArrowDown: chosen + 1, ArrowUp: chosen - 1, PageDown: chosen + page, PageUp: chosen - page, Home: 0, End: visible.length - 1};
    // the chosen case scrolls with the arrows when it has the focus
    const moves = detail.contains(event.target) ? letters : {...letters, ...arrows};
    if (event.key === "/") field("search").focus();
    else if (event.key in moves) choose(moves[event.key]);
    else return;
    event.preventDefault();
  });

  const sizes = new Map();
  for (const kase of data.cases) sizes.set(kase[0], (sizes.get(kase[0]) || 0) + 1);
  const all = data.benchmarks.length > 1 ? [["", "all"]] : [];
  fill("benchmark", [...all, ...data.benchmarks.map(([name], index) => [index, `${name} (${sizes.get(index) || 0})`])]);
  fill("outcome", outcomesOf(data.runs).map(([label], index) => [index, label]));
  fillGroups();
  field("filters").addEventListener("submit", (event) => event.preventDefault());
  field("filters").addEventListener("input", (event) => {
    if (event.target.id === "benchmark") fillGroups();
    apply();
  });
  list.addEventListener("scroll", drawRows);
  new ResizeObserver(drawRows).observe(list);
  apply();
  list.focus({preventScroll: true});
}

if (typeof document !== "undefined") start();
