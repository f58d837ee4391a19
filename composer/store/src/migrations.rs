//! The tables of every store, in the subset of SQL that SQLite and PostgreSQL share. Each file is applied once,
//! in order, and never changed after a release; a store counts those applied.

pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_documents.sql"),
    include_str!("../migrations/0002_written.sql"),
    include_str!("../migrations/0003_sealed.sql"),
    include_str!("../migrations/0004_checksums.sql"),
];

/// The first version whose rows have checksums: the migration to it computes those of existing rows.
pub(crate) const CHECKSUMS: u32 = 4;
