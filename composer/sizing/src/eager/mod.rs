//! Eager PyTorch: what each operation takes and keeps, and what the caching allocator reserves for it.

pub(crate) mod allocator;
pub(crate) mod replay;
pub(crate) mod tape;
