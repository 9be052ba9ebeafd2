"""Foreign libraries' private names: one module a library, each name with why it is needed and since which version."""
