"""A finished sweep as a report."""
