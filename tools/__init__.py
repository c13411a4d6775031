"""Programs for the development of the library; they need a checkout."""
