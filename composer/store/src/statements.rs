//! The statements that all stores share, written in the subset of SQL that SQLite and PostgreSQL
//! have in common, with SQLite's numbered parameters.

pub(crate) const LAST_REVISION: &str = "SELECT value FROM counter WHERE name = 'revision'";
// Before the counters are repaired.
pub(crate) const FOUND_REVISION: &str =
    "SELECT coalesce((SELECT value FROM counter WHERE name = 'revision' AND value >= 0),
                     (SELECT max(revision) FROM object WHERE revision >= 0), 0)";
pub(crate) const ADVANCE: &str = "UPDATE counter SET value = value + ?2 WHERE name = ?1 RETURNING value";

pub(crate) const REVISION: &str = "SELECT revision FROM object WHERE kind = ?1 AND id = ?2";
pub(crate) const GET: &str =
    "SELECT kind, id, revision, doc, checksum FROM object WHERE kind = ?1 AND id = ?2";
pub(crate) const LIST: &str =
    "SELECT kind, id, revision, doc, checksum FROM object WHERE kind = ?1 ORDER BY id";
// Those of one commit have one revision: their ids decide.
pub(crate) const LATEST: &str = "SELECT kind, id, revision, doc, checksum FROM object WHERE kind = ?1
     ORDER BY revision DESC, id LIMIT ?2";
pub(crate) const EARLIEST: &str =
    "SELECT kind, id, revision, doc, checksum FROM object WHERE kind = ?1 AND revision > ?2
     ORDER BY revision, id LIMIT ?3";
pub(crate) const HOW_MANY: &str = "SELECT count(*) FROM object WHERE kind = ?1";
pub(crate) const PUT: &str = "INSERT INTO object (kind, id, revision, doc, checksum) VALUES (?1, ?2, ?3, ?4, ?5)
     ON CONFLICT (kind, id) DO UPDATE SET revision = excluded.revision, doc = excluded.doc, checksum = excluded.checksum";
pub(crate) const DELETE: &str = "DELETE FROM object WHERE kind = ?1 AND id = ?2";

pub(crate) const LAST_LINE: &str = "SELECT coalesce(max(seq), 0) FROM journal WHERE operation = ?1";
pub(crate) const APPEND: &str =
    "INSERT INTO journal (operation, seq, line, checksum) VALUES (?1, ?2, ?3, ?4)";
pub(crate) const LINES: &str =
    "SELECT seq, line, checksum FROM journal WHERE operation = ?1 AND seq > ?2 ORDER BY seq";
pub(crate) const FORGET: &str = "DELETE FROM journal WHERE operation = ?1
     AND NOT EXISTS (SELECT 1 FROM open_operation WHERE operation = ?1)";

pub(crate) const IS_OPEN: &str = "SELECT 1 FROM open_operation WHERE operation = ?1";
pub(crate) const OPEN: &str =
    "INSERT INTO open_operation (operation) VALUES (?1) ON CONFLICT (operation) DO NOTHING";
// The commit of the first line opens an operation: the name of one without lines is damaged.
pub(crate) const FORGET_UNKNOWN: &str = "DELETE FROM open_operation
     WHERE NOT EXISTS (SELECT 1 FROM journal WHERE journal.operation = open_operation.operation)";
pub(crate) const END: &str = "DELETE FROM open_operation WHERE operation = ?1";
pub(crate) const OPEN_OPERATIONS: &str = "SELECT operation FROM open_operation ORDER BY operation";

// Counters have no checksums. A lost one leaps, as after a restore: documents that are gone had numbers too. An event number
// below one that was given would refuse every commit with an event.
pub(crate) const REPAIR_COUNTERS: [&str; 5] = [
    "DELETE FROM counter WHERE value < 0 OR name NOT IN ('revision', 'event')",
    "INSERT INTO counter (name, value) SELECT 'revision', coalesce(max(revision), 0) + 4294967296 FROM object
     HAVING NOT EXISTS (SELECT 1 FROM counter WHERE name = 'revision')",
    "INSERT INTO counter (name, value) SELECT 'event', coalesce(max(seq), 0) FROM outbox
     HAVING NOT EXISTS (SELECT 1 FROM counter WHERE name = 'event')",
    "UPDATE counter SET value = (SELECT coalesce(max(revision), 0) FROM object)
     WHERE name = 'revision' AND value < (SELECT coalesce(max(revision), 0) FROM object)",
    "UPDATE counter SET value = (SELECT coalesce(max(seq), 0) FROM outbox)
     WHERE name = 'event' AND value < (SELECT coalesce(max(seq), 0) FROM outbox)",
];
pub(crate) const TELL: &str = "INSERT INTO outbox (seq, event) VALUES (?1, ?2)";
pub(crate) const EVENTS: &str = "SELECT seq, event FROM outbox WHERE seq > ?1 ORDER BY seq LIMIT ?2";
pub(crate) const FORGET_EVENTS: &str = "DELETE FROM outbox WHERE seq <= ?1";

pub(crate) const MARK: &str = "INSERT INTO marker (name, value) VALUES (?1, ?2)
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";
pub(crate) const UNMARK: &str = "DELETE FROM marker WHERE name = ?1";
pub(crate) const MARKED: &str = "SELECT value FROM marker WHERE name = ?1";
