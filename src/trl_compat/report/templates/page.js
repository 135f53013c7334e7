"use strict";
// Filters, the list of cells and their evidence.  Every text becomes a text node, never markup.
document.documentElement.classList.add("js");
(() => {
  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const data = JSON.parse(find("#results").textContent);
  const packages = ["trl", "torch", "transformers", "deepspeed", "accelerate", "peft"];
  // Cells are kept column by column; one is put together when it is shown.
  const valueOf = (name, index) => {
    const { values, at } = data.columns[name];
    return values[at ? at[index] : 0];
  };
  const known = new Map();
  const inCommands = { stack: "\ue000", failure: "\ue001", variant: "\ue002", model: "\ue003" };
  const cellAt = (index) => {
    if (known.has(index)) return known.get(index);
    const cell = Object.fromEntries(Object.keys(data.columns).map((name) => [name, valueOf(name, index)]));
    cell.id = idAt(index);
    for (const [name, sign] of Object.entries(inCommands)) cell.command = cell.command.replaceAll(sign, () => cell[name]);
    if (typeof cell.log === "number") cell.log = `evidence/${cell.stack}.log#L${cell.log}`;
    known.set(index, cell);
    return cell;
  };
  const idAt = (index) => data.ids[index] ??
    [...["stack", "failure", "variant", "model"].map((name) => valueOf(name, index)), `x${valueOf("ranks", index)}`,
      valueOf("fix", index)].filter((part) => part !== null && part !== "").join("__");
  const everyCell = [...Array(data.count).keys()];
  const later = (make) => { let made; return () => (made ??= make()); };
  const byId = later(() => new Map(everyCell.map((index) => [idAt(index), index])));
  const stackNames = Object.keys(data.stacks);
  const kindOf = (cell) => data.outcomes[cell.outcome].kind;

  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children.filter((child) => child !== null && child !== ""));
    return element;
  };
  const mark = (cell) => {
    const sign = make("span", {}, data.signs[kindOf(cell)]);
    sign.setAttribute("aria-hidden", "true");
    return make("span", { className: `mark ${kindOf(cell)}` }, sign, ` ${cell.outcome}`);
  };
  const say = (text) => { find("#said").textContent = text; };

  // --- copying ---
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = make("textarea", { value: text });
      (find("dialog[open]") ?? document.body).append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    await copy(find("pre", button.parentElement).textContent);
    button.textContent = "Copied";
    say("Copied");
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  const snippet = (text, label) => {
    const pre = make("pre", { tabIndex: 0, ariaLabel: label }, make("code", {}, text.trimEnd()));
    const button = make("button", { type: "button", className: "copy", ariaLabel: `Copy: ${label}` }, "Copy");
    return make("div", { className: "snippet" }, pre, button);
  };

  // --- filters ---
  const form = find("#filters");
  const haystack = later(() => everyCell.map((index) => {
    // Of the versions only TRL's: 0.14.0 is also one of peft, and stands in many a reason.
    const words = [idAt(index), `trl ${data.stacks[valueOf("stack", index)].versions.trl}`,
      data.failures[valueOf("failure", index)]?.title, valueOf("outcome", index), valueOf("maskedBy", index),
      ...(valueOf("signature", index) ?? [])];
    return words.join(" ").toLowerCase();
  }));
  let chosen = everyCell;
  const select = (wanted, mine) => {
    const words = wanted.q.toLowerCase().split(/\s+/).filter(Boolean);
    const stacks = new Set(stackNames.filter((name) => (!mine || mine.has(name)) &&
      packages.every((one) => !wanted[one] || data.stacks[name].versions[one] === wanted[one])));
    // By the place of a value among those of its column: no text is compared more than once.
    const passing = [["stack", (value) => stacks.has(value)],
      ...["failure", "outcome", "model", "evidence"].filter((name) => wanted[name]).map((name) => [name, (value) => value === wanted[name]])]
      .filter(([name]) => name in data.columns)
      .map(([name, test]) => ({ at: data.columns[name].at, passes: data.columns[name].values.map(test) }));
    return everyCell.filter((index) =>
      passing.every(({ at, passes }) => passes[at ? at[index] : 0]) &&
      words.every((word) => haystack()[index].includes(word)));
  };
  const boxesOf = (row) => all("td", row).map((box) => ({ box, shown: box.firstElementChild, failure: box.dataset.failure }));
  const rows = all(".overview .stacks tr").map((row) => ({ row, stack: row.dataset.stack, group: row.parentElement.dataset.minor, boxes: boxesOf(row) }));
  const groups = all(".overview .minor").map((head) => ({
    head, minor: head.dataset.minor, fold: find(".fold", head), boxes: boxesOf(head),
    body: all(".overview .stacks").find((body) => body.dataset.minor === head.dataset.minor) }));
  const columnHeads = all(".overview thead [data-failure]");
  const hide = (element, hidden) => { if (element.hidden !== hidden) element.hidden = hidden; };
  const unfold = (group, open) => {
    group.body.classList.toggle("open", open);
    group.fold.setAttribute("aria-expanded", String(open));
  };
  for (const group of groups) {
    group.fold.addEventListener("click", () => unfold(group, group.fold.getAttribute("aria-expanded") !== "true"));
  }
  const FEW = 30;
  const filter = () => {
    const wanted = Object.fromEntries(new FormData(form));
    chosen = select(wanted, nearest(wanted));
    const everything = chosen.length === data.count;
    const places = new Map();
    const failures = new Set();
    for (const index of chosen) {
      const stack = valueOf("stack", index);
      const failure = valueOf("failure", index);
      if (!places.has(stack)) places.set(stack, new Set());
      places.get(stack).add(failure);
      failures.add(failure);
    }
    const present = new Map();
    for (const { row, stack, group, boxes } of rows) {
      const here = places.get(stack);
      hide(row, !everything && !here);
      if (here) present.set(group, (present.get(group) ?? 0) + 1);
      for (const { box, shown, failure } of boxes) {
        hide(shown, !everything && !here?.has(failure));
        hide(box, !everything && !failures.has(failure));
      }
    }
    for (const group of groups) {
      hide(group.head, !everything && !present.has(group.minor));
      unfold(group, !everything && places.size <= FEW && present.has(group.minor));
      for (const { box, failure } of group.boxes) hide(box, !everything && !failures.has(failure));
    }
    for (const head of columnHeads) hide(head, !everything && !failures.has(head.dataset.failure));
    find("#matching").textContent = everything
      ? `All ${data.count} cells. Open one for its evidence.`
      : `${chosen.length} of ${data.count} cells match, on ${places.size} stacks. Each box shows its worst outcome.`;
    list();
  };

  // --- your versions ---
  const OURS = ["trl", "transformers", "deepspeed"];
  const NEAREST = 5;
  const WEIGHT = { trl: 2, transformers: 1, deepspeed: 1 };
  const parsed = new Map();
  const numbers = (version) => {
    if (!parsed.has(version)) parsed.set(version, /^\d+(\.\d+)*/.exec(version)?.[0].split(".").map(Number) ?? null);
    return parsed.get(version);
  };
  const order = (a, b) => {
    for (let place = 0; place < Math.max(a.length, b.length); place += 1) {
      if ((a[place] ?? 0) !== (b[place] ?? 0)) return (a[place] ?? 0) - (b[place] ?? 0);
    }
    return 0;
  };
  const versionsOf = later(() => Object.fromEntries(OURS.map((name) => [name,
    [...new Set(stackNames.map((stack) => data.stacks[stack].versions[name]))].filter(numbers)
      .sort((a, b) => order(numbers(a), numbers(b)))])));
  for (const name of OURS) {
    find(`#known-${name}`).append(...versionsOf()[name].toReversed().map((version) => make("option", { value: version })));
  }
  // How many of the releases that were run lie between two, of all; a release between counts half.
  const places = new Map();
  const placeOf = (name, version) => {
    const key = `${name} ${version}`;
    if (!places.has(key)) {
      places.set(key, versionsOf()[name].reduce((sum, other) => {
        const found = order(numbers(other), numbers(version));
        return sum + (found < 0 ? 1 : found === 0 ? 0.5 : 0);
      }, 0));
    }
    return places.get(key);
  };
  const apart = (name, wanted, version) => numbers(version)
    ? Math.abs(placeOf(name, wanted) - placeOf(name, version)) / versionsOf()[name].length
    : Infinity;
  const named = (stack) => OURS.map((name) => `${name} ${data.stacks[stack].versions[name]}`).join(", ");
  // The stacks that the versions in the form leave, or null without any; what is said of them.
  const nearest = (form) => {
    const wanted = OURS.map((name) => [name, form[`mine-${name}`].trim()]).filter(([, version]) => version);
    const box = find("#nearest");
    box.hidden = !wanted.length;
    if (!wanted.length) return null;
    const odd = wanted.find(([, version]) => !numbers(version));
    if (odd) {
      box.replaceChildren(`“${odd[1]}” is not a version such as 1.12.0.`);
      return null;
    }
    const fits = (stack, [name, version]) => {
      const here = data.stacks[stack].versions[name];
      return here === version || here.startsWith(`${version}.`);
    };
    const exact = stackNames.filter((stack) => wanted.every((one) => fits(stack, one)));
    if (exact.length) {
      box.replaceChildren(exact.length === 1 ? `Your versions were run: ${exact[0]}.` : `Your versions were run in ${exact.length} stacks.`);
      return new Set(exact);
    }
    const near = stackNames.map((stack) => ({ stack, far: wanted.reduce((sum, [name, version]) =>
      sum + (fits(stack, [name, version]) ? 0 : WEIGHT[name] * apart(name, version, data.stacks[stack].versions[name])), 0) }))
      .filter(({ far }) => far < Infinity).sort((a, b) => a.far - b.far).slice(0, NEAREST);
    const told = near.map(({ stack }) => {
      const differs = wanted.filter((one) => !fits(stack, one)).map(([name, version]) => `${name} ${data.stacks[stack].versions[name]} instead of ${version}`);
      return make("li", {}, `${stack} (${named(stack)}): ${differs.join(", ")}`);
    });
    box.replaceChildren("Your versions were not run together. Nearest to yours:", make("ul", {}, ...told));
    return new Set(near.map(({ stack }) => stack));
  };
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const button of all(".show-cells")) {
    button.addEventListener("click", () => {
      form.reset();
      form.elements.failure.value = button.dataset.failure;
      filter();
      find("#cells").scrollIntoView();
    });
  }

  // --- every cell ---
  const PAGE = 100;
  let listed = PAGE;
  const list = () => { listed = PAGE; draw(); };
  const draw = () => {
    const shown = chosen.slice(0, listed).map(cellAt).map((cell) => {
      const open = make("button", { type: "button", className: `mark ${kindOf(cell)}`, ariaLabel: `${cell.outcome}: open the evidence of ${cell.id}` }, `${data.signs[kindOf(cell)]} ${cell.outcome}`);
      open.addEventListener("click", () => show(cell.stack, cell.failure, cell.id));
      const fix = cell.fix ? `${cell.fix}${cell.wrongFix ? " (a wrong fix)" : ""}` : "";
      return make("tr", {}, make("td", {}, open),
        ...[cell.stack, cell.failure, `${cell.variant}${cell.control ? " (control)" : ""}`, cell.model, fix, cell.evidence]
          .map((text) => make("td", {}, text)));
    });
    find("#list tbody").replaceChildren(...shown);
    find("#listed").textContent = `${shown.length} of ${chosen.length} cells${chosen.length < data.count ? " that match the filters" : ""}`;
    find("#more").hidden = listed >= chosen.length;
  };
  find("#more").addEventListener("click", () => { listed += PAGE; draw(); });

  // --- evidence ---
  const conditions = (cell) => data.failures[cell.failure]?.variants[cell.variant] ?? "";
  const link = (cell, text) => {
    const button = make("button", { type: "button" }, text);
    button.addEventListener("click", () => show(cell.stack, cell.failure, cell.id));
    return button;
  };
  const fixes = (cell) => {
    const known = Object.entries(data.failures[cell.failure]?.fixes ?? {});
    if (cell.fix || cell.outcome !== "reproduced") return [];
    return known.flatMap(([name, fix]) => {
      const place = byId().get(`${cell.id}__${name}`);
      if (place === undefined) return [];
      const proof = cellAt(place);
      return [make("p", {}, `${name}: ${fix.summary}`), snippet(fix.snippet, `fix ${name}`),
        make("p", {}, `Run in the same place: ${proof.outcome}. `, link(proof, "See the proof"))];
    });
  };
  const applied = (cell) => {
    const failure = data.failures[cell.failure];
    if (!cell.fix) return [];
    if (cell.wrongFix) return [make("p", {}, `${cell.fix}, a known wrong fix: ${failure?.wrongFixes[cell.fix] ?? ""}`)];
    const fix = failure?.fixes[cell.fix];
    return [make("p", {}, `${cell.fix}: ${fix?.summary ?? ""}`), ...(fix ? [snippet(fix.snippet, `fix ${cell.fix}`)] : [])];
  };
  const bullets = (texts) => make("ul", {}, ...texts.map((text) => make("li", {}, text)));
  const packagesOf = (cell) => {
    const stack = data.stacks[cell.stack];
    const lines = stack.packages.map((place) => data.packages[place]);
    const lock = stack.lock ? ` Lock ${stack.lock.slice(0, 12)}.` : "";
    const parts = [make("p", {}, `${[...packages, "python"].map((name) => `${name} ${stack.versions[name]}`).join(", ")}; other packages as of ${stack.asOf}.${lock}`)];
    if (lines.length) parts.push(make("details", {}, make("summary", {}, `All ${lines.length} packages`), snippet(lines.join("\n"), "exact packages")));
    return parts;
  };
  const launched = { preloaded: "forked from a parent with the imports done", torchrun: "by plain torchrun" };
  const ranIn = (cell) => {
    const run = data.runs[cell.run];
    if (!run) return "Run and machine are unknown.";
    return `In run ${cell.run}, on ${run.where}: ${run.command} (trl-compat ${run.version}, profile ${run.profile})${run.note ? `; ${run.note}` : ""}.`;
  };
  const facts = (cell) => {
    const [exception, message, where] = cell.signature ?? [];
    const outcome = data.outcomes[cell.outcome];
    const mask = cell.maskedBy && data.failures[cell.maskedBy];
    return [
      ["Outcome", [make("p", {}, `${outcome.sentence} ${cell.reason}`),
        cell.agrees && cell.expected !== "nothing" ? null : make("p", {}, `The advisories predict: ${cell.expected}.`),
        mask ? make("p", {}, `Masked by ${cell.maskedBy}: ${mask.title}. ${mask.advice}`) : null]],
      ["Fix applied", applied(cell)],
      ["The fix", fixes(cell)],
      ["What was run", [`${cell.variant} (${conditions(cell)})${cell.control ? ", the control of this failure" : ""}; ${cell.model}, ${cell.ranks} ranks, ${cell.backend}, ${launched[cell.launch] ?? cell.launch}; ${cell.seconds} s on ${cell.day}. Evidence: ${cell.evidence}.`,
        make("p", {}, ranIn(cell))]],
      ["Signature", exception ? [make("code", {}, `${exception}: ${message}`), make("p", {}, `raised in ${where}`)] : []],
      ["Traceback", cell.traceback ? [snippet(cell.traceback, "end of the rank's traceback")] : []],
      ["Asserted", cell.checks.length ? [bullets(cell.checks)] : []],
      ["Attempts", cell.attempts.length ? [bullets(cell.attempts.map(([launch, result, seconds]) => `${launch}: ${result}, ${seconds} s`))] : []],
      ["Stand-ins", cell.standIns.length ? [make("details", {}, make("summary", {}, `${cell.standIns.length} for CPU ranks instead of GPUs`), bullets(cell.standIns.map((name) => `${name}: ${data.standIns[name] ?? ""}`)))] : []],
      ["Packages", packagesOf(cell)],
      ["Run it again", [snippet(cell.command, "command that runs exactly this cell")]],
      ["Log", cell.log ? [make("a", { href: cell.log }, cell.log)] : []],
    ].filter(([, parts]) => parts.length);
  };
  const block = (cell) => {
    const about = [cell.variant, cell.model, cell.fix && `with ${cell.wrongFix ? "the wrong fix " : ""}${cell.fix}`, cell.control && "control"].filter(Boolean).join(" · ");
    const details = make("details", {}, make("summary", {}, mark(cell), about));
    details.dataset.cell = cell.id;
    details.addEventListener("toggle", () => {
      if (!details.open || find("dl", details)) return;
      details.append(make("dl", {}, ...facts(cell).flatMap(([name, parts]) =>
        [make("dt", {}, name), make("dd", {}, ...parts.filter(Boolean))])));
    });
    return details;
  };
  const dialog = find("#evidence");
  const worstFirst = ["fail", "look", "pass", "absent"];
  const importance = (cell) => [cell.fix ? 1 : 0, cell.control, worstFirst.indexOf(kindOf(cell))];
  const show = (stack, failure, id) => {
    const here = everyCell.filter((index) => valueOf("stack", index) === stack && valueOf("failure", index) === failure)
      .map(cellAt).map((cell) => ({ cell, rank: importance(cell) }))
      .sort((a, b) => a.rank.reduce((found, value, index) => found || value - b.rank[index], 0))
      .map(({ cell }) => cell);
    const versions = data.stacks[stack].versions;
    find("#evidence-title").textContent = `TRL ${versions.trl} · ${failure}`;
    const about = make("p", {}, `${data.failures[failure]?.title ?? ""} – ${packages.map((name) => `${name} ${versions[name]}`).join(", ")}. `);
    const more = make("a", { href: `#${failure}` }, "What this failure is");
    more.addEventListener("click", () => dialog.close());
    const blocks = here.map(block);
    find("#evidence-body").replaceChildren(about, more, ...blocks);
    const wanted = blocks.find((details) => details.dataset.cell === id) ?? blocks[0];
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    if (wanted) wanted.open = true;
    if (id && wanted) find("summary", wanted).focus(); else find("#evidence-title").focus();
    address(`#cell=${id ?? here[0]?.id ?? ""}`);
  };
  const address = (hash) => {
    history.replaceState(null, "", hash || location.pathname + location.search);
  };
  find("#close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => { if (location.hash.startsWith("#cell=")) address(""); });
  document.addEventListener("click", (event) => {
    const box = event.target.closest(".overview a.mark");
    if (!box || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    show(box.closest("tr").dataset.stack, box.closest("td").dataset.failure);
  });
  const follow = () => {
    if (!location.hash.startsWith("#cell=")) return;
    const place = byId().get(decodeURIComponent(location.hash.slice("#cell=".length)));
    const cell = place === undefined ? null : cellAt(place);
    if (cell) show(cell.stack, cell.failure, cell.id);
  };
  addEventListener("hashchange", follow);

  // --- which versions work together ---
  find("#release").addEventListener("change", (event) => {
    for (const row of all(".together tbody tr")) {
      row.hidden = Boolean(event.target.value) && row.dataset.stack !== event.target.value;
    }
  });

  filter();
  follow();
  (globalThis.requestIdleCallback ?? setTimeout)(() => haystack());
})();
