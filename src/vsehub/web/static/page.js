"use strict";
// A picture is sent when it is chosen or dropped; everything else is a plain form.
(() => {
  const drop = document.getElementById("drop");
  const input = document.getElementById("picture");
  if (!drop || !input) return;
  const status = document.getElementById("status");
  const results = document.getElementById("results");

  const ask = async (file) => {
    if (!file) return;
    const settings = new URLSearchParams({
      k: document.getElementById("k").value || "10",
      criterion: document.getElementById("criterion").value,
    });
    status.textContent = `Searching with ${file.name} …`;
    try {
      const answer = await fetch(`/picture?${settings}`, { method: "POST", body: file });
      if (answer.ok) {
        results.innerHTML = await answer.text();
        status.textContent = `Found with ${file.name}.`;
      } else {
        status.textContent = (await answer.json()).error;
      }
    } catch {
      status.textContent = "The server does not answer.";
    }
  };

  input.addEventListener("change", () => ask(input.files[0]));
  for (const name of ["dragenter", "dragover"]) {
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  for (const name of ["dragleave", "drop"]) {
    drop.addEventListener(name, () => drop.classList.remove("over"));
  }
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    ask(event.dataTransfer.files[0]);
  });
})();
