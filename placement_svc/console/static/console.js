// Search by key, completion of names, and refresh. The pages work without this script.
"use strict";

const INTERVALS = [["", "refresh by hand"], ["10", "every 10 s"], ["60", "every minute"]];
const MAX_OPTIONS = 50;

// "/" goes to the search field, unless the key belongs to a text.
document.addEventListener("keydown", (event) => {
  const target = event.target;
  const types = target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
  if (event.key === "/" && !types && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const search = document.getElementById("search");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
});

// Completion: the names that occur in the cloud, for the last piece of a list.
let names;

function loadNames() {
  const url = new URL("names.json", document.querySelector(".brand").href.replace(/\/?$/, "/"));
  names ??= fetch(url, { credentials: "same-origin" }).then((response) => (response.ok ? response.json() : {}));
  return names;
}

// What the form itself has: the suffixes of its groups, and the orders by the classes that it requests.
function formNames(form, kind) {
  const resources = [...form.querySelectorAll("input[name^=resources]")];
  if (kind === "suffixes") {
    return resources.map((input) => input.name.slice("resources".length)).filter(Boolean);
  }
  const amounts = resources.flatMap((input) => input.value.split(","));
  const classes = [...new Set(amounts.map((amount) => amount.split(":")[0].trim()).filter(Boolean))];
  return [...classes.flatMap((name) => [`spread:${name}`, `pack:${name}`]), "random"];
}

async function complete(input) {
  const kind = input.dataset.names;
  const isAmount = kind === "amounts";
  const isFromForm = kind === "suffixes" || kind === "orders";
  const all = isFromForm ? formNames(input.form, kind) : (await loadNames())[isAmount ? "resource_classes" : kind] ?? [];
  const start = kind === "orders" ? 0 : input.value.search(/[^,:!]*$/);
  const head = input.value.slice(0, start);
  const typed = input.value.slice(start).toUpperCase();
  const found = isAmount && /:\d*$/.test(input.value) ? [] : all.filter((name) => name.toUpperCase().includes(typed));
  const options = found.slice(0, MAX_OPTIONS).map((name) => {
    const option = document.createElement("option");
    option.value = head + name + (isAmount ? ":" : "");
    return option;
  });
  input.list.replaceChildren(...options);
}

function addCompletion(root) {
  for (const input of root.querySelectorAll("input[data-names]")) {
    const list = document.createElement("datalist");
    list.id = `names-${document.querySelectorAll("datalist").length}`;
    input.after(list);
    input.setAttribute("list", list.id);
    input.addEventListener("focus", () => complete(input));
    input.addEventListener("input", () => complete(input));
  }
}

// The codes of explanations are fetched one after the other: each costs as much as a few searches.
async function addCodes(root) {
  for (const place of root.querySelectorAll("[data-code]")) {
    const response = await fetch(place.dataset.code, { credentials: "same-origin" });
    place.textContent = response.ok ? (await response.json()).text : "";
  }
}

// Refresh: by hand or by interval, which is in the fragment of the URL; a hidden page pauses.
function interval() {
  return Number(new URLSearchParams(location.hash.slice(1)).get("refresh")) || 0;
}

async function refresh() {
  const response = await fetch(location.href, { credentials: "same-origin" });
  if (!response.ok || response.redirected) {
    location.reload();
    return;
  }
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const time = page.querySelector(".as-of time");
  const isBusy = document.querySelector("main").contains(document.activeElement) && document.activeElement.matches("input, textarea, select, canvas");
  if (!time || isBusy) {
    return;
  }
  document.querySelector(".as-of time").replaceWith(document.adoptNode(time));
  const map = document.getElementById("map");
  if (map) {
    map.dispatchEvent(new Event("refresh"));
    return;
  }
  const old = [...document.querySelectorAll("main > :not(.title)")];
  const fresh = [...page.querySelectorAll("main > :not(.title)")].map((node) => document.adoptNode(node));
  old.forEach((node) => node.remove());
  document.querySelector("main").append(...fresh);
  addCompletion(document.querySelector("main"));
  addCodes(document.querySelector("main"));
}

function addRefresh() {
  const link = document.querySelector("[data-refresh]");
  if (!link) {
    return;
  }
  const select = document.createElement("select");
  select.setAttribute("aria-label", "Refresh");
  for (const [value, text] of INTERVALS) {
    select.add(new Option(text, value, false, Number(value) === interval()));
  }
  link.after(select);
  link.addEventListener("click", (event) => {
    event.preventDefault();
    refresh();
  });
  let last = Date.now();
  select.addEventListener("change", () => {
    history.replaceState(null, "", location.pathname + location.search + (select.value ? `#refresh=${select.value}` : ""));
    last = Date.now();
  });
  setInterval(() => {
    if (interval() && !document.hidden && Date.now() - last >= interval() * 1000) {
      last = Date.now();
      refresh();
    }
  }, 1000);
}

addCompletion(document);
addCodes(document);
addRefresh();
