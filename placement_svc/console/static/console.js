// Search by key, completion of names, and refresh. The pages work without this script.
"use strict";

const INTERVALS = [["", "refresh by hand"], ["10", "every 10 s"], ["60", "every minute"]];
const MAX_OPTIONS = 50;
const TIME_LIMIT_MS = 30_000;

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

async function loadNames() {
  const url = new URL("names.json", document.querySelector(".brand").href.replace(/\/?$/, "/"));
  names ??= fetchInTime(url, (response) => response.json());
  const fetched = await names;
  if (!fetched?.response.ok) {
    // The service may have been restarted meanwhile: the next key tries again.
    names = undefined;
    return {};
  }
  return fetched.body;
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
  const start = kind === "orders" ? 0 : input.value.search(/(?!\s)[^,:!]*$/);
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
  for (const input of root.querySelectorAll("input[data-names]:not([list])")) {
    const list = document.createElement("datalist");
    list.id = `names-${document.querySelectorAll("datalist").length}`;
    input.after(list);
    input.setAttribute("list", list.id);
    input.addEventListener("focus", () => complete(input));
    input.addEventListener("input", () => complete(input));
  }
}

// The codes of explanations are fetched one after the other: each costs as much as a few searches. So pages that
// are refreshed by interval keep them for a minute, and equal requests have one.
const CODES_KEPT_MS = 60_000;
const codes = new Map();

function codeOf(url) {
  const kept = codes.get(url);
  if (kept && Date.now() - kept.time < CODES_KEPT_MS) {
    return kept.text;
  }
  const text = fetchInTime(url, (response) => response.json()).then((fetched) => {
    if (fetched?.response.ok) {
      return fetched.body.text;
    }
    // The next refresh tries again.
    codes.delete(url);
    return "";
  });
  codes.set(url, { text, time: Date.now() });
  return text;
}

async function addCodes(root) {
  for (const place of root.querySelectorAll("[data-code]")) {
    const text = await codeOf(place.dataset.code);
    if (!place.isConnected) {
      return;
    }
    place.textContent = text;
  }
}

// Refresh: by hand or by interval, which is in the fragment of the URL; a hidden page pauses.
function intervalInUrl() {
  const chosen = new URLSearchParams(location.hash.slice(1)).get("refresh") ?? "";
  return INTERVALS.some(([value]) => value === chosen) ? chosen : "";
}

// The fields that the user has edited since their form was sent. What a browser restores after Back was sent.
const edited = new WeakSet();
document.addEventListener("input", (event) => edited.add(event.target));
document.addEventListener("submit", (event) => [...event.target.elements].forEach((field) => edited.delete(field)));

function isChanged(field) {
  if (!edited.has(field)) {
    return false;
  }
  if (field.matches("select")) {
    const options = [...field.options];
    return !(options.find((option) => option.defaultSelected) ?? options[0]).selected;
  }
  return field.value !== field.defaultValue;
}

function isEdited(main) {
  const active = document.activeElement;
  const fields = "form :is(input, textarea, select)";
  const isFocused = main.contains(active) && active.matches(fields);
  return isFocused || [...document.querySelectorAll(fields)].some(isChanged);
}

// Where a node is: its index at each level below `main`. The text between the elements of `main` does not count.
function pathTo(node, main) {
  const path = [];
  for (let each = node; each !== main; each = each.parentNode) {
    const siblings = each.parentNode === main ? main.children : each.parentNode.childNodes;
    path.unshift([...siblings].indexOf(each));
  }
  return path;
}

function nodeAt([first, ...rest], main) {
  return rest.reduce((node, index) => node?.childNodes[index], main.children[first]);
}

// Return a function that selects the same text in the new content, if it is at the same place.
function keepSelection(main) {
  const selection = getSelection();
  const { anchorNode, anchorOffset, focusNode, focusOffset } = selection;
  if (selection.isCollapsed || ![anchorNode, focusNode].every((node) => node !== main && main.contains(node))) {
    return () => {};
  }
  const [anchorPath, focusPath] = [pathTo(anchorNode, main), pathTo(focusNode, main)];
  return () => {
    const [anchor, end] = [nodeAt(anchorPath, main), nodeAt(focusPath, main)];
    if (anchor?.textContent === anchorNode.textContent && end?.textContent === focusNode.textContent) {
      selection.setBaseAndExtent(anchor, anchorOffset, end, focusOffset);
    }
  };
}

// Mark the provider that the fragment of the URL names: for browsers, a new element is not the target.
function markTarget() {
  document.getElementById(location.hash.slice(1))?.classList.add("target");
}

// Return a function that opens, scrolls, focuses and selects the same in the new content.
function keepState(main) {
  const all = (selector) => [...main.querySelectorAll(selector)];
  const focusable = "a, button, summary, [tabindex]";
  const opened = all("details").map((element) => element.open);
  const scrolled = all(".scroll").map((element) => element.scrollLeft);
  const active = document.activeElement;
  const hadFocus = main.contains(active);
  const select = keepSelection(main);
  const position = all(focusable).indexOf(active);
  const { scrollX, scrollY } = window;
  return () => {
    const details = all("details");
    if (details.length === opened.length) {
      details.forEach((element, index) => { element.open = opened[index]; });
    }
    all(".scroll").forEach((element, index) => { element.scrollLeft = scrolled[index] ?? 0; });
    if (hadFocus && active.isConnected) {
      active.focus({ preventScroll: true });
    } else if (position >= 0) {
      const elements = all(focusable);
      const distance = (element) => Math.abs(elements.indexOf(element) - position);
      const same = elements.filter((element) => active.href && element.href === active.href);
      const [nearest] = same.sort((one, other) => distance(one) - distance(other));
      (nearest ?? elements[position])?.focus({ preventScroll: true });
    }
    select();
    markTarget();
    // Browsers scroll when details above are opened again.
    scrollTo({ left: scrollX, top: scrollY, behavior: "instant" });
  };
}

