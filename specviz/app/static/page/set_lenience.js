/* The lenience for a method: the slider's value, or null (the default) if the slider has another method. */
(method, track) => {
  const known = JSON.parse(track || "{}");
  // A dropdown that is left tells its method again: what was chosen stays.
  return known.method === method ? track : JSON.stringify({ method, lenience: null, chosen: true });
}
