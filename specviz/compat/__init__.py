"""All uses of other libraries' private names, one module per library. Each module says why it needs them and which versions have them."""
