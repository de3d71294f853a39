"""Programs of other systems as modules of relaxvm: one folder for each form."""
