/** Keeps an element's `data-theme` equal to the theme of the page around it, while the element is in the page. */
export function followTheme(host, onChange = () => {}) {
  const apply = () => {
    const themed = getComputedStyle(host).getPropertyValue("--body-text-color") !== "";
    const dark = host.closest(".dark") !== null || (!themed && matchMedia("(prefers-color-scheme: dark)").matches);
    host.dataset.theme = dark ? "dark" : "light";
    onChange();
  };
  const observer = new MutationObserver(() => (host.isConnected ? apply() : observer.disconnect()));
  for (const node of [document.documentElement, document.body]) {
    observer.observe(node, { attributes: true, attributeFilter: ["class"] });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  apply();
}
