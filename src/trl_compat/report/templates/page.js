"use strict";
// Filters, the list of cells and their evidence.  Every text becomes a text node, never markup.
document.documentElement.classList.add("js");
(() => {
  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const data = JSON.parse(find("#results").textContent);
  const packages = ["trl", "torch", "transformers", "deepspeed", "accelerate", "peft"];
  const cells = data.rows.map((row) =>
    Object.fromEntries(data.columns.map((name, index) => [name, row[index]])));
  const byId = new Map(cells.map((cell) => [cell.id, cell]));
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
  const haystack = new Map(cells.map((cell) => {
    // Of the versions only TRL's: 0.14.0 is also one of peft, and stands in many a reason.
    const words = [cell.id, `trl ${data.stacks[cell.stack].versions.trl}`, data.failures[cell.failure]?.title,
      cell.outcome, cell.maskedBy, ...(cell.signature ?? [])];
    return [cell.id, words.join(" ").toLowerCase()];
  }));
  let chosen = cells;
  const select = () => {
    const wanted = Object.fromEntries(new FormData(form));
    const words = wanted.q.toLowerCase().split(/\s+/).filter(Boolean);
    return cells.filter((cell) =>
      packages.every((name) => !wanted[name] || data.stacks[cell.stack].versions[name] === wanted[name]) &&
      ["failure", "outcome", "model", "evidence"].every((name) => !wanted[name] || cell[name] === wanted[name]) &&
      words.every((word) => haystack.get(cell.id).includes(word)));
  };
  const filter = () => {
    chosen = select();
    const everything = chosen.length === cells.length;
    const places = new Set(chosen.map((cell) => `${cell.stack} ${cell.failure}`));
    const failures = new Set(chosen.map((cell) => cell.failure));
    for (const row of all(".overview tbody tr")) {
      let shown = everything;
      for (const box of all("td", row)) {
        const present = places.has(`${row.dataset.stack} ${box.dataset.failure}`);
        box.firstElementChild.hidden = !everything && !present;
        shown ||= present;
      }
      row.hidden = !shown;
    }
    for (const box of all(".overview [data-failure]")) {
      if (box.matches("th, td")) box.hidden = !everything && !failures.has(box.dataset.failure);
    }
    const stacks = new Set(chosen.map((cell) => cell.stack));
    find("#matching").textContent = everything
      ? `All ${cells.length} cells. Open one for its evidence.`
      : `${chosen.length} of ${cells.length} cells match, on ${stacks.size} stacks. Each box shows its worst outcome.`;
    list();
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
    const rows = chosen.slice(0, listed).map((cell) => {
      const open = make("button", { type: "button", className: `mark ${kindOf(cell)}`, ariaLabel: `${cell.outcome}: open the evidence of ${cell.id}` }, `${data.signs[kindOf(cell)]} ${cell.outcome}`);
      open.addEventListener("click", () => show(cell.stack, cell.failure, cell.id));
      const fix = cell.fix ? `${cell.fix}${cell.wrongFix ? " (a wrong fix)" : ""}` : "";
      return make("tr", {}, make("td", {}, open),
        ...[cell.stack, cell.failure, `${cell.variant}${cell.control ? " (control)" : ""}`, cell.model, fix, cell.evidence]
          .map((text) => make("td", {}, text)));
    });
    find("#list tbody").replaceChildren(...rows);
    find("#listed").textContent = `${rows.length} of ${chosen.length} cells${chosen.length < cells.length ? " that match the filters" : ""}`;
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
      const proof = byId.get(`${cell.id}__${name}`);
      if (!proof) return [];
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
    const lines = Object.entries(stack.packages).map(([name, version]) => `${name}==${version}`);
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
      ["What was run", [`${cell.variant} (${conditions(cell)})${cell.control ? ", the control of this failure" : ""}; ${cell.model}, ${cell.ranks} ranks, ${cell.backend}, ${launched[cell.launch] ?? cell.launch}; ${cell.seconds} s on ${cell.startedAt.slice(0, 10)}. Evidence: ${cell.evidence}.`,
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
    const here = cells.filter((cell) => cell.stack === stack && cell.failure === failure)
      .map((cell) => ({ cell, rank: importance(cell) }))
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
    show(box.dataset.stack, box.dataset.failure);
  });
  const follow = () => {
    const cell = byId.get(decodeURIComponent(location.hash.slice("#cell=".length)));
    if (location.hash.startsWith("#cell=") && cell) show(cell.stack, cell.failure, cell.id);
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
})();
