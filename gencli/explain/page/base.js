// What all kinds of pages share: elements, numbers, texts, keys, the theme, and copies.
const $ = (id) => document.getElementById(id);
const data = await unpacked($("data").textContent);

// The data is JSON, compressed and in base64.
async function unpacked(text) {
  if (!("DecompressionStream" in globalThis)) $("main").textContent = "This page needs a browser of 2023 or later.";
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

// An element. Texts are text nodes without control characters, so nothing of a token is ever markup.
function make(tag, attributes, ...children) {
  const node = document.createElement(tag), plain = (value) => (typeof value === "string" ? shown(value) : value);
  for (const [name, value] of Object.entries(attributes ?? {})) if (value !== null && value !== undefined) node.setAttribute(name, plain(value));
  node.append(...children.filter((child) => child !== null && child !== undefined).map(plain));
  return node;
}
function drawn(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}
function button(text, action, attributes) {
  const node = make("button", { type: "button", ...attributes }, text);
  node.addEventListener("click", action);
  return node;
}

// Control and format characters are shown by their code; a joiner stays behind a letter or mark that joins.
function shown(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (char, at) => {
    if (char === "\n" || char === "\t") return char;
    if ((char === "\u200c" || char === "\u200d") && /[\p{L}\p{M}\p{S}]$/u.test(text.slice(0, at)) && text.charCodeAt(at - 1) >= 0x590) return char;
    const code = char.codePointAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  });
}
function quoted(text, most = 24) {
  const whole = shown(text).replaceAll("\n", "\\n").replaceAll("\t", "\\t").replaceAll('"', '\\"');
  const letters = whole.length > most ? Array.from(whole.slice(0, 4 * most)) : [];
  return `"${letters.length > most ? letters.slice(0, most - 1).join("") + "\u2026" : whole}"`;
}
const nameOf = (id) => (id === null || id === undefined ? "-" : data.names[id] ? quoted(data.names[id]) : `\u27e8id ${id}\u27e9`);
const label = (text, more = "") => make("span", { class: `name ${more}`, dir: "auto" }, text);

function p(value) {
  if (value === null || value === undefined) return "-";
  if (value === 0) return "0";
  return value >= 0.0001 ? value.toFixed(value >= 0.001 ? 3 : 4).replace(/^0/, "") : value.toExponential(0);
}
const decimal = (value, unit = "", digits = 2) => (value === null || value === undefined ? "-" : value.toFixed(digits) + unit);
const whole = (value) => value.toLocaleString("en");
const rankOf = (value) => (value === null || value === undefined ? "masked" : `#${whole(value)}`);
const some = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

function bar(share, kind = "") {
  const holder = make("span", { class: `bar ${kind}`, "aria-hidden": "true" }), inner = make("i");
  inner.style.width = `${(100 * Math.max(0, Math.min(1, share))).toFixed(2)}%`;
  holder.append(inner);
  return holder;
}

// Texts of tokens in their place: newlines and tabs get marks, an empty one its id.
function fill(node, text, empty = "", breaks = "") {
  const mark = (sign) => make("span", { class: "mark" }, sign);
  if (!text) node.append(mark(empty));
  shown(text).split(/([\n\t])/).forEach((part) => {
    if (part === "\t") node.append(mark("\u21e5\u2003"));
    else if (part === "\n") node.append(mark("\u23ce"), breaks);
    else if (part) node.append(part);
  });
  return node;
}

let notices;
function notice(text) {
  $("notice").textContent = text;
  clearTimeout(notices);
  notices = setTimeout(() => { $("notice").textContent = ""; }, 2500);
}
function copy(text, what) {
  const byHand = () => { $("copied").value = text; $("copy").showModal(); $("copied").select(); };
  if (!navigator.clipboard) return byHand();
  navigator.clipboard.writeText(text).then(() => notice(`${what} copied`), byHand);
}

// A choice of one of a few values, as native radio buttons.
function choices(name, title, options, chosen, action) {
  const set = make("fieldset", { class: "choices" }, make("legend", null, title));
  for (const [value, text] of options) {
    const input = make("input", { type: "radio", name, value, id: `${name}-${value}` });
    input.checked = value === chosen;
    input.addEventListener("change", () => action(value));
    set.append(input, make("label", { for: input.id }, text));
  }
  return set;
}
function chooser(id, title, options, chosen, action) {
  const list = make("select", { id });
  options.forEach(([value, text]) => list.append(make("option", { value }, text)));
  list.value = chosen;
  list.addEventListener("change", () => action(list.value));
  return make("label", { class: "chooser" }, make("span", null, title), list);
}
function cycle(name) {
  const all = [...document.querySelectorAll(`input[name="${name}"]`)];
  const next = all[(all.findIndex((one) => one.checked) + 1) % all.length];
  next.checked = true;
  next.dispatchEvent(new Event("change"));
  $("said").textContent = next.labels[0].textContent;
}

function theme(dark) {
  document.documentElement.classList.toggle("dark", dark);
  $("theme").setAttribute("aria-pressed", String(dark));
}
const turnTheme = () => theme(!document.documentElement.classList.contains("dark"));
const ANY_PAGE = [["t", "dark or light", turnTheme], ["?", "these keys", () => $("keys").showModal()]];
const SIGNS = { ArrowLeft: "\u2190", ArrowRight: "\u2192", ArrowUp: "\u2191", ArrowDown: "\u2193" };

// `entries` are [key, what it does, action]. Fields keep the keys that they use themselves.
function bindKeys(entries) {
  const all = new Map([...entries, ...ANY_PAGE].map(([key, , action]) => [key, action]));
  for (const [key, text] of [...entries, ...ANY_PAGE]) $("key-list").append(make("dt", null, make("kbd", null, SIGNS[key] ?? key)), make("dd", null, text));
  document.addEventListener("keydown", (event) => {
    const target = event.target, action = all.get(event.key);
    if (!action || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (target.matches("select, textarea, input[type=search]")) return;
    if (target.matches("input, summary") && (event.key === " " || event.key === "Enter" || /^(Arrow|Home|End)/.test(event.key))) return;
    if (target.matches("button, summary") && (event.key === "Enter" || event.key === " ")) return;
    event.preventDefault();
    action();
  });
}

new ResizeObserver(([header]) => document.documentElement.style.setProperty("--head", `${header.target.offsetHeight}px`)).observe(document.querySelector("header"));
const system = matchMedia("(prefers-color-scheme: dark)");
theme(system.matches);
system.addEventListener("change", () => theme(system.matches));
$("theme").addEventListener("click", turnTheme);
$("help").addEventListener("click", () => $("keys").showModal());
$("sheet").addEventListener("click", () => {
  const open = $("sheet").getAttribute("aria-expanded") !== "true";
  $("sheet").setAttribute("aria-expanded", String(open));
});
