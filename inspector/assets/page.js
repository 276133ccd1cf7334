"use strict";
// What the pages do beyond links and forms: the slider, the keys, following a session that grows, copying, and
// leading to rows that are on another page. All of it is in addition: pages work without.
(() => {
  document.documentElement.classList.add("scripts");
  const session = () => document.getElementById("session");
  const path = (name, params) => name + "?" + new URLSearchParams(params);
  const parsed = async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html");

  // Times are relative, with the exact one as a hint.
  const ago = (time) => {
    const s = (Date.now() - Date.parse(time)) / 1000;
    for (const [unit, size] of [["year", 31557600], ["month", 2629800], ["day", 86400], ["hour", 3600], ["minute", 60]]) {
      if (Math.abs(s) >= size) return new Intl.RelativeTimeFormat("en").format(-Math.round(s / size), unit);
    }
    return "just now";
  };
  const tidy = (root) => {
    root.querySelectorAll("time[datetime]").forEach((t) => {
      if (!isNaN(Date.parse(t.dateTime))) { t.title = t.dateTime; t.textContent = ago(t.dateTime); }
    });
    if (navigator.clipboard) root.querySelector("#visible-lines")?.insertAdjacentHTML("afterend", ' <button id="copy" class="small">Copy</button>');
  };

  // Going to another time changes the address, and swaps what the session is like then. What is open stays open, and
  // the focus and the places in the lists stay.
  let calls = 0; // the last one decides what is shown, whichever answer comes first
  const go = async (url, push) => {
    const call = ++calls;
    const answer = await fetch(url);
    const next = (await parsed(answer)).getElementById("session");
    if (call !== calls) return;
    if (!next) { location.href = url; return; }
    const open = [...document.querySelectorAll("#session details[id][open]")].map((d) => d.id);
    const focus = document.activeElement?.id;
    const places = [...document.querySelectorAll(".rows")].map((r) => r.scrollTop + r.clientHeight >= r.scrollHeight - 40 ? Infinity : r.scrollTop);
    tidy(next);
    session().replaceWith(next);
    open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
    if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
    document.querySelectorAll(".rows").forEach((r, n) => { r.scrollTop = Math.min(places[n] ?? 0, r.scrollHeight); });
    if (push) history.pushState(null, "", url);
    follow();
  };
  let wanted = null, timer = 0;
  const travel = (at) => {
    const s = session();
    wanted = Math.max(0, Math.min(Number(s.dataset.last), at));
    for (const id of ["slider", "at"]) document.getElementById(id).value = wanted;
    clearTimeout(timer);
    timer = setTimeout(() => {
      const to = wanted; // until the page is there: keys meanwhile go on from it
      go(path("session", { key: s.dataset.key, at: to }), true).finally(() => { if (wanted === to) wanted = null; });
    }, 60);
  };
  const here = () => wanted ?? Number(session().dataset.at);
  document.addEventListener("input", (e) => { if (e.target.id === "slider") travel(Number(e.target.value)); });

  const typing = (e) => e.target.closest("input:not([type=range]):not([type=checkbox]), textarea, select, [contenteditable]");
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape") document.querySelectorAll("details.menu[open]").forEach((d) => { d.open = false; });
    if (!session() || e.ctrlKey || e.metaKey || e.altKey || typing(e)) return;
    const click = (id) => { const a = document.getElementById(id); if (a) { e.preventDefault(); a.click(); } };
    // Elsewhere on the page the keys mean what they always do: they scroll it, and tables that have the focus.
    const onSlider = e.target.closest("#time-form");
    if (!onSlider && (e.target !== document.body || e.key === "Home" || e.key === "End")) { if (e.key !== "/") return; }
    switch (e.key) {
      case "ArrowLeft": if (e.shiftKey) click("patch-back"); else { e.preventDefault(); travel(here() - 1); } break;
      case "ArrowRight": if (e.shiftKey) click("patch-on"); else { e.preventDefault(); travel(here() + 1); } break;
      case "Home": e.preventDefault(); travel(0); break;
      case "End": click("newest"); break;
      case "/": { const q = document.getElementById("q"); if (q) { e.preventDefault(); q.focus(); } break; }
    }
  });

  document.addEventListener("submit", (e) => { // a double click asks once
    if (e.target.dataset.sent) e.preventDefault();
    if (e.target.matches(".offer")) e.target.dataset.sent = "yes";
  });
  // A page that the browser kept and shows again, after Back, has forms that can be sent.
  window.addEventListener("pageshow", () => document.querySelectorAll(".offer").forEach((f) => { delete f.dataset.sent; }));
  document.addEventListener("click", async (e) => {
    document.querySelectorAll("details.menu[open]").forEach((d) => { if (!d.contains(e.target)) d.open = false; });
    if (e.target.id === "copy") {
      await navigator.clipboard.writeText(await (await fetch(document.getElementById("visible-lines").href)).text());
      e.target.textContent = "Copied";
      return;
    }
    // A link to a record that this page of the log does not show leads to the page that does.
    const a = e.target.closest("a[href^='#r'], a[href^='#v']");
    const s = session();
    if (!a || !s || document.getElementById(a.hash.slice(1))) return;
    e.preventDefault();
    const params = { key: s.dataset.key, [a.hash[1] === "r" ? "log" : "visible"]: a.hash.slice(2) };
    if (s.dataset.newest !== "true") params.at = s.dataset.at;
    location.href = path("session", params) + a.hash;
  });

  // Following: while the newest record is shown, what is logged comes to the page. A page that nobody
  // sees does not listen, since a browser has few connections for all pages of a server.
  let source = null, following = "";
  const follow = () => {
    const s = document.hidden ? null : session();
    const key = s ? s.dataset.key + " " + s.dataset.creation : "";
    if (key === following) return;
    leave();
    following = key;
    if (!s) return;
    source = new EventSource(path("live", { key: s.dataset.key, after: s.dataset.last, creation: s.dataset.creation }));
    source.addEventListener("records", (e) => arrived(Number(e.data)));
    source.addEventListener("gone", () => { source.close(); say("This session is gone: it was deleted, or made anew. What is shown is what it was."); });
  };
  const leave = () => { following = ""; source?.close(); source = null; };
  document.addEventListener("visibilitychange", follow);
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", follow);
  const say = (text) => { const now = document.getElementById("now"); if (now) now.textContent = text; };
  const busy = () => session().querySelector("input[type=checkbox]:checked, details.menu[open]") || document.activeElement?.closest("#session form");

  // New events are added to both logs, and nothing else changes. After a patch the session is swapped, unless a person
  // selects or types something in it; how often depends on how long that takes.
  let loading = false, newest = 0, rest = 0;
  const arrived = async (last) => {
    const s = session();
    newest = Math.max(newest, last);
    if (!s || newest <= Number(s.dataset.last)) return;
    if (s.dataset.newest !== "true") {
      say(`As it stood after record ${s.dataset.at}. The log has grown to record ${newest}.`);
      s.dataset.last = newest;
      for (const id of ["slider", "at"]) document.getElementById(id).max = newest;
      return;
    }
    if (loading) return;
    loading = true;
    const begun = performance.now();
    try {
      const answer = await fetch(path("session", { key: s.dataset.key, after: s.dataset.last }));
      const news = await parsed(answer);
      if (s !== session() || wanted !== null) return; // another time is shown, or comes
      if (answer.status === 200) add(s, news);
      else if (busy()) say(`The log has grown to record ${newest}. Newest, followed, shows it.`);
      else await go(location.href, false);
      rest = answer.status === 200 ? 0 : Math.min(30000, 10 * (performance.now() - begun));
    } finally {
      setTimeout(() => { loading = false; if (newest > Number(session()?.dataset.last ?? newest)) arrived(newest); }, rest);
    }
  };
  const add = (s, news) => {
    const last = news.querySelector("[data-last]").dataset.last;
    tidy(news);
    for (const id of ["headline", "raw-title", "visible-title"]) document.getElementById(id).replaceChildren(...news.getElementById(id).childNodes);
    document.querySelectorAll(".rows").forEach((rows, n) => {
      if (rows.nextElementSibling?.matches(".more")) return; // it shows earlier rows
      const end = rows.scrollTop + rows.clientHeight >= rows.scrollHeight - 40;
      rows.querySelector(".none")?.remove();
      rows.append(...news.querySelectorAll("ol")[n].querySelectorAll("li:not(.none)"));
      if (end) rows.scrollTop = rows.scrollHeight;
    });
    s.dataset.last = s.dataset.at = last;
    for (const id of ["slider", "at"]) { const field = document.getElementById(id); field.max = last; field.value = last; }
    s.querySelectorAll("form input[name=at][type=hidden]").forEach((field) => { field.value = last; });
    say(`Now: after record ${last}, the newest`);
  };
  // The script is deferred: the whole page is there.
  tidy(document);
  follow();
  document.querySelectorAll(".rows").forEach((r) => { if (!location.hash) r.scrollTop = r.scrollHeight; });
  window.addEventListener("popstate", () => { if (session()) location.reload(); });
})();
