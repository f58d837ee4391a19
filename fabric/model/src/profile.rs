//! Hardware profiles, parsed once from `hw-profiles/`.
