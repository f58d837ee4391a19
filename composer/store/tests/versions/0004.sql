-- A database as version 4 of the tables left it, made with the migrations of that version; never changed after a release.

CREATE TABLE counter (
    name  TEXT   NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO counter VALUES('revision',4);
INSERT INTO counter VALUES('event',2);
CREATE TABLE journal (
    operation TEXT   NOT NULL,
    seq       BIGINT NOT NULL,
    line      TEXT   NOT NULL, checksum BIGINT,
    PRIMARY KEY (operation, seq)
);
INSERT INTO journal VALUES('op-over',1,'"begun"',1603033616786794618);
INSERT INTO journal VALUES('op-over',2,'"done"',-1431528331540160133);
INSERT INTO journal VALUES('op-open',1,'"begun"',6480856609570451499);
CREATE TABLE marker (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
CREATE TABLE object (
    kind     TEXT   NOT NULL,
    id       TEXT   NOT NULL,
    revision BIGINT NOT NULL,
    doc      TEXT   NOT NULL, checksum BIGINT,
    PRIMARY KEY (kind, id)
);
INSERT INTO object VALUES('keepsake','old',1,'{"name":"old","weight":1}',6350581635116269096);
INSERT INTO object VALUES('keepsake','young',4,'{"name":"young","weight":4}',-952272055751712323);
INSERT INTO object VALUES('note','Ä "quoted" id',3,'"it''s ✓"',-773374668895780022);
CREATE TABLE open_operation (
    operation TEXT NOT NULL PRIMARY KEY
);
INSERT INTO open_operation VALUES('op-open');
CREATE TABLE outbox (
    seq   BIGINT NOT NULL PRIMARY KEY,
    event TEXT   NOT NULL
);
INSERT INTO outbox VALUES(1,'"first"');
INSERT INTO outbox VALUES(2,'"second"');
CREATE INDEX object_written ON object (kind, revision);
