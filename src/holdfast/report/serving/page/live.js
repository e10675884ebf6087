// Keeps a served page up to date: asks for the state, and shows what is newer.
const byId = (id) => document.getElementById(id);
const bar = byId("live"), pause = byId("live-pause");
let paused = false, asked = 0;
document.documentElement.classList.add("js");

// The parts of the index that change; the form stays as somebody has filled it in.
const renew = async () => {
  const mine = ++asked;
  const answer = await fetch(location.href, { cache: "no-store" });
  if (!answer.ok) throw new Error(answer.statusText);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (mine !== asked) return;
  for (const id of ["fleet", "groups", "live-said"]) byId(id).replaceWith(page.getElementById(id));
  Object.assign(bar.dataset, page.getElementById("live").dataset);
};

const look = async () => {
  const state = await (await fetch("/state", { cache: "no-store" })).json();
  const other = state.version !== bar.dataset.version;
  if (bar.dataset.page === "group") {
    if (other) location.reload();
  } else if (other || String(state.examined) !== bar.dataset.examined || bar.dataset.lost) {
    await renew();
  }
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
  pause.textContent = paused ? "Go on" : "Pause";
  pause.setAttribute("aria-pressed", String(paused));
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
