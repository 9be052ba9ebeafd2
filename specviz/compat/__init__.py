"""All uses of other libraries' private names, one module per library. Each says why it is needed and which versions have it."""
