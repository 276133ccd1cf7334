"use strict";
// This script improves the pages. Links change a session's page in place. The picture can be dragged. The page follows
// a session that grows. Keys move between rows. All pages work without the script.
(() => {
  document.documentElement.classList.add("scripts");
  const byId = (id) => document.getElementById(id);
  const session = () => byId("session");
  const path = (name, params) => name + "?" + new URLSearchParams(params);

  // morph changes the element old until it equals now. It keeps nodes that are in both, with their focus, selection and
  // scroll position, and keeps what a person has opened, ticked or typed. Elements that have an id are matched by id,
  // other nodes by position.
  const keep = { DETAILS: ["open"], INPUT: ["checked", "value"], TEXTAREA: ["value"], SELECT: ["value"] };
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
  const morph = (old, now) => {
    for (const { name, value } of [...now.attributes]) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!now.hasAttribute(name) && !(keep[old.nodeName] ?? []).includes(name) && !local.has(name)) old.removeAttribute(name);
    }
    const known = new Map([...old.children].filter((e) => e.id).map((e) => [e.id, e]));
    let at = old.firstChild;
    for (const next of [...now.childNodes]) {
      let match = next.id ? known.get(next.id) : at;
      if (match && match.id && match.id !== next.id) { // match belongs to a later element; skip it
        while (match && match.id) match = match.nextSibling;
      }
      if (!match || !alike(match, next)) { old.insertBefore(next, at); continue; }
      if (match === at) at = at.nextSibling;
      else if (next.id) {
        while (at && at !== match && !(at.id && now.querySelector("#" + CSS.escape(at.id)))) { const gone = at; at = at.nextSibling; gone.remove(); }
        if (match === at) at = at.nextSibling; else old.insertBefore(match, at);
      } else {
        while (at !== match) { const gone = at; at = at.nextSibling; gone.remove(); }
        at = at.nextSibling;
      }
      if (match.nodeType === 1) { if (!match.isEqualNode(next)) morph(match, next); } else if (match.data !== next.data) match.data = next.data;
    }
    while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
  };
  const local = new Set(["tabindex", "role", "aria-label", "aria-valuemin", "aria-valuemax", "aria-valuenow", "aria-valuetext", "hidden"]);

  // Scroll positions: the rows of the conversation scroll with the page, the rows of the panel scroll inside the panel.
  const rowsOf = (root) => [...root.querySelectorAll("#seen .row")];
  const atEnd = () => { const last = rowsOf(document).at(-1); return !last || last.getBoundingClientRect().bottom <= innerHeight + 40; };
  const panelEnd = (p) => p && p.scrollTop + p.clientHeight >= p.scrollHeight - 40;
  const inSight = () => rowsOf(document).filter((r) => { const box = r.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; });

  // show loads url and changes the page in place to show it.
  let calls = 0; // number of calls of show; only the response to the last call is shown
  const show = async (url, { push = false, live = false } = {}) => {
    const call = ++calls;
    const answer = await fetch(url);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (call !== calls) return;
    const next = page.getElementById("session");
    if (!next || page.getElementById("main") === null) { location.href = url; return; }
    const panel = byId("panel-log"), panelWas = panelEnd(panel), open = document.querySelector("#panel > .body")?.id;
    const end = atEnd() && live, rows = inSight(), mark = rows.find((r) => page.getElementById(r.id)), top = mark?.getBoundingClientRect().top;
    if (live && rows.length && !mark && !end) { // the rows on the screen would disappear, so keep them
      for (const id of ["headline", "picture", "now", "seen-count"]) {
        const was = byId(id), is = page.getElementById(id);
        if (was && is) morph(was, is);
      }
      return dress();
    }
    document.title = page.title;
    morph(session(), next);
    dress();
    if (push) history.pushState(null, "", url);
    const body = document.querySelector("#panel > .body");
    if (body && body.id !== open) {
      body.scrollTop = body.id === "panel-log" ? body.scrollHeight : 0;
      if (push && innerWidth < 900) byId("panel").scrollIntoView();
    } else if (panelWas && body) body.scrollTop = body.scrollHeight;
    if (live && end && scrollY > 0) rowsOf(document).at(-1)?.scrollIntoView({ block: "end", behavior: "instant" });
    else if (mark?.isConnected) {
      const by = mark.getBoundingClientRect().top - top;
      if (live && Math.abs(by) > 1) scrollBy({ top: by, behavior: "instant" });
    }
    follow();
  };

  // dress adds the controls that need this script.
  const dress = () => {
    const knob = byId("knob"), s = session();
    if (knob && s) {
      for (const [name, value] of Object.entries({ tabindex: 0, role: "slider", "aria-label": "Record", "aria-valuemin": 0, "aria-valuemax": s.dataset.last, "aria-valuenow": s.dataset.at, "aria-valuetext": byId("now")?.textContent ?? "" })) knob.setAttribute(name, value);
    }
    if (byId("copy") && navigator.clipboard) byId("copy").hidden = false;
    if (byId("live") && source) byId("live").textContent = "following";
    ticked();
  };
  const ticked = () => {
    const n = document.querySelectorAll("input[name=index]:checked").length;
    if (byId("ticked")) byId("ticked").textContent = n ? `${n} selected:` : "Select events above:";
  };

  // Time travel: a person drags the picture or steps with keys. wanted is the record that was requested last, or null if
  // it is shown.
  let wanted = null, timer = 0;
  const travel = (at) => {
    const s = session();
    wanted = Math.max(0, Math.min(Number(s.dataset.last), at));
    clearTimeout(timer);
    timer = setTimeout(() => {
      const to = wanted, params = { key: s.dataset.key };
      if (to < Number(s.dataset.last)) params.at = to;
      show(path("session", params), { push: true }).finally(() => { if (wanted === to) wanted = null; });
    }, 60);
  };
  const here = () => wanted ?? Number(session().dataset.at);
  const recordAt = (x) => {
    const cells = [...document.querySelectorAll("#film .cell")];
    const cell = cells.find((c) => c.getBoundingClientRect().right >= x) ?? cells.at(-1);
    const box = cell?.getBoundingClientRect();
    if (box) byId("knob").setAttribute("transform", `translate(${Number(cell.getAttribute("x")) + Number(cell.getAttribute("width"))} 0)`);
    return cell ? Number(cell.dataset.seq) : here();
  };
  let dragging = false;
  document.addEventListener("pointerdown", (e) => { if (e.button === 0 && e.target.closest("#film, #knob")) { dragging = true; e.preventDefault(); travel(recordAt(e.clientX)); } });
  document.addEventListener("pointermove", (e) => { if (dragging) travel(recordAt(e.clientX)); });
  document.addEventListener("pointerup", () => { dragging = false; });
  const step = (e, by) => { e.preventDefault(); travel(here() + by); };
  const toTurn = (by) => {
    const turn = Number(byId("now").textContent.match(/turn (\d+)/)?.[1] ?? 0) + by;
    if (turn > 0 && turn <= Number(byId("turn")?.max)) show(path("session", { key: session().dataset.key, turn }), { push: true });
  };

  // Links to pages of this session, and forms that only read, change the page in place.
  const parts = new Set(["session", "record", "summary", "diff", "state", "figures", "search", "act"]);
  const inPlace = (url) => {
    const u = new URL(url, location.href);
    return session() && u.origin === location.origin && parts.has(u.pathname.split("/").pop()) && u.searchParams.get("key") === session().dataset.key;
  };
  document.addEventListener("click", (e) => {
    const a = e.target.closest("a[href]");
    document.querySelectorAll("details.menu[open]").forEach((d) => { if (!d.contains(e.target)) d.open = false; });
    if (!a || e.defaultPrevented || e.button || e.ctrlKey || e.metaKey || e.shiftKey || !inPlace(a.href)) return;
    e.preventDefault();
    if (a.getAttribute("href")[0] === "#") return byId(a.hash.slice(1))?.scrollIntoView();
    show(a.href, { push: true }).then(() => { if (a.hash) byId(decodeURIComponent(new URL(a.href, location.href).hash.slice(1)))?.scrollIntoView({ block: "nearest" }); });
  });
  document.addEventListener("submit", (e) => {
    const form = e.target;
    if (form.dataset.sent) return e.preventDefault(); // a double click sends the form once
    if (form.method === "post") { form.dataset.sent = "yes"; return; }
    if (form.method !== "get") return;
    const params = new URLSearchParams(new FormData(form, e.submitter));
    const url = form.getAttribute("action") + "?" + params;
    if (inPlace(url)) { e.preventDefault(); if (form.id === "turn-form") document.activeElement.blur(); show(url, { push: true }); }
  });
  document.addEventListener("change", (e) => { ticked(); if (e.target.id === "kind") e.target.form.requestSubmit(); });
  window.addEventListener("popstate", () => { if (session()) show(location.href); });
  window.addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach((f) => { delete f.dataset.sent; }));
  document.addEventListener("click", async (e) => {
    if (e.target.id === "copy") {
      await navigator.clipboard.writeText(await (await fetch(byId("visible-lines").href)).text());
      e.target.textContent = "Copied";
    } else if (e.target.id === "pill") {
      rowsOf(document).at(-1)?.scrollIntoView({ block: "end" });
      seen();
    }
  });

  // Following: while the page shows the newest record, new records appear on it. A page in the background closes its
  // event stream, because a browser allows few connections to one server.
  let source = null, following = "", newest = 0, loading = false, seenUpTo = null;
  const follow = () => {
    const s = document.hidden ? null : session();
    const key = s ? s.dataset.key + " " + s.dataset.creation : "";
    if (key === following) return;
    leave();
    following = key;
    if (!s) return;
    seenUpTo = seenUpTo ?? Number(s.dataset.last);
    source = new EventSource(path("live", { key: s.dataset.key, after: s.dataset.last, creation: s.dataset.creation }));
    source.addEventListener("records", (e) => arrived(Number(e.data)));
    source.addEventListener("gone", () => { source.close(); byId("now").textContent = "This session was deleted or created again. The page shows its old records."; });
    if (byId("live")) byId("live").textContent = "following";
  };
  const leave = () => { following = ""; source?.close(); source = null; };
  document.addEventListener("visibilitychange", follow);
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", follow);
  const arrived = async (last) => {
    newest = Math.max(newest, last);
    const s = session();
    if (!s || newest <= Number(s.dataset.last) || byId("confirm")) return; // do not change a preview; if the person confirms it, the server reports the conflict
    if (s.dataset.newest !== "true" || wanted !== null || dragging) {
      byId("newest")?.replaceChildren(`Back to the newest, record ${newest}`);
      return;
    }
    if (loading) return;
    loading = true;
    try { await show(location.href, { live: true }); } finally {
      loading = false;
      pill();
    }
    if (newest > Number(session().dataset.last)) setTimeout(() => arrived(newest), 50);
  };
  const seen = () => { seenUpTo = Math.max(newest, Number(session()?.dataset.last ?? 0)); byId("pill").hidden = true; };
  const pill = () => {
    if (!byId("pill") || !session()) return;
    if (atEnd()) return seen();
    const n = Math.max(newest, Number(session().dataset.last)) - seenUpTo;
    byId("pill").hidden = n <= 0;
    byId("pill").textContent = `${n} new ↓`;
  };
  document.addEventListener("scroll", () => { if (byId("pill") && !byId("pill").hidden && atEnd()) seen(); }, { passive: true });

  // Keyboard
  const typing = (e) => e.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");
  const links = () => [...document.querySelectorAll(".row a.text, .session a.name")].filter((a) => a.checkVisibility());
  const walk = (by) => {
    const all = links(), at = all.indexOf(document.activeElement);
    const first = all.findIndex((a) => a.getBoundingClientRect().top >= 0);
    const next = all[at < 0 ? Math.max(first, 0) : Math.max(0, Math.min(all.length - 1, at + by))];
    next?.focus({ focusVisible: true });
    next?.scrollIntoView({ block: "nearest" });
  };
  let before = "";
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape") document.querySelectorAll("details.menu[open]").forEach((d) => { d.open = false; });
    if (e.ctrlKey || e.metaKey || e.altKey || typing(e) || document.querySelector("dialog[open]")) return;
    const chord = before + e.key;
    before = e.key === "g" ? "g " : "";
    const onKnob = e.target.closest("#knob") || (session() && e.target === document.body);
    const keys = {
      j: () => walk(1), k: () => walk(-1), "?": () => byId("help")?.showModal(), "/": () => byId("q")?.focus(), "g t": () => byId("turn")?.focus(),
      o: () => { const d = document.activeElement.closest(".row, .group")?.querySelector("details") ?? document.activeElement.closest("details"); if (d) d.open = !d.open; else document.activeElement.click?.(); },
    };
    if (keys[chord] ?? keys[e.key]) { e.preventDefault(); (keys[chord] ?? keys[e.key])(); } else if (onKnob) {
      switch (e.key) {
        case "ArrowLeft": if (e.shiftKey) toTurn(-1); else step(e, -1); break;
        case "ArrowRight": if (e.shiftKey) toTurn(1); else step(e, 1); break;
        case "Home": if (e.target !== document.body) step(e, -Infinity); break;
        case "End": if (e.target !== document.body) step(e, Infinity); break;
      }
    }
  });

  // The script is deferred, so the whole page is loaded.
  dress();
  follow();
  const log = byId("panel-log");
  if (log && !location.hash) log.scrollTop = log.scrollHeight;
})();
