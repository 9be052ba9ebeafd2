/**
 * Fetches plotly.js once for the whole page. Not through the `head` of a gradio component, which would hold back the
 * whole view until the script has come, and for ever if it never does.
 */

export function loadPlotly(address) {
  if (window.Plotly) return window.Plotly;
  const source = new URL(address, document.baseURI).href;
  let script = Array.from(document.scripts).find((each) => each.src === source);
  if (!script) {
    script = document.createElement("script");
    script.src = source;
    document.head.append(script);
  }
  return new Promise((resolve) => {
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => resolve(null));
  });
}
