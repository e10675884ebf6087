// Keeps a served page up to date: asks for the state, and shows what is newer.
const byId = (id) => document.getElementById(id);
const bar = byId("live"), pause = byId("live-pause");
let paused = false, asked = 0;
document.documentElement.classList.add("js");

// What a line that opens is about, whatever it counts: its code, or its words before a number.
const nameOf = (details) => {
  const summary = details.querySelector("summary");
  return (summary.querySelector(".lozenge") ?? summary).textContent.split(":")[0];
};

// The parts that change take the places of those shown: of the index all but the form, which stays as
// somebody has filled it in; of a group what its own script knows how to draw anew.
const renew = async () => {
  const mine = ++asked;
  const answer = await fetch(location.href, { cache: "no-store" });
  if (answer.status === 404) return location.reload(); // the group is gone
  if (!answer.ok) throw new Error(answer.statusText);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (mine !== asked) return;
  if (bar.dataset.page === "group") {
    const draw = globalThis.holdfast?.renew;
    if (!draw || !page.getElementById("page")) return location.reload(); // there was no picture, or is none
    await draw(page);
  } else for (const id of ["fleet", "groups"]) {
    const fresh = page.getElementById(id), open = new Set([...byId(id).querySelectorAll("details[open]")].map(nameOf));
    for (const one of fresh.querySelectorAll("details")) one.open = open.has(nameOf(one));
    byId(id).replaceWith(fresh);
  }
  for (const id of ["live-said", "live-updater", "ranges"]) byId(id).replaceWith(page.getElementById(id));
  Object.assign(bar.dataset, page.getElementById("live").dataset);
};

const look = async () => {
  const state = await (await fetch(`/state${location.search}`, { cache: "no-store" })).json();
  byId("live-updater").textContent = state.updater;
  byId("live-updater").className = state.troubled ? "old" : "";
  const other = state.version !== bar.dataset.version || "lost" in bar.dataset;
  if (other || (bar.dataset.page === "index" && String(state.examined) !== bar.dataset.examined)) await renew();
  delete bar.dataset.lost;
};
const again = async () => {
  try {
    if (!paused && !document.hidden) await look();
  } catch {
    bar.dataset.lost = "yes";
    byId("live-said").textContent = "the server does not answer; this page is as it was";
  }
  setTimeout(again, Number(bar.dataset.every));
};
setTimeout(again, Number(bar.dataset.every));

pause.onclick = () => {
  paused = !paused;
  pause.textContent = paused ? "Resume" : "Pause";
  pause.setAttribute("aria-pressed", String(paused));
};

const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
if (localStorage.theme) root.dataset.theme = localStorage.theme;
byId("live-theme").onclick = () => {
  const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
  root.dataset.theme = localStorage.theme = now === "dark" ? "light" : "dark";
  dispatchEvent(new Event("holdfast-ink"));
};

const form = byId("view");
if (form) {
  let waiting = 0;
  form.oninput = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      history.replaceState(null, "", `/?${new URLSearchParams(new FormData(form))}`);
      renew().catch(() => form.submit());
    }, 150);
  };
}
