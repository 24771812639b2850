"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const MARKS = { at: "≈", below: "▼", blind: "◇", "below blind": "◆" };
const PAGE = 50;  // rows that are shown at first, and added by "more"

// values: [model, score, outcome, value, low, high] with indices into lists
function expand({ models, scores, outcomes, rows }) {
  return rows.map(([model, score, outcome, value, low, high]) => {
    const [set, metric, protocol, chance, blind, ceiling, count, source] = scores[score];
    const range = low === undefined ? null : [low, high];
    return [models[model], set, metric, value, range, outcomes[outcome], chance, blind, ceiling, count, protocol, source];
  });
}

const digits = (number) => number.toFixed(1).replace("-", "−");
const signed = (number) => (number > 0 ? "+" : "") + digits(number);
const FORMATS = {
  text: (text) => text,
  percent: digits,
  points: signed,
  range: ([low, high]) => `${digits(low)}–${digits(high)}`,
  interval: ([low, high]) => (low === null ? "" : `${signed(low)} to ${signed(high)}`),
  count: (number) => number.toLocaleString("en"),
  mark: (name) => MARKS[name] ?? "",
};
const show = (cell, kind) => (cell === null || cell === undefined ? "" : FORMATS[kind](cell));

function create(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// cells without a value come last in either direction
function order(rows, column, kind, isDown) {
  const key = (row) => (Array.isArray(row[column]) ? row[column][0] : row[column]);
  const isEmpty = (value) => value === null || value === undefined || value === "";
  const compare = kind === "text" || kind === "mark" ? (a, b) => a.localeCompare(b, "en", { numeric: true }) : (a, b) => a - b;
  return [...rows].sort((first, second) => {
    const [a, b] = [key(first), key(second)];
    if (isEmpty(a) || isEmpty(b)) return isEmpty(a) - isEmpty(b);
    return isDown ? compare(b, a) : compare(a, b);
  });
}

function build(section) {
  const name = section.dataset.table;
  const { columns } = data[name];
  const rows = name === "values" ? expand(data[name]) : data[name].rows;
  const texts = rows.map((row) => row.filter((cell) => typeof cell === "string").join(" ").toLowerCase());
  const state = { column: -1, isDown: true, shown: PAGE };

  const search = create("input", { type: "search", autocomplete: "off", spellcheck: false });
  const sort = create("select", {}, create("option", { value: -1, textContent: "as published" }));
  columns.forEach(([title], index) => {
    for (const sign of title ? ["↓", "↑"] : []) sort.append(create("option", { value: `${index} ${sign}`, textContent: `${title} ${sign}` }));
  });
  const choice = columns.findIndex(([title, kind]) => kind === "mark" || title === "outcome");
  const only = create("select", {}, create("option", { value: "", textContent: "all" }));
  if (choice >= 0) {
    const found = new Set(rows.map((row) => row[choice]).filter(Boolean));
    for (const value of found) only.append(create("option", { value, textContent: `${MARKS[value] ?? ""} ${value}`.trim() }));
  }
  const form = create("form", { onsubmit: () => false },
    create("label", { className: "search" }, "Rows with ", search), create("label", {}, "Order ", sort));
  if (choice >= 0) form.append(create("label", {}, "Show ", only));

  const heads = columns.map(([title, kind], index) => {
    const button = create("button", { type: "button", textContent: title, onclick: () => sortBy(index, state.column === index ? !state.isDown : kind !== "text") });
    return create("th", { scope: "col", className: kind === "text" ? "" : "right" }, button);
  });
  const body = create("tbody");
  const table = create("table", { className: "results field" }, create("thead", {}, create("tr", {}, ...heads)), body);
  const count = create("p", { className: "muted", role: "status" });
  const more = create("button", { type: "button", className: "more-rows", onclick: () => { state.shown += 4 * PAGE; draw(); } });
  section.append(form, count, create("div", { className: "scroll" }, table), more);

  function sortBy(column, isDown) {
    Object.assign(state, { column, isDown, shown: PAGE });
    sort.value = column < 0 ? "-1" : `${column} ${isDown ? "↓" : "↑"}`;
    draw();
  }

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row, index) => words.every((word) => texts[index].includes(word)) && (!only.value || row[choice] === only.value));
    const sorted = state.column < 0 ? found : order(found, state.column, columns[state.column][1], state.isDown);
    heads.forEach((head, index) => {
      if (index === state.column) head.setAttribute("aria-sort", state.isDown ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    body.replaceChildren(...sorted.slice(0, state.shown).map((row) => create("tr", {}, ...columns.map(([title, kind], index) => {
      const text = show(row[index], kind);
      const cell = create("td", { className: kind === "text" ? "text" : "right", textContent: text });
      if (kind === "mark" && text) cell.classList.add(row[index].split(" ")[0]), (cell.title = row[index]);
      if (title === "outcome") cell.classList.add(row[index].split(" ")[0]);
      if (title && index > 0 && text) cell.dataset.label = title;
      return cell;
    }))));
    count.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
    more.hidden = found.length <= state.shown;
    more.textContent = `${Math.min(4 * PAGE, found.length - state.shown)} more rows`;
  }

  search.oninput = only.oninput = () => { state.shown = PAGE; draw(); };
  sort.oninput = () => { const [column, sign] = sort.value.split(" "); sortBy(Number(column), sign === "↓"); };
  draw();
}

document.querySelectorAll("[data-table]").forEach(build);