// Put the forms, with what the user has typed, into a new page of the same URL: the server fills them from the URL.
function keepForms(main, page) {
  const forms = main.querySelectorAll("form");
  const fresh = page.querySelectorAll("main form");
  if (forms.length === fresh.length) {
    fresh.forEach((form, index) => form.replaceWith(forms[index]));
  }
}

function showFailure(main, problem) {
  document.getElementById("not-refreshed")?.remove();
  const note = document.createElement("p");
  note.id = "not-refreshed";
  note.className = "problem";
  note.setAttribute("role", "status");
  note.textContent = `The last refresh failed: ${problem}. The data is as of the time above.`;
  main.querySelector(".title").after(note);
}

// Replace the content of the page, but not the map, which has scripts of its own.
function replaceContent(main, page) {
  const map = document.getElementById("map");
  const restore = keepState(main);
  keepForms(main, page);
  main.querySelector(".as-of time").replaceWith(document.adoptNode(page.querySelector(".as-of time")));
  const fresh = [...page.querySelectorAll("main > :not(.title)")].map(
    (node) => (map && node.id === "map" ? map : document.adoptNode(node)),
  );
  const position = fresh.indexOf(map);
  main.querySelectorAll(":scope > :not(.title)").forEach((node) => fresh.includes(node) || node.remove());
  if (position >= 0) {
    // The map stays in the document, so that it keeps the focus.
    map.before(...fresh.slice(0, position));
    map.after(...fresh.slice(position + 1));
  } else {
    main.append(...fresh);
  }
  addCompletion(main);
  addCodes(main);
  restore();
  map?.dispatchEvent(new Event("refresh"));
}

// Whether a page says what is wrong with its query; it lacks the parts that have scripts then.
function hasProblem(page) {
  return page.querySelector("main > [role=alert]") !== null;
}

// Return a response and its body, which `read` reads; null if one of them fails, or takes longer than the limit.
async function fetchInTime(url, read) {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), TIME_LIMIT_MS);
  try {
    const response = await fetch(url, { credentials: "same-origin", signal: controller.signal });
    return { response, body: await read(response) };
  } catch {
    return null;
  }
}

// The number of the latest refresh, and whether it runs: the response to an older one is out of date.
let latest = 0;
let isRunning = false;

async function refresh(isByHand) {
  if (isRunning && !isByHand) {
    return;
  }
  const number = ++latest;
  const main = document.querySelector("main");
  isRunning = true;
  main.setAttribute("aria-busy", "true");
  const fetched = await fetchInTime(location.href, (response) => response.text());
  if (number !== latest) {
    return;
  }
  isRunning = false;
  main.removeAttribute("aria-busy");
  if (!fetched || fetched.response.status >= 500) {
    const problem = fetched ? `responded with ${fetched.response.status}` : "did not respond";
    showFailure(main, `the service ${problem}`);
    return;
  }
  const { response, body } = fetched;
  const page = new DOMParser().parseFromString(body, "text/html");
  if (!isByHand && isEdited(main)) {
    return;
  }
  // Another title is that of the log-in form, of an error, or of the page after an error.
  if (response.redirected || page.title !== document.title || hasProblem(page) !== hasProblem(document)) {
    location.reload();
    return;
  }
  if (isByHand) {
    codes.clear();
  }
  replaceContent(main, page);
}

function addRefresh() {
  const link = document.querySelector("[data-refresh]");
  if (!link) {
    return;
  }
  const select = document.createElement("select");
  select.setAttribute("aria-label", "Refresh");
  for (const [value, text] of INTERVALS) {
    select.add(new Option(text, value));
  }
  select.value = intervalInUrl();
  link.after(select);
  const writeUrl = () => {
    const fragment = select.value ? `#refresh=${select.value}` : "";
    history.replaceState(null, "", location.pathname + location.search + fragment);
  };
  link.addEventListener("click", (event) => {
    event.preventDefault();
    refresh(true);
  });
  let last = Date.now();
  select.addEventListener("change", () => {
    writeUrl();
    last = Date.now();
  });
  addEventListener("hashchange", () => {
    if (location.hash.startsWith("#refresh=")) {
      select.value = intervalInUrl();
    } else if (select.value) {
      // A link within the page, such as the one to its content, has replaced the interval.
      writeUrl();
    }
  });
  setInterval(() => {
    const seconds = Number(select.value);
    if (seconds && !document.hidden && Date.now() - last >= seconds * 1000) {
      last = Date.now();
      refresh(false);
    }
  }, 1000);
}

// The page that a log-in leads to: browsers do not send the fragment, which has the interval or a provider.
function addFragment() {
  const next = document.querySelector(".login [name=next]");
  if (next && !next.value.includes("#")) {
    next.value += location.hash;
  }
}

addCompletion(document);
addCodes(document);
addRefresh();
addFragment();
