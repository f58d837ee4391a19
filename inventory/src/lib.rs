//! What we know: snapshot, diff, and the identity of a GPU across its names.
