/* A lenience for the method: what a track has, or null, the default, where the method is another one than the track's. */
(method, track) => {
  const known = JSON.parse(track || "{}");
  // A dropdown that is left tells its method again: what was chosen stays.
  return known.method === method ? track : JSON.stringify({ method, lenience: null, chosen: true });
}
