"""What the frontends share: values while a graph is imported, and the bindings made of them."""
