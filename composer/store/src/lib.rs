//! Documents and the journal, committed together.
