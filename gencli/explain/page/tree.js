// Branches of a text. A node is [parent or -1, token or null, p or null, the text that it adds]; parents come
// first. A branch is the text from the root to a node.
const children = data.nodes.map(() => []), roots = [];
data.nodes.forEach(([parent], i) => (parent < 0 ? roots : children[parent]).push(i));
const state = { node: roots[0] ?? -1 };
const closed = new Set();
const level = (value) => (value === null || value >= 0.5 ? 0 : value >= 0.1 ? 1 : value >= 0.02 ? 2 : 3);
function path(i) {
  const found = [];
  for (let one = i; one >= 0; one = data.nodes[one][0]) found.unshift(one);
  return found;
}
const siblings = (i) => (data.nodes[i][0] < 0 ? roots : children[data.nodes[i][0]]);
function visible() {
  const found = [], wait = [...roots].reverse();
  while (wait.length) {
    const i = wait.pop();
    found.push(i);
    if (!closed.has(i)) wait.push(...[...children[i]].reverse());
  }
  return found;
}

function drawTree() {
  const tree = make("div", { role: "tree", class: "tree", "aria-label": "Branches" });
  for (const i of visible()) tree.append(row(i));
  const leaves = children.filter((own) => !own.length).length;
  $("main").replaceChildren(make("h2", null, data.title), make("p", { class: "lead soft" }, `${some(data.nodes.length, "node")}, ${some(leaves, "branch").replace("branchs", "branches")}. A shade is p of the token where a branch begins.`), legend(), tree);
  mark();
}
function legend() {
  const row = make("p", { class: "legend" });
  ["p .5 or more", ".1 to .5", ".02 to .1", "below .02"].forEach((text, i) => row.append(make("span", { class: "token sample", "data-level": i }, text), " "));
  return row;
}
function row(i) {
  const [, token, value, text] = data.nodes[i], depth = path(i).length, own = siblings(i), isOpen = children[i].length ? !closed.has(i) : null;
  const node = make("div", { role: "treeitem", class: value === null ? "node root" : "node", tabindex: "-1", "data-node": i, "aria-level": depth, "aria-setsize": own.length, "aria-posinset": own.indexOf(i) + 1, "aria-expanded": isOpen, "aria-selected": "false",
    "aria-label": `${token === null ? "root" : nameOf(token)}${value === null ? "" : `, p ${p(value)}`}, ${quoted(text, 80)}` });
  node.style.setProperty("--depth", depth - 1);
  const words = make("span", { class: "words", dir: "auto" }), begin = token === null ? "" : data.names[token] ?? "";
  if (begin && text.startsWith(begin)) words.append(fill(make("span", { class: "token", "data-level": level(value) }), begin.trimStart() || begin), fill(make("span"), text.slice(begin.length), ""));
  else fill(words, text.trimStart() || text, "(nothing)");
  node.append(make("span", { class: "twist", "aria-hidden": "true" }, isOpen === null ? "\u00b7" : isOpen ? "\u25be" : "\u25b8"));
  if (value !== null) node.append(make("span", { class: "chance" }, bar(value), make("span", { class: "number" }, p(value))));
  node.append(words);
  return node;
}
function mark() {
  const onPath = new Set(path(state.node));
  for (const node of document.querySelectorAll(".node")) {
    const i = Number(node.dataset.node);
    node.setAttribute("aria-selected", String(i === state.node));
    node.tabIndex = i === state.node ? 0 : -1;
    node.classList.toggle("on", onPath.has(i));
  }
  drawPanel();
}
function drawPanel() {
  if (state.node < 0) return $("panel").replaceChildren(make("p", { class: "soft" }, "No branches."));
  const [, token, value] = data.nodes[state.node], line = path(state.node), own = siblings(state.node);
  const chance = line.reduce((product, i) => product * (data.nodes[i][2] ?? 1), 1);
  const title = make("h2", { tabindex: "-1", id: "token-title" }, token === null ? "Root" : label(nameOf(token)));
  const text = make("blockquote", { dir: "auto" });
  line.forEach((i) => text.append(fill(make("span", { class: i === state.node ? "last" : "prompt" }), data.nodes[i][3], "", "\n")));
  const list = make("ul", { class: "bars" }), most = Math.max(1e-9, ...own.map((i) => data.nodes[i][2] ?? 0));
  for (const i of own) {
    const choice = button(data.nodes[i][1] === null ? "root" : label(nameOf(data.nodes[i][1])), () => go(i), { class: "link" });
    list.append(make("li", { class: i === state.node ? "own" : "" }, choice, bar((data.nodes[i][2] ?? 0) / most), make("span", { class: "number" }, p(data.nodes[i][2]))));
  }
  $("panel").replaceChildren(make("div", { class: "head" }, make("p", { class: "soft" }, `level ${line.length} \u00b7 branch ${own.indexOf(state.node) + 1} of ${own.length}`), title,
    make("div", { class: "cards two" }, make("div", { class: "card" }, make("span", { class: "soft" }, "p here"), make("b", null, p(value))), make("div", { class: "card" }, make("span", { class: "soft" }, "p of all forks up to here"), make("b", null, p(chance))))),
    make("section", { "aria-labelledby": "branch-text" }, make("h3", { id: "branch-text" }, "The branch"), text),
    make("section", { "aria-labelledby": "beside" }, make("h3", { id: "beside" }, "Beside it"), list, make("p", { class: "soft scale" }, `Full width is p ${p(most)}.`)),
    make("div", { class: "copies" }, button("Copy the text", copyText, { title: "Of the branch (y)" })));
}
const copyText = () => copy(path(state.node).map((i) => data.nodes[i][3]).join(""), "Text");
const show = () => {
  const node = document.querySelector(`.node[data-node="${state.node}"]`);
  node?.focus({ preventScroll: true });
  node?.scrollIntoView({ block: "nearest" });
};
function go(i) {
  if (i === undefined || i < 0) return;
  state.node = i;
  const hiding = path(i).slice(0, -1).filter((one) => closed.delete(one));
  if (hiding.length) drawTree();
  else mark();
  show();
}
function step(by) {
  const order = visible();
  go(order[Math.max(0, Math.min(order.length - 1, order.indexOf(state.node) + by))]);
}
function open(isOpen) {
  if (isOpen) closed.delete(state.node);
  else closed.add(state.node);
  drawTree();
  show();
}
function left() {
  if (children[state.node]?.length && !closed.has(state.node)) open(false);
  else go(data.nodes[state.node]?.[0]);
}
function right() {
  if (closed.has(state.node)) open(true);
  else go(children[state.node]?.[0]);
}
function branch() {
  const order = data.nodes.map((_, i) => i).filter((i) => !children[i].length);
  go(order.find((i) => i > state.node) ?? order[0]);
}
$("main").addEventListener("click", (event) => {
  const node = event.target.closest(".node");
  if (!node) return;
  const i = Number(node.dataset.node), twist = event.target.closest(".twist") && children[i].length;
  go(i);
  if (twist) open(closed.has(i));
});
bindKeys([
  ["ArrowUp", "node above", () => step(-1)], ["ArrowDown", "node below", () => step(1)], ["ArrowLeft", "close the node, or to its parent", left], ["ArrowRight", "open the node, or to its first child", right],
  ["Home", "first node", () => go(visible()[0])], ["End", "last visible node", () => go(visible().at(-1))], ["Enter", "to the details, Escape leads back", () => $("token-title")?.focus()], ["Escape", "back to the node", show],
  ["b", "next branch", branch], ["n", "next of the nodes beside it", () => go(siblings(state.node)[(siblings(state.node).indexOf(state.node) + 1) % siblings(state.node).length])], ["y", "copy the branch's text", copyText],
]);
drawTree();
performance.mark("drawn");
