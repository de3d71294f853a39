"""The ATen operators, one file for each family; `registry.load` imports all of them."""
