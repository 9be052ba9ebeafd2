/* Lets the visitor choose a trace and passes it to the view of a run: gzip in base64, or null if it is too large to send. */
() => {
  const input = Object.assign(document.createElement("input"), { type: "file" });
  input.addEventListener("change", async () => {
    const [file] = input.files;
    const tell = (packed) => document.dispatchEvent(new CustomEvent("specviz-open", { detail: packed }));
    if (file.size > LIMIT) return tell(null);
    const packed = await new Response(file.stream().pipeThrough(new CompressionStream("gzip"))).blob();
    if (packed.size > PACKED) return tell(null);
    const reader = new FileReader();
    reader.addEventListener("load", () => tell(reader.result.split(",")[1]));
    reader.readAsDataURL(packed);
  });
  input.click();
}
