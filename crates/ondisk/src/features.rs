//! Feature words, their names, and what Lanefs does about each.
