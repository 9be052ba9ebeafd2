/** Polls a server while an element is in the page. Knows nothing of the content. */
export function poll(host, seconds, address, show) {
  async function ask() {
    if (!host.isConnected) return;
    try {
      const answer = await fetch(new URL(address, document.baseURI));
      if (answer.ok) show(await answer.json());
    } catch { /* the server is away: it is asked again */ }
    setTimeout(ask, 1000 * seconds);
  }
  ask();
}
