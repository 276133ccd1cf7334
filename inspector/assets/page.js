"use strict";
// What the pages do beyond links and forms: the slider, the keys, following a session that grows,
// and leading to rows that are on another page. All of it is in addition: pages work without.
(() => {
  document.documentElement.classList.add("scripts");
  const session = () => document.getElementById("session");
  const path = (name, params) => name + "?" + new URLSearchParams(params);

  // Going to another time changes the address, and swaps what the session is like then.
  let wanted = null, timer = 0;
  const go = (url, push) => htmx.ajax("GET", url, { target: "#session", select: "#session", swap: "outerHTML", push: push ? url : undefined });
  const travel = (at) => {
    const s = session();
    if (!s) return;
    const last = Number(s.dataset.last);
    wanted = Math.max(0, Math.min(last, at));
    const slider = document.getElementById("slider"), field = document.getElementById("at");
    if (slider) slider.value = wanted;
    if (field) field.value = wanted;
    clearTimeout(timer);
    timer = setTimeout(() => {
      const to = wanted;
      wanted = null;
      go(path("session", { key: s.dataset.key, at: to }), true);
    }, 60);
  };
  const here = () => wanted ?? Number(session().dataset.at);
  document.addEventListener("input", (e) => { if (e.target.id === "slider") travel(Number(e.target.value)); });

  const typing = (e) => e.target.closest("input:not([type=range]):not([type=checkbox]), textarea, select, [contenteditable]");
  document.addEventListener("keydown", (e) => {
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

  // A link to a record that this page of the log does not show leads to the page that does.
  document.addEventListener("click", (e) => {
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
  // How often depends on how long it takes to get the page, so that a large session is asked for seldom.
  let loading = false, newest = 0, rest = 1000;
  const arrived = (last) => {
    const s = session();
    if (!s) return;
    newest = Math.max(newest, last);
    if (newest <= Number(s.dataset.last)) return;
    if (s.dataset.newest !== "true") {
      say(`As it stood after record ${s.dataset.at}. The log has grown to record ${newest}.`);
      s.dataset.last = newest;
      for (const id of ["slider", "at"]) document.getElementById(id).max = newest;
      return;
    }
    if (loading) return;
    // Somebody who selects or types something is not disturbed: the page says that there is more.
    if (s.querySelector("input[type=checkbox]:checked") || document.activeElement?.closest("#session form")) {
      say(`The log has grown to record ${newest}. Newest, followed, shows it.`);
      return;
    }
    loading = true;
    const begun = performance.now();
    const places = [...document.querySelectorAll(".rows")].map((r) => r.scrollTop + r.clientHeight >= r.scrollHeight - 40 ? Infinity : r.scrollTop);
    go(location.href, false).then(() => [...document.querySelectorAll(".rows")].forEach((r, n) => { r.scrollTop = Math.min(places[n] ?? 0, r.scrollHeight); }))
      .finally(() => {
        rest = Math.min(30000, Math.max(1000, 10 * (performance.now() - begun)));
        setTimeout(() => { loading = false; if (newest > Number(session()?.dataset.last ?? newest)) arrived(newest); }, rest);
      });
  };
  const settle = () => {
    follow();
    document.querySelectorAll(".rows").forEach((r) => { if (!location.hash) r.scrollTop = r.scrollHeight; });
  };
  // What is open stays open when the session is swapped.
  let open = [];
  document.addEventListener("htmx:beforeSwap", () => { open = [...document.querySelectorAll("#session details[id][open]")].map((d) => d.id); });
  document.addEventListener("htmx:afterSettle", () => { for (const id of open) document.getElementById(id)?.setAttribute("open", ""); follow(); });
  document.addEventListener("DOMContentLoaded", settle);
  if (document.readyState !== "loading") settle();
  window.addEventListener("popstate", () => { if (session()) location.reload(); });
})();
