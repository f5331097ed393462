// The map of the hosts on a canvas: one cell for each, filled from below by its usage.
"use strict";

(() => {
  const root = document.getElementById("map");
  const canvas = root.querySelector("canvas");
  const tip = root.querySelector(".tip");
  const status = root.querySelector("#map-status");
  const reduced = root.querySelector("#map-reduced");
  const context = canvas.getContext("2d");
  const HEADING = 22;
  const HEADING_DISTANCE = 16;
  const PADDING = 8;
  const GAP = 2;
  const MIN_SIDE = 7;
  const MAX_SIDE = 64;
  const AREA = 420000;
  const NAMED = 56;
  const TIP_DISTANCE = 6;
  // The largest canvas, in pixels, that all browsers draw: the limits are those of Firefox and of Safari on phones.
  const MAX_CANVAS_SIDE = 32767;
  const MAX_CANVAS_AREA = 2 ** 24;
  const FONT = "11px system-ui, sans-serif";
  const FAILURE = "The map could not be read. The table is as of the time above.";
  const hint = status.textContent;
  const forcedColors = matchMedia("(forced-colors: active)");

  let data = { groups: [], classes: [], hosts: [] };
  let cells = [];
  let headings = [];
  let headingWidths = [];
  let focus = -1;
  // The uuid of the host that the line below the map describes.
  let described = "";
  let loads = 0;

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  // What is used of the capacity; null without an inventory. Without a capacity, any usage is too much.
  function ratio([, , , resourceClass, used, capacity]) {
    if (resourceClass < 0) {
      return null;
    }
    return capacity > 0 ? used / capacity : Number(used > 0);
  }

  function level(value) {
    return value >= 0.95 ? "--full" : value >= 0.8 ? "--high" : "--low";
  }

  function visible(name) {
    // The same rule as that of the table: `_is_visible` of `formatting.py`.
    return /[^\p{Z}\p{M}\p{Cc}\p{Cf}\p{Co}\p{Cs}\u115f\u1160\u2800\u3164\uffa0]/u.test(name) ? name : "(no name)";
  }

  // The percentage as the table has it: a host with something free is not full, and a used one not empty.
  function percentage(used, capacity) {
    if (capacity <= 0) {
      return used > 0 ? "over" : "–";
    }
    const percent = Math.floor((100 * used) / capacity);
    return used > 0 && percent < 1 ? "<1 %" : `${used < capacity ? Math.min(percent, 99) : percent} %`;
  }

  function amounts(host) {
    const [, , number, resourceClass, used, capacity] = host;
    const group = data.groups.length > 1 ? `, ${data.groups[number]}` : "";
    if (resourceClass < 0) {
      return `no such inventory${group}`;
    }
    const numbers = `${used.toLocaleString("en")} / ${capacity.toLocaleString("en")}`;
    return `${data.classes[resourceClass]} ${percentage(used, capacity)} (${numbers})${group}`;
  }

  // Write about a host in an element; its name is isolated from the direction of the text around it.
  function describe(host, element) {
    const name = document.createElement("bdi");
    name.textContent = visible(host[1]);
    element.replaceChildren(name, `: ${amounts(host)}`);
  }

  // Describe the same host with the current data. The line is a live region: an equal text would be read out again.
  function updateStatus() {
    const line = document.createElement("p");
    line.textContent = hint;
    const host = data.hosts.find(([uuid]) => uuid === described);
    if (host) {
      describe(host, line);
    }
    if (line.textContent !== status.textContent) {
      status.replaceChildren(...line.childNodes);
    }
  }

  // Cells in rows, group by group; groups that need less than a row are beside each other. Sized by capacity, the
  // width of a cell is that of the host.
  function layout(width) {
    const side = Math.max(MIN_SIDE, Math.min(MAX_SIDE, Math.floor(Math.sqrt(AREA / Math.max(1, data.hosts.length)))));
    const total = data.hosts.reduce((sum, host) => sum + Math.max(0, host[5]), 0);
    const mean = total / Math.max(1, data.hosts.length) || 1;
    const bySize = root.dataset.size === "capacity";
    const cellWidth = (host) => {
      const scaled = bySize ? Math.round((side * Math.max(0, host[5])) / mean) : side;
      return Math.max(4, Math.min(width - 2 * PADDING, scaled));
    };
    const cellsWidths = data.groups.map(() => 0);
    for (const host of data.hosts) {
      cellsWidths[host[2]] += cellWidth(host) + GAP;
    }
    const heading = data.groups.length > 1 ? HEADING : 0;
    const end = width - PADDING;
    cells = [];
    headings = [];
    let x = PADDING;
    let y = PADDING + heading;
    let group = -1;
    let next = PADDING;
    data.hosts.forEach((host, index) => {
      const w = cellWidth(host);
      if (host[2] !== group) {
        group = host[2];
        const groupWidth = Math.max(cellsWidths[group], headingWidths[group]);
        x = next;
        if (x > PADDING && x + groupWidth > end) {
          x = PADDING;
          y += side + PADDING + heading;
        }
        next = x + groupWidth + HEADING_DISTANCE;
        if (heading) {
          headings.push([data.groups[group], x, y - 8]);
        }
      } else if (x + w > end) {
        x = PADDING;
        y += side + GAP;
      }
      cells.push({ x, y, w, h: side, index });
      x += w + GAP;
    });
    return y + side + PADDING;
  }

  // The start of a text that fits into a width.
  function shortened(text, width) {
    if (context.measureText(text).width <= width) {
      return text;
    }
    let [fits, longer] = [0, text.length];
    while (longer - fits > 1) {
      const middle = (fits + longer) >> 1;
      if (context.measureText(`${text.slice(0, middle)}…`).width <= width) {
        fits = middle;
      } else {
        longer = middle;
      }
    }
    return `${text.slice(0, fits)}…`;
  }

  function drawCell(cell, colors) {
    const host = data.hosts[cell.index];
    const value = ratio(host);
    if (value === null) {
      context.strokeStyle = colors["--strong-line"];
      context.setLineDash([2, 2]);
      context.strokeRect(cell.x + 0.5, cell.y + 0.5, cell.w - 1, cell.h - 1);
      context.setLineDash([]);
    } else {
      context.fillStyle = colors["--track"];
      context.fillRect(cell.x, cell.y, cell.w, cell.h);
      const height = value > 0 ? Math.max(1, Math.round(cell.h * Math.min(1, value))) : 0;
      context.fillStyle = colors[level(value)];
      context.fillRect(cell.x, cell.y + cell.h - height, cell.w, height);
      if (forcedColors.matches) {
        // The colors of the page and of what is free are the same.
        context.strokeStyle = colors["--strong-line"];
        context.strokeRect(cell.x + 0.5, cell.y + 0.5, cell.w - 1, cell.h - 1);
      }
    }
    if (cell.w >= NAMED && cell.h >= 30) {
      context.save();
      context.beginPath();
      context.rect(cell.x, cell.y, cell.w, 16);
      context.clip();
      context.fillStyle = colors["--bg"];
      context.globalAlpha = 0.85;
      context.fillRect(cell.x, cell.y, cell.w, 16);
      context.globalAlpha = 1;
      context.fillStyle = colors["--text"];
      context.fillText(visible(host[1]), cell.x + 3, cell.y + 12);
      context.restore();
    }
  }

  function draw() {
    const width = root.clientWidth;
    if (!width) {
      return;
    }
    const height = layout(width);
    const fullScale = window.devicePixelRatio || 1;
    const scale = Math.min(
      fullScale,
      MAX_CANVAS_SIDE / Math.max(width, height),
      Math.sqrt(MAX_CANVAS_AREA / (width * height)),
    );
    reduced.hidden = scale === fullScale;
    canvas.width = Math.floor(width * scale);
    canvas.height = Math.floor(height * scale);
    canvas.style.height = `${height}px`;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.font = FONT;
    const names = ["--bg", "--text", "--muted", "--track", "--low", "--high", "--full", "--strong-line", "--link"];
    const colors = Object.fromEntries(names.map((name) => [name, color(name)]));
    context.fillStyle = colors["--bg"];
    context.fillRect(0, 0, width, height);
    context.fillStyle = colors["--muted"];
    for (const [text, x, y] of headings) {
      context.fillText(shortened(text, width - PADDING - x), x, y);
    }
    cells.forEach((cell) => drawCell(cell, colors));
    if (focus >= 0 && focus < cells.length) {
      const cell = cells[focus];
      context.strokeStyle = colors["--link"];
      context.lineWidth = 2;
      context.strokeRect(cell.x - 1, cell.y - 1, cell.w + 2, cell.h + 2);
      context.lineWidth = 1;
    }
  }

  function select(index, speaks) {
    focus = index;
    draw();
    const cell = cells[index];
    tip.hidden = !cell;
    if (!cell) {
      return;
    }
    describe(data.hosts[index], tip);
    if (speaks) {
      [described] = data.hosts[index];
      describe(data.hosts[index], status);
    }
    const left = Math.max(0, Math.min(cell.x, root.clientWidth - tip.offsetWidth));
    tip.style.left = `${left}px`;
    const below = cell.y + cell.h + TIP_DISTANCE;
    const end = canvas.getBoundingClientRect().top + below + tip.offsetHeight;
    tip.style.top = `${end <= window.innerHeight ? below : cell.y - TIP_DISTANCE - tip.offsetHeight}px`;
  }

  function at(event) {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    return cells.findIndex((cell) => x >= cell.x && x < cell.x + cell.w && y >= cell.y && y < cell.y + cell.h);
  }

  // The nearest cell of the row above or below.
  function vertical(direction) {
    const from = cells[focus];
    const rows = cells.filter((cell) => (direction > 0 ? cell.y > from.y : cell.y < from.y));
    if (!rows.length) {
      return focus;
    }
    const next = rows.reduce((best, cell) => (Math.abs(cell.y - from.y) < Math.abs(best - from.y) ? cell.y : best), rows[0].y);
    const row = rows.filter((cell) => cell.y === next);
    return row.reduce((best, cell) => (Math.abs(cell.x - from.x) < Math.abs(best.x - from.x) ? cell : best)).index;
  }

  // As with a link, a key or the middle button of the mouse opens a new tab.
  function open(index, event) {
    if (index < 0) {
      return;
    }
    const url = root.dataset.host.replace("UUID", data.hosts[index][0]);
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button === 1) {
      window.open(url, "_blank", "noopener");
    } else {
      location.href = url;
    }
  }

  canvas.addEventListener("mousemove", (event) => {
    const index = at(event);
    if (index !== focus) {
      select(index, false);
    }
  });
  canvas.addEventListener("mouseleave", () => select(-1, false));
  canvas.addEventListener("click", (event) => open(at(event), event));
  canvas.addEventListener("auxclick", (event) => event.button === 1 && open(at(event), event));
  canvas.addEventListener("focus", () => cells.length && focus < 0 && canvas.matches(":focus-visible") && select(0, true));
  canvas.addEventListener("blur", () => select(-1, false));
  canvas.addEventListener("keydown", (event) => {
    if (!cells.length) {
      return;
    }
    // Without a selected host, an arrow key selects the first one.
    const arrow = (move) => (focus < 0 ? 0 : move());
    const moves = {
      ArrowLeft: () => arrow(() => Math.max(0, focus - 1)),
      ArrowRight: () => arrow(() => Math.min(cells.length - 1, focus + 1)),
      ArrowUp: () => arrow(() => vertical(-1)),
      ArrowDown: () => arrow(() => vertical(1)),
      Home: () => 0,
      End: () => cells.length - 1,
    };
    if (event.key === "Enter") {
      open(focus, event);
    } else if (event.altKey || event.ctrlKey || event.metaKey) {
      // Shortcuts of the browser, such as Alt and an arrow key for Back.
      return;
    } else if (event.key === "Escape") {
      tip.hidden = true;
    } else if (moves[event.key]) {
      event.preventDefault();
      select(moves[event.key](), true);
      const box = canvas.getBoundingClientRect();
      const cell = cells[focus];
      if (box.top + cell.y < 0 || box.top + cell.y + cell.h > window.innerHeight) {
        window.scrollBy(0, box.top + cell.y - window.innerHeight / 2);
      }
    }
  });

  async function load() {
    const number = ++loads;
    const fetched = await fetchInTime(root.dataset.url, (response) => response.json());
    if (number !== loads) {
      return;
    }
    if (!fetched?.response.ok) {
      root.hidden = false;
      status.textContent = FAILURE;
      return;
    }
    const uuid = data.hosts[focus]?.[0];
    data = fetched.body;
    context.font = FONT;
    headingWidths = data.groups.map((group) => context.measureText(group).width);
    root.hidden = data.hosts.length === 0;
    updateStatus();
    const isTipHidden = tip.hidden;
    select(data.hosts.findIndex((host) => host[0] === uuid), false);
    tip.hidden ||= isTipHidden;
    root.dataset.loaded = data.hosts.length;
  }

  root.addEventListener("refresh", load);
  new ResizeObserver(draw).observe(root);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  matchMedia("print").addEventListener("change", draw);
  forcedColors.addEventListener("change", draw);
  load();
})();
