// Offers the other versions of the site, where it is published beside them: see versions.py.
(async () => {
  const { base } = JSON.parse(document.getElementById("__config").textContent);
  const root = new URL(base.replace(/\/?$/, "/"), location.href);
  const own = root.pathname.split("/").at(-2);
  if (!/^\d+\.\d+$/.test(own)) return;
  const answer = await fetch(new URL("../versions.json", root)).catch(() => null);
  if (!answer?.ok) return;
  const choice = document.createElement("select");
  choice.className = "versions";
  choice.setAttribute("aria-label", "Version");
  for (const version of await answer.json())
    choice.add(new Option(version, version, false, version === own));
  choice.addEventListener("change", async () => {
    const other = new URL(`../${choice.value}/`, root);
    const same = new URL(location.href.slice(root.href.length), other);
    const found = await fetch(same, { method: "HEAD" }).catch(() => null);
    location.href = found?.ok ? same : other;
  });
  document.querySelector(".md-header__title").after(choice);
})();
