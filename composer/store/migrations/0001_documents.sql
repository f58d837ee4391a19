-- Documents, the journal and the outbox. Written in the subset of SQL that SQLite and PostgreSQL share;
-- JSON is text in both.

-- The two counters from which revisions and event numbers come. A row, not a sequence: a number is
-- given only to what commits, and in the order in which it commits.
CREATE TABLE counter (
    name  TEXT   NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO counter (name, value) VALUES ('revision', 0), ('event', 0);

-- A document. Its revision is the number of the commit that wrote it last, so it never comes back, not
-- even when the document is deleted and made anew.
CREATE TABLE object (
    kind     TEXT   NOT NULL,
    id       TEXT   NOT NULL,
    revision BIGINT NOT NULL,
    doc      TEXT   NOT NULL,
    PRIMARY KEY (kind, id)
);

-- What operations intended and found, in order. Lines are added, never changed.
CREATE TABLE journal (
    operation TEXT   NOT NULL,
    seq       BIGINT NOT NULL,
    line      TEXT   NOT NULL,
    PRIMARY KEY (operation, seq)
);

-- Operations whose last line is not written yet.
CREATE TABLE open_operation (
    operation TEXT NOT NULL PRIMARY KEY
);

-- Events to be told to whoever listens, in order.
CREATE TABLE outbox (
    seq   BIGINT NOT NULL PRIMARY KEY,
    event TEXT   NOT NULL
);

-- Facts about this store itself.
CREATE TABLE marker (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
