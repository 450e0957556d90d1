// Replaces every static drawing by the interactive one once it comes into sight. Colours are CSS variables, so light
// and dark need nothing done here.
const config = JSON.parse(document.getElementById("chart-config").textContent);
const touch = matchMedia("(pointer: coarse)").matches;

function narrow(spec) {
  spec.config.legend.columns = 1;
  return spec;
}

async function draw(figure) {
  const place = figure.querySelector(".chart"), drawn = place.innerHTML, words = place.getAttribute("aria-label");
  try {
    const spec = JSON.parse(figure.querySelector("script.spec").textContent);
    if (place.clientWidth < 340) narrow(spec);
    const found = await window.vegaEmbed(place, spec, {
      actions: false, renderer: "svg", mode: "vega-lite", config, tooltip: { theme: "custom" },
      loader: { load: () => Promise.reject(new Error("charts load nothing")) },
    });
    place.setAttribute("role", "img");  // Vega puts its own in their place
    place.setAttribute("aria-label", words);
    figure.dataset.drawn = "interactive";
    if (!touch) tools(figure, place);
    pick(found.view, figure.dataset.pick || "");
    return found.view;
  } catch (error) {
    place.innerHTML = drawn;
    figure.dataset.drawn = "static";
    console.error("a chart stays static:", error);
    return null;
  }
}

// a name in a legend singles out its lines in the charts beside it
function pick(view, name) {
  if (view && "pick" in view.getState().signals) view.signal("pick", name).run();
}

for (const button of document.querySelectorAll("button[data-pick]")) {
  button.addEventListener("click", () => {
    const legend = button.closest(".legend"), was = button.getAttribute("aria-pressed") === "true";
    for (const each of legend.querySelectorAll("button")) each.setAttribute("aria-pressed", String(each === button && !was));
    for (const figure of legend.parentElement.querySelectorAll("figure.plot")) {
      figure.dataset.pick = was ? "" : button.dataset.pick;
      Promise.resolve(waiting.get(figure)).then((view) => pick(view, figure.dataset.pick));
    }
  });
}

function tools(figure, place) {
  const bar = document.createElement("div"), save = document.createElement("button");
  bar.className = "tools";
  save.type = "button"; save.textContent = "SVG"; save.title = "Save this figure";
  save.addEventListener("click", () => {
    const copy = place.querySelector("svg").cloneNode(true), style = getComputedStyle(document.documentElement);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const text = new XMLSerializer().serializeToString(copy)
      .replace(/var\((--s\d)\)/g, (all, name) => style.getPropertyValue(name).trim())
      .replace(/currentColor/g, style.getPropertyValue("--ink").trim());
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    link.download = "figure.svg"; link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  bar.append(save); figure.append(bar);
}

const figures = [...document.querySelectorAll("figure.plot")];
const waiting = new Map(figures.map((figure) => [figure, null]));
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) { seen.unobserve(target); waiting.set(target, draw(target)); }
  }
}, { rootMargin: "300px" });
figures.forEach((figure) => seen.observe(figure));
document.documentElement.dataset.charts = String(figures.length);
