//! The tables of every store, in the subset of SQL that SQLite and PostgreSQL share. Each file is applied once,
//! in order, and never changed after a release; a store counts those applied.

pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_documents.sql"),
    include_str!("../migrations/0002_written.sql"),
    include_str!("../migrations/0003_sealed.sql"),
];
