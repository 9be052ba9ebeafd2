"""Forward passes on a CPU: prepacked products and how many threads they take."""
